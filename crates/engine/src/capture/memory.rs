//! Memory: the mappings, and which private pages must be read. Decides what is new or freed since the last capture;
//! the copying itself is the stub's.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use image::fd::Inode;
use image::memory::{Backing, Mapping, PageIndex};
use linux::pagemap::{self, Query, Region};
use linux::procfs;
use linux::procmap::{self, Area};

use crate::error::EngineError;
use crate::onlooker::{Onlooker, Promise};
use crate::tracee::{Layout, Named, Space};

const END: u64 = (1 << 47) - 4096;

/// What a look at an address space found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Private pages whose bytes may differ from the index, ascending addresses.
    pub(crate) dirty: Vec<u64>,
    /// Ranges of shared mappings that were written.
    pub(crate) shared_written: Vec<(u64, u64)>,
    /// Private ranges that are not tracked yet.
    pub(crate) untracked: Vec<(u64, u64)>,
}

/// Reads the mappings again.
pub(crate) fn read_layout(space: &Space) -> Result<Layout, EngineError> {
    let mut text = Vec::new();
    procfs::read_from_start(&space.maps, &mut text)?;
    Ok(layout(text, &space.annex.range()))
}

/// True where the mappings are those of `known`: as numbers, and with `names`, which a checkpoint needs, also by the name
/// of each file.
pub(crate) fn same_areas(maps: &File, known: &Layout, names: bool) -> bool {
    let mut rest = known.areas.iter();
    let named = |number: usize| names && known.areas.get(number).is_some_and(|(_, name)| name.is_some());
    let mut same = true;
    let asked = procmap::areas_and_names(maps, procmap::Which::All, named, |area, name| {
        same &= rest.next().is_some_and(|(known, its_name)| {
            *known == area && (!names || its_name.as_ref().is_none_or(|its_name| its_name == name))
        });
        same
    });
    asked.is_ok() && same && rest.next().is_none()
}

/// Parses `maps`.
pub(crate) fn layout(text: Vec<u8>, own: &std::ops::Range<u64>) -> Layout {
    let mut names: Vec<Named> = Vec::new();
    let mappings = mappings(&text, own, &mut |line| {
        let inode = Inode {
            device: rustix::fs::makedev(line.device.0, line.device.1),
            number: line.inode,
        };
        let known = names.iter().position(|named| named.inode == inode);
        let at = known.unwrap_or_else(|| {
            names.push(Named {
                inode,
                name: line.name.to_vec(),
                mapping: (line.start, line.end),
            });
            names.len() - 1
        });
        u32::try_from(at).expect("fewer mappings than that")
    });
    let mut seen = BTreeSet::new();
    let areas = procfs::maps(&text)
        .filter(|line| line.name != b"[vsyscall]")
        .map(|line| {
            let area = Area {
                start: line.start,
                end: line.end,
                prot: line.prot,
                shared: line.shared,
                offset: line.offset,
                device: line.device,
                inode: line.inode,
            };
            // What has no file may have been named by the program (`PR_SET_VMA`), which changes nothing.
            let first = line.inode != 0 && seen.insert((line.device, line.inode));
            (area, first.then(|| line.name.to_vec()))
        })
        .collect();
    Layout {
        text,
        areas,
        mappings: Arc::new(mappings),
        names,
    }
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
        return Backing::Shared {
            object: shared(line),
            offset: line.offset,
        };
    }
    Backing::File {
        path: name.to_vec(),
        device: line.device,
        inode: line.inode,
        offset: line.offset,
    }
}

/// Names under which the kernel shows memory that is no file of the tree.
pub(crate) fn is_memory_object(name: &[u8]) -> bool {
    name.starts_with(b"/memfd:") || name.starts_with(b"/dev/zero (deleted)") || name.starts_with(b"/SYSV")
}

/// True where a mapping's own pages are watched: what can be written, and anonymous memory of any protection.
fn is_trackable(mapping: &Mapping) -> bool {
    mapping.is_private() && (mapping.prot & 2 != 0 || mapping.backing == Backing::Anonymous)
}

/// What PAGEMAP_SCAN said of an address space. A region without `PRESENT` or `SWAPPED` holds nothing.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// Tracked ranges that were written (or freed) since they were protected.
    written: Vec<Region>,
    /// Ranges that are not tracked.
    others: Vec<Region>,
}

pub(super) const THERE: u64 = pagemap::PRESENT | pagemap::SWAPPED;

/// Looks for changed pages with PAGEMAP_SCAN; with `protect` they count as unwritten from here on.
///
/// Where the index has pages, pages that are gone are asked for too: a freed page shows as written and not there. In
/// all other places only pages that are there are asked for: asking for more would plant markers in reservations of
/// terabytes.
///
/// No thread of the process should run meanwhile: each page-table page that is protected would interrupt its processor.
///
/// `then` is called once the onlooker has its part of it, to give it more.
pub(crate) fn scan(
    space: &Space,
    protect: bool,
    onlooker: &Onlooker,
    then: impl FnOnce(),
) -> Result<Regions, EngineError> {
    let queries = if space.all_is_new {
        vec![Query {
            all: pagemap::WPALLOWED,
            ..gap(protect)
        }]
    } else {
        written_queries(&space.pages, protect)
    };
    let (ours, theirs) = halves(queries, middle(&space.pages));
    let pagemap = space.pagemap.clone();
    let second = (!theirs.is_empty()).then(|| onlooker.give(move || scan_all(&pagemap, &theirs)));
    then();
    let mut written = scan_all(&space.pagemap, &ours)?;
    let untracked = pagemap::WPALLOWED;
    let own = space.annex.range();
    // Around our own windows, whose many pages are nobody's business.
    let others = [(0, own.start), (own.end, END)].map(|(start, end)| Query {
        start,
        end,
        protect: false,
        inverted: untracked,
        all: untracked,
        any: 0,
        returned: THERE,
    });
    let others = scan_all(&space.pagemap, &others)?;
    if let Some(second) = second {
        written.extend(second.wait()?);
    }
    Ok(Regions { written, others })
}

fn scan_all(pagemap: &File, queries: &[Query]) -> Result<Vec<Region>, EngineError> {
    let mut regions = Vec::new();
    for query in queries {
        pagemap::scan(pagemap, *query, &mut regions)?;
    }
    Ok(regions)
}

/// What to ask where the index has nothing.
fn gap(protect: bool) -> Query {
    Query {
        start: 0,
        end: END,
        protect,
        inverted: 0,
        all: pagemap::WPALLOWED | pagemap::WRITTEN,
        any: THERE,
        returned: THERE,
    }
}

/// What to ask about tracked ranges, ascending.
fn written_queries(index: &PageIndex, protect: bool) -> Vec<Query> {
    let gap = gap(protect);
    let run = Query { any: 0, ..gap };
    let mut queries = Vec::new();
    let mut at = 0;
    for (start, end) in runs(index) {
        queries.push(Query {
            start: at,
            end: start,
            ..gap
        });
        queries.push(Query { start, end, ..run });
        at = end;
    }
    queries.push(Query {
        start: at,
        end: END,
        ..gap
    });
    queries.retain(|query| query.start < query.end);
    queries
}

/// The address before which half of the pages of an index lie, by leaves; `None` where they are few.
fn middle(index: &PageIndex) -> Option<u64> {
    const LEAF: u64 = image::memory::LEAF_PAGE_COUNT as u64 * 4096;
    const WORTH_IT: usize = 8;
    let count = index.leaf_numbers().count();
    let half = index.leaf_numbers().nth(count / 2)?.0;
    (count >= WORTH_IT).then_some(half * LEAF)
}

/// Cuts ascending queries in two at `cut`.
fn halves(queries: Vec<Query>, cut: Option<u64>) -> (Vec<Query>, Vec<Query>) {
    let cut = cut.unwrap_or(END);
    let before = queries.iter().map(|query| Query {
        end: query.end.min(cut),
        ..*query
    });
    let after = queries.iter().map(|query| Query {
        start: query.start.max(cut),
        ..*query
    });
    let real = |query: &Query| query.start < query.end;
    (before.filter(real).collect(), after.filter(real).collect())
}

/// Address ranges in which the index has pages, in whole leaves.
fn runs(index: &PageIndex) -> Vec<(u64, u64)> {
    const LEAF: u64 = image::memory::LEAF_PAGE_COUNT as u64 * 4096;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (leaf, _) in index.leaf_numbers() {
        let (start, end) = (leaf * LEAF, (leaf * LEAF + LEAF).min(END));
        match runs.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => runs.push((start, end)),
        }
    }
    runs
}

/// Which pages changed, under `mappings`.
pub(crate) fn find(mappings: &[Mapping], regions: &Regions) -> Found {
    let mut found = Found::default();
    overlay(mappings, &regions.written, |mapping, start, end, categories| {
        if categories & THERE == 0 {
            return;
        }
        if mapping.shared {
            found.shared_written.push((start, end));
        } else {
            found.dirty.extend((start..end).step_by(4096));
        }
    });
    overlay(mappings, &regions.others, |mapping, start, end, categories| {
        if categories & THERE == 0 {
            return;
        }
        let tracked = if mapping.shared {
            let backed = matches!(mapping.backing, Backing::Shared { .. } | Backing::File { .. });
            if backed {
                found.shared_written.push((start, end));
            }
            backed && mapping.prot & 2 != 0
        } else {
            if is_trackable(mapping) {
                found.dirty.extend((start..end).step_by(4096));
            }
            is_trackable(mapping)
        };
        if tracked && found.untracked.last() != Some(&(mapping.start, mapping.end)) {
            found.untracked.push((mapping.start, mapping.end));
        }
    });
    found.dirty.sort_unstable();
    found
}

/// Pages of the index that are not there any more. `moved` says whether the mappings may have changed since the index
/// was made.
pub(crate) fn find_freed(index: &PageIndex, mappings: &[Mapping], regions: &Regions, moved: bool) -> Vec<u64> {
    let mut gone = Vec::new();
    for region in regions
        .written
        .iter()
        .chain(&regions.others)
        .filter(|r| r.categories & THERE == 0)
    {
        index.for_each_in(region.start / 4096, region.end / 4096, |page, _| gone.push(page));
    }
    if moved {
        let mut at = 0;
        for mapping in mappings.iter().filter(|m| m.is_private()) {
            index.for_each_in(at, mapping.start / 4096, |page, _| gone.push(page));
            at = mapping.end / 4096;
        }
        index.for_each_in(at, END / 4096, |page, _| gone.push(page));
    }
    gone
}

/// The ranges that were written since they were protected; `None` where there are too many to look at.
pub(crate) fn few_written(space: &Space) -> Result<Option<Vec<(u64, u64)>>, EngineError> {
    const MAX: usize = 64;
    let query = Query {
        start: 0,
        end: END,
        protect: false,
        inverted: 0,
        all: pagemap::WPALLOWED | pagemap::WRITTEN,
        any: pagemap::PRESENT | pagemap::SWAPPED,
        returned: 0,
    };
    let regions = pagemap::first(&space.pagemap, query, MAX)?;
    Ok((regions.len() < MAX).then(|| regions.iter().map(|r| (r.start, r.end)).collect()))
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

/// Calls `visit` for each part of a region that lies in a mapping.
fn overlay(mappings: &[Mapping], regions: &[Region], mut visit: impl FnMut(&Mapping, u64, u64, u64)) {
    let Some(first) = regions.first() else { return };
    let mut at = mappings.partition_point(|mapping| mapping.end <= first.start);
    for region in regions {
        while at < mappings.len() && mappings[at].end <= region.start {
            at += 1;
        }
        for mapping in &mappings[at..] {
            if mapping.start >= region.end {
                break;
            }
            visit(
                mapping,
                region.start.max(mapping.start),
                region.end.min(mapping.end),
                region.categories,
            );
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
        scan_all(&space.pagemap, &[protection(*start, *end)])?;
    }
    Ok(())
}

/// Registers what is worth tracking at first sight and protects it. Read-only file mappings are left alone, but for those that hold
/// pages of their own (relocations), which `deep` looks for.
pub(crate) fn register(space: &mut Space, mappings: &[Mapping], deep: bool) -> Result<(), EngineError> {
    let Some(uffd) = &space.uffd else { return Ok(()) };
    let mut wanted: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings {
        let shared_writable = mapping.shared
            && mapping.prot & 2 != 0
            && matches!(mapping.backing, Backing::Shared { .. } | Backing::File { .. });
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
pub(crate) fn protect(space: &Space, onlooker: &Onlooker) -> Result<(), EngineError> {
    if space.uffd.is_none() {
        return Ok(());
    }
    let (ours, theirs) = halves(vec![protection(0, END)], middle(&space.pages));
    let pagemap = space.pagemap.clone();
    let second = (!theirs.is_empty()).then(|| onlooker.give(move || scan_all(&pagemap, &theirs)));
    scan_all(&space.pagemap, &ours)?;
    second.map_or(Ok(()), |second| second.wait().map(drop))
}

/// The same, by the onlooker where it has time.
pub(crate) fn protect_beside(space: &Space, onlooker: &Onlooker) -> Promise<Result<(), EngineError>> {
    let queries = if space.uffd.is_some() {
        vec![protection(0, END)]
    } else {
        Vec::new()
    };
    let pagemap = space.pagemap.clone();
    onlooker.give(move || scan_all(&pagemap, &queries).map(drop))
}

fn protection(start: u64, end: u64) -> Query {
    Query {
        start,
        end,
        protect: true,
        inverted: 0,
        all: pagemap::WRITTEN,
        any: THERE,
        returned: pagemap::WRITTEN,
    }
}

/// The other source: every present private page may have changed. Works on any kernel.
pub(crate) fn all_present(space: &Space, mappings: &[Mapping]) -> Result<Regions, EngineError> {
    use std::os::unix::fs::FileExt;
    let mut regions: Vec<Region> = Vec::new();
    let mut buffer = vec![0u8; 8 * 65536];
    for mapping in mappings.iter().filter(|m| m.backing != Backing::Special) {
        let mut page = mapping.start / 4096;
        while page < mapping.end / 4096 {
            let count = usize::try_from(mapping.end / 4096 - page)
                .unwrap_or(usize::MAX)
                .min(65536);
            let bytes = &mut buffer[..count * 8];
            space
                .pagemap
                .read_exact_at(bytes, page * 8)
                .map_err(|e| linux::SysError::io("read", "/proc/PID/pagemap", &e))?;
            for (i, entry) in bytes.chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                let (present, swapped, of_file) = (entry >> 63 & 1, entry >> 62 & 1, entry >> 61 & 1);
                let there = (present | swapped) == 1 && (mapping.shared || of_file == 0);
                let categories = if there { pagemap::PRESENT } else { 0 };
                let start = (page + i as u64) * 4096;
                match regions.last_mut() {
                    Some(last) if last.end == start && last.categories == categories => last.end += 4096,
                    _ => regions.push(Region {
                        start,
                        end: start + 4096,
                        categories,
                    }),
                }
            }
            page += count as u64;
        }
    }
    Ok(Regions {
        written: regions,
        others: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::memory::Slot;

    fn anonymous(start: u64, end: u64) -> Mapping {
        Mapping {
            start,
            end,
            prot: 3,
            shared: false,
            backing: Backing::Anonymous,
            grows_down: false,
        }
    }

    /// A page of the index that is reported as not there was freed by the program (MADV_DONTNEED, munmap).
    #[test]
    fn what_is_not_there_was_freed() {
        let mut index = PageIndex::default();
        for page in [1, 2, 600] {
            index.set(page, Slot::Zero);
        }
        let written = vec![Region {
            start: 8192,
            end: 4096 * 512,
            categories: 0,
        }];
        let others = vec![Region {
            start: 4096 * 512,
            end: 4096 * 700,
            categories: 0,
        }];
        let regions = Regions { written, others };
        let mappings = [anonymous(4096, 4096 * 512), anonymous(4096 * 512, 4096 * 700)];
        assert_eq!(find_freed(&index, &mappings, &regions, false), [2, 600]);
        assert_eq!(
            find_freed(&index, &mappings[1..], &Regions::default(), true),
            [1, 2],
            "unmapped"
        );
    }

    #[test]
    fn the_halves_hold_everything_once() {
        let mut index = PageIndex::default();
        for page in (512..512 * 40).step_by(512).chain([512 * 100, 512 * 101]) {
            index.set(page, Slot::Zero);
        }
        let whole = written_queries(&index, true);
        let (first, second) = halves(whole.clone(), middle(&index));
        let leaves = |queries: &[Query]| -> u64 {
            let runs = queries.iter().filter(|q| q.any == 0);
            runs.map(|q| (q.end - q.start) / (512 * 4096)).sum()
        };
        assert_eq!((leaves(&whole), leaves(&first), leaves(&second)), (41, 20, 21));
        let mut at = 0;
        for query in first.iter().chain(&second) {
            assert_eq!(query.start, at, "without a gap");
            at = query.end;
        }
        assert_eq!(at, END);
        let empty = PageIndex::default();
        assert_eq!(halves(written_queries(&empty, false), middle(&empty)).1.len(), 0);
    }

    /// A range that was unmapped and mapped anew has the same line in maps; it shows as not tracked.
    #[test]
    fn untracked_pages_are_dirty() {
        let others = vec![Region {
            start: 8192,
            end: 16384,
            categories: pagemap::PRESENT,
        }];
        let found = find(
            &[anonymous(4096, 40960)],
            &Regions {
                others,
                ..Regions::default()
            },
        );
        assert_eq!((found.dirty, found.untracked), (vec![8192, 12288], vec![(4096, 40960)]));
    }
}
