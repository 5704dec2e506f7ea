//! What waits in a pipe or socket, without taking it. Never blocks.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::error::{Result, SysError};

/// Unread bytes (`FIONREAD`).
///
/// # Errors
/// `EINVAL`/`ENOTTY` where the descriptor has no such count.
pub fn unread(fd: BorrowedFd<'_>) -> Result<u64> {
    rustix::io::ioctl_fionread(fd).map_err(|e| SysError::rustix("FIONREAD", fd.as_raw_fd(), e))
}

/// Capacity in bytes.
///
/// # Errors
/// `EBADF` where it is not a pipe.
pub fn capacity(fd: BorrowedFd<'_>) -> Result<u32> {
    let size = rustix::pipe::fcntl_getpipe_size(fd).map_err(|e| SysError::rustix("F_GETPIPE_SZ", fd.as_raw_fd(), e))?;
    Ok(u32::try_from(size).expect("a pipe is below 4 GiB"))
}

/// The unread content of the pipe whose reading end is `reader`, left in place (`tee(2)`): one entry a buffer where
/// `packets`, one in all otherwise.
///
/// # Errors
/// `EINVAL` where it is not a pipe.
pub fn content(reader: BorrowedFd<'_>, packets: bool) -> Result<Vec<Vec<u8>>> {
    let count = unread(reader)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK | if packets { PipeFlags::DIRECT } else { PipeFlags::empty() };
    let (read, write) = rustix::pipe::pipe_with(flags).map_err(|e| SysError::rustix("pipe2", "copy", e))?;
    let size = capacity(reader)?;
    rustix::pipe::fcntl_setpipe_size(&write, size as usize).map_err(|e| SysError::rustix("F_SETPIPE_SZ", size, e))?;
    rustix::pipe::tee(reader, &write, size as usize, SpliceFlags::NONBLOCK)
        .map_err(|e| SysError::rustix("tee", reader.as_raw_fd(), e))?;
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0u8; size as usize];
    loop {
        match rustix::io::read(&read, buffer.as_mut_slice()) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(all),
            Ok(got) if packets || all.is_empty() => all.push(buffer[..got].to_vec()),
            Ok(got) => all[0].extend_from_slice(&buffer[..got]),
            Err(e) => return Err(SysError::rustix("read", "copy of a pipe", e)),
        }
    }
}

/// Takes everything out of a pipe or socket that does not block us.
///
/// # Errors
/// `EIO` and its like.
pub fn drain(reader: BorrowedFd<'_>) -> Result<()> {
    let mut left = unread(reader)?;
    let mut buffer = vec![0u8; 65536];
    while left > 0 {
        let got = rustix::io::read(reader, buffer.as_mut_slice())
            .map_err(|e| SysError::rustix("read", reader.as_raw_fd(), e))?;
        if got == 0 {
            break;
        }
        left = unread(reader)?;
    }
    Ok(())
}

/// Writes `bytes` whole.
///
/// # Errors
/// `EAGAIN` where they do not fit.
pub fn fill(writer: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let wrote = rustix::io::write(writer, bytes).map_err(|e| SysError::rustix("write", writer.as_raw_fd(), e))?;
        bytes = &bytes[wrote..];
    }
    Ok(())
}
