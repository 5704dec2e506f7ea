//! Memory steps: break, ranges, protections, dropped pages by the process itself; its pages are written from outside,
//! by two of our threads.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::memory::{AddressSpace, Backing, Mapping, PageIndex, Slot};
use linux::SysError;
use linux::pidfd::Pidfd;

use crate::error::EngineError;
use crate::fault::Faults;
use crate::onlooker::{Onlooker, Promise};
use crate::plan::MemoryPlan;
use crate::remote::{self, Batch};
use crate::tracee::{Space, StoppedThread};

/// What one address space must become.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) plan: &'a MemoryPlan,
    pub(crate) target: &'a AddressSpace,
    /// Shared memory objects of the target, by index.
    pub(crate) shared: &'a BTreeMap<u32, File>,
}

/// Carries `change` out on one process, but for the bytes of its pages.
pub(crate) fn apply(
    space: &mut Space,
    pidfd: &Pidfd,
    thread: &mut StoppedThread,
    change: &Change<'_>,
    faults: &Faults,
) -> Result<(), EngineError> {
    let passed = pass_shared(space, pidfd, thread, change.plan, change.shared)?;
    ranges(space, thread, change.plan, change.target, &passed, faults)?;
    close(space, thread, &passed)
}

/// Hands the process a descriptor of each shared memory object that it must map again; their numbers by object.
fn pass_shared(
    space: &Space,
    pidfd: &Pidfd,
    thread: &mut StoppedThread,
    plan: &MemoryPlan,
    shared: &BTreeMap<u32, File>,
) -> Result<BTreeMap<u32, u32>, EngineError> {
    let mut objects: Vec<u32> = Vec::new();
    for mapping in &plan.map {
        if let Backing::Shared { object, .. } = mapping.backing
            && !objects.contains(&object)
        {
            objects.push(object);
        }
    }
    let mut passed = BTreeMap::new();
    for chunk in objects.chunks(128) {
        let fds: Vec<BorrowedFd<'_>> = chunk.iter().map(|object| shared[object].as_fd()).collect();
        let numbers = super::fds::hand_over(space, pidfd, thread, &fds)?;
        passed.extend(chunk.iter().copied().zip(numbers));
    }
    Ok(passed)
}

fn close(space: &Space, thread: &mut StoppedThread, passed: &BTreeMap<u32, u32>) -> Result<(), EngineError> {
    if passed.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(&space.annex);
    for fd in passed.values() {
        batch.call(libc::SYS_close, [(*fd).into(), 0, 0, 0, 0, 0]);
    }
    remote::run(&space.annex, thread, &mut batch).map(drop)
}

fn ranges(
    space: &mut Space,
    thread: &mut StoppedThread,
    plan: &MemoryPlan,
    target: &AddressSpace,
    passed: &BTreeMap<u32, u32>,
    faults: &Faults,
) -> Result<(), EngineError> {
    let mut batch = Batch::new(&space.annex);
    let mut checks: Vec<(usize, &'static str, String)> = Vec::new();
    if let Some(brk) = plan.brk.filter(|_| !faults.skips("brk")) {
        checks.push((
            batch.call(libc::SYS_brk, [brk, 0, 0, 0, 0, 0]),
            "brk",
            format!("{brk:x}"),
        ));
    }
    if !faults.skips("vmas") {
        for (start, end) in &plan.unmap {
            let call = batch.call(libc::SYS_munmap, [*start, end - start, 0, 0, 0, 0]);
            checks.push((call, "munmap", format!("{start:x}-{end:x}")));
        }
        for mapping in &plan.map {
            for (call, name) in map(&mut batch, mapping, passed)? {
                checks.push((call, name, format!("{:x}-{:x}", mapping.start, mapping.end)));
            }
            if batch.is_nearly_full() {
                flush(space, thread, &mut batch, &mut checks)?;
            }
        }
    }
    if !faults.skips("prot") {
        for (start, end, prot) in &plan.protect {
            let call = batch.call(libc::SYS_mprotect, [*start, end - start, u64::from(*prot), 0, 0, 0]);
            checks.push((call, "mprotect", format!("{start:x}-{end:x}")));
            if batch.is_nearly_full() {
                flush(space, thread, &mut batch, &mut checks)?;
            }
        }
    }
    if !faults.skips("absent") {
        for (start, end) in &plan.drop {
            let advice = libc::MADV_DONTNEED as u64;
            let call = batch.call(libc::SYS_madvise, [*start, end - start, advice, 0, 0, 0]);
            checks.push((call, "MADV_DONTNEED", format!("{start:x}-{end:x}")));
            if batch.is_nearly_full() {
                flush(space, thread, &mut batch, &mut checks)?;
            }
        }
    }
    flush(space, thread, &mut batch, &mut checks)?;
    if plan.brk.is_some() && !faults.skips("brk") {
        let mut check = Batch::new(&space.annex);
        let call = check.call(libc::SYS_brk, [0; 6]);
        let brk = remote::run(&space.annex, thread, &mut check)?.expect(call, "brk", "")?;
        if u64::from_ne_bytes(brk.to_ne_bytes()) != target.brk {
            return Err(SysError::new("brk", format!("{:x}", target.brk), libc::ENOMEM).into());
        }
    }
    Ok(())
}

fn flush(
    space: &Space,
    thread: &mut StoppedThread,
    batch: &mut Batch,
    checks: &mut Vec<(usize, &'static str, String)>,
) -> Result<(), EngineError> {
    if batch.is_empty() {
        return Ok(());
    }
    let results = remote::run(&space.annex, thread, batch)?;
    for (call, name, object) in checks.drain(..) {
        results.expect(call, name, object)?;
    }
    *batch = Batch::new(&space.annex);
    Ok(())
}

/// Adds the calls that make one mapping again, with its final protection from the start.
fn map(
    batch: &mut Batch,
    mapping: &Mapping,
    passed: &BTreeMap<u32, u32>,
) -> Result<Vec<(usize, &'static str)>, EngineError> {
    let length = mapping.end - mapping.start;
    let prot = u64::from(mapping.prot);
    let sharing = if mapping.shared {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    };
    let base = u64::from((sharing | libc::MAP_FIXED).cast_unsigned());
    match &mapping.backing {
        Backing::Anonymous => {
            let flags = base | libc::MAP_ANONYMOUS as u64;
            Ok(vec![(
                batch.call(libc::SYS_mmap, [mapping.start, length, prot, flags, u64::MAX, 0]),
                "mmap",
            )])
        }
        Backing::File { path, offset, .. } => {
            let writable = mapping.shared && mapping.prot & 2 != 0;
            let access = if writable { libc::O_RDWR } else { libc::O_RDONLY } | libc::O_CLOEXEC;
            let path = batch.path(path);
            let at = u64::from_ne_bytes(i64::from(libc::AT_FDCWD).to_ne_bytes());
            let open = batch.call_with(
                libc::SYS_openat,
                [at, path, access.cast_unsigned().into(), 0, 0, 0],
                linux::batch::SAVE,
            );
            let map = batch.call_with(
                libc::SYS_mmap,
                [mapping.start, length, prot, base, 0, *offset],
                linux::batch::SAVED_AS_FIFTH,
            );
            let close = batch.call_with(libc::SYS_close, [0; 6], linux::batch::SAVED_AS_FIRST);
            Ok(vec![(open, "open"), (map, "mmap"), (close, "close")])
        }
        Backing::Shared { object, offset } => {
            let fd = passed[object];
            let call = batch.call(libc::SYS_mmap, [mapping.start, length, prot, base, fd.into(), *offset]);
            Ok(vec![(call, "mmap")])
        }
        Backing::Special => Err(EngineError::Torn("a mapping of the kernel's was planned".to_owned())),
    }
}

/// The pages of one process that must be written.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) host_pid: i32,
    /// Page numbers, ascending.
    pub(crate) numbers: Vec<u64>,
    pub(crate) target: PageIndex,
}

/// Pages that are written by whoever has time.
#[derive(Debug)]
struct Writing {
    all: Vec<Pages>,
    /// Stretches: whose, and which of the pages.
    stretches: Vec<(usize, Range<usize>)>,
    /// Stretches that somebody has begun.
    begun: AtomicUsize,
}

/// Pages that are written at once.
const STRETCH: usize = 32;

impl Writing {
    fn of(all: Vec<Pages>) -> Self {
        let mut stretches = Vec::new();
        for (whose, pages) in all.iter().enumerate() {
            let count = pages.numbers.len();
            let starts = (0..count).step_by(STRETCH);
            stretches.extend(starts.map(|at| (whose, at..(at + STRETCH).min(count))));
        }
        Self {
            all,
            stretches,
            begun: AtomicUsize::new(0),
        }
    }

    /// Writes stretches that nobody has begun until there are none left; those that could not be written so.
    fn write(&self) -> Vec<usize> {
        let mut left = Vec::new();
        let mut bytes = Vec::with_capacity(STRETCH);
        loop {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            let Some((whose, which)) = self.stretches.get(number) else {
                return left;
            };
            let pages = &self.all[*whose];
            let numbers = &pages.numbers[which.clone()];
            bytes.extend(
                numbers
                    .iter()
                    .map(|page| (page * 4096, bytes_of(pages.target.get(*page)))),
            );
            // Where the process itself may not write to one of them, all are written the slow way.
            if linux::process_vm::write_pages(pages.host_pid, &bytes).is_err() {
                left.push(number);
            }
            bytes.clear();
        }
    }
}

fn bytes_of(slot: &Slot) -> &[u8; 4096] {
    slot.bytes().expect("only pages that hold something are written")
}

/// Writes pages of stopped processes; `memory` gives the open memory of one.
pub(crate) fn write_pages<'a>(
    onlooker: &Onlooker,
    all: Vec<Pages>,
    memory: impl Fn(i32) -> &'a File,
) -> Result<(), EngineError> {
    let writing = Arc::new(Writing::of(all));
    let second = (writing.stretches.len() > 1).then(|| {
        let writing = writing.clone();
        onlooker.give(move || writing.write())
    });
    let mut left = writing.write();
    left.extend(second.map(Promise::wait).unwrap_or_default());
    for number in left {
        let (whose, which) = &writing.stretches[number];
        let pages = &writing.all[*whose];
        for page in &pages.numbers[which.clone()] {
            let bytes = bytes_of(pages.target.get(*page));
            linux::process_vm::write_forced(memory(pages.host_pid), page * 4096, bytes)?;
        }
    }
    Ok(())
}
