//! The bytes of pages: which of them the process copies itself, and how the rest is read from outside.

use image::memory::{Mapping, Slot};

use super::Manner;
use super::memory::{self, Found};
use crate::error::EngineError;
use crate::remote::STAGED_PAGE_COUNT;
use crate::tracee::Space;

/// Which pages the process copies itself (page number, staged index), and which addresses are left to us. Both ascend.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) staged: Vec<(u64, usize)>,
    pub(crate) rest: Vec<u64>,
}

/// Plans the copies of what was `found`.
pub(crate) fn plan_copies(found: &Found, mappings: &[Mapping]) -> Copies {
    let mut copies = Copies {
        staged: Vec::with_capacity(found.dirty.len().min(STAGED_PAGE_COUNT)),
        rest: Vec::new(),
    };
    let mut at = 0;
    for address in &found.dirty {
        while at < mappings.len() && mappings[at].end <= *address {
            at += 1;
        }
        let readable = mappings.get(at).is_some_and(|m| m.start <= *address && m.prot & 1 != 0);
        if readable && copies.staged.len() < STAGED_PAGE_COUNT {
            copies.staged.push((address / 4096, copies.staged.len()));
        } else {
            copies.rest.push(*address);
        }
    }
    copies
}

/// Copies what the process could not, or what did not fit.
pub(crate) fn copy_rest(
    space: &Space,
    host_pid: i32,
    staged: &[(u64, usize)],
    unreadable: &[usize],
    rest: &[u64],
) -> Result<Vec<(u64, Slot)>, EngineError> {
    let mut copied = Vec::with_capacity(rest.len());
    let unreadable = unreadable
        .iter()
        .filter_map(|index| staged.get(*index))
        .map(|(page, _)| page * 4096);
    let mut forced: Vec<u64> = unreadable.collect();
    // Small stretches: one page that cannot be read makes its whole stretch take the slow way.
    let mut buffer = vec![0u8; rest.len().min(64) * 4096];
    for chunk in rest.chunks(64) {
        let bytes = &mut buffer[..chunk.len() * 4096];
        if linux::process_vm::read_pages(host_pid, chunk, bytes).is_ok() {
            for (address, page) in chunk.iter().zip(bytes.chunks_exact(4096)) {
                copied.push((address / 4096, crate::pending::slot(page.try_into().expect("a page"))));
            }
        } else {
            forced.extend_from_slice(chunk);
        }
    }
    for address in forced {
        let mut page = [0; 4096];
        // A guard page or a hole past the end of a file: there is nothing to keep.
        if linux::process_vm::read_forced(&space.memory, address, &mut page).is_ok() {
            copied.push((address / 4096, crate::pending::slot(&page)));
        }
    }
    Ok(copied)
}

/// Fills the index of a process that runs again, so that its first checkpoint copies only what it has written since
/// it was protected. What is read while being written is read again then.
pub(crate) fn copy_in_background(host_pid: i32, space: &mut Space) -> Result<(), EngineError> {
    let layout = memory::read_layout(space)?;
    let present = memory::present(space, &layout.mappings)?;
    space.layout = Some(layout);
    let mut pages = image::memory::PageIndex::default();
    for chunk in present.chunks(256) {
        let mut bytes = vec![0u8; chunk.len() * 4096];
        if linux::process_vm::read_pages(host_pid, chunk, &mut bytes).is_ok() {
            for (address, page) in chunk.iter().zip(bytes.chunks_exact(4096)) {
                crate::pending::keep(&mut pages, address / 4096, page.try_into().expect("a page"));
            }
            continue;
        }
        for address in chunk {
            let mut page = [0; 4096];
            if linux::process_vm::read_forced(&space.memory, *address, &mut page).is_ok() {
                crate::pending::keep(&mut pages, address / 4096, &page);
            }
        }
    }
    space.keep(pages);
    Ok(())
}

/// Pages that only the mappings as they are now make ours.
pub(crate) fn copy_missed(
    space: &Space,
    host_pid: i32,
    found: &Found,
    copies: &Copies,
    manner: &Manner<'_>,
) -> Result<Vec<(u64, Slot)>, EngineError> {
    if !manner.bytes || manner.faults.skips("pages") {
        return Ok(Vec::new());
    }
    let missed: Vec<u64> = found
        .dirty
        .iter()
        .copied()
        .filter(|address| {
            let staged = copies.staged.binary_search_by_key(&(address / 4096), |(page, _)| *page);
            staged.is_err() && copies.rest.binary_search(address).is_err()
        })
        .collect();
    copy_rest(space, host_pid, &[], &[], &missed)
}
