//! fanotify groups with inode marks on directories: which names and files below them changed. One group watches one
//! file system. Never blocks, never asks for permission events, holds no file open.
//!
//! Events carry handles, not paths: a rename in between cannot mislead the reader.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Result, SysError};
use crate::openat::Handle;

/// What we ask of a directory: changes of its names, of itself, and of what is directly in it.
const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD;

/// Events about a name of a directory, rather than about a file.
const NAME_MASK: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;

/// A group of marks and its queue of events.
#[derive(Debug)]
pub struct Group {
    fd: OwnedFd,
}

/// One event, as far as it could be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The directory in which it happened.
    pub directory: Option<Handle>,
    /// The name there, when it had one; `.` for the directory itself.
    pub name: &'a [u8],
    /// The file it happened to; absent when only names changed.
    pub object: Option<Handle>,
    /// Names of the directory changed (created, deleted, moved).
    pub names_changed: bool,
    /// Content may have changed.
    pub modified: bool,
    /// Attributes changed.
    pub attributes: bool,
    /// Events were lost; nothing else is set.
    pub overflow: bool,
}

impl Group {
    /// A new group.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`, `EMFILE` past the limit of groups.
    pub fn new() -> Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_UNLIMITED_MARKS
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DFID_NAME;
        let mode = libc::c_uint::try_from(libc::O_RDONLY).expect("O_RDONLY is 0");
        // SAFETY: fanotify_init takes two integers and touches no memory of ours.
        let fd = unsafe { libc::fanotify_init(flags, mode) };
        if fd < 0 {
            return Err(SysError::last("fanotify_init", "group"));
        }
        // SAFETY: the kernel has just returned `fd`, open, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Marks `directory` (an open directory, not `O_PATH`). The mark goes with the inode, whatever its name becomes,
    /// and ends with it.
    ///
    /// # Errors
    /// `ENODEV` or `EOPNOTSUPP` when the file system has no handles or no id.
    pub fn mark_directory(&self, directory: impl AsFd) -> Result<()> {
        let directory = directory.as_fd().as_raw_fd();
        // SAFETY: a null path makes the call act on `directory` itself; no memory of ours is touched.
        let done = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR,
                MASK,
                directory,
                std::ptr::null(),
            )
        };
        if done != 0 {
            return Err(SysError::last("fanotify_mark", format!("directory fd {directory}")));
        }
        Ok(())
    }

    /// True where events wait to be taken.
    ///
    /// # Errors
    /// What `poll` says.
    pub fn has_events(&self) -> Result<bool> {
        let mut polls = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        let ready = rustix::event::poll(&mut polls, Some(&rustix::event::Timespec::default()));
        Ok(ready.map_err(|errno| SysError::rustix("poll", "fanotify group", errno))? > 0)
    }

    /// Hands every queued event to `take`, until the queue is empty. `buffer` is scratch of at least 4 KiB.
    ///
    /// # Errors
    /// What `read` says, never `EAGAIN`.
    pub fn drain(&self, buffer: &mut [u8], mut take: impl FnMut(Event<'_>)) -> Result<()> {
        loop {
            let length = match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(SysError::rustix("read", "fanotify group", errno)),
                Ok(length) => length,
            };
            let mut rest = &buffer[..length];
            while let Some((event, after)) = split_event(rest) {
                take(event);
                rest = after;
            }
            assert!(rest.is_empty(), "the kernel returns whole events");
        }
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The first event of `bytes` and what follows. Layout: `struct fanotify_event_metadata` (24 bytes: length, version,
/// reserved, metadata length, mask, fd, pid), then information records, each with a header of 4 bytes.
fn split_event(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (own, after) = bytes.split_at_checked(length)?;
    let metadata = usize::from(u16_at(own, 6)?);
    let mask = u64::from_ne_bytes(own.get(8..16)?.try_into().ok()?);
    let mut event = Event {
        directory: None,
        name: b"",
        object: None,
        names_changed: mask & NAME_MASK != 0,
        modified: mask & (libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE) != 0,
        attributes: mask & libc::FAN_ATTRIB != 0,
        overflow: mask & libc::FAN_Q_OVERFLOW != 0,
    };
    let mut records = own.get(metadata..)?;
    while let Some(record_length) = u16_at(records, 2).map(usize::from).filter(|&length| length >= 4) {
        let (record, next) = records.split_at_checked(record_length)?;
        match record[0] {
            libc::FAN_EVENT_INFO_TYPE_FID => event.object = split_handle(record).map(|(handle, _)| handle),
            libc::FAN_EVENT_INFO_TYPE_DFID => event.directory = split_handle(record).map(|(handle, _)| handle),
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                let (handle, name) = split_handle(record)?;
                event.directory = Some(handle);
                event.name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            }
            _ => {}
        }
        records = next;
    }
    Some((event, after))
}

/// The handle of an information record (header 4, file system id 8, then `struct file_handle`) and what follows it.
fn split_handle(record: &[u8]) -> Option<(Handle, &[u8])> {
    const START: usize = 12;
    let length = usize::try_from(u32_at(record, START)?).ok()?;
    let kind = i32::from_ne_bytes(record.get(START + 4..START + 8)?.try_into().ok()?);
    let bytes = record.get(START + 8..START + 8 + length)?;
    Some((Handle::new(kind, bytes)?, record.get(START + 8 + length..)?))
}
