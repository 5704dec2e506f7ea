//! The two C programs of `bench/floor`, compiled here with the system's `cc` when a suite starts: C, because they do to
//! a process what only `crates/linux` may do in Rust, and must share none of its code.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::agent::{self, Fifos};
use crate::error::{BenchError, io_on};
use crate::scratch::Scratch;
use crate::target::{Cost, Operation, Sizes, Target};

const KERNEL: &str = include_str!("../floor/kernel.h");
const FLOOR: &str = include_str!("../floor/floor.c");
const TEMPLATE_FORK: &str = include_str!("../floor/template_fork.c");

/// A bare program that checkpoints and rolls back, and the program it does it to.
#[derive(Debug)]
pub(crate) struct Bare {
    name: &'static str,
    tracer: Child,
    commands: ChildStdin,
    reports: BufReader<ChildStdout>,
    fifos: Fifos,
    agent: Option<Child>,
    _scratch: Scratch,
}

/// One line of its output.
#[derive(Debug, Deserialize)]
struct BareReport {
    stop_us: f64,
    pages: u64,
    parts_us: serde_json::Map<String, serde_json::Value>,
}

impl Bare {
    /// The least work that can do it, on a tree of its own.
    pub(crate) fn floor(sizes: &Sizes) -> Result<Self, BenchError> {
        let scratch = Scratch::new()?;
        let fifos = Fifos::new(scratch.path())?;
        let program = compile(&scratch, "floor", FLOOR)?;
        let mut command = Command::new(program);
        command.args(sizes.arguments()).arg(scratch.path()).args(fifos.paths());
        Self::start("floor", command, fifos, None, scratch)
    }

    /// The paper's way, on the Python program with as much memory but one process, one thread and no files: a fork
    /// takes no more along.
    pub(crate) fn template_fork(sizes: &Sizes) -> Result<Self, BenchError> {
        let scratch = Scratch::new()?;
        let mut fifos = Fifos::new(scratch.path())?;
        let program = compile(&scratch, "template_fork", TEMPLATE_FORK)?;
        let alone = Sizes {
            processes: 1,
            threads: 1,
            files: 0,
            ..*sizes
        };
        let agent = agent::start(&scratch, &alone, &fifos)?;
        fifos.ask("ping")?;
        let mut command = Command::new(program);
        command.arg(agent.id().to_string());
        Self::start("template fork", command, fifos, Some(agent), scratch)
    }

    fn start(
        name: &'static str,
        mut command: Command,
        fifos: Fifos,
        agent: Option<Child>,
        scratch: Scratch,
    ) -> Result<Self, BenchError> {
        let mut tracer = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io_on(name))?;
        let commands = tracer.stdin.take().expect("it was asked for");
        let reports = BufReader::new(tracer.stdout.take().expect("it was asked for"));
        Ok(Self {
            name,
            tracer,
            commands,
            reports,
            fifos,
            agent,
            _scratch: scratch,
        })
    }
}

impl Target for Bare {
    fn ask(&mut self, request: &str) -> Result<String, BenchError> {
        self.fifos.ask(request)
    }

    fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError> {
        let word: &[u8] = if operation == Operation::Checkpoint {
            b"checkpoint\n"
        } else {
            b"rollback\n"
        };
        self.commands.write_all(word).map_err(io_on(self.name))?;
        let mut line = String::new();
        self.reports.read_line(&mut line).map_err(io_on(self.name))?;
        let report: BareReport = serde_json::from_str(&line).map_err(|error| {
            BenchError::program(
                self.name,
                format!("said {line:?} instead of a report ({error}); see its stderr"),
            )
        })?;
        let phases = report
            .parts_us
            .iter()
            .map(|(name, us)| (name.clone(), us.as_f64().unwrap_or_default() / 1e3));
        Ok(Cost {
            stop_ms: Some(report.stop_us / 1e3),
            phases: phases.collect(),
            page_count: report.pages,
        })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // Its end of input: it kills what it made and exits.
        drop(self.commands.write_all(b"quit\n"));
        drop(self.tracer.wait());
        if let Some(agent) = &mut self.agent {
            drop(agent.kill());
            drop(agent.wait());
        }
    }
}

fn compile(scratch: &Scratch, name: &str, source: &str) -> Result<PathBuf, BenchError> {
    scratch.write("kernel.h", KERNEL)?;
    let source = scratch.write(&format!("{name}.c"), source)?;
    let program = scratch.path().join(name);
    let mut command = Command::new("cc");
    let output = command
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .output();
    let output = output.map_err(io_on("cc (a C compiler is needed: apt install gcc libc6-dev)"))?;
    if !output.status.success() {
        return Err(BenchError::program("cc", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Sizes = Sizes {
        heap_mb: 8,
        dirty_mb: 1,
        files: 2,
        file_kb: 4,
        processes: 2,
        threads: 3,
    };

    fn goes_back(target: &mut Bare) {
        assert_eq!(target.ask("dirty 1").unwrap(), "ok");
        target.measure(Operation::Checkpoint).unwrap();
        let before = target.ask("hash").unwrap();
        target.ask("dirty 2").unwrap();
        assert_ne!(target.ask("hash").unwrap(), before);
        let sample = target.measure(Operation::Rollback).unwrap();
        assert!(sample.cost.stop_ms.unwrap() > 0.0 && sample.first_reply_ms.unwrap() >= sample.api_ms);
        assert_eq!(target.ask("hash").unwrap(), before);
    }

    #[test]
    fn the_floor_goes_back() {
        let mut floor = Bare::floor(&SMALL).unwrap();
        goes_back(&mut floor);
        goes_back(&mut floor);
    }

    #[test]
    fn the_template_fork_goes_back() {
        let mut fork = Bare::template_fork(&SMALL).unwrap();
        goes_back(&mut fork);
        goes_back(&mut fork);
    }
}
