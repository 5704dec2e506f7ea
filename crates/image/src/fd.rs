//! Descriptors: which slot of which process holds which open file description, and what each description is. Never
//! holds a live descriptor of anything.

use std::sync::Arc;

use crate::timer::Armed;

/// Index of an open file description in its image.
pub type ObjectIndex = u32;

/// One slot of a descriptor table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// `FD_CLOEXEC`.
    pub cloexec: bool,
    /// What it refers to.
    pub object: ObjectIndex,
}

/// An open file description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Status flags and access mode (`F_GETFL`).
    pub flags: u32,
    /// What it is.
    pub kind: Kind,
}

/// Which inode something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub number: u64,
}

/// One entry of an epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    /// Descriptor number it was added under.
    pub fd: u32,
    /// Events (mask cleared where a one-shot has fired).
    pub events: u32,
    /// The program's word.
    pub data: u64,
}

/// Kinds of open file descriptions that can be rewound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file or a directory.
    File {
        /// Path as the box sees it, without ` (deleted)`.
        path: Vec<u8>,
        /// Identity.
        inode: Inode,
        /// Offset in bytes.
        offset: i64,
        /// True for a directory.
        directory: bool,
        /// Where no name leads to it any more: its content is in the image.
        ghost: Option<u32>,
    },
    /// A file in memory (memfd): its content is a shared object of the image.
    Memory {
        /// Which shared object.
        object: u32,
        /// Offset in bytes.
        offset: i64,
    },
    /// A device without state (`/dev/null`, `/dev/urandom`).
    Device {
        /// Path.
        path: Vec<u8>,
        /// `st_rdev`.
        rdev: u64,
    },
    /// A terminal whose master is outside.
    Terminal {
        /// Path (`/dev/pts/0`).
        path: Vec<u8>,
        /// `st_rdev`.
        rdev: u64,
        /// Index in the image's terminals.
        terminal: u32,
    },
    /// An end of a pipe or an opened FIFO.
    Pipe {
        /// Index in the image's pipes.
        pipe: u32,
    },
    /// An end of a unix socket pair.
    Socket {
        /// Inode of this end.
        number: u64,
        /// Index in the image's sockets.
        socket: u32,
    },
    /// A counter.
    Event {
        /// Its value.
        count: u64,
        /// Semaphore semantics.
        semaphore: bool,
    },
    /// A timer.
    Timer {
        /// Clock.
        clock: i32,
        /// Expirations not read yet.
        ticks: u64,
        /// Remaining and period.
        armed: Armed,
        /// Flags of the last `timerfd_settime`.
        settime_flags: u32,
    },
    /// Signals as a file.
    Signal {
        /// Which signals.
        mask: u64,
    },
    /// An epoll set.
    Epoll {
        /// Its interest list, ascending by descriptor.
        watches: Vec<Watch>,
    },
}

/// A pipe or FIFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipe {
    /// Inode.
    pub inode: Inode,
    /// Path of a FIFO; empty for a pipe.
    pub path: Vec<u8>,
    /// Bytes it may hold.
    pub capacity: u32,
    /// Unread bytes; for a packet pipe, one entry a packet. `None` where an end is outside the box: then what is in
    /// it belongs to the outside.
    pub content: Option<Vec<Vec<u8>>>,
}

/// One end of a unix socket pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// `SOCK_STREAM`, `SOCK_DGRAM` or `SOCK_SEQPACKET`.
    pub kind: i32,
    /// Inode of the other end; 0 where it was closed.
    pub peer: u64,
    /// Unread bytes at this end: one entry a message, one in all for a stream.
    pub queue: Vec<Vec<u8>>,
    /// Ways that were shut down (`RCV` 1, `SND` 2).
    pub shutdown: u8,
    /// True where the other end is not in the box.
    pub outside: bool,
    /// The other end was closed with unread bytes: `ECONNRESET` waits to be read.
    pub reset: bool,
}

/// A terminal's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// `struct termios2`, verbatim (44 bytes).
    pub settings: Vec<u8>,
    /// `struct winsize`, verbatim (8 bytes).
    pub size: Vec<u8>,
    /// Foreground process group inside the box; 0 where there is none.
    pub foreground: u32,
}

/// Content of a file that no name leads to, or of a shared memory object.
#[derive(Debug, Clone)]
pub struct Content {
    /// Size in bytes.
    pub size: u64,
    /// Pages that are not holes, by page number.
    pub pages: Arc<crate::memory::PageIndex>,
}

impl Content {
    /// True where size and bytes are the same, holes included.
    pub fn same(&self, other: &Self) -> bool {
        let mut same = self.size == other.size;
        self.pages
            .differences(&other.pages, |_, a, b| same &= a.bytes() == b.bytes());
        same
    }
}
