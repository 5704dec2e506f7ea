//! One operation at a time per sandbox, on one thread: takes a `Command`, gives one `Outcome`.
//!
//! ```text
//!            ┌── a command ──> serve ──> answer ──> settle ──┐
//!  poll(2) ──┼── a process ended ──> its command ────────────┼──> poll(2)
//!            └── quiet since a command was started: prepare ─┘
//! ```
//!
//! The thread owns everything of the box (tracing is bound to a thread) and waits in one `poll` for all there is to
//! wait for; it never looks around by the clock. Reading output and feeding input is the pump's, so nothing that
//! is slow here stops a command from printing.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use image::{CheckpointId, ExecId, SandboxId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::checkpoint::{State, capture};
use crate::command::{Command, ExecSpec, Outcome, Revision};
use crate::copy;
use crate::diff::diff;
use crate::error::TimelineError;
use crate::events::Event;
use crate::execs::Execs;
use crate::halves::{Halves, take_exits};
use crate::handle::{BoxState, Window};
use crate::history::History;
use crate::laps::Laps;
use crate::queue::{Job, Queue};
use crate::{Surroundings, error};

/// How long after the start of a command its processes are made ready for an incremental first checkpoint: by then
/// it has loaded its libraries. Any command from outside comes first.
const PREPARE_AFTER: Duration = Duration::from_millis(50);

/// How long what happens to files is left in the kernel's queue, once it is not empty: it holds some ten thousand.
const GATHER_AFTER: Duration = Duration::from_millis(100);

/// Everything of one box. Lives on its thread.
pub(crate) struct Driver {
    pub(crate) halves: Halves,
    pub(crate) history: History<Arc<State>>,
    pub(crate) execs: Arc<Execs>,
    pub(crate) window: Arc<Window>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) surroundings: Surroundings,
    pub(crate) outside: Vec<String>,
    pub(crate) verify: bool,
    pub(crate) history_mem_bytes: u64,
    /// Checkpoints whose bytes are still to be weighed.
    pub(crate) unweighed: Vec<CheckpointId>,
    /// Bytes that the command in hand moved, for its event.
    pub(crate) bytes: u64,
    /// Put-off work is there.
    pub(crate) unsettled: bool,
    /// When to prepare what was started.
    pub(crate) prepare_at: Option<Instant>,
    /// When to take what was queued of changed files.
    pub(crate) gather_at: Option<Instant>,
}

impl Driver {
    /// Serves until the box is removed or nobody holds it; then takes it down.
    pub(crate) fn run(mut self) {
        while !self.queue.is_closed() {
            self.take_exits();
            match self.queue.pop() {
                Some(job) if matches!(job.request.command, Command::Remove) => return self.remove(job),
                Some(job) => self.serve(job),
                None if self.settle_piece() => {}
                None => self.wait(),
            }
        }
        drop(self.take_down());
    }

    /// The answer comes when nothing is left.
    fn remove(self, job: Job) {
        self.queue.close("it was removed");
        let (sandbox, surroundings) = (self.window.lock().id, self.surroundings.clone());
        let result = self.take_down().map(|()| Outcome::Done);
        surroundings.events.append(event(
            &job,
            sandbox,
            (surroundings.clock)(),
            job.request.command.name(),
            &result,
            0,
        ));
        (job.reply)(result);
    }

    fn wait(&mut self) {
        let alive = self.window.lock().state == BoxState::Running;
        let now = Instant::now();
        if alive && self.prepare_at.is_some_and(|at| at <= now) {
            self.prepare_at = None;
            self.halves.engine.prepare();
            return;
        }
        if alive && self.gather_at.is_some_and(|at| at <= now) {
            self.gather_at = None;
            // What cannot be read now cannot be read at the next capture, which says so.
            self.halves.tracker.gather().ok();
        }
        let next = [self.prepare_at, self.gather_at].into_iter().flatten().min();
        let timeout = next.filter(|_| alive).map(|at| {
            let left = at.saturating_duration_since(now);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.queue.bell(), PollFlags::IN)];
        let events = self.halves.sandbox.events_fd();
        if alive {
            fds.push(PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN));
        }
        let first = fds.len();
        if alive && self.gather_at.is_none() {
            let changes = self.halves.tracker.changes();
            fds.extend(changes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        // EINTR is a wake-up like another: everything is looked at again.
        poll(&mut fds, timeout.as_ref()).ok();
        if fds[first..].iter().any(|fd| !fd.revents().is_empty()) {
            self.gather_at = Some(Instant::now() + GATHER_AFTER);
        }
        self.queue.quiet();
    }

    fn take_exits(&mut self) {
        if self.window.lock().state == BoxState::Running && !take_exits(&self.halves.sandbox, &self.execs) {
            self.window.lock().state = BoxState::Died;
            self.execs.end();
        }
    }

    fn serve(&mut self, job: Job) {
        self.bytes = 0;
        if reads_history(&job.request.command) {
            while self.settle_piece() {}
        }
        // The box runs again before the answer is out, and must not hold it up.
        let stops = matches!(
            job.request.command,
            Command::Checkpoint { .. } | Command::Rollback { .. }
        );
        let urgent = stops.then(linux::sched::Urgent::raise);
        let result = self.execute(job.arrived, &job.request.command);
        let name = job.request.command.name();
        let text = match &result {
            Ok(Outcome::Checkpointed { line, .. }) => format!("{name} {}", line.id),
            Ok(Outcome::RolledBack { to, .. }) => format!("{name} {to}"),
            Ok(Outcome::Started { exec, .. }) => format!("{name} {exec}"),
            _ => name.to_owned(),
        };
        let sandbox = self.window.lock().id;
        let now_ms = (self.surroundings.clock)();
        self.surroundings
            .events
            .append(event(&job, sandbox, now_ms, &text, &result, self.bytes));
        self.publish();
        (job.reply)(result);
        drop(urgent);
    }

    fn execute(&mut self, arrived: Instant, command: &Command) -> Result<Outcome, TimelineError> {
        self.check_state(command)?;
        match command {
            Command::Exec(spec) => self.exec(spec),
            Command::Stdin { exec, bytes, close } => done(self.execs.send(*exec, bytes, *close)),
            Command::Resize { exec, rows, columns } => done(self.execs.resize(*exec, *rows, *columns)),
            Command::Signal { exec, signal } => done(self.execs.signal(*exec, *signal)),
            Command::Checkpoint { message, tag } => self.checkpoint(arrived, message.clone(), tag.as_deref()),
            Command::Rollback { to, keep_present } => self.rollback(arrived, to.as_ref(), *keep_present),
            Command::Tag { at, name } => {
                let at = self.history.resolve(at)?;
                done(self.history.tag(at, name))
            }
            Command::Untag { name } => {
                self.history.untag(name)?;
                self.unsettled = true;
                Ok(Outcome::Done)
            }
            Command::Log => Ok(Outcome::Log(self.history.lines())),
            Command::Diff { from, to } => self.diff(from, to.as_ref()),
            Command::Inspect { at: None } => Ok(Outcome::Inspected(self.inspect_box())),
            Command::Inspect { at: Some(at) } => {
                let id = self.history.resolve(at)?;
                Ok(Outcome::Inspected(self.inspect_checkpoint(id)?))
            }
            Command::ReadFiles { path } => {
                let tar = copy::pack(self.halves.sandbox.merged_root(), path, self.halves.ids())?;
                self.bytes = tar.len() as u64;
                Ok(Outcome::Files(tar))
            }
            Command::WriteFiles { path, tar } => {
                self.bytes = copy::unpack(self.halves.sandbox.merged_root(), path, tar, self.halves.ids())?;
                Ok(Outcome::Done)
            }
            Command::Remove => unreachable!("`run` takes it"),
        }
    }

    /// Of a box that is stopped for good only the history can be read, and it can be removed.
    fn check_state(&self, command: &Command) -> Result<(), TimelineError> {
        let reads = matches!(
            command,
            Command::Log | Command::Inspect { .. } | Command::Diff { to: Some(_), .. } | Command::Remove
        );
        match &self.window.lock().state {
            BoxState::Latched(why) if !reads => Err(TimelineError::Latched(why.clone())),
            BoxState::Died if !reads => Err(TimelineError::Gone("its first process ended")),
            _ => Ok(()),
        }
    }

    fn exec(&mut self, spec: &ExecSpec) -> Result<Outcome, TimelineError> {
        let process = self.halves.exec(spec)?;
        let pid = process.pid;
        let exec = ExecId::from_bits((self.surroundings.random)());
        self.execs.started(exec, spec, process, (self.surroundings.clock)())?;
        self.prepare_at = Some(Instant::now() + PREPARE_AFTER);
        Ok(Outcome::Started { exec, pid })
    }

    fn diff(&mut self, from: &Revision, to: Option<&Revision>) -> Result<Outcome, TimelineError> {
        let from = Arc::clone(self.history.state(self.history.resolve(from)?)?);
        let to = match to {
            Some(to) => Arc::clone(self.history.state(self.history.resolve(to)?)?),
            None => {
                let halves = &mut self.halves;
                self.unsettled = true;
                let _held = self.execs.hold_input();
                let mut frozen = halves.engine.freeze()?;
                let state = capture(
                    &mut frozen,
                    &mut halves.tracker,
                    &self.execs,
                    &halves.sandbox,
                    &mut Laps::start(),
                )?;
                frozen.thaw();
                Arc::new(state)
            }
        };
        Ok(Outcome::Diff(diff(&from, &to)))
    }

    /// A piece of the work that nobody waits for: both halves', then the weights, then the memory bound. Commands go
    /// before it. True where more is left.
    fn settle_piece(&mut self) -> bool {
        if !self.unsettled && self.unweighed.is_empty() {
            return false;
        }
        if self.halves.engine.settle_piece() {
            return true;
        }
        self.unsettled = false;
        // A failure costs a walk at the next capture and nothing else; the tracker remembers.
        self.halves.tracker.settle().ok();
        for id in std::mem::take(&mut self.unweighed) {
            let ancestor = self
                .history
                .resident_ancestor(id)
                .and_then(|ancestor| self.history.state(ancestor).ok());
            let Ok(state) = self.history.state(id) else { continue };
            let ancestor = ancestor.map(AsRef::as_ref);
            let (memory, files) = (state.memory_bytes(ancestor), state.file_bytes(ancestor));
            self.history.weigh(id, memory + files, memory, files);
        }
        let weigh = |state: &Arc<State>, ancestor: Option<&Arc<State>>| state.own_bytes(ancestor.map(AsRef::as_ref));
        drop(self.history.keep_within(self.history_mem_bytes, weigh));
        self.publish();
        false
    }

    /// What handles see without asking.
    fn publish(&self) {
        let mut summary = self.window.lock();
        summary.head = self.history.head();
        summary.checkpoint_count = self.history.ids().len();
        summary.resident_count = self.history.resident_count();
        summary.history_bytes = self.history.bytes();
        if let Some(node) = self.history.head().and_then(|head| self.history.node(head)) {
            summary.process_count = node.line.process_count;
        }
    }

    /// After a failure half way the box is ended, and says so until it is removed.
    pub(crate) fn latch_if_torn(&mut self, failure: &TimelineError) {
        if failure.kind() != error::Kind::Corrupt {
            return;
        }
        // It fails only when PID 1 is gone, and then so is everything.
        self.halves.sandbox.kill_all().ok();
        self.execs.end();
        self.window.lock().state = BoxState::Latched(failure.to_string());
    }

    fn take_down(self) -> Result<(), TimelineError> {
        let result = self.halves.take_down();
        self.execs.end();
        self.window.lock().state = BoxState::Removed;
        result
    }
}

fn event(
    job: &Job,
    sandbox: SandboxId,
    at_ms: u64,
    command: &str,
    result: &Result<Outcome, TimelineError>,
    bytes: u64,
) -> Event {
    Event {
        sequence: 0,
        at_ms,
        tenant: job.request.tenant.clone(),
        principal: job.request.principal.clone(),
        sandbox,
        command: command.to_owned(),
        outcome: result.as_ref().map_or_else(|error| error.kind().name(), |_| "done"),
        micros: u64::try_from(job.arrived.elapsed().as_micros()).unwrap_or(u64::MAX),
        bytes,
    }
}

fn done(result: Result<(), TimelineError>) -> Result<Outcome, TimelineError> {
    result.map(|()| Outcome::Done)
}

/// Commands that see the history wait until it is in order; those that only talk to the box do not.
fn reads_history(command: &Command) -> bool {
    !matches!(
        command,
        Command::Exec(_)
            | Command::Stdin { .. }
            | Command::Resize { .. }
            | Command::Signal { .. }
            | Command::ReadFiles { .. }
            | Command::WriteFiles { .. }
    )
}
