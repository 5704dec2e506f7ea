//! The suite of the product's main act: a Python program with a heap, threads, children and files is checkpointed,
//! changed, and put back, beside the floor, a template fork and CRIU, all in one run, in turns, because machines drift.

use std::path::PathBuf;

use crate::bare::Bare;
use crate::criu::Criu;
use crate::daemon::BoxedProgram;
use crate::error::BenchError;
use crate::report::{Report, Samples};
pub use crate::target::Sizes;
use crate::target::{Operation, Target};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Params {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The program's sizes.
    pub sizes: Sizes,
    /// Rounds of the product and of the bare programs.
    pub rounds: u32,
    /// A `criu` to compare with.
    pub criu: Option<PathBuf>,
}

/// CRIU takes a hundred times as long: it has every so many-th round only.
const CRIU_EVERY: u32 = 20;

/// Rounds in which children are born after the checkpoint, and their number.
const NEWBORNS_EVERY: u32 = 10;
const NEWBORN_COUNT: u32 = 3;

const FORK_NOTE: &str = "memory of one thread only: no files, no other threads, no children";
const CRIU_NOTE: &str = "no stop clock: the program of CRIU as a whole; images in the temporary directory";

const RATIOS: [(&str, &str); 8] = [
    ("deltabox.checkpoint", "floor.checkpoint"),
    ("deltabox.rollback", "floor.rollback"),
    ("deltabox.rollback_keep", "deltabox.rollback"),
    ("template_fork.checkpoint", "deltabox.checkpoint"),
    ("template_fork.rollback", "deltabox.rollback"),
    ("criu.checkpoint", "deltabox.checkpoint"),
    ("criu.rollback", "deltabox.rollback"),
    ("deltabox.first_checkpoint", "deltabox.checkpoint"),
];

/// Runs the suite. `progress` is told each finished round.
///
/// # Errors
/// Anything that keeps one competitor from finishing, and a rollback after which the program is not where it was.
pub fn run(params: &Params, mut progress: impl FnMut(u32)) -> Result<Report, BenchError> {
    let mut samples = Samples::default();
    let mut agent = BoxedProgram::agent(&params.socket, &params.sizes)?;
    samples.add(
        "deltabox.first_checkpoint",
        "everything is new",
        agent.measure(Operation::Checkpoint)?,
    );
    let mut floor = Bare::floor(&params.sizes)?;
    floor.operate(Operation::Checkpoint)?;
    let mut fork = Bare::template_fork(&params.sizes)?;
    let mut criu = params
        .criu
        .as_ref()
        .map(|program| Criu::start(program, &params.sizes))
        .transpose()?;
    for number in 0..params.rounds {
        let mut measured = Measured {
            samples: &mut samples,
            round: number,
        };
        measured.deltabox(&mut agent, params.sizes.processes)?;
        measured.round("floor", "", &mut floor, Operation::Rollback)?;
        measured.round("template_fork", FORK_NOTE, &mut fork, Operation::Rollback)?;
        if let Some(criu) = criu.as_mut().filter(|_| number.is_multiple_of(CRIU_EVERY)) {
            measured.round("criu", CRIU_NOTE, criu, Operation::Rollback)?;
        }
        progress(number + 1);
    }
    let Sizes {
        heap_mb,
        dirty_mb,
        files,
        file_kb,
        processes,
        threads,
    } = params.sizes;
    let params = serde_json::json!({
        "heap_mb": heap_mb, "dirty_mb": dirty_mb, "files": files, "file_kb": file_kb,
        "processes": processes, "threads": threads, "rounds": params.rounds,
        "criu": params.criu.as_ref().map(|path| path.display().to_string()),
    });
    Ok(samples.report("rewind", params, &RATIOS))
}

/// One round, and where its samples go.
struct Measured<'a> {
    samples: &'a mut Samples,
    round: u32,
}

impl Measured<'_> {
    fn deltabox(&mut self, agent: &mut BoxedProgram, process_count: u32) -> Result<(), BenchError> {
        self.round("deltabox", "", agent, Operation::Rollback)?;
        self.round("deltabox", "", agent, Operation::RollbackKeep)?;
        if self.round.is_multiple_of(NEWBORNS_EVERY) {
            self.newborns(agent, process_count)?;
        }
        if process_count > 1 {
            self.idle(agent)?;
        }
        Ok(())
    }

    /// Children are born after the checkpoint; they must be gone, and everything else as it was.
    fn newborns(&mut self, agent: &mut BoxedProgram, process_count: u32) -> Result<(), BenchError> {
        let before = agent.ask("hash")?;
        agent.ask(&format!("spawn {NEWBORN_COUNT}"))?;
        let born = agent.ask("children")?;
        let sample = agent.measure(Operation::Rollback)?;
        let (expected, left) = ((process_count - 1).to_string(), agent.ask("children")?);
        if born == expected || left != expected {
            let what = format!("{born} children before the rollback, {left} after it, {expected} expected");
            return Err(BenchError::program("deltabox.rollback_newborns", what));
        }
        self.compare("deltabox.rollback_newborns", before, agent.ask("hash")?)?;
        self.samples.add(
            "deltabox.rollback_newborns",
            "three children forked since are ended",
            sample,
        );
        Ok(())
    }

    /// Only the first process works, and makes all the changes. The others have been idle since the checkpoint before:
    /// they hashed their memory in the round that went before.
    fn idle(&mut self, agent: &mut BoxedProgram) -> Result<(), BenchError> {
        let note = "all but one process are idle since the checkpoint before";
        agent.measure(Operation::Checkpoint)?;
        agent.ask(&format!("dirty_first {}", self.seed(5)))?;
        let checkpoint = agent.measure(Operation::Checkpoint)?;
        let before = agent.ask("hash_first")?;
        agent.ask(&format!("dirty_first {}", self.seed(6)))?;
        let rollback = agent.measure(Operation::Rollback)?;
        self.compare("deltabox.rollback_idle", before, agent.ask("hash_first")?)?;
        self.samples.add("deltabox.checkpoint_idle", note, checkpoint);
        self.samples.add("deltabox.rollback_idle", note, rollback);
        Ok(())
    }

    fn round(
        &mut self,
        who: &str,
        note: &'static str,
        target: &mut dyn Target,
        rollback: Operation,
    ) -> Result<(), BenchError> {
        let name = match rollback {
            Operation::RollbackKeep => format!("{who}.rollback_keep"),
            _ => format!("{who}.rollback"),
        };
        let salt = if rollback == Operation::RollbackKeep { 3 } else { 1 };
        target.ask(&format!("dirty {}", self.seed(salt)))?;
        let checkpoint = target.measure(Operation::Checkpoint)?;
        let before = target.ask("hash")?;
        target.ask(&format!("dirty {}", self.seed(salt + 1)))?;
        if self.round == 0 && target.ask("hash")? == before {
            return Err(BenchError::program(
                who,
                "new bytes did not change the hash: nothing would be proved",
            ));
        }
        let rollback = target.measure(rollback)?;
        self.compare(&name, before, target.ask("hash")?)?;
        self.samples.add(&format!("{who}.checkpoint"), note, checkpoint);
        self.samples.add(&name, note, rollback);
        Ok(())
    }

    fn seed(&self, salt: u32) -> u32 {
        self.round * 10 + salt
    }

    fn compare(&self, name: &str, expected: String, found: String) -> Result<(), BenchError> {
        if expected == found {
            return Ok(());
        }
        Err(BenchError::Differs {
            name: name.to_owned(),
            round: self.round,
            expected,
            found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Cost;

    /// A program whose whole state is one number, and a rollback that works or does not.
    struct Model {
        now: String,
        saved: String,
        works: bool,
    }

    impl Target for Model {
        fn ask(&mut self, request: &str) -> Result<String, BenchError> {
            if let Some(seed) = request.strip_prefix("dirty ") {
                self.now = seed.to_owned();
            }
            Ok(if request == "ping" {
                "pong".to_owned()
            } else {
                self.now.clone()
            })
        }

        fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError> {
            match operation {
                Operation::Checkpoint => self.saved.clone_from(&self.now),
                _ if self.works => self.now.clone_from(&self.saved),
                _ => {}
            }
            Ok(Cost::default())
        }
    }

    fn rounds(works: bool) -> Result<(), BenchError> {
        let mut model = Model {
            now: String::new(),
            saved: String::new(),
            works,
        };
        let mut samples = Samples::default();
        let mut measured = Measured {
            samples: &mut samples,
            round: 0,
        };
        measured.round("model", "", &mut model, Operation::Rollback)?;
        measured.round("model", "", &mut model, Operation::RollbackKeep)
    }

    #[test]
    fn a_wrong_rollback_fails_the_run() {
        assert!(rounds(true).is_ok());
        assert!(matches!(rounds(false), Err(BenchError::Differs { round: 0, .. })));
    }
}
