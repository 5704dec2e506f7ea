//! Files in and out of a box as tar streams. Every path of a box is hostile to us, who are root: each is resolved by
//! the kernel inside the box's root (`openat2` with `RESOLVE_IN_ROOT`), names below a directory are taken one at a
//! time without following links, and nothing is opened before it is known to be a regular file or a directory.
//!
//! It goes through the box's own mount, so that a change made here is tracked like the box's own. Devices and
//! attributes beyond owner, mode and time do not pass.

mod pack;
mod unpack;

use std::os::fd::{BorrowedFd, OwnedFd};

use linux::openat::openat2;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::TimelineError;

pub use pack::pack;
pub use unpack::unpack;

/// The longest stream either way.
pub const COPY_MAX_BYTES: u64 = 1 << 30;

/// Where a box's ids lie on the host: `first` is root inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The host's id of root inside.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

/// `f_type` of `/proc` and of `/sys`.
const PROC_MAGIC: i64 = 0x9fa0;
const SYSFS_MAGIC: i64 = 0x6265_6572;

/// What an id that has no number on the other side becomes.
const NOBODY: u32 = 65534;

impl Ids {
    fn inside(self, host: u32) -> u32 {
        host.checked_sub(self.first)
            .filter(|id| *id < self.count)
            .unwrap_or(NOBODY)
    }

    fn host(self, inside: u64) -> u32 {
        let id = u32::try_from(inside).ok().filter(|id| *id < self.count);
        self.first + id.unwrap_or(NOBODY.min(self.count.saturating_sub(1)))
    }
}

/// Opens what `path` is inside, as a handle that can do nothing.
fn resolve(root: BorrowedFd<'_>, path: &[u8], more: OFlags, what: &[u8]) -> Result<OwnedFd, TimelineError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, path, flags, Mode::empty(), how).map_err(|errno| refused(what, errno))?;
    let kind = rustix::fs::fstatfs(&found)
        .map_err(|errno| refused(what, errno))?
        .f_type;
    if kind == PROC_MAGIC || kind == SYSFS_MAGIC {
        // To open such a file is to act, with our rights.
        let path = String::from_utf8_lossy(what).into_owned();
        return Err(TimelineError::CopyRefused {
            path,
            why: "it is the kernel's and not a file".to_owned(),
        });
    }
    Ok(found)
}

/// A path inside, relative to the root and never empty.
fn relative(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    if start == path.len() { b"." } else { &path[start..] }
}

fn refused(path: &[u8], errno: Errno) -> TimelineError {
    let path = String::from_utf8_lossy(path).into_owned();
    match errno {
        Errno::NOENT => TimelineError::UnknownPath { path },
        errno => TimelineError::CopyRefused {
            path,
            why: std::io::Error::from(errno).to_string(),
        },
    }
}

fn unreadable(path: &[u8], error: &std::io::Error) -> TimelineError {
    TimelineError::CopyRefused {
        path: String::from_utf8_lossy(path).into_owned(),
        why: error.to_string(),
    }
}

fn too_large(path: &[u8]) -> TimelineError {
    TimelineError::CopyRefused {
        path: String::from_utf8_lossy(path).into_owned(),
        why: format!("more than {COPY_MAX_BYTES} bytes at once; copy it in parts"),
    }
}

#[cfg(test)]
mod tests;
