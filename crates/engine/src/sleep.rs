//! Proves that threads sleep. A thread that the scheduler has not run since its capture is in the state of its image, so
//! it need not be stopped again. Our own stop makes a thread run once; it is believed to be back in the same wait only
//! if it stands in the same call at the same place and nothing in its address space was written meanwhile. Never stops
//! anything.

use std::time::{Duration, Instant};

use linux::procfs;

use crate::capture::{memory, threads};
use crate::freeze::{self, Live, Stopped};
use crate::tracee::{LiveProcess, LiveThread, Space};

/// Bytes of `struct rseq` that the kernel may write by itself whenever a thread comes back to user space.
const RSEQ_SIZE: u64 = 32;

/// How long the rest of a process waits for its idle threads to be back asleep.
const PATIENCE: Duration = Duration::from_micros(150);

/// Lets the idle threads of each process go first, and marks those that are back asleep as they were captured while the
/// others still stand: from then on they need not be stopped again, however busy the others are.
pub(crate) fn let_idle_go_first(live: &mut Live, stopped: &mut Stopped) {
    for process in live.values_mut() {
        let idle: Vec<i32> = process
            .threads
            .iter()
            .filter(|(tid, thread)| thread.restful && stopped.get(tid).is_some_and(|s| !s.group_stop))
            .map(|(tid, _)| *tid)
            .collect();
        if idle.is_empty() {
            continue;
        }
        let mut gone_first = Stopped::new();
        for tid in &idle {
            let thread = stopped.remove(tid).expect("filtered for it");
            gone_first.insert(*tid, thread);
        }
        drop(freeze::let_go(gone_first));
        let since = Instant::now();
        let mut buffer = Vec::new();
        let asleep = |process: &LiveProcess, buffer: &mut Vec<u8>| {
            idle.iter()
                .all(|tid| threads::sleeps_as_captured(&process.threads[tid], buffer))
        };
        while !asleep(process, &mut buffer) {
            if since.elapsed() > PATIENCE {
                break;
            }
            std::hint::spin_loop();
        }
        confirm(process, stopped);
    }
}

/// Marks the threads of a process that sleep as they were captured, if all do that do not stand still. Where some are
/// not back asleep yet, or something was written, nothing is marked: they are stopped at the next capture like any other.
pub(crate) fn confirm(process: &mut LiveProcess, stopped: &Stopped) {
    let unproven = |(tid, thread): &(&i32, &LiveThread)| thread.asleep_at.is_none() && !stopped.contains_key(tid);
    if process.image.is_none() || process.threads.iter().filter(unproven).count() == 0 {
        return;
    }
    let Some(space) = &process.space else { return };
    let was_stopped = process.image.as_ref().is_some_and(|image| image.stopped);
    let mut buffer = Vec::new();
    let mut counts = Vec::with_capacity(process.threads.len());
    for (tid, thread) in process.threads.iter().filter(|(tid, _)| !stopped.contains_key(tid)) {
        if !threads::sleeps_as_captured(thread, &mut buffer) || is_stopped(thread, &mut buffer) != Some(was_stopped) {
            return;
        }
        let Some(runs) = thread.run_count(&mut buffer) else {
            return;
        };
        counts.push((*tid, runs));
    }
    let areas: Vec<u64> = process
        .threads
        .values()
        .filter_map(|t| t.image.as_ref())
        .map(|image| image.rseq.address)
        .collect();
    if !nothing_written(space, &areas) {
        return;
    }
    let unmoved = counts
        .iter()
        .all(|(tid, runs)| process.threads[tid].run_count(&mut buffer) == Some(*runs));
    if unmoved {
        for (tid, runs) in counts {
            process.threads.get_mut(&tid).expect("listed from it").asleep_at = Some(runs);
        }
    }
}

/// True where job control holds it: one that was continued, or stopped, since its capture may well be in the same call.
fn is_stopped(thread: &LiveThread, buffer: &mut Vec<u8>) -> Option<bool> {
    thread.dir.read("stat", buffer).ok()?;
    procfs::stat_fields(buffer).and_then(|(_, fields)| Some(*fields.first()? == "T"))
}

/// True where every page that was written since its capture still holds what was captured, but for what the kernel
/// itself writes.
fn nothing_written(space: &Space, rseq: &[u64]) -> bool {
    if space.uffd.is_none() {
        return false;
    }
    let Ok(Some(ranges)) = memory::few_written(space) else {
        return false;
    };
    let mut page = [0u8; 4096];
    for (start, end) in ranges {
        for address in (start..end).step_by(4096) {
            if linux::process_vm::read_forced(&space.memory, address, &mut page).is_err() {
                return false;
            }
            let Some(known) = space.pages.get(address / 4096).bytes() else {
                return false;
            };
            let mut known = *known;
            for area in rseq.iter().filter(|area| **area / 4096 == address / 4096) {
                let at = usize::try_from(area % 4096).expect("within a page");
                let end = (at + usize::try_from(RSEQ_SIZE).expect("small")).min(4096);
                known[at..end].copy_from_slice(&page[at..end]);
            }
            if known != page {
                return false;
            }
        }
    }
    true
}
