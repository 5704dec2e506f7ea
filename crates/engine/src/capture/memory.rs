//! Memory: the mappings, and which private pages must be read. Decides what is new or freed since the last capture;
//! the copying itself is the stub's.

use std::os::fd::AsFd;

use image::memory::{Backing, Mapping, PageIndex};
use linux::pagemap::{self, Query, Region};
use linux::procfs;

use crate::error::EngineError;
use crate::tracee::Space;

const END: u64 = (1 << 47) - 4096;

/// What a look at an address space found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Private pages whose bytes may differ from the index, ascending addresses.
    pub(crate) dirty: Vec<u64>,
    /// Pages of the index that are not there any more (page numbers).
    pub(crate) freed: Vec<u64>,
    /// Ranges of shared mappings that were written.
    pub(crate) shared_written: Vec<(u64, u64)>,
    /// Private ranges that are not tracked yet.
    pub(crate) untracked: Vec<(u64, u64)>,
    /// Present private pages in all.
    pub(crate) present: u64,
}

/// Parses `maps` without our own windows. `shared` names the index of a shared memory object by device and inode.
pub(crate) fn mappings(
    text: &[u8],
    own: &std::ops::Range<u64>,
    shared: &mut dyn FnMut(&procfs::MapLine<'_>) -> u32,
) -> Vec<Mapping> {
    procfs::maps(text)
        .filter(|line| line.start >= own.end || line.end <= own.start)
        .map(|line| Mapping {
            start: line.start,
            end: line.end,
            prot: line.prot,
            shared: line.shared,
            grows_down: line.name == b"[stack]",
            backing: backing(&line, shared),
        })
        .collect()
}

fn backing(line: &procfs::MapLine<'_>, shared: &mut dyn FnMut(&procfs::MapLine<'_>) -> u32) -> Backing {
    let name = line.name;
    if name.starts_with(b"[v") || name.starts_with(b"[uprobes") {
        return Backing::Special;
    }
    if line.inode == 0 && !name.starts_with(b"/") {
        return Backing::Anonymous;
    }
    if is_memory_object(name) {
        return Backing::Shared { object: shared(line), offset: line.offset };
    }
    Backing::File { path: name.to_vec(), device: line.device, inode: line.inode, offset: line.offset }
}

/// Names under which the kernel shows memory that is no file of the tree.
pub(crate) fn is_memory_object(name: &[u8]) -> bool {
    name.starts_with(b"/memfd:") || name.starts_with(b"/dev/zero (deleted)") || name.starts_with(b"/SYSV")
}

/// True where a mapping's own pages are watched: what can be written, and anonymous memory of any protection.
fn is_trackable(mapping: &Mapping) -> bool {
    mapping.is_private() && (mapping.prot & 2 != 0 || mapping.backing == Backing::Anonymous)
}

/// Looks at the pages with PAGEMAP_SCAN; with `protect` they count as unwritten from here on.
pub(crate) fn scan(space: &Space, mappings: &[Mapping], protect: bool) -> Result<Found, EngineError> {
    let there = pagemap::PRESENT | pagemap::SWAPPED;
    let mut tracked = Vec::new();
    let query = Query {
        start: 0,
        end: END,
        protect,
        inverted: 0,
        all: pagemap::WPALLOWED,
        any: there,
        returned: pagemap::WRITTEN,
    };
    pagemap::scan(&space.pagemap, query, &mut tracked)?;
    let mut others = Vec::new();
    let query = Query { protect: false, inverted: pagemap::WPALLOWED, returned: 0, ..query };
    pagemap::scan(&space.pagemap, query, &mut others)?;
    Ok(sort_out(&space.pages, mappings, &tracked, &others))
}

/// Addresses of all present private pages that are tracked.
pub(crate) fn present(space: &Space, mappings: &[Mapping]) -> Result<Vec<u64>, EngineError> {
    let query = Query {
        start: 0,
        end: END,
        protect: false,
        inverted: 0,
        all: pagemap::WPALLOWED,
        any: pagemap::PRESENT | pagemap::SWAPPED,
        returned: 0,
    };
    let mut regions = Vec::new();
    pagemap::scan(&space.pagemap, query, &mut regions)?;
    let mut pages = Vec::new();
    overlay(mappings, &regions, |mapping, start, end, _| {
        if mapping.is_private() {
            pages.extend((start..end).step_by(4096));
        }
    });
    Ok(pages)
}

/// Pure: what two scans mean.
fn sort_out(index: &PageIndex, mappings: &[Mapping], tracked: &[Region], others: &[Region]) -> Found {
    let mut found = Found::default();
    let mut private: Vec<(u64, u64)> = Vec::new();
    overlay(mappings, tracked, |mapping, start, end, categories| {
        if mapping.shared {
            if categories & pagemap::WRITTEN != 0 {
                found.shared_written.push((start, end));
            }
            return;
        }
        private.push((start, end));
        if categories & pagemap::WRITTEN != 0 {
            found.dirty.extend((start..end).step_by(4096));
        }
    });
    let mut fresh: Vec<(u64, u64)> = Vec::new();
    overlay(mappings, others, |mapping, start, end, _| {
        if mapping.shared {
            if matches!(mapping.backing, Backing::Shared { .. } | Backing::File { .. }) {
                found.shared_written.push((start, end));
                if mapping.prot & 2 != 0 && found.untracked.last() != Some(&(mapping.start, mapping.end)) {
                    found.untracked.push((mapping.start, mapping.end));
                }
            }
        } else if is_trackable(mapping) {
            fresh.push((start, end));
            if found.untracked.last() != Some(&(mapping.start, mapping.end)) {
                found.untracked.push((mapping.start, mapping.end));
            }
            found.dirty.extend((start..end).step_by(4096));
        }
    });
    found.dirty.sort_unstable();
    private.extend(&fresh);
    private.sort_unstable();
    found.present = private.iter().map(|(start, end)| (end - start) / 4096).sum();
    found.freed = freed(index, &private);
    found
}

/// Pages of the index outside `present` (ascending ranges).
fn freed(index: &PageIndex, present: &[(u64, u64)]) -> Vec<u64> {
    let mut gone = Vec::new();
    // Whole leaves that are fully present are the rule: they are recognised by their count.
    let mut ranges = present.iter().map(|(start, end)| (start / 4096, end / 4096)).peekable();
    let mut covered: Vec<(u64, u64)> = Vec::new();
    let mut last_leaf = u64::MAX;
    for (leaf, count) in index.leaf_numbers() {
        debug_assert!(last_leaf == u64::MAX || leaf > last_leaf, "ascending");
        last_leaf = leaf;
        let (from, to) = (leaf * 512, leaf * 512 + 512);
        covered.retain(|(_, end)| *end > from);
        while let Some(range) = ranges.peek().copied() {
            if range.0 >= to {
                break;
            }
            if range.1 > from {
                covered.push(range);
            }
            ranges.next();
        }
        if count > 0 && covered.iter().any(|(start, end)| *start <= from && *end >= to) {
            continue;
        }
        let mut at = 0;
        index.for_each_in(from, to, |page, _| {
            while at < covered.len() && covered[at].1 <= page {
                at += 1;
            }
            if at == covered.len() || covered[at].0 > page {
                gone.push(page);
            }
        });
    }
    gone
}

/// Calls `visit` for each part of a region that lies in a mapping.
fn overlay(mappings: &[Mapping], regions: &[Region], mut visit: impl FnMut(&Mapping, u64, u64, u64)) {
    let mut at = 0;
    for region in regions {
        while at < mappings.len() && mappings[at].end <= region.start {
            at += 1;
        }
        for mapping in &mappings[at..] {
            if mapping.start >= region.end {
                break;
            }
            visit(mapping, region.start.max(mapping.start), region.end.min(mapping.end), region.categories);
        }
    }
}

/// Registers ranges that were found untracked, and protects what is in them.
pub(crate) fn track(space: &mut Space, ranges: &[(u64, u64)]) -> Result<(), EngineError> {
    let Some(uffd) = &space.uffd else { return Ok(()) };
    for (start, end) in ranges {
        match linux::uffd::register(uffd.as_fd(), *start, *end) {
            Ok(()) => space.registered.push((*start, *end)),
            // MAP_DROPPABLE and its like cannot be tracked; they are captured as new each time.
            Err(e) if e.errno == libc::EINVAL || e.errno == libc::EBUSY || e.errno == libc::EPERM => continue,
            Err(e) => return Err(e.into()),
        }
        protect_range(space, *start, *end)?;
    }
    Ok(())
}

/// Registers what is worth tracking at first sight and protects it. Read-only file mappings are left alone, but for those that hold
/// pages of their own (relocations), which `deep` looks for.
pub(crate) fn register(space: &mut Space, mappings: &[Mapping], deep: bool) -> Result<(), EngineError> {
    let Some(uffd) = &space.uffd else { return Ok(()) };
    let mut wanted: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings {
        let shared_writable =
            mapping.shared && mapping.prot & 2 != 0 && matches!(mapping.backing, Backing::Shared { .. } | Backing::File { .. });
        let keep = is_trackable(mapping)
            || shared_writable
            || (deep && mapping.is_private() && has_own_pages(space, mapping)?)
            || (mapping.is_private() && is_registered(&space.registered, mapping.start, mapping.end));
        if keep {
            wanted.push((mapping.start, mapping.end));
        }
    }
    let mut registered = Vec::with_capacity(wanted.len());
    for (start, end) in wanted {
        // Registering a range again is cheap and the only way to cover one that was unmapped and mapped anew.
        match linux::uffd::register(uffd.as_fd(), start, end) {
            Ok(()) => registered.push((start, end)),
            // MAP_DROPPABLE and its like cannot be tracked; they are captured as new each time.
            Err(e) if e.errno == libc::EINVAL || e.errno == libc::EBUSY || e.errno == libc::EPERM => {}
            Err(e) => return Err(e.into()),
        }
    }
    space.registered = registered;
    Ok(())
}

fn is_registered(registered: &[(u64, u64)], start: u64, end: u64) -> bool {
    registered.iter().any(|(from, to)| *from < end && start < *to)
}

fn has_own_pages(space: &Space, mapping: &Mapping) -> Result<bool, EngineError> {
    if !matches!(mapping.backing, Backing::File { .. }) {
        return Ok(false);
    }
    let mut regions = Vec::new();
    let query = Query {
        start: mapping.start,
        end: mapping.end,
        protect: false,
        inverted: pagemap::FILE,
        all: pagemap::FILE,
        any: pagemap::PRESENT | pagemap::SWAPPED,
        returned: 0,
    };
    pagemap::scan(&space.pagemap, query, &mut regions)?;
    Ok(!regions.is_empty())
}

/// Marks everything that is there as unwritten from here on.
pub(crate) fn protect(space: &Space) -> Result<(), EngineError> {
    if space.uffd.is_none() {
        return Ok(());
    }
    protect_range(space, 0, END)
}

fn protect_range(space: &Space, start: u64, end: u64) -> Result<(), EngineError> {
    let mut sink = Vec::new();
    let query = Query {
        start,
        end,
        protect: true,
        inverted: 0,
        all: pagemap::WRITTEN,
        any: pagemap::PRESENT | pagemap::SWAPPED,
        returned: pagemap::WRITTEN,
    };
    pagemap::scan(&space.pagemap, query, &mut sink)?;
    Ok(())
}

/// The other source: every present private page may have changed. Works on any kernel.
pub(crate) fn all_present(space: &Space, mappings: &[Mapping]) -> Result<Found, EngineError> {
    use std::os::unix::fs::FileExt;
    let mut regions = Vec::new();
    let mut buffer = vec![0u8; 8 * 65536];
    for mapping in mappings.iter().filter(|m| m.shared || is_trackable(m) || m.is_private()) {
        let mut page = mapping.start / 4096;
        while page < mapping.end / 4096 {
            let count = usize::try_from(mapping.end / 4096 - page).unwrap_or(usize::MAX).min(65536);
            let bytes = &mut buffer[..count * 8];
            space
                .pagemap
                .read_exact_at(bytes, page * 8)
                .map_err(|e| linux::SysError::io("read", "/proc/PID/pagemap", &e))?;
            for (i, entry) in bytes.chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                let (present, swapped, of_file) = (entry >> 63 & 1, entry >> 62 & 1, entry >> 61 & 1);
                if (present | swapped) == 1 && (mapping.shared || of_file == 0) {
                    let start = (page + i as u64) * 4096;
                    regions.push(Region { start, end: start + 4096, categories: pagemap::WRITTEN });
                }
            }
            page += count as u64;
        }
    }
    Ok(sort_out(&space.pages, mappings, &regions, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::memory::Slot;

    fn anonymous(start: u64, end: u64) -> Mapping {
        Mapping { start, end, prot: 3, shared: false, backing: Backing::Anonymous, grows_down: false }
    }

    /// A page of the index that no scan reports was freed by the program (MADV_DONTNEED, munmap).
    #[test]
    fn what_no_scan_reports_is_freed() {
        let mut index = PageIndex::default();
        for page in [1, 2, 600] {
            index.set(page, Slot::Zero);
        }
        let regions = [Region { start: 4096, end: 8192, categories: 0 }];
        let found = sort_out(&index, &[anonymous(4096, 4096 * 700)], &regions, &[]);
        assert_eq!(found.freed, [2, 600]);
        assert!(found.dirty.is_empty());
    }

    /// A range that was unmapped and mapped anew has the same line in maps; it shows as not tracked.
    #[test]
    fn untracked_pages_are_dirty() {
        let others = [Region { start: 8192, end: 16384, categories: 0 }];
        let found = sort_out(&PageIndex::default(), &[anonymous(4096, 40960)], &[], &others);
        assert_eq!(found.dirty, [8192, 12288]);
    }
}
