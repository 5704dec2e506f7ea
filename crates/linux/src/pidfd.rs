//! Process descriptors: identity that survives pid reuse, and duplicates of another process's descriptors. Never
//! holds a duplicate longer than its caller: a pipe end held by us would hide an end-of-file from the box.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use crate::error::{Result, SysError};

/// A process by descriptor.
#[derive(Debug)]
pub struct Pidfd {
    fd: OwnedFd,
    pid: i32,
}

impl Pidfd {
    /// Opens the process that has `pid` now.
    ///
    /// # Errors
    /// `ESRCH` where there is none.
    pub fn open(pid: i32) -> Result<Self> {
        let number = Pid::from_raw(pid).ok_or_else(|| SysError::new("pidfd_open", pid, libc::EINVAL))?;
        let fd = rustix::process::pidfd_open(number, PidfdFlags::empty())
            .map_err(|e| SysError::rustix("pidfd_open", pid, e))?;
        Ok(Self { fd, pid })
    }

    /// A duplicate of its descriptor `fd`.
    ///
    /// # Errors
    /// `EBADF` where it is closed.
    pub fn duplicate(&self, fd: u32) -> Result<OwnedFd> {
        let number = i32::try_from(fd).expect("descriptor numbers are positive ints");
        rustix::process::pidfd_getfd(self.fd.as_fd(), number, PidfdGetfdFlags::empty())
            .map_err(|e| SysError::rustix("pidfd_getfd", format!("{}:{fd}", self.pid), e))
    }
}
