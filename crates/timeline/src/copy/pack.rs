//! A file or directory of a box as a tar stream whose names start with the last part of its path.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux::openat::openat2;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, readlinkat};

use super::{COPY_MAX_BYTES, Ids, refused, relative, resolve, too_large, unreadable};
use crate::error::TimelineError;

/// Reads `path` below `root`.
///
/// # Errors
/// `UnknownPath`, `CopyRefused`.
pub fn pack(root: BorrowedFd<'_>, path: &[u8], ids: Ids) -> Result<Vec<u8>, TimelineError> {
    let top = resolve(root, relative(path), OFlags::empty(), path)?;
    let stat = fstat(&top).map_err(|errno| refused(path, errno))?;
    let mut packer = Packer {
        tar: tar::Builder::new(Vec::new()),
        ids,
        seen: HashMap::new(),
        given: path,
    };
    let name = Path::new(OsStr::from_bytes(path))
        .file_name()
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        packer.tree(top.as_fd(), &name)?;
    } else {
        packer.entry(top.as_fd(), &stat, &name)?;
    }
    packer.tar.into_inner().map_err(|error| unreadable(path, &error))
}

struct Packer<'a> {
    tar: tar::Builder<Vec<u8>>,
    ids: Ids,
    /// Inodes with several names, by device and number.
    seen: HashMap<(u64, u64), PathBuf>,
    given: &'a [u8],
}

impl Packer<'_> {
    /// A directory with all that is in it, each directory before its content.
    fn tree(&mut self, top: BorrowedFd<'_>, name: &Path) -> Result<(), TimelineError> {
        let mut todo = vec![PathBuf::new()];
        while let Some(below) = todo.pop() {
            let is_top = below.as_os_str().is_empty();
            let inside = if is_top { Path::new(".") } else { below.as_path() };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let full = if is_top { name.to_owned() } else { name.join(&below) };
            let handle = match openat2(top, inside, flags, Mode::empty(), resolve) {
                Ok(handle) => handle,
                // Gone since its directory was read, or another mount: not ours to copy.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::XDEV) => continue,
                Err(errno) => return Err(refused(full.as_os_str().as_bytes(), errno)),
            };
            let stat = fstat(&handle).map_err(|errno| refused(full.as_os_str().as_bytes(), errno))?;
            self.entry(handle.as_fd(), &stat, &full)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.children(handle.as_fd(), &below, &mut todo)?;
            }
        }
        Ok(())
    }

    fn children(&self, handle: BorrowedFd<'_>, below: &Path, todo: &mut Vec<PathBuf>) -> Result<(), TimelineError> {
        let fail = |errno| refused(self.given, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(handle, ".", flags, Mode::empty()).map_err(fail)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        // Sorted, so that one tree always gives one stream; last first, because the stack turns them round.
        names.sort_unstable_by(|a, b| b.cmp(a));
        todo.extend(names.iter().map(|name| below.join(OsStr::from_bytes(name))));
        Ok(())
    }

    fn entry(&mut self, handle: BorrowedFd<'_>, stat: &Stat, name: &Path) -> Result<(), TimelineError> {
        let shown = name.as_os_str().as_bytes();
        let mut header = tar::Header::new_gnu();
        header.set_mode(stat.st_mode & 0o7777);
        header.set_uid(self.ids.inside(stat.st_uid).into());
        header.set_gid(self.ids.inside(stat.st_gid).into());
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(0);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 {
            if let Some(first) = self.seen.get(&(stat.st_dev, stat.st_ino)) {
                header.set_entry_type(tar::EntryType::Link);
                return self
                    .tar
                    .append_link(&mut header, name, first)
                    .map_err(|error| unreadable(shown, &error));
            }
            self.seen.insert((stat.st_dev, stat.st_ino), name.to_owned());
        }
        let done = match kind {
            FileType::RegularFile => return self.file(handle, stat, name, header),
            FileType::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                self.tar.append_data(&mut header, name, io::empty())
            }
            FileType::Symlink => {
                header.set_entry_type(tar::EntryType::Symlink);
                let target = readlinkat(handle, "", Vec::new()).map_err(|errno| refused(shown, errno))?;
                self.tar
                    .append_link(&mut header, name, OsStr::from_bytes(target.to_bytes()))
            }
            FileType::Fifo => {
                header.set_entry_type(tar::EntryType::Fifo);
                self.tar.append_data(&mut header, name, io::empty())
            }
            // Sockets and devices mean nothing outside.
            _ => Ok(()),
        };
        done.map_err(|error| unreadable(shown, &error))
    }

    fn file(
        &mut self,
        handle: BorrowedFd<'_>,
        stat: &Stat,
        name: &Path,
        mut header: tar::Header,
    ) -> Result<(), TimelineError> {
        let shown = name.as_os_str().as_bytes();
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if self.tar.get_ref().len() as u64 + size > COPY_MAX_BYTES {
            return Err(too_large(shown));
        }
        // The handle is a regular file: opening it again cannot block or act.
        let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        let file = file.map_err(|error| unreadable(shown, &error))?;
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(size);
        let exact = Exact {
            file: file.take(size),
            left: size,
        };
        self.tar
            .append_data(&mut header, name, exact)
            .map_err(|error| unreadable(shown, &error))
    }
}

/// As many bytes as the header said, whatever the box does to the file meanwhile.
struct Exact {
    file: io::Take<File>,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..want];
        let count = match self.file.read(buffer)? {
            0 => {
                buffer.fill(0);
                want
            }
            count => count,
        };
        self.left -= count as u64;
        Ok(count)
    }
}
