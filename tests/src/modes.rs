//! The ways every workload is run. Each is a short script over one program; what may differ between workloads is in the
//! workload, never here.

use std::path::Path;
use std::process::Command;

use crate::compile::Workload;
use crate::daemon::Daemon;
use crate::program::{Program, Ready, Verdict};
use crate::sandbox::{LOWER, PLACE, Sandbox, Streams};

/// How many checkpoints [`Mode::Loop`] takes.
const LOOP_COUNT: u32 = 30;

/// A way to run a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No box: the check says `OK`, and `FAIL` after each disturbance. This proves the check.
    Native,
    /// In a box, left alone.
    Once,
    /// Checkpoint, check.
    Continue,
    /// Checkpoint, disturb, roll back, check.
    RollbackOnce,
    /// The same, and once more to the same checkpoint.
    RollbackTwice,
    /// Back over several checkpoints, to the present that was left, and back again.
    Across,
    /// Checkpoints in a tight loop, then disturb, roll back, check.
    Loop,
    /// Rolled back with the kind's fault point on: the check must not say `OK`.
    Negative,
}

impl Mode {
    /// All, cheap ones first.
    pub const ALL: [Self; 8] = [
        Self::Native,
        Self::Once,
        Self::Continue,
        Self::RollbackOnce,
        Self::RollbackTwice,
        Self::Across,
        Self::Loop,
        Self::Negative,
    ];

    /// As in the name of a test.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Once => "once",
            Self::Continue => "continue",
            Self::RollbackOnce => "rollback_once",
            Self::RollbackTwice => "rollback_twice",
            Self::Across => "across",
            Self::Loop => "loop",
            Self::Negative => "negative",
        }
    }
}

/// What a run came to when it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// As it should be.
    Passed,
    /// It cannot be run here.
    Skipped(String),
}

/// Runs a workload without a box.
///
/// # Errors
/// Where its check was wrong.
pub fn native(workload: &Workload) -> Result<Done, String> {
    for rounds in [&[][..], &[1], &[2], &[1, 2]] {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let lower = directory.path().join("lower");
        if workload.wants_lower() {
            copy_tree(Path::new(LOWER), &lower)?;
        }
        let mut command = Command::new(if workload.is_python() {
            Path::new("python3")
        } else {
            &workload.program
        });
        if workload.is_python() {
            command.arg("-B").arg(&workload.program);
        }
        command.arg(directory.path().join("own")).arg(&lower);
        let mut program = Program::start(&mut command)?;
        if let Ready::Skip(reason) = program.ready()? {
            return Ok(Done::Skipped(reason));
        }
        for round in rounds {
            program.disturb(*round)?;
        }
        match (program.check((0, 0)), rounds.is_empty()) {
            (Verdict::Ok, true) => {}
            (Verdict::Fail(_), false) => {}
            (verdict, true) => {
                return Err(format!(
                    "untouched: wanted OK, got {verdict:?}: {}",
                    program.last_words()
                ));
            }
            (verdict, false) => return Err(format!("disturbed by {rounds:?}: wanted FAIL, got {verdict:?}")),
        }
    }
    Ok(Done::Passed)
}

fn copy_tree(source: &Path, target: &Path) -> Result<(), String> {
    let status = Command::new("cp").arg("-a").arg(source).arg(target).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("cp -a {}: {other:?}", source.display())),
    }
}

/// Runs a workload in a box of `daemon`.
///
/// # Errors
/// Where it did not come back as it was.
pub fn boxed(mode: Mode, workload: &Workload, daemon: &Daemon) -> Result<Done, String> {
    let shared = workload.source.with_file_name("workload.py");
    let mut files = vec![workload.program.as_path()];
    if workload.is_python() {
        files.push(&shared);
    }
    let name = format!("{}-{}", workload.name.replace('_', "-"), mode.name().replace('_', "-"));
    let mut sandbox = Sandbox::create(daemon, &name, &[], &files)?;
    let file = workload.program.file_name().unwrap_or_default().to_string_lossy();
    let (program, own) = (format!("{PLACE}/{file}"), format!("{PLACE}/own"));
    let mut argv = vec![program.as_str(), &own, LOWER];
    if workload.is_python() {
        argv.splice(0..0, ["/usr/bin/python3", "-B"]);
    }
    if let Ready::Skip(reason) = sandbox.start(&argv, Streams::Pipes)? {
        return Ok(Done::Skipped(reason));
    }
    match mode {
        Mode::Native => return Err("native runs in no box".to_owned()),
        Mode::Once => sandbox.check_ok("untouched")?,
        Mode::Continue => {
            sandbox.checkpoint()?;
            sandbox.check_ok("after a checkpoint")?;
        }
        Mode::RollbackOnce => rollback(&mut sandbox, 1)?,
        Mode::RollbackTwice => rollback(&mut sandbox, 2)?,
        Mode::Across => across(&mut sandbox, workload.recreates)?,
        Mode::Loop => in_a_loop(&mut sandbox)?,
        Mode::Negative => return negative(&mut sandbox, &workload.fault),
    }
    Ok(Done::Passed)
}

fn rollback(sandbox: &mut Sandbox<'_>, times: u32) -> Result<(), String> {
    let cut = sandbox.checkpoint()?;
    for time in 1..=times {
        sandbox.disturb(time)?;
        sandbox.rollback(&cut)?;
        sandbox.check_ok(&format!("after rollback {time}"))?;
    }
    Ok(())
}

fn across(sandbox: &mut Sandbox<'_>, recreates: bool) -> Result<(), String> {
    let first = sandbox.checkpoint()?;
    sandbox.disturb(1)?;
    sandbox.checkpoint()?;
    sandbox.disturb(2)?;
    sandbox.checkpoint()?;
    sandbox.rollback(&first)?;
    sandbox.check_ok("after a rollback over three checkpoints")?;
    match sandbox.rollback_to_present() {
        Ok(()) => {
            if let Verdict::Ok = sandbox.check() {
                return Err("@{-1} was disturbed twice, and its check says OK".to_owned());
            }
        }
        // Its processes are gone by now; the refusal must leave the box as it is.
        Err(refusal) if recreates && refusal.contains("since the checkpoint") => {}
        Err(error) => return Err(error),
    }
    sandbox.rollback(&first)?;
    sandbox.check_ok("after the second rollback to the first checkpoint")
}

fn in_a_loop(sandbox: &mut Sandbox<'_>) -> Result<(), String> {
    let mut cut = sandbox.checkpoint()?;
    for _ in 1..LOOP_COUNT {
        cut = sandbox.checkpoint()?;
    }
    sandbox.check_ok("after checkpoints in a loop")?;
    sandbox.disturb(1)?;
    sandbox.rollback(&cut)?;
    sandbox.check_ok("after a rollback to the last of them")
}

/// Only what comes after the rollback may count for a failure that is wanted.
fn negative(sandbox: &mut Sandbox<'_>, fault: &str) -> Result<Done, String> {
    let cut = sandbox.checkpoint()?;
    sandbox.disturb(1)?;
    if sandbox.rollback(&cut).is_err() {
        return Ok(Done::Passed);
    }
    match sandbox.check() {
        Verdict::Ok => Err(format!(
            "with {fault} the check says OK: it proves nothing, or the fault point is not there"
        )),
        Verdict::Fail(_) | Verdict::Silent(_) => Ok(Done::Passed),
    }
}
