//! What the engine keeps of each task between operations (`Live…`), and a stopped task (`StoppedThread`). A stopped
//! task goes on exactly as it would have: its registers and mask come back before it is let go.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use image::memory::PageIndex;
use image::process::Process;
use image::thread::Thread;
use linux::pidfd::Pidfd;
use linux::procfs::{self, TaskDir};
use linux::procmap::Area;
use linux::ptrace::{self, RawRegisters};
use linux::sched::SchedClock;

use crate::error::EngineError;
use crate::remote::{Annex, clean_registers};
use crate::wait::{Trampoline, parse_call, whole_timeout_ns};

/// A thread that is known to be in the box.
#[derive(Debug)]
pub(crate) struct LiveThread {
    /// Tid inside the box.
    pub(crate) tid: u32,
    pub(crate) dir: TaskDir,
    /// `schedstat`, held open: the third number counts how often it was given a processor.
    schedstat: File,
    /// `syscall`, held open.
    syscall: File,
    /// The run count at which it was proved to sleep in the state of `image`; as long as it stays, so does the state.
    pub(crate) asleep_at: Option<u64>,
    /// The image of its last capture or rollback.
    pub(crate) image: Option<Arc<Thread>>,
    /// Its run count at its last capture.
    pub(crate) runs: u64,
    /// It stood in the same wait at its last two captures, and was given a processor only for our stop in between.
    pub(crate) restful: bool,
    /// The trampoline through which it waits, if any.
    pub(crate) trampoline: Option<Trampoline>,
    /// The relative wait it was last seen in.
    pub(crate) waiting: Option<Waiting>,
}

/// A wait with a relative time-out, noted before the thread was stopped.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// Number of the call that the program made.
    pub(crate) call: u64,
    /// When it ends, on `CLOCK_MONOTONIC`.
    pub(crate) end_ns: u64,
    line: Vec<u8>,
    runs: u64,
}

/// `restart_syscall`: the kernel goes on with a wait that a stop interrupted.
const RESTARTED: u64 = libc::SYS_restart_syscall as u64;

impl LiveThread {
    pub(crate) fn open(pid: i32, host_tid: i32, tid: u32) -> Result<Self, EngineError> {
        let dir = TaskDir::thread(pid, host_tid)?;
        let schedstat = dir.file("schedstat", false)?;
        let syscall = dir.file("syscall", false)?;
        Ok(Self {
            tid,
            dir,
            schedstat,
            syscall,
            asleep_at: None,
            image: None,
            runs: 0,
            restful: false,
            trampoline: None,
            waiting: None,
        })
    }

    /// How often it was given a processor; `None` where it is gone.
    pub(crate) fn run_count(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        procfs::read_record(&self.schedstat, buffer).ok()?;
        std::str::from_utf8(buffer)
            .ok()?
            .split_ascii_whitespace()
            .nth(2)?
            .parse()
            .ok()
    }

    /// Notes which relative wait it is in, and until when; called while it is not stopped yet.
    pub(crate) fn note_wait(&mut self, memory: Option<&File>, clock: Option<&mut SchedClock>) {
        let mut buffer = Vec::new();
        let line = self.sleeping_call(&mut buffer);
        let Some((line, (call, registers))) = line.and_then(|line| Some((line.clone(), parse_call(&line)?))) else {
            self.waiting = None;
            return;
        };
        let runs = self.run_count(&mut buffer).unwrap_or(0);
        let same = self
            .waiting
            .as_ref()
            .is_some_and(|w| call == RESTARTED || (w.line == line && w.runs == runs));
        if same {
            return;
        }
        let read = |address| {
            let mut bytes = [0; 16];
            let opened;
            let memory = match memory {
                Some(memory) => memory,
                None => {
                    opened = self.dir.file("mem", false).ok()?;
                    &opened
                }
            };
            linux::process_vm::read_forced(memory, address, &mut bytes).ok()?;
            Some(bytes)
        };
        let noted = whole_timeout_ns(call, &registers, read).and_then(|whole| {
            let start = clock?.last_ran_ns(&self.dir)?;
            Some(Waiting {
                call,
                end_ns: start.saturating_add(whole),
                line,
                runs,
            })
        });
        self.waiting = noted;
    }

    /// True where it has not run since it was proved to sleep, and is not about to: one that was woken and waits for
    /// a processor has the same run count, but its wait is over.
    pub(crate) fn still_asleep(&self, buffer: &mut Vec<u8>) -> bool {
        self.asleep_at
            .is_some_and(|runs| self.sleeping_call(buffer).is_some() && self.run_count(buffer) == Some(runs))
    }

    /// The call it sleeps in: number, arguments, stack and instruction pointer; `None` where it runs or is gone.
    pub(crate) fn sleeping_call(&self, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
        procfs::read_record(&self.syscall, buffer).ok()?;
        let text = buffer.trim_ascii();
        (!text.starts_with(b"running") && !text.starts_with(b"-1")).then(|| text.to_vec())
    }
}

/// A process that is known to be in the box.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    pub(crate) host_pid: i32,
    /// Pid inside the box.
    pub(crate) pid: u32,
    pub(crate) pidfd: Pidfd,
    pub(crate) dir: Arc<TaskDir>,
    pub(crate) threads: BTreeMap<i32, LiveThread>,
    pub(crate) start_ticks: u64,
    /// What belongs to the address space; made again after an exec.
    pub(crate) space: Option<Space>,
    /// The image of its last capture or rollback.
    pub(crate) image: Option<Arc<Process>>,
    /// The trampoline that was used last.
    pub(crate) next_trampoline: usize,
}

/// What the engine holds of one address space. Its files stay bound to it: after an exec they read as empty.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) maps: Arc<File>,
    pub(crate) memory: File,
    pub(crate) pagemap: Arc<File>,
    pub(crate) annex: Annex,
    pub(crate) uffd: Option<OwnedFd>,
    /// Ranges registered for tracking, ascending.
    pub(crate) registered: Vec<(u64, u64)>,
    /// What each private page held when it was last captured or written by us.
    pub(crate) pages: PageIndex,
    /// The index is not complete: whatever is there counts as written. So at first, and after a capture that failed when
    /// it had protected pages already.
    pub(crate) all_is_new: bool,
    /// The mappings as they were read last.
    pub(crate) layout: Option<Layout>,
    /// Which executable the address space runs.
    pub(crate) program: image::fd::Inode,
}

impl LiveProcess {
    /// After a capture that failed: what it protected would never show as written again, so nothing is known any more.
    pub(crate) fn forget(&mut self) {
        self.image = None;
        for thread in self.threads.values_mut() {
            thread.image = None;
            thread.asleep_at = None;
            thread.restful = false;
        }
        if let Some(space) = &mut self.space {
            space.pages = PageIndex::default();
            space.all_is_new = true;
        }
    }
}

impl Space {
    /// The index is complete.
    pub(crate) fn keep(&mut self, pages: PageIndex) {
        self.pages = pages;
        self.all_is_new = false;
    }

    /// False once the process has run an exec (or ended): what is held belongs to an address space that is gone.
    pub(crate) fn lives(&self) -> bool {
        let mut entry = [0; 8];
        let page = self.annex.range().start / 4096;
        self.pagemap.read_at(&mut entry, page * 8).is_ok_and(|got| got == 8)
    }
}

/// Mappings as they were read, with shared memory objects numbered by their place in `names`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) text: Vec<u8>,
    /// The same as numbers, and the name of each file at its first mapping.
    pub(crate) areas: Vec<(Area, Option<Vec<u8>>)>,
    pub(crate) mappings: Arc<Vec<image::memory::Mapping>>,
    pub(crate) names: Vec<Named>,
}

/// A shared memory object as `maps` shows it, and a mapping through which it can be opened.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) inode: image::fd::Inode,
    pub(crate) name: Vec<u8>,
    pub(crate) mapping: (u64, u64),
}

impl LiveProcess {
    /// Opens the process of `host_pid`.
    pub(crate) fn open(host_pid: i32, pid: u32) -> Result<Self, EngineError> {
        let pidfd = Pidfd::open(host_pid)?;
        let dir = Arc::new(TaskDir::process(host_pid)?);
        let mut text = Vec::new();
        dir.read("stat", &mut text)?;
        let start_ticks = procfs::stat_fields(&text)
            .and_then(|(_, fields)| fields.get(19)?.parse().ok())
            .ok_or_else(|| linux::SysError::new("parse", format!("/proc/{host_pid}/stat"), libc::EIO))?;
        Ok(Self {
            host_pid,
            pid,
            pidfd,
            dir,
            threads: BTreeMap::new(),
            start_ticks,
            space: None,
            image: None,
            next_trampoline: 0,
        })
    }
}

/// A thread that stands still. Everything that was changed in it is put back by [`StoppedThread::release`].
#[derive(Debug)]
pub(crate) struct StoppedThread {
    pub(crate) host_tid: i32,
    pub(crate) host_pid: i32,
    /// Pid and tid as it sees them itself.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Registers with which it will go on.
    pub(crate) raw: RawRegisters,
    /// Mask with which it will go on.
    pub(crate) mask: u64,
    /// Registers in the kernel differ from `raw`.
    registers_changed: bool,
    /// Mask in the kernel differs from `mask`, or the kernel forgot that it was swapped.
    mask_changed: bool,
    /// The kernel has the mask for injected code. Not the same: a thread may get another `mask` without having run any.
    blocked: bool,
    /// Stopped by job control rather than by us alone.
    pub(crate) group_stop: bool,
}

impl StoppedThread {
    /// Reads what must come back later. Pid and tid as the host sees them, and as the thread itself does.
    pub(crate) fn new(host: (i32, i32), inside: (u32, u32), group_stop: bool) -> Result<Self, EngineError> {
        let (host_pid, host_tid) = host;
        let (pid, tid) = inside;
        let raw = ptrace::registers(host_tid)?;
        let mask = ptrace::signal_mask(host_tid)?;
        Ok(Self {
            host_tid,
            host_pid,
            pid,
            tid,
            raw,
            mask,
            registers_changed: false,
            mask_changed: false,
            blocked: false,
            group_stop,
        })
    }

    /// Registers for injected code at `rip`; from here on they must be put back.
    pub(crate) fn entry_registers(&mut self, rip: u64) -> RawRegisters {
        self.registers_changed = true;
        clean_registers(&self.raw, rip)
    }

    /// Blocks signals while injected code runs.
    pub(crate) fn block_signals(&mut self, mask: u64) -> Result<(), EngineError> {
        if !self.blocked {
            ptrace::set_signal_mask(self.host_tid, mask)?;
            self.blocked = true;
            self.mask_changed = true;
        }
        Ok(())
    }

    /// The thread will go on from `raw`.
    pub(crate) fn set_registers(&mut self, raw: RawRegisters) {
        self.raw = raw;
        self.registers_changed = true;
    }

    /// The thread will go on with `mask`.
    pub(crate) fn set_mask(&mut self, mask: u64) {
        self.mask = mask;
        self.mask_changed = true;
    }

    /// Puts registers and mask where they belong.
    pub(crate) fn put_back(&mut self) -> Result<(), EngineError> {
        if self.mask_changed {
            ptrace::set_signal_mask(self.host_tid, self.mask)?;
            self.mask_changed = false;
            self.blocked = false;
        }
        if self.registers_changed {
            ptrace::set_registers(self.host_tid, &self.raw)?;
            self.registers_changed = false;
        }
        Ok(())
    }

    /// Lets it go.
    pub(crate) fn release(mut self) -> Result<(), EngineError> {
        self.put_back()?;
        ptrace::detach(self.host_tid, 0)?;
        Ok(())
    }
}
