//! What no name leads to and nobody holds any more: open files, and working directories. They are made again as near
//! as may be to where they were. A file never gets a name; a directory has one for the moment in which the process steps
//! into it, and the times of the directory that it was in are put back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use image::process::{Ghost, Process};
use linux::SysError;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::fds::{open_flags, open_inside};
use crate::error::EngineError;
use crate::tracee::LiveProcess;

/// What the kernel says after the path of what was removed.
pub(crate) const DELETED: &[u8] = b" (deleted)";
/// Names that are tried where the old one is taken; a box that takes them all stops itself.
const NAMES_MAX: u32 = 100;

/// A file without a name, where it had its name; what is in it is put there with the other states. The path may be
/// another file's by now.
pub(super) fn file(
    process: &LiveProcess,
    path: &[u8],
    ghost: u32,
    flags: u32,
    ghosts: &mut BTreeMap<u32, OwnedFd>,
) -> Result<OwnedFd, EngineError> {
    let file = match ghosts.entry(ghost) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let directory = path
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(&b"/"[..], |at| &path[..at]);
            entry.insert(new_file(process, directory).or_else(|_| new_file(process, b"/"))?)
        }
    };
    let flags = open_flags(flags) - OFlags::NOFOLLOW - OFlags::DIRECTORY;
    Ok(linux::descriptor::reopen(file.as_fd(), flags)?)
}

fn new_file(process: &LiveProcess, directory: &[u8]) -> Result<OwnedFd, EngineError> {
    let directory = open_inside(process, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
    let owner = process.dir.stat("root")?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let _acting = linux::owner::act_as(owner.st_uid, owner.st_gid)?;
    rustix::fs::openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| SysError::rustix("open O_TMPFILE", "a directory", e).into())
}

/// Gives a file the owner, permissions and time that it had, where it has others; last of all, since a write changes the
/// time.
pub(super) fn put_attributes(file: &File, wanted: &Ghost) -> Result<(), EngineError> {
    let failed = |call| move |errno| EngineError::from(SysError::rustix(call, "a file without a name", errno));
    let present = rustix::fs::fstat(file).map_err(failed("fstat"))?;
    if (present.st_uid, present.st_gid) != wanted.owner {
        let (user, group) = wanted.owner;
        rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))).map_err(failed("fchown"))?;
    }
    // A change of owner takes bits away.
    let present = rustix::fs::fstat(file).map_err(failed("fstat"))?;
    if present.st_mode & 0o7777 != wanted.mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode)).map_err(failed("fchmod"))?;
    }
    let (tv_sec, tv_nsec) = wanted.modified;
    if (present.st_mtime, i64::try_from(present.st_mtime_nsec)) == (tv_sec, Ok(tv_nsec)) {
        return Ok(());
    }
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    rustix::fs::futimens(file, &times).map_err(failed("futimens"))
}

/// The directory while it has a name.
#[derive(Debug)]
pub(crate) struct Footing {
    /// Where it can be stepped into, as the box sees it.
    pub(crate) path: Vec<u8>,
    parent: OwnedFd,
    name: Vec<u8>,
    times: Timestamps,
}

impl Footing {
    /// Makes one where `target` stood in a removed directory and `now` does not stand in that one.
    pub(crate) fn make(process: &LiveProcess, now: &Process, target: &Process) -> Result<Option<Self>, EngineError> {
        let Some(path) = target.cwd.0.strip_suffix(DELETED).filter(|_| now.cwd != target.cwd) else {
            return Ok(None);
        };
        let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (above, parent) = match open_inside(process, &path[..cut], flags) {
            Ok(parent) => (&path[..cut], parent),
            Err(_) => (&b""[..], open_inside(process, b"/", flags)?),
        };
        let stat = rustix::fs::fstat(&parent).map_err(|e| SysError::rustix("fstat", "a directory", e))?;
        let time = |tv_sec, nanoseconds: u64| Timespec {
            tv_sec,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
        };
        let times = Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
        };
        let owner = process.dir.stat("root")?;
        let _acting = linux::owner::act_as(owner.st_uid, owner.st_gid)?;
        let own = path.get(cut + 1..).unwrap_or_default().to_vec();
        let others = (0..NAMES_MAX).map(|at| format!(".deltabox-{at}").into_bytes());
        for name in std::iter::once(own).filter(|name| !name.is_empty()).chain(others) {
            match rustix::fs::mkdirat(&parent, OsStr::from_bytes(&name), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let path = [above, b"/", &name].concat();
                    return Ok(Some(Self {
                        path,
                        parent,
                        name,
                        times,
                    }));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(SysError::rustix("mkdirat", String::from_utf8_lossy(path), errno).into()),
            }
        }
        Err(SysError::rustix("mkdirat", String::from_utf8_lossy(path), Errno::EXIST).into())
    }

    /// Takes its name away, and the traces of it.
    pub(crate) fn remove(self) -> Result<(), EngineError> {
        rustix::fs::unlinkat(&self.parent, OsStr::from_bytes(&self.name), AtFlags::REMOVEDIR)
            .and_then(|()| rustix::fs::utimensat(&self.parent, "", &self.times, AtFlags::EMPTY_PATH))
            .map_err(|e| SysError::rustix("rmdir", String::from_utf8_lossy(&self.path), e).into())
    }
}

/// True when two links of `/proc/PID/cwd` mean the same: a removed directory may have been made again under another name.
pub(crate) fn is_same_directory(now: &[u8], wanted: &[u8]) -> bool {
    now == wanted || (now.ends_with(DELETED) && wanted.ends_with(DELETED))
}
