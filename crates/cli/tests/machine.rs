//! `doctor`, `demo` and `bench`: what is said of this machine. Only that they run and what they print; no time is judged.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use daemon::Daemon;
use serde_json::Value;

/// A directory that is gone when the test is, and must be empty then.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("deltabox-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The program without a daemon, whose state and temporary files would lie here.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deltabox"));
        command
            .args(args)
            .env("DELTABOX_STATE", self.0.join("state"))
            .env("TMPDIR", &self.0);
        command.env_remove("DELTABOX_HOST").output().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let left: Vec<_> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        std::fs::remove_dir_all(&self.0).unwrap();
        assert!(std::thread::panicking() || left.is_empty(), "left behind: {left:?}");
    }
}

#[test]
fn doctor_says_what_this_machine_allows_and_starts_nothing() {
    let scratch = Scratch::new("doctor");
    let json = scratch.run(&["--json", "doctor"]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let usable = report["usable"].as_bool().unwrap();
    let text = scratch.run(&["doctor"]);
    assert_eq!(
        (json.status.code(), text.status.code()),
        if usable { (Some(0), Some(0)) } else { (Some(5), Some(5)) }
    );

    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with(report["memory"].as_str().unwrap()), "{text}");
    assert!(
        report["memory"]
            .as_str()
            .unwrap()
            .contains(report["kernel"].as_str().unwrap()),
        "{report}"
    );
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() > 5, "{report}");
    for finding in findings {
        let (works, needed) = (
            finding["works"].as_bool().unwrap(),
            finding["needed"].as_bool().unwrap(),
        );
        let mark = if works {
            "ok     "
        } else if needed {
            "MISSING"
        } else {
            "without"
        };
        let line = format!("{mark}  {}\n", finding["name"].as_str().unwrap());
        assert!(text.contains(&line), "no {line:?} in {text}");
        assert_eq!(finding["hint"].is_string(), !works, "{finding}");
    }
    let verdict = if usable {
        "DeltaBox can run here."
    } else {
        "DeltaBox cannot run here"
    };
    assert!(text.contains(verdict), "{text}");
}

#[test]
fn the_demo_proves_itself_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the demo's daemon must be root");
        return;
    }
    let scratch = Scratch::new("demo");
    let said = scratch.run(&["--json", "demo", "--rounds", "2", "--heap-mb", "1"]);
    assert!(said.status.success(), "{said:?}");
    let report: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&report["suite"], &report["rounds"]), (&"demo".into(), &2.into()));
    let proofs = report["proofs"].as_array().unwrap();
    assert!(
        proofs.len() >= 9 && proofs.iter().all(|proof| proof["holds"] == true),
        "{report}"
    );
    assert_eq!(
        names(&report),
        ["first_checkpoint", "rollback_of_everything", "checkpoint", "rollback"]
    );
    for row in report["results"].as_array().unwrap() {
        for clock in ["stop_ms", "api_ms", "first_reply_ms"] {
            assert!(row[clock]["p50"].is_f64(), "{row}");
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*scratch.0.to_string_lossy()), "{mounts}");
}

fn names(report: &Value) -> Vec<&str> {
    let rows = report["results"].as_array().unwrap();
    rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
}

/// What a report of every suite has.
fn check(report: &Value, suite: &str, params: &[(&str, u32)], rows: &[&str]) {
    assert_eq!(report["suite"], suite);
    for (name, value) in params {
        assert_eq!(report["params"][name], *value, "{name}");
    }
    assert!(
        report["host"]["kernel"].is_string() && report["host"]["cpus"].is_u64(),
        "{report}"
    );
    for wanted in rows {
        let row = report["results"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == *wanted);
        let row = row.unwrap_or_else(|| panic!("no {wanted} among {:?}", names(report)));
        for percentile in ["p50", "p95", "p99"] {
            assert!(row["api_ms"][percentile].is_f64(), "{row}");
        }
    }
}

fn lacks(programs: &[&str]) -> bool {
    let there = |program: &&&str| {
        ["/usr/bin", "/bin"]
            .iter()
            .any(|place| Path::new(place).join(program).exists())
    };
    match programs.iter().find(|program| !there(program)) {
        Some(program) => {
            eprintln!("skipped: there is no {program}");
            true
        }
        None => false,
    }
}

#[test]
fn bench_rewind_has_its_rows() {
    if lacks(&["cc", "python3"]) {
        return;
    }
    let Some(daemon) = Daemon::start() else { return };
    let sizes = [
        ("heap_mb", 2),
        ("dirty_mb", 1),
        ("files", 2),
        ("file_kb", 1),
        ("processes", 2),
        ("threads", 2),
        ("rounds", 1),
    ];
    let flags = sizes.map(|(name, value)| format!("--{}={value}", name.replace('_', "-")));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let report = daemon.json(&[&["bench", "rewind"][..], &flags].concat());
    let rows = [
        "deltabox.first_checkpoint",
        "deltabox.checkpoint",
        "deltabox.rollback",
        "deltabox.rollback_keep",
        "deltabox.rollback_newborns",
        "deltabox.checkpoint_idle",
        "deltabox.rollback_idle",
        "floor.checkpoint",
        "floor.rollback",
        "template_fork.checkpoint",
        "template_fork.rollback",
    ];
    check(&report, "rewind", &sizes, &rows);
    assert!(
        report["ratios"]["deltabox.rollback/floor.rollback"].is_f64(),
        "{report}"
    );
    assert_eq!(daemon.ok(&["ls", "-q"]), "", "its box is gone");
}

#[test]
fn bench_files_has_its_rows() {
    if lacks(&["python3"]) {
        return;
    }
    let Some(daemon) = Daemon::start() else { return };
    let sizes = [
        ("database_mb", 1),
        ("made_files", 20),
        ("deleted_files", 20),
        ("rounds", 1),
    ];
    let flags = sizes.map(|(name, value)| format!("--{}={value}", name.replace('_', "-")));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let report = daemon.json(&[&["bench", "files"][..], &flags].concat());
    let rows = ["sqlite", "made", "deleted"]
        .map(|case| ["first_checkpoint", "checkpoint", "rollback"].map(|what| format!("{case}.{what}")))
        .concat();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    check(&report, "files", &sizes, &rows);
    assert_eq!(daemon.ok(&["ls", "-q"]), "", "its boxes are gone");
}
