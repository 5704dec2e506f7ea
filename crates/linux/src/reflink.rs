//! Copies of files that keep holes: by sharing extents where the file system can, else range by range. Never makes a
//! file longer or shorter by itself except where it says so.

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::{Result, SysError};

/// Makes `target` share the extents of `source` (`FICLONE`): same content, no bytes copied.
///
/// # Errors
/// `EOPNOTSUPP`, `EXDEV`, `EINVAL` where the file systems cannot.
pub fn clone_file(source: impl AsFd, target: impl AsFd) -> Result<()> {
    rustix::fs::ioctl_ficlone(target, source).map_err(|errno| SysError::rustix("FICLONE", "file", errno))
}

/// The ranges of `file` that hold data, up to `size`; the rest are holes.
///
/// # Errors
/// What `lseek` says.
pub fn data_ranges(file: impl AsFd, size: u64) -> Result<Vec<Range<u64>>> {
    let file = file.as_fd();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(SysError::rustix("lseek SEEK_DATA", "file", errno)),
        };
        if start >= size {
            break;
        }
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))
            .map_err(|errno| SysError::rustix("lseek SEEK_HOLE", "file", errno))?
            .min(size);
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

/// Copies the data of `source` (`size` bytes long) to the empty file `target`, holes left as holes, and sets its
/// length. Returns the bytes copied.
///
/// # Errors
/// What the kernel says; `EIO` when `source` ended early.
pub fn copy_sparse(source: impl AsFd, target: impl AsFd, size: u64) -> Result<u64> {
    let (source, target) = (source.as_fd(), target.as_fd());
    rustix::fs::ftruncate(target, size).map_err(|errno| SysError::rustix("ftruncate", "file", errno))?;
    let mut copied = 0;
    let mut buffer = vec![0; 1 << 20];
    for range in data_ranges(source, size)? {
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
            let length = read_at(source, &mut buffer[..want], at)?;
            if length == 0 {
                return Err(SysError::new("pread", "file that became shorter", libc::EIO));
            }
            write_at(target, &buffer[..length], at)?;
            at += length as u64;
        }
        copied += range.end - range.start;
    }
    Ok(copied)
}

/// Reads at `offset` until `buffer` is full or the file ends; returns the length.
///
/// # Errors
/// What `pread` says.
pub fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let file = file.as_fd();
    let mut length = 0;
    while length < buffer.len() {
        match rustix::io::pread(file, &mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SysError::rustix("pread", "file", errno)),
        }
    }
    Ok(length)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// What `pwrite` says (`ENOSPC`).
pub fn write_at(file: impl AsFd, bytes: &[u8], offset: u64) -> Result<()> {
    let file = file.as_fd();
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::pwrite(file, &bytes[written..], offset + written as u64) {
            Ok(0) => return Err(SysError::new("pwrite", "file", libc::EIO)),
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SysError::rustix("pwrite", "file", errno)),
        }
    }
    Ok(())
}

/// Makes `range` a hole; the length stays.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no holes.
pub fn punch_hole(file: impl AsFd, range: Range<u64>) -> Result<()> {
    use rustix::fs::FallocateFlags;
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, range.start, range.end - range.start)
        .map_err(|errno| SysError::rustix("fallocate PUNCH_HOLE", "file", errno))
}
