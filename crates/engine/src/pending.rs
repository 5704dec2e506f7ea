//! What was captured and still lies in the staging windows: it is compared with what is known and kept once the box runs
//! again, a piece at a time. Never needs the box to stand still.

use std::collections::BTreeMap;
use std::sync::Arc;

use image::memory::{Page, PageIndex, Slot};
use image::process::Processes;

use crate::freeze::Stopped;
use crate::{Engine, ProcessImage, remote, sleep};

/// A capture whose pages still lie in the staging windows.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) image: ProcessImage,
    pub(crate) parts: Processes,
    pub(crate) memory: BTreeMap<u32, MemoryFound>,
    /// What runs is not what was captured any more: a rollback came in between.
    pub(crate) undone: bool,
}

/// What was found in the memory of one process.
#[derive(Debug)]
pub(crate) struct MemoryFound {
    pub(crate) host_pid: i32,
    pub(crate) dirty: Vec<u64>,
    pub(crate) freed: Vec<u64>,
    pub(crate) staged: Vec<(u64, usize)>,
    pub(crate) copied: Vec<(u64, Slot)>,
    /// The index of the capture before; with what was found in it, the index of this one.
    pub(crate) pages: PageIndex,
}

impl MemoryFound {
    /// Addresses of pages that may differ from the index of the capture before, ascending.
    pub(crate) fn changed(&self) -> Vec<u64> {
        let mut changed = self.dirty.clone();
        changed.extend(self.freed.iter().map(|page| page * 4096));
        changed.extend(self.copied.iter().map(|(page, _)| page * 4096));
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Brings a part of what was captured into the index; true where more is left.
    pub(crate) fn keep_some(&mut self, annex: &remote::Annex) -> bool {
        const PAGE_COUNT: usize = 32;
        for page in self.freed.drain(..) {
            self.pages.set(page, Slot::Absent);
        }
        let mut buffer = [0u8; 4096];
        let rest = self.staged.len().saturating_sub(PAGE_COUNT);
        for (page, index) in self.staged.drain(rest..) {
            annex.staged_page(index, &mut buffer);
            keep(&mut self.pages, page, &buffer);
        }
        if rest > 0 {
            return true;
        }
        let rest = self.copied.len().saturating_sub(PAGE_COUNT);
        for (page, slot) in self.copied.drain(rest..) {
            let known = self.pages.get(page);
            if matches!(known, Slot::Absent) || known.bytes() != slot.bytes() {
                self.pages.set(page, slot);
            }
        }
        rest > 0
    }
}

impl Engine {
    /// Work that was put off until the box ran again: compares and keeps the captured pages. Must be done after a
    /// thaw and before the next freeze (the engine does it itself otherwise).
    pub fn settle(&mut self) {
        while self.settle_piece() {}
    }

    /// A fraction of a millisecond of [`Engine::settle`]; true where more is left.
    pub fn settle_piece(&mut self) -> bool {
        if self.keep_piece() {
            return true;
        }
        for process in self.live.values_mut() {
            sleep::confirm(process, &Stopped::new());
        }
        false
    }

    /// Completes the image that was captured last.
    pub(crate) fn keep_pending(&mut self) {
        while self.keep_piece() {}
    }

    fn keep_piece(&mut self) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        if let Some(mut entry) = pending.memory.first_entry() {
            let found = entry.get_mut();
            let Some(space) = self.live.get_mut(&found.host_pid).and_then(|p| p.space.as_mut()) else {
                entry.remove();
                return true;
            };
            if !found.keep_some(&space.annex) {
                let process = pending.parts.processes.get_mut(entry.key()).expect("captured together");
                let pages = entry.remove().pages;
                if !pending.undone {
                    space.keep(pages.clone());
                }
                Arc::make_mut(process).memory.pages = pages;
            }
            return true;
        }
        let Pending {
            image, parts, undone, ..
        } = self.pending.take().expect("looked at above");
        if !undone {
            for process in self.live.values_mut() {
                process.image = parts.processes.get(&process.pid).cloned();
            }
        }
        image.settle(parts);
        false
    }

    /// Completes what was captured of one process, as long as its staging window is there.
    pub(crate) fn keep_pending_of(&mut self, pid: u32) {
        let Some(pending) = &mut self.pending else { return };
        let Some(mut found) = pending.memory.remove(&pid) else {
            return;
        };
        let Some(space) = self.live.get_mut(&found.host_pid).and_then(|p| p.space.as_mut()) else {
            return;
        };
        while found.keep_some(&space.annex) {}
        let process = pending.parts.processes.get_mut(&pid).expect("captured together");
        if !pending.undone {
            space.keep(found.pages.clone());
        }
        Arc::make_mut(process).memory.pages = found.pages;
    }
}

/// A page's bytes as the index keeps them.
pub(crate) fn slot(bytes: &[u8; 4096]) -> Slot {
    if *bytes == [0; 4096] {
        Slot::Zero
    } else {
        Slot::Bytes(Arc::new(Page::copy_of(bytes)))
    }
}

/// Keeps a page where its bytes differ from what the index has.
pub(crate) fn keep(pages: &mut PageIndex, page: u64, bytes: &[u8; 4096]) {
    let known = pages.get(page);
    if !matches!(known, Slot::Absent) && known.bytes() == Some(bytes) {
        return;
    }
    pages.set(page, slot(bytes));
}
