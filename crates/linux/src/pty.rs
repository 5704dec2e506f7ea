//! Terminals from a given devpts instance, so that a program in a box finds its own terminal by name. The end of the
//! daemon is opened here and never handed to the box.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, openat};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::error::{Result, SysError};

/// Both ends of a new terminal.
#[derive(Debug)]
pub struct Pty {
    /// The daemon's end.
    pub controller: OwnedFd,
    /// The program's end.
    pub terminal: OwnedFd,
}

/// Opens a terminal in the devpts instance whose root directory is `devpts`; the program's end belongs to the host ids
/// `owner` and `group` (whoever opens it by name must own it).
///
/// # Errors
/// `ENOSPC` when the instance has no more terminals, else what the kernel says.
pub fn open(devpts: BorrowedFd<'_>, owner: u32, group: u32, rows: u16, columns: u16) -> Result<Pty> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let controller =
        openat(devpts, "ptmx", flags, Mode::empty()).map_err(|e| SysError::rustix("openat", "ptmx of the box", e))?;
    unlockpt(&controller).map_err(|e| SysError::rustix("TIOCSPTLCK", "terminal", e))?;
    let terminal = ioctl_tiocgptpeer(
        &controller,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )
    .map_err(|e| SysError::rustix("TIOCGPTPEER", "terminal", e))?;
    fchown(&terminal, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)))
        .map_err(|e| SysError::rustix("fchown", "terminal", e))?;
    resize(controller.as_fd(), rows, columns)?;
    Ok(Pty { controller, terminal })
}

/// Tells a terminal its size; the programs on it get SIGWINCH.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn resize(controller: BorrowedFd<'_>, rows: u16, columns: u16) -> Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(controller, size).map_err(|e| SysError::rustix("TIOCSWINSZ", "terminal", e))
}
