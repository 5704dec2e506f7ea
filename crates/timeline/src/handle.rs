//! What everybody else holds of a sandbox: a door to its driver, and a window on what is known without asking it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use image::{CheckpointId, ExecId, SandboxId, Tenant};

use crate::command::{Outcome, Request};
use crate::error::TimelineError;
use crate::execs::{ExecLine, Execs};
use crate::output::{Follower, Position};
use crate::queue::{Job, Queue, Reply};

/// How a sandbox is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxState {
    /// It takes commands.
    Running,
    /// A rollback failed half way; its processes were ended, its log can be read.
    Latched(String),
    /// Its PID 1 ended.
    Died,
    /// It was taken down.
    Removed,
}

/// What is known of a sandbox without asking its driver.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// How it is.
    pub state: BoxState,
    /// The checkpoint from which the running state has grown.
    pub head: Option<CheckpointId>,
    /// Checkpoints in the log, also those whose bytes were dropped.
    pub checkpoint_count: usize,
    /// Checkpoints that one can go to.
    pub resident_count: usize,
    /// Bytes that the history holds in memory.
    pub history_bytes: u64,
    /// The bound of it.
    pub history_mem_bytes: u64,
    /// Processes now, without PID 1; at the last checkpoint where the box has no cgroup of its own.
    pub process_count: u32,
    /// Commands that run.
    pub running_count: usize,
    /// When it was made, Unix time in milliseconds.
    pub created_ms: u64,
    /// What lies outside its history (volumes).
    pub outside: Vec<String>,
}

/// What the driver writes and handles read.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) summary: Mutex<Summary>,
    /// Its cgroup, to count processes.
    pub(crate) cgroup: Option<PathBuf>,
}

impl Window {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when the last handle goes, so that the driver takes the box down and ends.
#[derive(Debug)]
struct Door(Arc<Queue>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.close("nobody holds it any more");
    }
}

/// One sandbox, from any thread. When the last clone goes, the sandbox is taken down.
#[derive(Clone)]
pub struct Handle {
    door: Arc<Door>,
    execs: Arc<Execs>,
    window: Arc<Window>,
    tenant: Tenant,
    id: SandboxId,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.id)
    }
}

impl Handle {
    pub(crate) fn new(queue: Arc<Queue>, execs: Arc<Execs>, window: Arc<Window>) -> Self {
        let (tenant, id) = {
            let summary = window.lock();
            (summary.tenant.clone(), summary.id)
        };
        Self {
            door: Arc::new(Door(queue)),
            execs,
            window,
            tenant,
            id,
        }
    }

    /// Its id.
    pub fn id(&self) -> SandboxId {
        self.id
    }

    /// Hands a command over and returns; `reply` is called once, from the driver's thread (or at once when the command
    /// is refused), and must not block.
    pub fn submit(&self, request: Request, reply: impl FnOnce(Result<Outcome, TimelineError>) + Send + 'static) {
        let reply: Reply = Box::new(reply);
        if request.tenant != self.tenant {
            // Another tenant learns nothing, not even that it exists.
            return reply(Err(TimelineError::UnknownSandbox));
        }
        self.door.0.push(Job {
            request,
            arrived: Instant::now(),
            reply,
        });
    }

    /// Hands a command over and waits for what comes of it.
    ///
    /// # Errors
    /// Every `TimelineError`.
    pub fn request(&self, request: Request) -> Result<Outcome, TimelineError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(request, move |result| drop(sender.send(result)));
        receiver.recv().unwrap_or(Err(TimelineError::DriverLost))
    }

    /// Reads the events of a command from a place on.
    ///
    /// # Errors
    /// `UnknownExec`.
    pub fn follow(&self, exec: ExecId, from: impl Into<Position>) -> Result<Follower, TimelineError> {
        self.execs.follow(exec, from.into())
    }

    /// The commands that are known, in the order of their start.
    pub fn execs(&self) -> Vec<ExecLine> {
        self.execs.lines()
    }

    /// What is known without asking the driver.
    pub fn summary(&self) -> Summary {
        let mut summary = self.window.lock().clone();
        let running = |line: &ExecLine| line.state == crate::output::ExecState::Running;
        summary.running_count = self.execs.lines().iter().filter(|line| running(line)).count();
        if let Some(count) = self.window.cgroup.as_deref().and_then(process_count) {
            summary.process_count = count;
        }
        summary
    }
}

/// Processes in a cgroup, without PID 1 of the box.
fn process_count(cgroup: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    u32::try_from(text.lines().count()).ok()?.checked_sub(1)
}
