//! Running system calls and page copies inside a stopped tracee, hundreds in one stop. Each tracked address space has
//! an annex: a code window (read and execute for the tracee, sealed against its writes, filled afresh before each run)
//! and a staging window (shared, read and write) where results and pages go. Nothing read back is trusted.

use std::os::fd::{AsFd, OwnedFd};

use linux::memfd::Window;
use linux::ptrace::{self, RawRegisters, Waited};
use linux::{SysError, batch};

use crate::error::EngineError;
use crate::freeze::Stopped;
use crate::tracee::StoppedThread;

const CODE_SIZE: usize = 1 << 20;
const TRAMPOLINES: usize = 0x1000;
/// Bytes of one trampoline: code, then a time-out at [`TRAMPOLINE_TIMEOUT`].
pub(crate) const TRAMPOLINE_SIZE: usize = 128;
/// Offset of the time-out (`struct timespec`) in a trampoline.
pub(crate) const TRAMPOLINE_TIMEOUT: usize = 96;
/// Waiting threads of one process whose remaining time can be kept at once.
pub(crate) const TRAMPOLINE_COUNT: usize = 256;
const TABLE: usize = 0xa000;
const ENTRY_SIZE: usize = 64;
const ENTRY_COUNT_MAX: usize = 6144;
const DATA: usize = TABLE + ENTRY_COUNT_MAX * ENTRY_SIZE;

/// Bytes of the status words of one lane: done, and pages copied.
const STATUS_SIZE: usize = 32;
/// Threads that can run parts of one batch at the same time.
const LANE_COUNT_MAX: usize = 1024;
const RESULTS: usize = LANE_COUNT_MAX * STATUS_SIZE;
const OUT: usize = RESULTS + 0x40000;
const OUT_SIZE: usize = 0x10_0000;
const PAGES: usize = OUT + OUT_SIZE;
/// Pages that fit into the staging window at once.
pub(crate) const STAGED_PAGE_COUNT: usize = 16384;
const STAGING_SIZE: usize = PAGES + STAGED_PAGE_COUNT * 4096;

/// Where the windows go: far from where the kernel, allocators and language runtimes place anything by themselves.
const ADDRESSES: [u64; 4] = [0x3a5a_0000_0000, 0x2b4b_0000_0000, 0x1c3c_0000_0000, 0x4969_0000_0000];

/// Signals blocked while injected code runs: all but the two that a bad page raises.
pub(crate) const RUN_MASK: u64 = !((1 << (libc::SIGSEGV - 1)) | (1 << (libc::SIGBUS - 1)));

/// Our two windows in one address space.
#[derive(Debug)]
pub(crate) struct Annex {
    code: Window,
    staging: Window,
    base: u64,
}

impl Annex {
    /// First and one past the last address that belong to us.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.base..self.base + (CODE_SIZE + STAGING_SIZE) as u64
    }

    fn staging_address(&self) -> u64 {
        self.base + CODE_SIZE as u64
    }

    /// Address of trampoline `index` in the tracee.
    pub(crate) fn trampoline_address(&self, index: usize) -> u64 {
        assert!(index < TRAMPOLINE_COUNT, "an index below the bound");
        self.base + (TRAMPOLINES + index * TRAMPOLINE_SIZE) as u64
    }

    /// Which trampoline `address` lies in, and how far.
    pub(crate) fn trampoline_at(&self, address: u64) -> Option<(usize, usize)> {
        let first = self.trampoline_address(0);
        let offset = usize::try_from(address.checked_sub(first)?).ok()?;
        (offset < TRAMPOLINE_COUNT * TRAMPOLINE_SIZE).then_some((offset / TRAMPOLINE_SIZE, offset % TRAMPOLINE_SIZE))
    }

    /// Fills trampoline `index`.
    pub(crate) fn write_trampoline(&self, index: usize, bytes: &[u8; TRAMPOLINE_SIZE]) {
        assert!(index < TRAMPOLINE_COUNT, "an index below the bound");
        self.code.write(TRAMPOLINES + index * TRAMPOLINE_SIZE, bytes);
    }

    /// Copies staged page `index` out.
    pub(crate) fn staged_page(&self, index: usize, out: &mut [u8; 4096]) {
        self.staging.read(PAGES + index * 4096, out);
    }
}

/// A place in the staging window where a call writes its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Its address in the tracee.
    pub(crate) address: u64,
    offset: usize,
    size: usize,
}

/// A table of calls being put together, for one thread or (in lanes) for several that run at the same time.
#[derive(Debug)]
pub(crate) struct Batch {
    base: u64,
    staging: u64,
    entries: Vec<[u64; 8]>,
    data: Vec<u8>,
    out_used: usize,
    /// How much of `entries` and `data` the tracee can see already.
    published: (usize, usize),
    lane_first: usize,
    lane_count: usize,
}

/// The part of a batch that one thread runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    number: usize,
    first: usize,
}

impl Batch {
    pub(crate) fn new(annex: &Annex) -> Self {
        Self {
            base: annex.base,
            staging: annex.staging_address(),
            entries: Vec::with_capacity(256),
            data: Vec::new(),
            out_used: 0,
            published: (0, 0),
            lane_first: 0,
            lane_count: 0,
        }
    }

    /// Ends what was added since the last lane: `thread` will run it.
    pub(crate) fn close_lane(&mut self, thread: &StoppedThread) -> Lane {
        let lane = Lane {
            number: self.lane_count,
            first: self.lane_first,
        };
        self.push([batch::END, thread.pid.into(), thread.tid.into(), 0, 0, 0, 0, 0]);
        self.lane_first = self.entries.len();
        self.lane_count += 1;
        lane
    }

    /// True where a thread more can have a lane.
    pub(crate) fn has_lane(&self) -> bool {
        self.lane_count + 2 < LANE_COUNT_MAX && !self.is_nearly_full()
    }

    /// True where nothing was added since the last lane.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == self.lane_first
    }

    /// True where another call with `bytes` of data might not fit any more.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.entries.len() + 64 > ENTRY_COUNT_MAX
            || self.data.len() + 65536 > CODE_SIZE - DATA
            || self.out_used + 65536 > OUT_SIZE
    }

    /// Adds a call; the index of its result.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> usize {
        self.call_with(number, arguments, 0)
    }

    /// Adds a call with `batch::SAVE` and its like.
    pub(crate) fn call_with(&mut self, number: libc::c_long, arguments: [u64; 6], flags: u64) -> usize {
        let [a, b, c, d, e, f] = arguments;
        self.push([
            u64::try_from(number).expect("call numbers are positive"),
            a,
            b,
            c,
            d,
            e,
            f,
            flags,
        ])
    }

    /// Adds a copy of the pages at `addresses` to the first staged pages.
    pub(crate) fn gather(&mut self, addresses: &[u64]) -> usize {
        assert!(addresses.len() <= STAGED_PAGE_COUNT, "room for each page");
        let list = self.words(addresses);
        let pages = self.staging + PAGES as u64;
        self.push([batch::GATHER, list, addresses.len() as u64, pages, 0, 0, 0, 0])
    }

    fn push(&mut self, entry: [u64; 8]) -> usize {
        assert!(self.entries.len() < ENTRY_COUNT_MAX, "callers ask is_nearly_full");
        self.entries.push(entry);
        self.entries.len() - 1
    }

    /// Puts bytes where the tracee can read them; their address there.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let at = self.data.len().next_multiple_of(16);
        self.data.resize(at, 0);
        self.data.extend_from_slice(bytes);
        assert!(self.data.len() <= CODE_SIZE - DATA, "callers ask is_nearly_full");
        self.base + (DATA + at) as u64
    }

    /// The same for words.
    fn words(&mut self, words: &[u64]) -> u64 {
        let at = self.data.len().next_multiple_of(16);
        let size = size_of_val(words);
        assert!(at + size <= CODE_SIZE - DATA, "callers ask is_nearly_full");
        self.data.resize(at + size, 0);
        for (place, word) in self.data[at..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.base + (DATA + at) as u64
    }

    /// A path as a call wants it.
    pub(crate) fn path(&mut self, path: &[u8]) -> u64 {
        let mut text = path.to_vec();
        text.push(0);
        self.bytes(&text)
    }

    /// Room for an answer of `size` bytes.
    pub(crate) fn room(&mut self, size: usize) -> Room {
        let offset = self.out_used.next_multiple_of(16);
        self.out_used = offset + size;
        assert!(self.out_used <= OUT_SIZE, "callers ask is_nearly_full");
        Room {
            address: self.staging + (OUT + offset) as u64,
            offset: OUT + offset,
            size,
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Results {
    values: Vec<u64>,
    /// Staged pages (by index) that the tracee could not read.
    pub(crate) unreadable: Vec<usize>,
}

impl Results {
    /// The result of call `index`, or its errno.
    pub(crate) fn get(&self, index: usize) -> Result<i64, i32> {
        let value = self.values[index].cast_signed();
        if (-4095..0).contains(&value) {
            Err(i32::try_from(-value).expect("an errno"))
        } else {
            Ok(value)
        }
    }

    /// The result of call `index`, which must have worked.
    pub(crate) fn expect(
        &self,
        index: usize,
        call: &'static str,
        object: impl std::fmt::Display,
    ) -> Result<i64, EngineError> {
        self.get(index)
            .map_err(|errno| SysError::new(call, format!("{object} (inside the box)"), errno).into())
    }
}

/// Copies what a call wrote to `room`.
pub(crate) fn answer(annex: &Annex, room: Room) -> Vec<u8> {
    let mut bytes = vec![0; room.size];
    annex.staging.read(room.offset, &mut bytes);
    bytes
}

/// Puts bytes into `room` before a call that reads and writes it.
pub(crate) fn put(annex: &Annex, room: Room, bytes: &[u8]) {
    assert!(bytes.len() <= room.size, "room for them");
    annex.staging.write(room.offset, bytes);
}

/// Writes the code, and what `batch` holds by now, to where the tracee sees it. Called again, it adds what is new.
pub(crate) fn publish(annex: &Annex, batch: &mut Batch) {
    let (entries, data) = batch.published;
    if batch.published == (0, 0) {
        annex.code.write(0, batch::code());
        for lane in 0..=batch.lane_count {
            annex.staging.store(lane * STATUS_SIZE, 0);
        }
    }
    annex.code.write(DATA + data, &batch.data[data..]);
    let words = batch.entries[entries..].as_flattened();
    annex.code.write_words(TABLE + entries * ENTRY_SIZE, words);
    batch.published = (batch.entries.len(), batch.data.len());
}

/// Lets a stopped thread run its lane of what was published.
pub(crate) fn begin(annex: &Annex, thread: &mut StoppedThread, lane: Lane) -> Result<(), EngineError> {
    let mut registers = thread.entry_registers(annex.base);
    // Not the program's own stack: an alternate stack could not be changed while standing on it.
    registers[RSP] = annex.range().end - 16;
    registers[RBX] = annex.base + (TABLE + lane.first * ENTRY_SIZE) as u64;
    registers[R13] = annex.staging_address() + (RESULTS + lane.first * 8) as u64;
    registers[R14] = annex.staging_address() + (lane.number * STATUS_SIZE) as u64;
    thread.block_signals(RUN_MASK)?;
    ptrace::set_registers(thread.host_tid, &registers)?;
    ptrace::resume(thread.host_tid, 0)?;
    Ok(())
}

/// Waits until a thread stands at the end of its lane; the staged pages that it could not read.
pub(crate) fn end(annex: &Annex, thread: &StoppedThread, lane: Lane) -> Result<Vec<usize>, EngineError> {
    let tid = thread.host_tid;
    let mut unreadable = Vec::new();
    // A look costs less than going to sleep and being woken; but the thread may need this very processor.
    let mut looks = 0;
    loop {
        let block = looks >= LOOK_COUNT;
        if !block && annex.staging.load(lane.number * STATUS_SIZE) != 1 && looks % 4 != 3 {
            std::hint::spin_loop();
            looks += 1;
            continue;
        }
        looks += 1;
        match ptrace::wait(tid, block)? {
            None => {}
            Some((_, Waited::Gone(_))) => return Err(gone(tid)),
            Some((_, Waited::Stopped { event: 0, signal })) if signal == libc::SIGSEGV || signal == libc::SIGBUS => {
                let registers = ptrace::registers(tid)?;
                if signal == batch::END_SIGNAL && registers[RIP] == annex.base + batch::ended() as u64 {
                    return Ok(unreadable);
                }
                unreadable.push(step_over_page(annex, tid, registers)?);
            }
            Some((_, Waited::Stopped { event: 0, signal })) => {
                return Err(SysError::new("injected calls", format!("{tid} got signal {signal}"), libc::EIO).into());
            }
            Some((_, Waited::Stopped { .. })) => ptrace::resume(tid, 0)?,
        }
    }
}

/// Lets each thread run its lane. On an error those that run already are waited for.
pub(crate) fn begin_all(annex: &Annex, stopped: &mut Stopped, lanes: &[(i32, Lane)]) -> Result<(), EngineError> {
    for (at, (tid, lane)) in lanes.iter().enumerate() {
        let thread = stopped.get_mut(tid).expect("a lane is for a thread that stands still");
        if let Err(error) = begin(annex, thread, *lane) {
            end_all(annex, stopped, &lanes[..at])?;
            return Err(error);
        }
    }
    Ok(())
}

/// Waits until each thread stands at the end of its lane, all of them even where one fails. For lanes without copies.
pub(crate) fn end_all(annex: &Annex, stopped: &Stopped, lanes: &[(i32, Lane)]) -> Result<(), EngineError> {
    let mut result = Ok(());
    for (tid, lane) in lanes {
        result = result.and(end(annex, &stopped[tid], *lane).map(drop));
    }
    result
}

/// Looks for the end of a lane before the driver sleeps: some tens of microseconds.
const LOOK_COUNT: u32 = 400;

/// What the calls of `batch` gave, once all its lanes have ended.
pub(crate) fn results(annex: &Annex, batch: &Batch, unreadable: Vec<usize>) -> Results {
    let mut values = vec![0; batch.entries.len()];
    annex.staging.read_words(RESULTS, &mut values);
    Results { values, unreadable }
}

/// Starts `batch`, which is for one thread, and returns while it runs.
pub(crate) fn start(annex: &Annex, thread: &mut StoppedThread, batch: &mut Batch) -> Result<Lane, EngineError> {
    let lane = batch.close_lane(thread);
    publish(annex, batch);
    begin(annex, thread, lane)?;
    Ok(lane)
}

/// Waits for the batch that [`start`] started.
pub(crate) fn finish(
    annex: &Annex,
    thread: &mut StoppedThread,
    batch: &Batch,
    lane: Lane,
) -> Result<Results, EngineError> {
    let unreadable = end(annex, thread, lane)?;
    Ok(results(annex, batch, unreadable))
}

/// Runs `batch` to its end.
pub(crate) fn run(annex: &Annex, thread: &mut StoppedThread, batch: &mut Batch) -> Result<Results, EngineError> {
    let lane = start(annex, thread, batch)?;
    finish(annex, thread, batch, lane)
}

fn gone(tid: i32) -> EngineError {
    SysError::new("injected calls", tid, libc::ESRCH).into()
}

/// A copy hit a page that the tracee may not touch: goes on with the next one; the staged page it was.
fn step_over_page(annex: &Annex, tid: i32, mut registers: RawRegisters) -> Result<usize, EngineError> {
    let offset = usize::try_from(registers[RIP].wrapping_sub(annex.base)).unwrap_or(usize::MAX);
    let pages = annex.staging_address() + PAGES as u64;
    if offset >= batch::gathered() || offset + 3 < batch::gathered() {
        return Err(SysError::new("injected calls", format!("{tid} faulted"), libc::EFAULT).into());
    }
    let done = registers[RDI].wrapping_sub(pages);
    let index = done / 4096;
    registers[RDI] = pages + (index + 1) * 4096;
    registers[RIP] = annex.base + batch::gathered() as u64;
    ptrace::set_registers(tid, &registers)?;
    ptrace::resume(tid, 0)?;
    usize::try_from(index)
        .ok()
        .filter(|i| *i < STAGED_PAGE_COUNT)
        .ok_or_else(|| gone(tid))
}

/// Makes the annex of a process through one of its stopped threads, and a userfaultfd for its address space.
pub(crate) fn install(
    thread: &mut StoppedThread,
    pidfd: &linux::pidfd::Pidfd,
    memory: &std::fs::File,
    maps: &[u8],
    track: bool,
) -> Result<(Annex, Option<OwnedFd>), EngineError> {
    let gadget = find_syscall(memory, maps)?;
    thread.block_signals(RUN_MASK)?;
    let mut door = Door { thread, memory, gadget };
    let code = door.memfd(pidfd, CODE_SIZE)?;
    let staging = door.memfd(pidfd, STAGING_SIZE)?;
    let code_window = Window::map(code.ours, CODE_SIZE)?;
    linux::memfd::seal_read_only_for_others(code_window.fd())?;
    let prot_code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let mut base = None;
    for address in ADDRESSES {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
        let at = door.call(
            libc::SYS_mmap,
            [address, CODE_SIZE as u64, prot_code, flags, code.theirs, 0],
        )?;
        if at == Ok(address) {
            base = Some(address);
            break;
        }
    }
    let base = base.ok_or_else(|| SysError::new("mmap", "the annex", libc::EEXIST))?;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
    let at = base + CODE_SIZE as u64;
    door.must(
        "mmap",
        libc::SYS_mmap,
        [at, STAGING_SIZE as u64, prot, flags, staging.theirs, 0],
    )?;
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        let length = (CODE_SIZE + STAGING_SIZE) as u64;
        door.must(
            "madvise",
            libc::SYS_madvise,
            [base, length, advice.cast_unsigned().into(), 0, 0, 0],
        )?;
    }
    let uffd = if track { Some(door.userfaultfd(pidfd)?) } else { None };
    for fd in [code.theirs, staging.theirs] {
        door.must("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    }
    let staging_window = Window::map(staging.ours, STAGING_SIZE)?;
    let annex = Annex {
        code: code_window,
        staging: staging_window,
        base,
    };
    // The single calls above ended in call stops; an empty batch brings the thread back to a stop from which the
    // kernel restarts an interrupted call.
    run(&annex, thread, &mut Batch::new(&annex))?;
    Ok((annex, uffd))
}

struct Shared {
    ours: OwnedFd,
    theirs: u64,
}

/// Single system calls before there is an annex: through a `syscall` instruction of the vdso.
struct Door<'a> {
    thread: &'a mut StoppedThread,
    memory: &'a std::fs::File,
    gadget: u64,
}

impl Door<'_> {
    fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<Result<u64, i32>, EngineError> {
        let tid = self.thread.host_tid;
        let mut registers = self.thread.entry_registers(self.gadget);
        registers[RAX] = u64::try_from(number).expect("call numbers are positive");
        for (register, value) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
            registers[register] = value;
        }
        ptrace::set_registers(tid, &registers)?;
        for _ in 0..2 {
            ptrace::resume_to_call(tid)?;
            loop {
                match ptrace::wait(tid, true)? {
                    Some((_, Waited::Stopped { event: 0, signal })) if signal == libc::SIGTRAP | 0x80 => break,
                    Some((_, Waited::Gone(_))) => return Err(gone(tid)),
                    Some(_) => ptrace::resume_to_call(tid)?,
                    None => {}
                }
            }
        }
        let result = i64::from_ne_bytes(ptrace::registers(tid)?[RAX].to_ne_bytes());
        Ok(if (-4095..0).contains(&result) {
            Err(i32::try_from(-result).expect("an errno"))
        } else {
            Ok(u64::from_ne_bytes(result.to_ne_bytes()))
        })
    }

    fn must(&mut self, name: &'static str, number: libc::c_long, arguments: [u64; 6]) -> Result<u64, EngineError> {
        self.call(number, arguments)?
            .map_err(|errno| SysError::new(name, format!("{} (inside the box)", self.thread.host_tid), errno).into())
    }

    fn memfd(&mut self, pidfd: &linux::pidfd::Pidfd, size: usize) -> Result<Shared, EngineError> {
        const NAME: &[u8] = b"deltabox\0";
        let at = (self.thread.raw[RSP] - 512) & !15;
        let mut before = [0u8; NAME.len()];
        linux::process_vm::read_forced(self.memory, at, &mut before)?;
        linux::process_vm::write_forced(self.memory, at, NAME)?;
        let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as u64;
        let made = self.must("memfd_create", libc::SYS_memfd_create, [at, flags, 0, 0, 0, 0]);
        linux::process_vm::write_forced(self.memory, at, &before)?;
        let theirs = made?;
        let ours = pidfd.duplicate(u32::try_from(theirs).expect("a descriptor"))?;
        rustix::fs::ftruncate(&ours, size as u64).map_err(|e| SysError::rustix("ftruncate", "annex", e))?;
        Ok(Shared { ours, theirs })
    }

    fn userfaultfd(&mut self, pidfd: &linux::pidfd::Pidfd) -> Result<OwnedFd, EngineError> {
        let flags = linux::uffd::CREATE_FLAGS;
        let theirs = self.must("userfaultfd", libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
        let ours = pidfd.duplicate(u32::try_from(theirs).expect("a descriptor"))?;
        self.must("close", libc::SYS_close, [theirs, 0, 0, 0, 0, 0])?;
        linux::uffd::enable(ours.as_fd())?;
        Ok(ours)
    }
}

fn find_syscall(memory: &std::fs::File, maps: &[u8]) -> Result<u64, EngineError> {
    let vdso = linux::procfs::maps(maps)
        .find(|line| line.name == b"[vdso]")
        .ok_or_else(|| EngineError::Unsupported("a process without a vdso".to_owned()))?;
    let mut code = vec![0; usize::try_from(vdso.end - vdso.start).expect("a few pages")];
    linux::process_vm::read_forced(memory, vdso.start, &mut code)?;
    code.windows(2)
        .position(|pair| pair == [0x0f, 0x05])
        .map(|at| vdso.start + at as u64)
        .ok_or_else(|| EngineError::Unsupported("a vdso without a system call".to_owned()))
}

/// `PTRACE_EVENT_STOP`.
pub(crate) const STOP: i32 = 128;

/// Indexes into [`RawRegisters`].
pub(crate) const R14: usize = 1;
pub(crate) const R13: usize = 2;
pub(crate) const RBX: usize = 5;
pub(crate) const R10: usize = 7;
pub(crate) const R9: usize = 8;
pub(crate) const R8: usize = 9;
pub(crate) const RAX: usize = 10;
pub(crate) const RDX: usize = 12;
pub(crate) const RSI: usize = 13;
pub(crate) const RDI: usize = 14;
pub(crate) const ORIG_RAX: usize = 15;
pub(crate) const RIP: usize = 16;
pub(crate) const EFLAGS: usize = 18;
pub(crate) const RSP: usize = 19;

/// The register set with which injected code is entered: nothing of the interrupted call in it.
pub(crate) fn clean_registers(raw: &RawRegisters, rip: u64) -> RawRegisters {
    let mut registers = *raw;
    registers[RIP] = rip;
    registers[RAX] = 0;
    registers[ORIG_RAX] = u64::MAX;
    registers[EFLAGS] = 0x202;
    registers
}
