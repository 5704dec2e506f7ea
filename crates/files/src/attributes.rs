//! Reading and writing what an inode is besides its bytes: mode, owner, times, extended attributes, and the
//! identity of it. Works on descriptors only.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use image::tree::{Attributes, FileKey, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, Time, Xattrs};
use linux::SysError;
use linux::openat::{Handle, self_path};
use rustix::fs::{AtFlags, Mode, Timestamps};
use rustix::io::Errno;

use crate::Result;

/// The tree's key for a handle of the kernel.
pub(crate) fn key_of(handle: Handle) -> FileKey {
    FileKey::new(handle.kind, handle.bytes()).expect("both hold 27 bytes")
}

/// The kernel's handle for a key of the tree.
pub(crate) fn handle_of_key(key: &FileKey) -> Handle {
    Handle::new(key.kind(), key.bytes()).expect("both hold 27 bytes")
}

/// An error of a rustix call.
pub(crate) fn failed(call: &'static str, object: &[u8]) -> impl FnOnce(Errno) -> SysError {
    let object = object.escape_ascii().to_string();
    move |errno| SysError::rustix(call, object, errno)
}

/// What `fstat` says, in our words.
#[derive(Debug, Clone)]
pub(crate) struct Stat {
    pub(crate) mode: u32,
    pub(crate) attributes: Attributes,
    pub(crate) ino: u64,
    pub(crate) dev: (u32, u32),
    /// Bytes on disk.
    pub(crate) allocated: u64,
}

/// `fstat` of an open object (`O_PATH` too).
pub(crate) fn stat(fd: impl AsFd) -> Result<Stat> {
    let raw = rustix::fs::fstat(fd).map_err(failed("fstat", b"file"))?;
    Ok(convert(&raw))
}

/// `lstat` of a name in an open directory.
pub(crate) fn stat_entry(directory: impl AsFd, name: &[u8]) -> std::result::Result<Stat, Errno> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(name);
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|raw| convert(&raw))
}

fn convert(raw: &rustix::fs::Stat) -> Stat {
    let pair = |dev| (rustix::fs::major(dev), rustix::fs::minor(dev));
    let time = |seconds, nanoseconds: u64| Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    let attributes = Attributes {
        mode: raw.st_mode,
        uid: raw.st_uid,
        gid: raw.st_gid,
        rdev: pair(raw.st_rdev),
        size: u64::try_from(raw.st_size).unwrap_or(0),
        mtime: time(raw.st_mtime, raw.st_mtime_nsec),
        atime: time(raw.st_atime, raw.st_atime_nsec),
    };
    let allocated = u64::try_from(raw.st_blocks).unwrap_or(0) * 512;
    Stat { mode: raw.st_mode, attributes, ino: raw.st_ino, dev: pair(raw.st_dev), allocated }
}

/// True for a regular file or a directory: what can be opened for real without side effects.
pub(crate) fn is_plain(mode: u32) -> bool {
    matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
}

/// True for the overlay's mark of a deleted name: a character device 0:0.
pub(crate) fn is_whiteout(fd: impl AsFd, mode: u32) -> Result<bool> {
    Ok(mode & S_IFMT == S_IFCHR && stat(fd)?.attributes.rdev == (0, 0))
}

/// An attribute of the overlay on a directory open as `O_PATH`.
pub(crate) fn overlay_xattr(fd: impl AsFd, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; 4096];
    let length =
        rustix::fs::getxattr(self_path(fd.as_fd()), format!("trusted.overlay.{name}"), value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

/// All extended attributes. `is_path`: the descriptor is `O_PATH`.
pub(crate) fn read_xattrs(fd: BorrowedFd<'_>, is_path: bool) -> Result<Xattrs> {
    let mut names = vec![0_u8; 1024];
    let length = loop {
        let listed = if is_path {
            rustix::fs::listxattr(self_path(fd), names.as_mut_slice())
        } else {
            rustix::fs::flistxattr(fd, names.as_mut_slice())
        };
        match listed {
            Ok(length) => break length,
            Err(Errno::OPNOTSUPP) => break 0,
            Err(Errno::RANGE) if names.len() < 1 << 17 => names.resize(1 << 17, 0),
            Err(errno) => return Err(failed("listxattr", b"file")(errno).into()),
        }
    };
    let mut xattrs = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        if let Some(value) = read_xattr(fd, is_path, name)? {
            let _first: Option<Arc<[u8]>> = xattrs.insert(name.into(), value.into());
        }
    }
    Ok(xattrs)
}

fn read_xattr(fd: BorrowedFd<'_>, is_path: bool, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; 512];
    loop {
        let read = if is_path {
            rustix::fs::getxattr(self_path(fd), name, value.as_mut_slice())
        } else {
            rustix::fs::fgetxattr(fd, name, value.as_mut_slice())
        };
        match read {
            Ok(length) => {
                value.truncate(length);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) if value.len() < 1 << 16 => value.resize(1 << 16, 0),
            // NODATA: ACLs are listed but absent on some file systems.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(failed("getxattr", name)(errno).into()),
        }
    }
}

/// Sets (`Some`) or removes (`None`) one extended attribute.
pub(crate) fn write_xattr(fd: BorrowedFd<'_>, is_path: bool, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    use rustix::fs::XattrFlags;
    let done = match (value, is_path) {
        (Some(value), false) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
        (Some(value), true) => rustix::fs::setxattr(self_path(fd), name, value, XattrFlags::empty()),
        (None, false) => rustix::fs::fremovexattr(fd, name),
        (None, true) => rustix::fs::removexattr(self_path(fd), name),
    };
    match done {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(failed("setxattr", name)(errno).into()),
    }
}

/// Sets both times. `is_path`: the descriptor is `O_PATH`.
pub(crate) fn write_times(fd: BorrowedFd<'_>, is_path: bool, attributes: &Attributes) -> Result<()> {
    let time = |time: Time| rustix::fs::Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps { last_access: time(attributes.atime), last_modification: time(attributes.mtime) };
    let done = if is_path {
        rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH)
    } else {
        rustix::fs::futimens(fd, &times)
    };
    Ok(done.map_err(failed("utimensat", b"file"))?)
}

/// Sets the owner of an object open as `O_PATH`.
pub(crate) fn write_owner(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<()> {
    let owner = (Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)));
    Ok(rustix::fs::chownat(fd, "", owner.0, owner.1, AtFlags::EMPTY_PATH).map_err(failed("chown", b"file"))?)
}

/// Sets the permission bits of an object open as `O_PATH` (never a symbolic link, which has none).
pub(crate) fn write_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    let mode = Mode::from_raw_mode(mode & !S_IFMT);
    Ok(rustix::fs::chmod(self_path(fd), mode).map_err(failed("chmod", b"file"))?)
}
