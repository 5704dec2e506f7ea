//! Isolation: give birth to a process tree inside namespaces, control groups, a root and filters of its own; start commands
//! in it; take it down again.
//!
//! A [`Sandbox`] owns one box. PID 1 inside is our own program (`crates/stub/src/init.rs`), which is all that this crate
//! talks to; the daemon never enters the box. Nothing here stops, reads or rewinds processes (that is `engine`), and
//! nothing here tracks files (that is `files`).
//!
//! ```text
//! spawn: compose layers -> stage 0 -> PID 1 in new namespaces -> id maps -> overlay -> limits -> SETUP -> READY
//! exec:  payload + pipes or a terminal -> START -> STARTED -> report pipe closes (the program runs)
//! ```
#![forbid(unsafe_code)]

mod control;
mod error;
mod exec;
mod filter;
pub mod image;
mod limits;
#[path = "../../stub/src/init/protocol.rs"]
#[expect(dead_code, reason = "shared with PID 1, which uses the rest")]
mod protocol;
mod rootfs;
mod spawn;
mod spec;
mod teardown;
mod users;

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

pub use error::SandboxError;
pub use exec::{ExecRequest, Started, Stdio, Streams};
pub use limits::{Held, Mechanism};
pub use rootfs::{Dirs, ROOT_PREFIX};
pub use spec::{ID_RANGE_COUNT, Image, Limits, Spec, Volume};

use control::Control;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

/// A command that was started with [`Sandbox::exec`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exited {
    /// Its pid inside.
    pub pid_inside: u32,
    /// How it ended.
    pub status: ExitStatus,
}

/// A running box. Dropping it ends the box, unless it was told to linger.
#[derive(Debug)]
pub struct Sandbox {
    spec: Spec,
    /// PID 1, as the host numbers it.
    init_host_pid: u32,
    init: OwnedFd,
    /// Requests and their answers; one at a time.
    control: Mutex<Control>,
    /// Ends of commands only, so that its readiness means exactly that.
    events: Control,
    /// Pids of commands that never became the program: their end is not news.
    stillborn: Mutex<HashSet<u32>>,
    overlay: OwnedFd,
    lowers: Vec<OwnedFd>,
    root: OwnedFd,
    dev_shm: OwnedFd,
    dev_pts: OwnedFd,
    filter: Vec<u8>,
    groups: limits::Groups,
    held: Held,
    lingers: bool,
    gone: bool,
}

impl Sandbox {
    /// PID 1 of the box, as the host numbers it.
    pub fn init_host_pid(&self) -> u32 {
        self.init_host_pid
    }

    /// What the box was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The directory of the cgroup-2 group that holds every process of the box; `None` on a machine without cgroup 2.
    pub fn cgroup(&self) -> Option<&Path> {
        self.groups.v2.as_ref().map(linux::cgroup::Group::path)
    }

    /// How the limits are held.
    pub fn limits_held(&self) -> Held {
        self.held
    }

    /// The box's root (`O_PATH`), as the box sees it with all its mounts. Every path below it is hostile: `openat2` with
    /// `RESOLVE_IN_ROOT` only.
    pub fn merged_root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The root of the overlay, without anything mounted on it; the box's root is [`ROOT_PREFIX`] in it. For whoever
    /// tracks files.
    pub fn overlay(&self) -> BorrowedFd<'_> {
        self.overlay.as_fd()
    }

    /// The overlay's lower layers, topmost first, with the ids of the box.
    pub fn lowers(&self) -> &[OwnedFd] {
        &self.lowers
    }

    /// The box's `/dev/shm` (`O_PATH`).
    pub fn dev_shm(&self) -> BorrowedFd<'_> {
        self.dev_shm.as_fd()
    }

    /// Readable while [`Sandbox::next_event`] has something to say.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The next command that ended, without waiting.
    ///
    /// # Errors
    /// `Died` when PID 1 is gone: no more will come.
    pub fn next_event(&self) -> Result<Option<Exited>, SandboxError> {
        while let Some(message) = self.events.receive_now()? {
            let (pid_inside, status) = (message.word(1), message.word(2));
            if self.stillborn.lock().expect("no panic while held").remove(&pid_inside) {
                continue;
            }
            let [low, high, ..] = status.to_le_bytes();
            let status = if low & 0x7f == 0 {
                ExitStatus::Code(high)
            } else {
                ExitStatus::Signal(low & 0x7f)
            };
            return Ok(Some(Exited { pid_inside, status }));
        }
        Ok(None)
    }

    /// The next process that is made inside gets pid `last + 1`, if that is free. The box must be still.
    ///
    /// # Errors
    /// `Kernel` where the kernel has no `ns_last_pid`.
    pub fn set_last_pid(&self, last: u32) -> Result<(), SandboxError> {
        self.ask(protocol::SET_LAST_PID, last, "set the next pid")
    }

    /// Kills everything in the box but PID 1.
    ///
    /// # Errors
    /// `Died`.
    pub fn kill_all(&self) -> Result<(), SandboxError> {
        const SIGKILL: u32 = 9;
        self.ask(protocol::SIGNAL_ALL, SIGKILL, "kill the box's processes")
    }

    /// When `on`, the box goes on running after this value is dropped or the daemon has ended.
    ///
    /// # Errors
    /// `Died`.
    pub fn set_linger(&mut self, on: bool) -> Result<(), SandboxError> {
        self.ask(protocol::LINGER, u32::from(on), "let the box linger")?;
        self.lingers = on;
        Ok(())
    }

    fn ask(&self, kind: u32, argument: u32, step: &'static str) -> Result<(), SandboxError> {
        let control = self.control.lock().expect("no panic while held");
        control.send(&[kind, argument], &[], &[])?;
        let answer = control.receive()?;
        assert_eq!(answer.word(0), protocol::DONE, "PID 1 answers in order");
        match i32::try_from(answer.word(1)).unwrap_or(i32::MAX) {
            0 => Ok(()),
            errno => Err(SandboxError::Kernel {
                step,
                source: linux::SysError::new("init", argument, errno),
            }),
        }
    }
}
