//! The blob directory: bytes of large files, one file each, on the file system of the upper so that they can be
//! reflinks; and the graveyard, where trees that a rollback removed wait to be deleted while the box runs.
//! Nothing in it survives the tracker: it is the resident form of a checkpoint, not the stored one.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

use image::tree::Blob;
use linux::openat::open_entry;
use linux::reflink::{clone_file, copy_sparse};
use rustix::fs::{AtFlags, Dir, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::Result;
use crate::attributes::{failed, stat};

/// The directory and what is in it.
#[derive(Debug)]
pub(crate) struct BlobDir {
    fd: OwnedFd,
    next_number: u64,
    retired: Arc<Mutex<Vec<u64>>>,
    graves: Vec<String>,
}

impl BlobDir {
    /// Takes over `fd` (an open directory) and empties it of what an earlier tracker left.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        let mut blobs = Self {
            fd,
            next_number: 0,
            retired: Arc::default(),
            graves: Vec::new(),
        };
        for name in names_in(&blobs.fd)? {
            if name.starts_with(b"blob-") || name.starts_with(b"grave-") {
                remove_tree(&blobs.fd, &name)?;
            }
        }
        blobs.next_number = 1;
        Ok(blobs)
    }

    /// Keeps the present content of `source`: a reflink where the file system can, else a copy with its holes.
    pub(crate) fn keep(&mut self, source: impl AsFd, size: u64) -> Result<Arc<Blob>> {
        let number = self.next_number;
        self.next_number += 1;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = open_entry(&self.fd, name_of(number).as_bytes(), flags, 0o600)?;
        let kept = clone_file(&source, &file).or_else(|_| copy_sparse(&source, &file, size).map(drop));
        if let Err(error) = kept {
            self.remove(number);
            return Err(error.into());
        }
        let allocated = stat(&file)?.allocated;
        Ok(Arc::new(Blob {
            number,
            size,
            allocated,
            retired: self.retired.clone(),
        }))
    }

    /// Opens a kept content for reading.
    pub(crate) fn open(&self, blob: &Blob) -> Result<OwnedFd> {
        Ok(open_entry(
            &self.fd,
            name_of(blob.number).as_bytes(),
            OFlags::RDONLY,
            0,
        )?)
    }

    /// A name for a tree that is to be moved here with `renameat`.
    pub(crate) fn new_grave(&mut self) -> String {
        let name = format!("grave-{}", self.next_number);
        self.next_number += 1;
        self.graves.push(name.clone());
        name
    }

    /// The directory itself.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Deletes what nobody names any more. Called while the box runs.
    pub(crate) fn sweep(&mut self) -> Result<()> {
        let retired = self
            .retired
            .lock()
            .map(|mut retired| std::mem::take(&mut *retired))
            .unwrap_or_default();
        retired.into_iter().for_each(|number| self.remove(number));
        while let Some(grave) = self.graves.last() {
            remove_tree(&self.fd, grave.as_bytes())?;
            let _removed = self.graves.pop();
        }
        Ok(())
    }

    fn remove(&self, number: u64) {
        // A blob that is gone already is what we want; anything else shows as disk space, never as wrong bytes.
        let _gone = rustix::fs::unlinkat(&self.fd, name_of(number), AtFlags::empty());
    }
}

fn name_of(number: u64) -> String {
    format!("blob-{number}")
}

/// Names in an open directory, without `.` and `..`.
pub(crate) fn names_in(directory: impl AsFd) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let listed = Dir::read_from(directory).map_err(failed("getdents", b"directory"))?;
    for entry in listed {
        let entry = entry.map_err(failed("getdents", b"directory"))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Removes `name` in `directory` and all below it, following nothing. Missing is success. Needs two descriptors and no
/// stack however deep the tree is (a box can make one of any depth): what is deep is moved to the top first.
pub(crate) fn remove_tree(directory: impl AsFd, name: &[u8]) -> Result<()> {
    let directory = directory.as_fd();
    if unlink_file(directory, name)? {
        return Ok(());
    }
    let top = open_entry(directory, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let mut number: u64 = 0;
    loop {
        let names = names_in(&top)?;
        if names.is_empty() {
            break;
        }
        for child in names {
            if !unlink_file(top.as_fd(), &child)? {
                flatten(&top, &child, &mut number)?;
            }
        }
    }
    let done = rustix::fs::unlinkat(directory, OsStr::from_bytes(name), AtFlags::REMOVEDIR);
    Ok(done.map_err(failed("rmdir", name))?)
}

/// Removes a name that is not a directory; false when it is one.
fn unlink_file(directory: BorrowedFd<'_>, name: &[u8]) -> Result<bool> {
    match rustix::fs::unlinkat(directory, OsStr::from_bytes(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno) => Err(failed("unlinkat", name)(errno).into()),
    }
}

/// Removes the directory `top`/`name`; directories in it are moved to `top`.
fn flatten(top: &OwnedFd, name: &[u8], number: &mut u64) -> Result<()> {
    let inner = open_entry(top, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    for child in names_in(&inner)? {
        if unlink_file(inner.as_fd(), &child)? {
            continue;
        }
        loop {
            *number += 1;
            let (from, to) = (OsStr::from_bytes(&child), format!(".deep-{number}"));
            match rustix::fs::renameat_with(&inner, from, top, to, RenameFlags::NOREPLACE) {
                Ok(()) => break,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("renameat2", &child)(errno).into()),
            }
        }
    }
    let done = rustix::fs::unlinkat(top, OsStr::from_bytes(name), AtFlags::REMOVEDIR);
    Ok(done.map_err(failed("rmdir", name))?)
}
