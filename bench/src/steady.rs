//! The suite of living in a sandbox: four real programs, each on the host, in a sandbox, and in a sandbox of which a
//! checkpoint is taken every second, in turns whose order changes. The clock is read inside, around the programs alone,
//! by the same runner (`steady.py`) in all three places; how long a command takes to start is never part of it. Nothing
//! is rolled back here.

mod row;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::agent::{self, Fifos};
use crate::daemon::{self, BoxedProgram, DIRECTORY};
use crate::error::{BenchError, errno_on, io_on};
use crate::report::{Host, Report};
use crate::scratch::Scratch;
use crate::target::Target;
pub use row::Row;
use row::{Checkpoints, Turn};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Params {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// How often each program runs in each place.
    pub pairs: u32,
}

const RUNNER: &str = include_str!("steady.py");

/// The runner's names of the programs, and what they do.
const WORK: [(&str, &str); 4] = [
    ("compileall", "python3 -m compileall over its own library; twice over"),
    (
        "git_clone",
        "git clone of 3,000 files from the same disk; five times over",
    ),
    ("c_build", "24 files of C, a gcc each, then a link"),
    ("files", "5,000 empty files made, then deleted; five times over"),
];

const CHECKPOINT_PERIOD: Duration = Duration::from_secs(1);

/// A place where the programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Host,
    Sandbox,
    Checkpointed,
}

/// The six orders of the three. What a place leaves behind for the next (work of the daemon, pages to write) falls upon
/// each of the others equally often.
const ORDERS: [[Column; 3]; 6] = {
    use Column::{Checkpointed, Host, Sandbox};
    [
        [Host, Sandbox, Checkpointed],
        [Checkpointed, Sandbox, Host],
        [Sandbox, Checkpointed, Host],
        [Host, Checkpointed, Sandbox],
        [Checkpointed, Host, Sandbox],
        [Sandbox, Host, Checkpointed],
    ]
};

/// Runs the suite. `progress` is told what was finished or left out.
///
/// # Errors
/// Anything that keeps a program from finishing, and a program that does not do the same in all three places. A
/// checkpoint that is refused is no error: the row says how many were, and why.
pub fn run(params: &Params, mut progress: impl FnMut(&str)) -> Result<Report<Row>, BenchError> {
    let mut places = Places::open(&params.socket)?;
    let mut skipped = BTreeMap::new();
    let mut rows = Vec::new();
    for (name, note) in WORK {
        let prepared = places.prepare(name)?;
        match prepared.missing.as_slice() {
            [] => rows.push((name, note, Vec::new())),
            missing => {
                let why = format!("no {} on the path, on the host or in the sandbox", missing.join(", "));
                progress(&format!("{name}: skipped: {why}"));
                skipped.insert(name.to_owned(), why);
            }
        }
    }
    for (name, ..) in &rows {
        places.turn(name, ORDERS[0])?;
        progress(&format!("{name}: warm"));
    }
    for pair in 0..params.pairs {
        for (name, _, turns) in &mut rows {
            turns.push(places.turn(name, order(pair))?);
            progress(&format!("{name}: pair {} of {}", pair + 1, params.pairs));
        }
    }
    let results: Vec<Row> = rows
        .iter()
        .map(|(name, note, turns)| Row::new(name, note, turns))
        .collect();
    Ok(Report {
        suite: "steady",
        params: serde_json::json!({
            "pairs": params.pairs,
            "checkpoint_period_ms": CHECKPOINT_PERIOD.as_millis(),
            "host_directory": places.host.directory,
        }),
        host: Host::this(),
        ratios: results.iter().flat_map(Row::ratios_of_report).collect(),
        results,
        skipped,
    })
}

fn order(pair: u32) -> [Column; 3] {
    let index = usize::try_from(pair).expect("u32 fits") % ORDERS.len();
    ORDERS[index]
}

/// The runner outside of any sandbox.
#[derive(Debug)]
struct OnHost {
    runner: Child,
    fifos: Fifos,
    scratch: Scratch,
    /// What kind of directory it works in, for the report.
    directory: &'static str,
}

impl OnHost {
    /// Where the sandboxes' own files are, so that like is compared with like; else in the temporary directory, which
    /// the report says.
    fn start(volume: &Path) -> Result<Self, BenchError> {
        let (scratch, directory) = match Scratch::below(volume) {
            Ok(scratch) => (scratch, "state volume"),
            Err(_) => (Scratch::new()?, "temporary directory"),
        };
        let fifos = Fifos::new(scratch.path())?;
        let arguments = [OsString::from(scratch.path().join("work"))];
        let runner = agent::start_program(RUNNER, &arguments, &scratch, &fifos)?;
        Ok(Self {
            runner,
            fifos,
            scratch,
            directory,
        })
    }

    /// Writes what earlier runs left to be written, so that no other has to wait for it.
    fn write_back(&self) -> Result<(), BenchError> {
        let path = self.scratch.path();
        let directory = std::fs::File::open(path).map_err(io_on(path.display()))?;
        rustix::fs::syncfs(&directory).map_err(errno_on(path.display()))
    }
}

impl Drop for OnHost {
    fn drop(&mut self) {
        drop(self.runner.kill());
        drop(self.runner.wait());
    }
}

/// The three places, each with its runner and its own copy of everything.
#[derive(Debug)]
struct Places {
    socket: PathBuf,
    host: OnHost,
    sandbox: BoxedProgram,
    checkpointed: BoxedProgram,
}

/// Answer to `prepare`.
#[derive(Debug, PartialEq, Deserialize)]
struct Prepared {
    missing: Vec<String>,
    input: String,
}

/// Answer to `ready`.
#[derive(Debug, Deserialize)]
struct Ready {}

/// Answer to `run`.
#[derive(Debug, Deserialize)]
struct Ran {
    ms: f64,
}

/// Answer to `look`.
#[derive(Debug, Deserialize)]
struct Look {
    made: String,
}

impl Places {
    fn open(socket: &Path) -> Result<Self, BenchError> {
        let volume = daemon::state_directory(socket)?.join("volume");
        let start = || BoxedProgram::start(socket, RUNNER, vec![DIRECTORY.to_owned()]);
        Ok(Self {
            socket: socket.to_owned(),
            host: OnHost::start(&volume)?,
            sandbox: start()?,
            checkpointed: start()?,
        })
    }

    fn ask<T: DeserializeOwned>(&mut self, column: Column, request: &str) -> Result<T, BenchError> {
        let answer = match column {
            Column::Host => self.host.fifos.ask(request)?,
            Column::Sandbox => self.sandbox.ask(request)?,
            Column::Checkpointed => self.checkpointed.ask(request)?,
        };
        parse(&answer)
    }

    /// Lays out the input of `work` everywhere; it must be the same.
    fn prepare(&mut self, work: &str) -> Result<Prepared, BenchError> {
        let request = format!("prepare {work}");
        let mut everywhere: Prepared = self.ask(Column::Host, &request)?;
        for column in [Column::Sandbox, Column::Checkpointed] {
            let here: Prepared = self.ask(column, &request)?;
            if everywhere.missing.is_empty() && here.missing.is_empty() {
                same(work, "input", &everywhere.input, &here.input)?;
            }
            everywhere.missing.extend(here.missing);
        }
        everywhere.missing.sort();
        everywhere.missing.dedup();
        Ok(everywhere)
    }

    /// Runs `work` once in each place.
    fn turn(&mut self, work: &str, order: [Column; 3]) -> Result<Turn, BenchError> {
        let mut turn = Turn::default();
        let mut made: Option<String> = None;
        for column in order {
            let Ready {} = self.ask(column, &format!("ready {work}"))?;
            self.host.write_back()?;
            let request = format!("run {work}");
            let (ran, taken) = match column {
                Column::Checkpointed => self.checkpointed(&request)?,
                _ => (self.ask(column, &request)?, Checkpoints::default()),
            };
            match column {
                Column::Host => turn.host_ms = ran.ms,
                Column::Sandbox => turn.box_ms = ran.ms,
                Column::Checkpointed => (turn.checkpointed_ms, turn.checkpoints) = (ran.ms, taken),
            }
            let look: Look = self.ask(column, &format!("look {work}"))?;
            same(
                work,
                "output",
                made.get_or_insert_with(|| look.made.clone()),
                &look.made,
            )?;
        }
        Ok(turn)
    }

    /// Asks the runner in the third place while checkpoints are taken. One is taken before, so that writes are tracked
    /// from the first on; its time is not part of anything.
    fn checkpointed(&mut self, request: &str) -> Result<(Ran, Checkpoints), BenchError> {
        let mut checkpointer = self.checkpointed.checkpointer(&self.socket)?;
        checkpointer.take()?;
        let (stop, stopped) = mpsc::channel();
        let (answer, taken) = thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let mut taken = Checkpoints::default();
                every(CHECKPOINT_PERIOD, stopped, || taken.add(checkpointer.take()));
                taken
            });
            let answer = self.checkpointed.ask(request);
            drop(stop);
            (answer, taking.join().expect("it returns what it met"))
        });
        Ok((parse(&answer?)?, taken))
    }
}

/// Acts once a period, first after half of one, until the other end of `stopped` is gone. A turn that comes while an
/// earlier one still acts is left out.
fn every(period: Duration, stopped: Receiver<()>, mut act: impl FnMut()) {
    let mut next = Instant::now() + period / 2;
    while stopped.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
        act();
        while next <= Instant::now() {
            next += period;
        }
    }
}

fn parse<T: DeserializeOwned>(answer: &str) -> Result<T, BenchError> {
    serde_json::from_str(answer).map_err(|_| BenchError::program("the runner", answer))
}

fn same(work: &str, what: &str, one: &str, other: &str) -> Result<(), BenchError> {
    if one == other {
        return Ok(());
    }
    let what =
        format!("its {what} is not the same in all places ({one:.12} and {other:.12}): nothing would be compared");
    Err(BenchError::program(work, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_once() {
        let orders: Vec<_> = (0..6).map(order).collect();
        for (index, one) in orders.iter().enumerate() {
            assert!(orders[index + 1..].iter().all(|other| other != one), "{one:?}");
            for column in [Column::Host, Column::Sandbox, Column::Checkpointed] {
                assert!(one.contains(&column), "{one:?}");
            }
        }
        assert_eq!(order(6), order(0));
    }

    #[test]
    fn turns_come_by_the_period_and_end_at_once() {
        let (stop, stopped) = mpsc::channel();
        let (acted, acts) = mpsc::channel();
        let start = Instant::now();
        let ticking = thread::spawn(move || every(Duration::from_millis(20), stopped, || acted.send(()).unwrap()));
        for _ in 0..3 {
            acts.recv().unwrap();
        }
        assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
        drop(stop);
        ticking.join().unwrap();
    }

    #[test]
    fn no_turn_comes_after_the_end() {
        let (stop, stopped) = mpsc::channel();
        drop(stop);
        every(Duration::from_secs(3600), stopped, || panic!("it was stopped before"));
    }

    #[test]
    fn the_runner_does_its_work_again_and_again() {
        let mut host = OnHost::start(&std::env::temp_dir()).unwrap();
        let mut ask = |request: &str| host.fifos.ask(request).unwrap();
        let prepared: Prepared = parse(&ask("prepare compileall")).unwrap();
        assert!(prepared.missing.is_empty() && !prepared.input.is_empty());
        let mut made = || {
            let Ready {} = parse(&ask("ready compileall")).unwrap();
            let ran: Ran = parse(&ask("run compileall")).unwrap();
            assert!(ran.ms > 1.0, "{ran:?}");
            parse::<Look>(&ask("look compileall")).unwrap().made
        };
        assert_eq!(made(), made());
        let error = parse::<Ran>(&ask("run git_clone")).unwrap_err().to_string();
        assert!(error.contains("the runner") && error.contains("git_clone"), "{error}");
    }

    #[test]
    fn other_work_is_no_comparison() {
        assert!(same("files", "output", "a", "a").is_ok());
        let error = same("files", "output", "a", "b").unwrap_err().to_string();
        assert!(error.contains("files: its output is not the same"), "{error}");
    }
}
