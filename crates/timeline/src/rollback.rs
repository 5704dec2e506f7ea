//! Putting a running box back to a checkpoint of its history, in place. Everything that can fail is tried before
//! anything is touched: the target is found and whole, the present is captured, the files' plan is made and prepared,
//! the processes' plan is made. Only then is something changed; a failure after that is `Torn`, and the box is
//! stopped for good rather than left between two states.

use std::time::Instant;

use files::{Applied, Tracker};
use image::CheckpointId;

use crate::beside::Beside;
use crate::checkpoint::{State, capture, mapped};
use crate::command::{Outcome, Revision, Timing};
use crate::driver::Driver;
use crate::error::TimelineError;
use crate::halves::take_exits;
use crate::laps::Laps;

impl Driver {
    /// Goes to `to` (the head when `None`). The present becomes `@{-1}` when `keep_present`.
    pub(crate) fn rollback(
        &mut self,
        arrived: Instant,
        to: Option<&Revision>,
        keep_present: bool,
    ) -> Result<Outcome, TimelineError> {
        let to = match to {
            Some(revision) => self.history.resolve(revision)?,
            None => self.history.head().ok_or(TimelineError::NoCheckpoint)?,
        };
        let target = self.history.state(to)?.clone();
        self.unsettled = true;
        let mut laps = Laps::start();
        let went = self.go_back(&target, to, keep_present, &mut laps);
        if let Err(error) = &went {
            self.latch_if_torn(error);
        }
        let Went {
            present,
            cost,
            applied,
            cut,
        } = went?;
        let from = self.history.head();
        let kept = present.map(|present| {
            let id = CheckpointId::from_bits((self.surroundings.random)());
            let message = Some(format!("the present before the rollback to {to}"));
            self.enter(id, present, &cost, message, false);
            id
        });
        self.history.jump(kept.or(from), to);
        self.bytes = cost.bytes + applied.bytes;
        Ok(Outcome::RolledBack {
            to,
            kept,
            timing: Timing {
                stop: cost.stop,
                total: arrived.elapsed(),
                phases: laps.finish(),
            },
            page_count: cost.page_count,
            changed_files: u32::try_from(applied.changed_file_count).unwrap_or(u32::MAX),
            cut,
        })
    }

    fn go_back(
        &mut self,
        target: &State,
        to: CheckpointId,
        keep_present: bool,
        laps: &mut Laps,
    ) -> Result<Went, TimelineError> {
        let halves = &mut self.halves;
        let (tracker, execs, sandbox) = (&mut halves.tracker, &self.execs, &halves.sandbox);
        let held = execs.hold_input();
        let mut frozen = halves.engine.freeze()?;
        laps.lap("freeze");
        let present = if keep_present {
            Some(capture(&mut frozen, tracker, execs, sandbox, laps)?)
        } else {
            take_exits(sandbox, execs);
            execs.drain();
            laps.lap("outputs");
            None
        };
        let known = present.as_ref().map(|present| present.tree.clone());
        let mapped = if known.is_none() {
            mapped(&mut frozen)
        } else {
            Vec::new()
        };
        let long = known.is_none() && !(mapped.is_empty() && tracker.is_quiet()?);
        let prepare = || {
            let tree = match known {
                Some(tree) => tree,
                None => tracker.capture(&mapped)?,
            };
            let captured = tracker.cost().phases.clone();
            let plan = files::plan(&tree, &target.tree);
            tracker.prepare(&plan)?;
            Ok::<_, TimelineError>((tracker, plan, captured))
        };
        let mut applied = Applied::default();
        let mut phases = Vec::new();
        std::thread::scope(|scope| {
            let prepared = Beside::start(scope, long, prepare);
            let files = |(tracker, plan, captured): (&mut Tracker, _, _)| -> Result<(), TimelineError> {
                applied = tracker.apply(&plan)?;
                phases = captured;
                phases.extend_from_slice(&tracker.cost().phases);
                Ok(())
            };
            frozen.rollback(&target.process, || prepared.finish(), files)
        })?;
        laps.lap("put back");
        laps.within("files", &phases);
        // What was said on the way out is undone as well.
        execs.drain();
        let cut = execs.rewind(&target.execs, to, |pid| target.has_process(pid));
        laps.lap("cut outputs");
        let differences = if self.verify {
            frozen.verify(&target.process)
        } else {
            Vec::new()
        };
        if !differences.is_empty() {
            // Not one instruction of a wrong state shall run.
            sandbox.kill_all()?;
            return Err(TimelineError::Differs(differences));
        }
        let cost = frozen.thaw();
        drop(held);
        laps.lap("verify and thaw");
        laps.within("processes", &cost.phases);
        Ok(Went {
            present,
            cost,
            applied,
            cut,
        })
    }
}

struct Went {
    present: Option<State>,
    cost: engine::Cost,
    applied: Applied,
    cut: Vec<image::ExecId>,
}
