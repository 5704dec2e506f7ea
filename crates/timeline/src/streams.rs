//! The daemon's ends of one command's standard streams: what comes out goes to its [`Output`], what goes in waits in
//! a bounded queue until the command reads. All calls are non-blocking; the waiting is done by `pump`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use image::ExecId;
use linux::SysError;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;

use crate::error::TimelineError;
use crate::output::{Output, Stream};

/// Input that a command has not read yet and that no longer fits into its pipe.
pub(crate) const INPUT_PENDING_MAX_BYTES: usize = 8 << 20;
/// One read.
const READ_BYTES: usize = 64 << 10;
/// Reads in one go before others get their turn. A pipe holds at most 1 MiB, so that while a box stands still this
/// is more than there can be.
const READS_MAX: usize = 64;
/// What ends input on a terminal (Ctrl-D at the start of a line).
const END_OF_TRANSMISSION: u8 = 4;

/// Our ends, as they come from the sandbox. A terminal has only `master`.
#[derive(Debug, Default)]
pub struct Ends {
    /// To its standard input.
    pub stdin: Option<OwnedFd>,
    /// From its standard output.
    pub stdout: Option<OwnedFd>,
    /// From its standard error.
    pub stderr: Option<OwnedFd>,
    /// Its terminal.
    pub master: Option<OwnedFd>,
}

/// Which end an event of the pump is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Stdin,
    Stdout,
    Stderr,
    Master,
}

impl Slot {
    pub(crate) const ALL: [Self; 4] = [Self::Stdin, Self::Stdout, Self::Stderr, Self::Master];
}

/// What a checkpoint keeps of a command's input. The bytes in its pipe are ours to keep, too: to the process image a
/// pipe with its other end outside is the outside's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InputMark {
    open: bool,
    unread: Vec<u8>,
    pending: Vec<u8>,
    closing: bool,
}

/// The ends with what waits to go in.
#[derive(Debug)]
pub(crate) struct Streams {
    ends: Ends,
    /// The process, to signal it; `None` when it has ended.
    process: Option<OwnedFd>,
    /// What was put into the pipe and may still be there.
    sent: VecDeque<u8>,
    pending: VecDeque<u8>,
    closing: bool,
    /// The pipe of standard input, to know it again.
    stdin_inode: Option<u64>,
}

impl Streams {
    /// # Errors
    /// `Kernel` when a descriptor cannot be made non-blocking.
    pub(crate) fn new(ends: Ends, process: Option<OwnedFd>) -> Result<Self, SysError> {
        let mut streams = Self {
            ends,
            process,
            sent: VecDeque::new(),
            pending: VecDeque::new(),
            closing: false,
            stdin_inode: None,
        };
        for slot in Slot::ALL {
            if let Some(fd) = streams.end(slot) {
                let flags = fcntl_getfl(fd).map_err(|errno| SysError::rustix("F_GETFL", "a stream", errno))?;
                let set = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
                set.map_err(|errno| SysError::rustix("F_SETFL", "a stream", errno))?;
            }
        }
        if let Some(stdin) = streams.end(Slot::Stdin) {
            let stat = fstat(stdin).map_err(|errno| SysError::rustix("fstat", "standard input", errno))?;
            streams.stdin_inode = Some(stat.st_ino);
        }
        Ok(streams)
    }

    pub(crate) fn end(&self, slot: Slot) -> Option<BorrowedFd<'_>> {
        let end = match slot {
            Slot::Stdin => &self.ends.stdin,
            Slot::Stdout => &self.ends.stdout,
            Slot::Stderr => &self.ends.stderr,
            Slot::Master => &self.ends.master,
        };
        end.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn close(&mut self, slot: Slot) {
        match slot {
            Slot::Stdin => self.ends.stdin = None,
            Slot::Stdout => self.ends.stdout = None,
            Slot::Stderr => self.ends.stderr = None,
            Slot::Master => self.ends.master = None,
        }
    }

    /// Reads what is there. False when nothing more can come for now: the other side has no writer.
    pub(crate) fn read(&self, slot: Slot, output: &Output) -> bool {
        let stream = if slot == Slot::Stderr {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        let Some(end) = self.end(slot) else { return false };
        let mut buffer = [0_u8; READ_BYTES];
        for _ in 0..READS_MAX {
            match rustix::io::read(end, &mut buffer) {
                Ok(0) => return false,
                Ok(count) => output.append(stream, &buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // A terminal that nobody has open answers EIO.
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads what is there from all ends.
    pub(crate) fn drain(&self, output: &Output) {
        for slot in [Slot::Stdout, Slot::Stderr, Slot::Master] {
            self.read(slot, output);
        }
    }

    /// The process ended: reads what is there and closes what nobody can use any more. Children that it left behind
    /// may still hold the other sides.
    pub(crate) fn ended(&mut self, output: &Output) {
        self.process = None;
        self.close(Slot::Stdin);
        for slot in [Slot::Stdout, Slot::Stderr, Slot::Master] {
            if !self.read(slot, output) {
                self.close(slot);
            }
        }
    }

    /// The process, while it has not ended.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Puts bytes behind what waits and sends what fits. True when some still wait.
    ///
    /// # Errors
    /// `ExecRefused` without an open input, `InputFull` over the bound (nothing was taken then).
    pub(crate) fn send(&mut self, exec: ExecId, bytes: &[u8], close: bool) -> Result<bool, TimelineError> {
        if self.input().is_none() || self.closing {
            return Err(TimelineError::ExecRefused {
                exec,
                why: "has no open standard input",
            });
        }
        let pending = self.pending.len();
        if pending + bytes.len() > INPUT_PENDING_MAX_BYTES {
            return Err(TimelineError::InputFull { exec, pending });
        }
        self.pending.extend(bytes);
        self.closing = close;
        if close && self.ends.stdin.is_none() {
            self.pending.push_back(END_OF_TRANSMISSION);
            self.closing = false;
        }
        Ok(self.flush())
    }

    /// Sends what fits. True when some still wait.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            let Some(input) = self.ends.stdin.as_ref().or(self.ends.master.as_ref()) else {
                self.pending.clear();
                break;
            };
            match rustix::io::write(input, self.pending.as_slices().0) {
                Ok(count) => self.was_sent(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    // EPIPE: nobody will read it. The command said so by closing its input.
                    self.pending.clear();
                    self.close(Slot::Stdin);
                }
            }
        }
        if self.closing {
            self.close(Slot::Stdin);
            self.closing = false;
        }
        false
    }

    fn was_sent(&mut self, count: usize) {
        let bytes: Vec<u8> = self.pending.drain(..count).collect();
        if self.ends.stdin.is_some() {
            self.sent.extend(bytes);
            self.forget_read();
        }
    }

    /// Keeps of what was sent only what the pipe still holds.
    fn forget_read(&mut self) {
        let unread = self.ends.stdin.as_ref().map_or(0, in_pipe);
        self.sent.drain(..self.sent.len().saturating_sub(unread));
    }

    fn input(&self) -> Option<BorrowedFd<'_>> {
        self.end(Slot::Stdin).or(self.end(Slot::Master))
    }

    /// True when bytes wait to go in.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The command is gone for good.
    pub(crate) fn close_all(&mut self) {
        self.ends = Ends::default();
        self.process = None;
        self.pending.clear();
        self.closing = false;
    }

    /// What a checkpoint keeps.
    pub(crate) fn mark(&mut self) -> InputMark {
        self.forget_read();
        InputMark {
            open: self.ends.stdin.is_some(),
            unread: self.sent.iter().copied().collect(),
            pending: self.pending.iter().copied().collect(),
            closing: self.closing,
        }
    }

    /// Goes to what a checkpoint kept, while the box still stands. An input that was closed since is opened again
    /// through the process (a pipe can be, as long as someone has its other end).
    pub(crate) fn rewind(&mut self, mark: &InputMark, host_pid: u32) {
        self.pending = mark.pending.iter().copied().collect();
        self.closing = mark.closing;
        if !mark.open {
            self.close(Slot::Stdin);
            self.sent.clear();
            return;
        }
        if self.ends.stdin.is_none() {
            self.ends.stdin = self.reopen(host_pid);
        }
        self.refill(&mark.unread);
    }

    /// Makes the pipe hold `unread` and nothing else. Nobody is waiting for input where there is some to put back.
    fn refill(&mut self, unread: &[u8]) {
        self.forget_read();
        if self.sent == unread {
            return;
        }
        let Some(stdin) = &self.ends.stdin else { return };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", stdin.as_raw_fd());
        if let Ok(reader) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            let mut buffer = vec![0; in_pipe(stdin)];
            // Both are as large as the pipe and it does not change: they do all in one go.
            rustix::io::read(&reader, &mut buffer).ok();
            rustix::io::write(stdin, unread).ok();
        }
        self.sent = unread.iter().copied().collect();
    }

    fn reopen(&self, host_pid: u32) -> Option<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/{host_pid}/fd/0");
        // The process is stopped and known to be alive, but what its descriptor 0 is, it decides: look before opening.
        let is_ours = |inode: u64| Some(inode) == self.stdin_inode;
        rustix::fs::stat(path.as_str())
            .ok()
            .filter(|stat| is_ours(stat.st_ino))?;
        let fd = rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty()).ok()?;
        fstat(&fd).ok().filter(|stat| is_ours(stat.st_ino))?;
        Some(fd)
    }

    /// New size of the terminal.
    ///
    /// # Errors
    /// `ExecRefused` without a terminal, `Kernel`.
    pub(crate) fn resize(&self, exec: ExecId, rows: u16, columns: u16) -> Result<(), TimelineError> {
        let Some(master) = self.end(Slot::Master) else {
            return Err(TimelineError::ExecRefused {
                exec,
                why: "has no terminal",
            });
        };
        let size = rustix::termios::Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(master, size)
            .map_err(|errno| SysError::rustix("TIOCSWINSZ", format!("terminal of {exec}"), errno).into())
    }
}

/// Bytes that wait in a pipe.
fn in_pipe(end: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(end)
        .ok()
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}
