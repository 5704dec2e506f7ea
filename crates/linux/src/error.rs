//! The one error of this crate: which call failed, on what object, with which errno. Never wraps another error.

use std::fmt;

/// A system call that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysError {
    /// The call, in the kernel's name for it (`move_mount`, `PTRACE_SEIZE`).
    pub call: &'static str,
    /// What it was called on: a pid, a path, a descriptor; for people.
    pub object: String,
    /// The errno, positive.
    pub errno: i32,
}

/// What wrappers of this crate return.
pub type Result<T> = std::result::Result<T, SysError>;

impl SysError {
    /// An error for `call` on `object` with a positive `errno`.
    pub fn new(call: &'static str, object: impl fmt::Display, errno: i32) -> Self {
        Self {
            call,
            object: object.to_string(),
            errno,
        }
    }

    /// From the calling thread's `errno`, straight after a failed libc call.
    pub fn last(call: &'static str, object: impl fmt::Display) -> Self {
        Self::new(
            call,
            object,
            std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        )
    }

    /// From an I/O error of the standard library (`EIO` where it carries no errno).
    pub fn io(call: &'static str, object: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(call, object, error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// From a rustix errno.
    pub fn rustix(call: &'static str, object: impl fmt::Display, errno: rustix::io::Errno) -> Self {
        Self::new(call, object, errno.raw_os_error())
    }

    /// True when the object is a process that is gone (`ESRCH`) or a path that is not there (`ENOENT`).
    pub fn is_gone(&self) -> bool {
        self.errno == libc::ESRCH || self.errno == libc::ENOENT
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {}: {}",
            self.call,
            self.object,
            std::io::Error::from_raw_os_error(self.errno)
        )
    }
}

impl std::error::Error for SysError {}
