//! The door between HTTP and one sandbox: what the daemon asks of a box, as traits, so that the HTTP surface is tested
//! without processes. The one real implementation is in `live`.

use std::fmt;

use image::{ExecId, Principal, SandboxId, Tenant};
use timeline::output::{Follower, Position};
use timeline::{Command, Outcome, TimelineError};

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose data.
    pub tenant: Tenant,
    /// Which person or program.
    pub principal: Principal,
    /// Root on the local socket, who may also use volumes and `--privileged`.
    pub root: bool,
}

/// Where the files of a box come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// The allowed part of the host's root.
    Host,
    /// A directory of the host.
    Directory(String),
    /// A tar file of the host.
    Tar(String),
}

/// Everything that is settled when a box is made.
#[derive(Debug, Clone)]
pub struct Birth {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: String,
    /// Its files.
    pub image: ImageSource,
    /// The request it came from, checked.
    pub request: api::CreateRequest,
    /// When, Unix time in milliseconds.
    pub created_ms: u64,
    /// Who asked.
    pub caller: Caller,
}

/// What is known of a box without asking its driver.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Whether its PID 1 is alive.
    pub alive: bool,
    /// The checkpoint it has grown from.
    pub head: Option<String>,
    /// Checkpoints in its history.
    pub checkpoint_count: u32,
    /// Processes in it, without PID 1.
    pub process_count: u32,
    /// Bytes of memory that its history holds.
    pub history_bytes: u64,
}

/// Takes the outcome of one command.
pub type Reply = Box<dyn FnOnce(Result<Outcome, TimelineError>) + Send>;

/// One running sandbox. No method blocks for longer than it takes to hand a value over.
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// Hands a command to the box; `reply` is called once, from any thread.
    fn submit(&self, caller: &Caller, command: Command, reply: Reply);

    /// A reader of what a command says, from `from` on.
    fn follow(&self, exec: ExecId, from: Position) -> Result<Follower, TimelineError>;

    /// What is known without asking.
    fn summary(&self) -> Summary;
}

/// Makes sandboxes. Blocks while it does.
pub trait Maker: Send + Sync + fmt::Debug + 'static {
    /// Makes one.
    fn create(&self, birth: &Birth) -> Result<Box<dyn Driver>, TimelineError>;
}
