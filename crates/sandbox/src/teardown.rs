//! The end of a box: kill, reap, remove its groups. Its mounts and namespaces end with its last process. Safe to run
//! twice, and after a box that died by itself. It removes no file of the box.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::Sandbox;
use crate::error::SandboxError;

impl Sandbox {
    /// PID 1 has ended, and everything in the box with it.
    pub fn has_died(&self) -> bool {
        // A dying process closes its sockets before it loses its mounts, and is a zombie last.
        let mut polls = [
            PollFd::new(&self.init, PollFlags::IN),
            PollFd::new(&self.events, PollFlags::HUP),
        ];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.gone || poll(&mut polls, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Ends the box and removes everything of it but files. Running it again does nothing.
    ///
    /// # Errors
    /// `Kernel` when a control group cannot be removed: something is still in it.
    pub fn teardown(&mut self) -> Result<(), SandboxError> {
        if self.gone {
            return Ok(());
        }
        if let Some(group) = &self.groups.v2 {
            // All at once, so that nothing forks on while PID 1 dies; kernels without it kill by PID 1's end below.
            drop(group.kill());
        }
        end_and_reap(self.init.as_fd());
        self.groups.remove()?;
        self.gone = true;
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if !self.lingers {
            // A failure leaves an empty group behind, which the next box of that id takes.
            drop(self.teardown());
        }
    }
}

/// Kills PID 1, waits until it is gone (then the whole pid namespace is) and reaps it.
pub(crate) fn end_and_reap(init: BorrowedFd<'_>) {
    // ESRCH: it has ended already.
    let _: rustix::io::Result<()> = pidfd_send_signal(init, Signal::KILL);
    let mut polls = [PollFd::from_borrowed_fd(init, PollFlags::IN)];
    while matches!(poll(&mut polls, None), Err(rustix::io::Errno::INTR)) {}
    // ECHILD: whoever waits for all children of this process was faster.
    let _: rustix::io::Result<_> = waitid(WaitId::PidFd(init), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).map(drop);
}
