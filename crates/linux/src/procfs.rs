//! Parsers for the files of `/proc/PID` that are read at every checkpoint. By hand because they are on the hot path
//! (the `procfs` crate allocates for each field); they read what is needed and never fail on lines they do not know.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};

use crate::error::{Result, SysError};

/// An open `/proc/PID` (or `/proc/PID/task/TID`): opening below it fails with `ESRCH` once the task is gone, even if
/// the number is in use again.
#[derive(Debug)]
pub struct TaskDir {
    fd: OwnedFd,
    name: String,
}

impl TaskDir {
    /// The directory of a process.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub fn process(pid: i32) -> Result<Self> {
        Self::open(format!("/proc/{pid}"))
    }

    /// The directory of a thread.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub fn thread(pid: i32, tid: i32) -> Result<Self> {
        Self::open(format!("/proc/{pid}/task/{tid}"))
    }

    fn open(name: String) -> Result<Self> {
        let fd = rustix::fs::open(&name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| SysError::rustix("open", &name, e))?;
        Ok(Self { fd, name })
    }

    /// Opens a file below it.
    ///
    /// # Errors
    /// `ESRCH` where the task is gone.
    pub fn file(&self, path: &str, write: bool) -> Result<File> {
        self.file_as(path, if write { OFlags::RDWR } else { OFlags::RDONLY })
    }

    /// Opens a file below it with `flags`.
    ///
    /// # Errors
    /// `ESRCH` where the task is gone.
    pub fn file_as(&self, path: &str, flags: OFlags) -> Result<File> {
        rustix::fs::openat(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|e| SysError::rustix("open", format!("{}/{path}", self.name), e))
    }

    /// Reads a file below it that the kernel writes as one record (`status`, `stat`, `comm`, `fdinfo/N` …).
    ///
    /// # Errors
    /// `ESRCH` where the task is gone.
    pub fn read(&self, path: &str, buffer: &mut Vec<u8>) -> Result<()> {
        let file = self.file(path, false)?;
        read_record(&file, buffer).map_err(|e| self.name_error(e, path))
    }

    /// Reads a file below it that is a list (`children`, `timers`, `maps`): it may come in several parts.
    ///
    /// # Errors
    /// `ESRCH` where the task is gone.
    pub fn read_list(&self, path: &str, buffer: &mut Vec<u8>) -> Result<()> {
        let file = self.file(path, false)?;
        read_from_start(&file, buffer).map_err(|e| self.name_error(e, path))
    }

    fn name_error(&self, error: SysError, path: &str) -> SysError {
        SysError {
            object: format!("{}/{path}", self.name),
            ..error
        }
    }

    /// Where a link below it points.
    ///
    /// # Errors
    /// `ENOENT` where it is not there.
    pub fn link(&self, path: &str) -> Result<Vec<u8>> {
        rustix::fs::readlinkat(&self.fd, path, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|e| SysError::rustix("readlink", format!("{}/{path}", self.name), e))
    }

    /// `stat` of what a link below it leads to.
    ///
    /// # Errors
    /// `ENOENT` where it is not there.
    pub fn stat(&self, path: &str) -> Result<rustix::fs::Stat> {
        rustix::fs::statat(&self.fd, path, rustix::fs::AtFlags::empty())
            .map_err(|e| SysError::rustix("stat", format!("{}/{path}", self.name), e))
    }

    /// Names in a directory below it.
    ///
    /// # Errors
    /// `ESRCH` where the task is gone.
    pub fn numbers(&self, path: &str) -> Result<Vec<u32>> {
        let fd = rustix::fs::openat(
            &self.fd,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| SysError::rustix("open", format!("{}/{path}", self.name), e))?;
        let mut buffer = Vec::with_capacity(4096);
        let mut entries = rustix::fs::RawDir::new(fd.as_fd(), buffer.spare_capacity_mut());
        let mut numbers = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| SysError::rustix("getdents64", format!("{}/{path}", self.name), e))?;
            if let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Reads an open file of `/proc` that is one record again: what comes at once is all of it.
///
/// # Errors
/// `ESRCH` where the task is gone.
pub fn read_record(file: &File, buffer: &mut Vec<u8>) -> Result<()> {
    const ROOM: usize = 4096;
    buffer.resize(ROOM, 0);
    let got = file.read_at(buffer, 0).map_err(|e| SysError::io("read", "/proc", &e))?;
    if got < ROOM {
        buffer.truncate(got);
        return Ok(());
    }
    read_from_start(file, buffer)
}

/// Reads an open file of `/proc` again from its start to its end.
///
/// # Errors
/// `ESRCH` where the task is gone.
pub fn read_from_start(file: &File, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut filled = 0;
    if buffer.capacity() < 16384 {
        buffer.reserve(16384);
    }
    loop {
        buffer.resize(buffer.capacity().max(filled + 4096), 0);
        let got = file
            .read_at(&mut buffer[filled..], filled as u64)
            .map_err(|e| SysError::io("read", "/proc", &e))?;
        filled += got;
        if got == 0 {
            buffer.truncate(filled);
            return Ok(());
        }
        if filled == buffer.len() {
            buffer.reserve(filled);
        }
    }
}

/// One line of `maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `PROT_READ | PROT_WRITE | PROT_EXEC`.
    pub prot: u8,
    /// Shared rather than private.
    pub shared: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// Device, major and minor.
    pub device: (u32, u32),
    /// Inode; 0 for none.
    pub inode: u64,
    /// Path or `[name]`; empty for none. Newlines as `\012`.
    pub name: &'a [u8],
}

fn hex(text: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut used = 0;
    for digit in text {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => break,
        };
        value = value << 4 | u64::from(digit);
        used += 1;
    }
    (used > 0).then_some((value, used))
}

/// Parses `maps`.
pub fn maps(text: &[u8]) -> impl Iterator<Item = MapLine<'_>> {
    text.split(|b| *b == b'\n').filter_map(map_line)
}

fn map_line(line: &[u8]) -> Option<MapLine<'_>> {
    let (start, used) = hex(line)?;
    let line = line.get(used + 1..)?;
    let (end, used) = hex(line)?;
    let line = line.get(used + 1..)?;
    let flags = line.get(..4)?;
    let prot = u8::from(flags[0] == b'r') | u8::from(flags[1] == b'w') << 1 | u8::from(flags[2] == b'x') << 2;
    let line = line.get(5..)?;
    let (offset, used) = hex(line)?;
    let line = line.get(used + 1..)?;
    let (major, used) = hex(line)?;
    let line = line.get(used + 1..)?;
    let (minor, used) = hex(line)?;
    let line = line.get(used + 1..)?;
    let digits = line.iter().take_while(|b| b.is_ascii_digit()).count();
    let inode = std::str::from_utf8(&line[..digits]).ok()?.parse().ok()?;
    let rest = &line[digits..];
    let name = rest.iter().position(|b| *b != b' ').map_or(&[][..], |at| &rest[at..]);
    Some(MapLine {
        start,
        end,
        prot,
        shared: flags[3] == b's',
        offset,
        device: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        inode,
        name,
    })
}

/// The value of a line `Key:\tvalue` of `status` or `fdinfo`.
pub fn field<'a>(text: &'a [u8], key: &str) -> Option<&'a str> {
    text.split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b":"))
        .and_then(|value| std::str::from_utf8(value).ok())
        .map(str::trim)
}

/// Fields of `stat` behind the name: index 0 is the state (field 3 of proc(5)).
pub fn stat_fields(text: &[u8]) -> Option<(&[u8], Vec<&str>)> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(close + 2..)?).ok()?;
    Some((&text[open + 1..close], rest.split_ascii_whitespace().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps() {
        let text = b"7f00-7f10 rw-p 00001000 fe:01 123    /a b (deleted)\n55-56 r-xs 0 00:00 0 \n";
        let lines: Vec<_> = maps(text).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].name, b"/a b (deleted)");
        assert_eq!(
            (lines[0].start, lines[0].prot, lines[0].inode, lines[0].device),
            (0x7f00, 3, 123, (0xfe, 1))
        );
        assert!(lines[1].shared && lines[1].name.is_empty());
    }

    #[test]
    fn names_with_brackets_in_stat() {
        let (name, fields) = stat_fields(b"12 (a) b) S 1 2 3").expect("parses");
        assert_eq!((name, fields[0], fields[1]), (&b"a) b"[..], "S", "1"));
    }
}
