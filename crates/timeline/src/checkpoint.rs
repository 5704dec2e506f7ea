//! Taking a checkpoint: processes, files and the output of commands as one cut. The box stands still from the freeze
//! to the thaw; everything that can wait (comparing pages, marking directories, weighing, dropping old ones) is done
//! after the answer.

use std::path::PathBuf;
use std::time::Instant;

use engine::{Frozen, ProcessImage};
use files::{Tracker, Tree};
use image::CheckpointId;
use sandbox::Sandbox;

use crate::beside::Beside;
use crate::command::{CheckpointLine, Outcome, Timing};
use crate::driver::Driver;
use crate::error::TimelineError;
use crate::execs::{Execs, Marks};
use crate::halves::{take_exits, tracked};
use crate::laps::Laps;

/// All that is needed to go back. Immutable; what did not change is shared with other states.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) process: ProcessImage,
    pub(crate) tree: Tree,
    pub(crate) execs: Marks,
}

impl State {
    pub(crate) fn memory_bytes(&self, ancestor: Option<&State>) -> u64 {
        self.process.own_bytes(ancestor.map(|state| &state.process))
            + self.execs.own_bytes(ancestor.map(|state| &state.execs))
    }

    pub(crate) fn file_bytes(&self, ancestor: Option<&State>) -> u64 {
        self.tree.own_bytes(ancestor.map(|state| &state.tree))
    }

    pub(crate) fn own_bytes(&self, ancestor: Option<&State>) -> u64 {
        self.memory_bytes(ancestor) + self.file_bytes(ancestor)
    }

    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.process.lines().iter().any(|line| line.pid == pid)
    }
}

/// Captures a frozen box. Files that changed are read by a second thread while this one, which holds the processes, reads
/// them.
pub(crate) fn capture(
    frozen: &mut Frozen<'_>,
    tracker: &mut Tracker,
    execs: &Execs,
    sandbox: &Sandbox,
    laps: &mut Laps,
) -> Result<State, TimelineError> {
    // First what is in the pipes goes to the outputs: then the pipes in the image are empty and nothing is said twice.
    take_exits(sandbox, execs);
    execs.drain();
    laps.lap("outputs");
    let mapped = mapped(frozen);
    laps.lap("mapped files");
    let (process, tree) = std::thread::scope(|scope| {
        let tree = Beside::start(scope, !mapped.is_empty() || !tracker.is_quiet()?, || {
            tracker.capture(&mapped)
        });
        Ok::<_, TimelineError>((frozen.capture(), tree.finish()))
    })?;
    laps.lap("capture");
    laps.within("files", &tracker.cost().phases);
    // A task that slept through the freeze may have moved and been stopped since: what it said belongs to the cut.
    execs.drain();
    let state = State {
        process: process?,
        tree: tree?,
        execs: execs.mark(),
    };
    laps.lap("mark outputs");
    Ok(state)
}

/// Files that were written through mappings, as the tracker knows them.
pub(crate) fn mapped(frozen: &mut Frozen<'_>) -> Vec<PathBuf> {
    frozen.mapped_files_written().iter().map(|path| tracked(path)).collect()
}

impl Driver {
    /// Takes a checkpoint; it becomes the head.
    pub(crate) fn checkpoint(
        &mut self,
        arrived: Instant,
        message: Option<String>,
        tag: Option<&str>,
    ) -> Result<Outcome, TimelineError> {
        if let Some(tag) = tag {
            self.history.check_tag(tag)?;
        }
        let mut laps = Laps::start();
        self.unsettled = true;
        let halves = &mut self.halves;
        let held = self.execs.hold_input();
        let mut frozen = halves.engine.freeze()?;
        laps.lap("freeze");
        let state = capture(
            &mut frozen,
            &mut halves.tracker,
            &self.execs,
            &halves.sandbox,
            &mut laps,
        )?;
        let cost = frozen.thaw();
        drop(held);
        laps.lap("thaw");
        laps.within("processes", &cost.phases);
        let id = CheckpointId::from_bits((self.surroundings.random)());
        let line = self.enter(id, state, &cost, message, true);
        if let Some(tag) = tag {
            self.history.tag(id, tag)?;
        }
        let line = self.history.line(id).unwrap_or(line);
        laps.lap("enter");
        let timing = Timing {
            stop: cost.stop,
            total: arrived.elapsed(),
            phases: laps.finish(),
        };
        self.bytes = cost.bytes + self.halves.tracker.cost().bytes;
        Ok(Outcome::Checkpointed {
            line,
            timing,
            page_count: cost.page_count,
        })
    }

    /// Puts a captured state into the history. Its bytes are what was copied; they are weighed when there is time.
    pub(crate) fn enter(
        &mut self,
        id: CheckpointId,
        state: State,
        cost: &engine::Cost,
        message: Option<String>,
        advance: bool,
    ) -> CheckpointLine {
        let parent = self.history.head();
        let before = parent.and_then(|parent| self.history.state(parent).ok());
        let changed = before.map_or(0, |before| Tree::diff(&before.tree, &state.tree).len());
        let file_bytes = self.halves.tracker.cost().bytes;
        let line = CheckpointLine {
            id,
            parent,
            message,
            tags: Vec::new(),
            created_ms: (self.surroundings.clock)(),
            head: advance,
            process_count: cost.process_count,
            memory_bytes: cost.bytes,
            file_bytes,
            changed_files: u32::try_from(changed).unwrap_or(u32::MAX),
            dropped: false,
            automatic: !advance,
            outside: self.outside.clone(),
        };
        self.history
            .add(line.clone(), state.into(), cost.bytes + file_bytes, advance);
        self.unweighed.push(id);
        line
    }
}
