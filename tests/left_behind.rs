//! After a daemon has stopped nothing of it is left: no mount, no control group, no process, no loop device, no socket; and
//! while it runs, boxes that come and go cost it no descriptor.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use deltabox_tests::daemon::Daemon;
use deltabox_tests::run;
use libtest_mimic::{Arguments, Failed, Trial};

#[expect(
    clippy::disallowed_methods,
    reason = "a test program's main: settings are read once here"
)]
fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each looks at the whole machine.
    arguments.test_threads = Some(1);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the tmp directory lies in the target directory");
    let program = match run::boxes(std::env::var("DELTABOX_BIN").ok().map(Into::into), target) {
        Ok(daemons) => daemons.program().to_owned(),
        Err(reason) => {
            say(&format!("skipped, all of it: {reason}"));
            return ExitCode::SUCCESS;
        }
    };
    let tests: [(&str, Test); 3] = [
        ("after_boxes_were_removed", after_boxes_were_removed),
        ("after_a_stop_with_boxes_running", after_a_stop_with_boxes_running),
        (
            "boxes_cost_the_daemon_no_descriptor",
            boxes_cost_the_daemon_no_descriptor,
        ),
    ];
    let trials = tests.map(|(name, test)| {
        let program = program.clone();
        Trial::test(name, move || test(&program).map_err(Failed::from))
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test program speaks to whoever runs it")]
fn say(line: &str) {
    eprintln!("{line}");
}

type Test = fn(&Path) -> Result<(), String>;

/// The id of the box that did.
fn live_through(daemon: &Daemon, name: &str) -> Result<String, String> {
    let made = daemon.json(&["create", "--name", name])?;
    // As its control groups and its host are called.
    let id = made["id"].as_str().ok_or("a box without an id")?.replace('_', "-");
    // A shell that waits in itself: its children would be dead, and refused, when the rollback comes.
    let wait = "mkfifo /srv/never; : > /srv/waits; read x < /srv/never";
    daemon.json(&["exec", "-d", name, "--", "sh", "-c", wait])?;
    daemon.json(&["exec", name, "--", "sh", "-c", "until [ -e /srv/waits ]; do :; done"])?;
    daemon.json(&["checkpoint", name])?;
    daemon.json(&[
        "exec",
        name,
        "--",
        "sh",
        "-c",
        "echo text > /srv/file; rm -rf /usr/include/linux",
    ])?;
    daemon.json(&["rollback", name])?;
    if groups(std::slice::from_ref(&id)).is_empty() {
        return Err(format!("{id} has no control group that could be left"));
    }
    Ok(id)
}

fn after_boxes_were_removed(program: &Path) -> Result<(), String> {
    let daemon = Daemon::start(program, &[])?;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        ids.push(live_through(&daemon, name)?);
        daemon.json(&["rm", name])?;
    }
    nothing_of(daemon, &ids)
}

fn after_a_stop_with_boxes_running(program: &Path) -> Result<(), String> {
    let daemon = Daemon::start(program, &[])?;
    let ids = ["one", "two"].map(|name| live_through(&daemon, name));
    nothing_of(daemon, &ids.into_iter().collect::<Result<Vec<_>, _>>()?)
}

fn nothing_of(daemon: Daemon, ids: &[String]) -> Result<(), String> {
    let state = daemon.state().to_owned();
    daemon.stop()?;
    let left = groups(ids);
    if !left.is_empty() {
        return Err(format!("control groups are left: {left:?}"));
    }
    if state.exists() {
        Err(format!("{} cannot be removed", state.display()))
    } else {
        Ok(())
    }
}

fn boxes_cost_the_daemon_no_descriptor(program: &Path) -> Result<(), String> {
    let daemon = Daemon::start(program, &[])?;
    let open = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map_or(0, Iterator::count);
    live_through(&daemon, "first")?;
    daemon.json(&["rm", "first"])?;
    let before = open();
    for number in 0..5 {
        let name = format!("box-{number}");
        live_through(&daemon, &name)?;
        daemon.json(&["rm", &name])?;
    }
    // One connection of the command line may still be closing.
    let after = open();
    if after > before + 1 {
        return Err(format!("descriptors: {before} before five boxes, {after} after them"));
    }
    daemon.stop()
}

/// Control groups of these boxes, in all hierarchies.
fn groups(ids: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if ids.iter().any(|id| name.contains(id)) {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}
