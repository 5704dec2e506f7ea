//! The process half of a checkpoint: processes and the objects that they share. Plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fd::{Content, Inode, Object, Pipe, Slot, Socket, Terminal};
use crate::memory::AddressSpace;
use crate::signal::{Action, Queued};
use crate::thread::Thread;
use crate::timer::{Armed, PosixTimer};

/// What a living process cannot take back; where it differs, the process must be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lasting {
    /// Start time in clock ticks: a pid with another one is another process.
    pub start_ticks: u64,
    /// Counts `exec`s: the address space the process has lived in.
    pub program: Inode,
    /// User and group ids, capabilities, `no_new_privs`, seccomp: the lines of `/proc/PID/status`, verbatim.
    pub rights: Vec<u8>,
    /// Session inside the box.
    pub session: u32,
}

/// One process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Pid inside the box.
    pub pid: u32,
    /// Parent inside the box.
    pub parent: u32,
    /// Process group inside the box.
    pub group: u32,
    /// Name.
    pub comm: String,
    /// What cannot be rewound.
    pub lasting: Lasting,
    /// Children that have ended and were not waited for.
    pub zombies: Vec<u32>,
    /// True while stopped by a job-control signal.
    pub stopped: bool,
    /// Its parent was not told of that stop yet (`waitpid` with `WUNTRACED` would).
    pub stop_untold: bool,
    /// By tid inside the box; the first is the leader.
    pub threads: Vec<Arc<Thread>>,
    /// Memory.
    pub memory: AddressSpace,
    /// Descriptors, ascending.
    pub slots: Vec<Slot>,
    /// Dispositions of signals 1 to 64.
    pub actions: Arc<Vec<Action>>,
    /// The process's queue.
    pub pending: Vec<Queued>,
    /// Real, virtual and profiling interval timers.
    pub itimers: [Armed; 3],
    /// POSIX timers.
    pub timers: Vec<PosixTimer>,
    /// File mode creation mask.
    pub umask: u32,
    /// Working directory: path and identity.
    pub cwd: (Vec<u8>, Inode),
    /// Soft and hard limits, by resource number.
    pub limits: Vec<(u64, u64)>,
}

/// A shared memory object: a memfd, a shared anonymous mapping, a deleted file of a tmpfs.
#[derive(Debug, Clone)]
pub struct SharedMemory {
    /// Identity.
    pub inode: Inode,
    /// Name as `/proc` shows it.
    pub name: Vec<u8>,
    /// What may never be done to it any more (`F_SEAL_…`).
    pub seals: u32,
    /// Permissions, as `chmod(2)` takes them.
    pub mode: u32,
    /// Bytes.
    pub content: Content,
}

/// A file that is open and has no name any more.
#[derive(Debug, Clone)]
pub struct Ghost {
    /// Identity.
    pub inode: Inode,
    /// Bytes.
    pub content: Content,
    /// Permissions, as `chmod(2)` takes them.
    pub mode: u32,
    /// User and group, as the host numbers them.
    pub owner: (u32, u32),
    /// When its bytes changed last: seconds and nanoseconds.
    pub modified: (i64, i64),
}

/// All processes of a box.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// By pid inside the box.
    pub processes: BTreeMap<u32, Arc<Process>>,
    /// Open file descriptions.
    pub objects: Vec<Object>,
    /// Pipes and FIFOs.
    pub pipes: Vec<Pipe>,
    /// Ends of unix socket pairs.
    pub sockets: Vec<Socket>,
    /// Terminals.
    pub terminals: Vec<Terminal>,
    /// Shared memory.
    pub shared: Vec<SharedMemory>,
    /// Files without a name.
    pub ghosts: Vec<Ghost>,
}
