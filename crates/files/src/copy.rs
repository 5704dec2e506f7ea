//! Copying a tree of the lower layers into the box: the fallback where it cannot be revealed. Slow, complete: holes,
//! hard links within the tree, attributes, special files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use image::tree::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use linux::SysError;
use linux::openat::open_entry;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::Result;
use crate::attributes::{failed, read_xattrs, stat, stat_entry, write_mode, write_owner, write_times, write_xattr};
use crate::blob::names_in;

/// One copy of one tree.
#[derive(Debug, Default)]
pub(crate) struct Copier {
    /// First copies of files with several names, by inode number: the directory and the name there.
    first_names: HashMap<u64, (OwnedFd, Vec<u8>)>,
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

impl Copier {
    /// Copies `source`/`from` with all below it to `target`/`to`.
    pub(crate) fn copy(&mut self, source: &OwnedFd, from: &[u8], target: &OwnedFd, to: &[u8]) -> Result<()> {
        let there = stat_entry(source, from).map_err(failed("fstatat", from))?;
        let is_dir = there.mode & S_IFMT == S_IFDIR;
        if !is_dir && there.link_count > 1 {
            if let Some((directory, name)) = self.first_names.get(&there.ino) {
                let done = rustix::fs::linkat(directory, os(name), target, os(to), AtFlags::empty());
                return Ok(done.map_err(failed("linkat", to))?);
            }
            let directory = target
                .try_clone()
                .map_err(|error| SysError::io("dup", "directory", &error))?;
            let _none = self.first_names.insert(there.ino, (directory, to.to_vec()));
        }
        match there.mode & S_IFMT {
            S_IFDIR => {
                rustix::fs::mkdirat(target, os(to), Mode::RWXU).map_err(failed("mkdirat", to))?;
                let inner = open_entry(source, from, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
                let copy = open_entry(target, to, OFlags::PATH | OFlags::DIRECTORY, 0)?;
                for name in names_in(&inner)? {
                    self.copy(&inner, &name, &copy, &name)?;
                }
            }
            S_IFREG => {
                let inner = open_entry(source, from, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
                let copy = open_entry(target, to, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o600)?;
                let _bytes = linux::reflink::copy_sparse(&inner, &copy, there.attributes.size)?;
            }
            S_IFLNK => {
                let link = rustix::fs::readlinkat(source, os(from), Vec::new()).map_err(failed("readlinkat", from))?;
                rustix::fs::symlinkat(link, target, os(to)).map_err(failed("symlinkat", to))?;
            }
            kind => {
                let (major, minor) = there.attributes.rdev;
                let device = rustix::fs::makedev(major, minor);
                let kind = FileType::from_raw_mode(kind);
                rustix::fs::mknodat(target, os(to), kind, Mode::RUSR, device).map_err(failed("mknodat", to))?;
            }
        }
        let from = open_entry(source, from, OFlags::PATH, 0)?;
        copy_attributes(&from, &open_entry(target, to, OFlags::PATH, 0)?)
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
