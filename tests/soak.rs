//! A long run of checkpoints and rollbacks over one box: five processes, twenty threads, a terminal, pipe traffic, file
//! writes, changing memory. After each rollback the program checks itself; over the run the daemon must not grow:
//! descriptors, memory, processes, mounts. `soak [--minutes N | --cycles N] [--program PATH]`; ends with 1 at the first
//! difference. Never retries.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use deltabox_tests::daemon::{Daemon, descendants};
use deltabox_tests::program::Ready;
use deltabox_tests::run;
use deltabox_tests::sandbox::{LOWER, Sandbox, Streams};

/// Cycles before the daemon's sizes count as its normal ones.
const WARM_CYCLES: u64 = 50;
/// So that the history is full, and old checkpoints go, long before the end.
const HISTORY_MEMORY: &str = "32M";
/// How much the daemon's memory may grow over a run, its history being bounded.
const GROWTH_KIB_MAX: u64 = 100 << 10;
/// How often a line is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

struct Settings {
    until: Instant,
    cycles: u64,
    program: PathBuf,
}

fn main() -> ExitCode {
    match settings().and_then(|settings| soak(&settings)) {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("soak: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a test program speaks to whoever runs it")]
fn say(line: &str) {
    eprintln!("{line}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test program's main: settings are read once here"
)]
fn settings() -> Result<Settings, String> {
    let mut settings = Settings {
        until: Instant::now() + Duration::from_secs(60),
        cycles: u64::MAX,
        program: PathBuf::new(),
    };
    let mut named = std::env::var("DELTABOX_BIN").ok().map(PathBuf::from);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let number = || {
            value
                .trim_end_matches('m')
                .parse::<u64>()
                .map_err(|error| format!("{argument} {value}: {error}"))
        };
        match argument.as_str() {
            "--minutes" => settings.until = Instant::now() + Duration::from_secs(60 * number()?),
            "--cycles" => {
                (settings.cycles, settings.until) = (number()?, Instant::now() + Duration::from_secs(24 * 3600))
            }
            "--program" => named = Some(PathBuf::from(&value)),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    let beside = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = beside
        .parent()
        .and_then(Path::parent)
        .ok_or("this program lies in no target directory")?;
    settings.program = run::find_program(named, target)?;
    Ok(settings)
}

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Size {
    descriptors: usize,
    memory_kib: u64,
    processes: usize,
    mounts: usize,
}

fn size(daemon: &Daemon) -> Size {
    let pid = daemon.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // Others on this machine mount what they like.
    let state = daemon.state().to_string_lossy();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    Size {
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
        memory_kib: resident
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0),
        processes: descendants(pid).len(),
        mounts: mounts.lines().filter(|line| line.contains(state.as_ref())).count(),
    }
}

fn soak(settings: &Settings) -> Result<String, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = compile(directory.path())?;
    let daemon = Daemon::start(&settings.program, &[])?;
    let mut sandbox = Sandbox::create(&daemon, "soak", &["--history-mem", HISTORY_MEMORY], &[&program])?;
    if let Ready::Skip(reason) = sandbox.start(&["/srv/soak", "/srv/own", LOWER], Streams::Terminal)? {
        return Err(reason);
    }
    let (began, mut reported, mut normal, mut cycle) = (Instant::now(), Instant::now(), None, 0_u64);
    while cycle < settings.cycles && Instant::now() < settings.until {
        cycle += 1;
        let at = |error: String| format!("cycle {cycle}: {error}");
        let cut = sandbox.checkpoint().map_err(at)?;
        sandbox.disturb(u32::try_from(cycle % 3 + 1).unwrap_or(1)).map_err(at)?;
        sandbox.rollback(&cut).map_err(at)?;
        sandbox.check_ok("after the rollback").map_err(at)?;
        if cycle == WARM_CYCLES {
            normal = Some(size(&daemon));
        }
        if reported.elapsed() > REPORT_EVERY {
            reported = Instant::now();
            say(&format!("cycle {cycle}, {:.0?}: {:?}", began.elapsed(), size(&daemon)));
        }
    }
    let now = size(&daemon);
    if let Some(normal) = normal {
        same(normal, now)?;
    }
    drop(sandbox);
    daemon.stop()?;
    Ok(format!(
        "soak: {cycle} cycles in {:.0?}, nothing failed, nothing grew: {now:?}",
        began.elapsed()
    ))
}

fn same(normal: Size, now: Size) -> Result<(), String> {
    let grown = now.descriptors > normal.descriptors + 2
        || now.processes != normal.processes
        || now.mounts > normal.mounts
        || now.memory_kib > normal.memory_kib + GROWTH_KIB_MAX;
    if grown {
        Err(format!(
            "the daemon has grown: {normal:?} after {WARM_CYCLES} cycles, {now:?} at the end"
        ))
    } else {
        Ok(())
    }
}

fn compile(directory: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("soak.c");
    let program = directory.join("soak");
    let mut command = Command::new("cc");
    let status = command
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    match status {
        Ok(status) if status.success() => Ok(program),
        other => Err(format!("cc soak.c: {other:?}")),
    }
}
