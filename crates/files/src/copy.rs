//! Copying a tree of the lower layers into the box: the fallback where it cannot be revealed. Slow, complete: holes,
//! hard links within the tree, attributes, special files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use image::tree::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, join};
use linux::SysError;
use linux::openat::open_entry;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Result;
use crate::attributes::{failed, read_xattrs, stat, write_mode, write_owner, write_times, write_xattr};
use crate::lower::Lower;

/// One copy of one tree.
#[derive(Debug)]
pub(crate) struct Copier<'a> {
    lower: &'a Lower,
    /// First copies of files with several names, by layer and inode number: the directory and the name there.
    first_names: HashMap<(usize, u64), (OwnedFd, Vec<u8>)>,
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

impl<'a> Copier<'a> {
    pub(crate) fn new(lower: &'a Lower) -> Self {
        Self {
            lower,
            first_names: HashMap::new(),
        }
    }

    /// Copies what the lower layers show at `path`, with all below it, to `target`/`to`.
    pub(crate) fn copy(&mut self, path: &[u8], target: &OwnedFd, to: &[u8]) -> Result<()> {
        let Some(found) = self.lower.find(path)? else {
            return Err(SysError::new("lookup", path.escape_ascii(), Errno::NOENT.raw_os_error()).into());
        };
        let there = stat(&found.fd)?;
        if there.mode & S_IFMT != S_IFDIR && there.link_count > 1 {
            let key = (found.layer, there.ino);
            if let Some((directory, name)) = self.first_names.get(&key) {
                let done = rustix::fs::linkat(directory, os(name), target, os(to), AtFlags::empty());
                return Ok(done.map_err(failed("linkat", to))?);
            }
            let directory = target
                .try_clone()
                .map_err(|error| SysError::io("dup", "directory", &error))?;
            let _none = self.first_names.insert(key, (directory, to.to_vec()));
        }
        match there.mode & S_IFMT {
            S_IFDIR => {
                rustix::fs::mkdirat(target, os(to), Mode::RWXU).map_err(failed("mkdirat", to))?;
                let copy = open_entry(target, to, OFlags::PATH | OFlags::DIRECTORY, 0)?;
                for name in self.lower.names(path)? {
                    self.copy(&join(path, &name), &copy, &name)?;
                }
            }
            S_IFREG => {
                let inner = self.lower.reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK)?;
                let copy = open_entry(target, to, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o600)?;
                let _bytes = linux::reflink::copy_sparse(&inner, &copy, there.attributes.size)?;
            }
            S_IFLNK => {
                let link = rustix::fs::readlinkat(&found.fd, "", Vec::new()).map_err(failed("readlinkat", path))?;
                rustix::fs::symlinkat(link, target, os(to)).map_err(failed("symlinkat", to))?;
            }
            kind => {
                let (major, minor) = there.attributes.rdev;
                let device = rustix::fs::makedev(major, minor);
                let kind = FileType::from_raw_mode(kind);
                rustix::fs::mknodat(target, os(to), kind, Mode::RUSR, device).map_err(failed("mknodat", to))?;
            }
        }
        copy_attributes(&found.fd, &open_entry(target, to, OFlags::PATH, 0)?)
    }
}

fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let there = stat(from)?;
    write_owner(to.as_fd(), there.attributes.uid, there.attributes.gid)?;
    if there.mode & S_IFMT != S_IFLNK {
        write_mode(to.as_fd(), there.mode)?;
    }
    for (name, value) in read_xattrs(from.as_fd(), true)? {
        if !name.starts_with(b"trusted.overlay.") {
            write_xattr(to.as_fd(), true, &name, Some(&value))?;
        }
    }
    write_times(to.as_fd(), true, &there.attributes)
}
