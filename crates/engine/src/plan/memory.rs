//! Memory: which ranges to unmap, map and protect, and which pages to write or drop. Fewest bytes: a page is written
//! only where its bytes can differ.

use std::collections::BTreeSet;

use image::memory::{AddressSpace, Backing, Mapping, Slot};

use crate::error::EngineError;
use crate::unsupported::{Subject, refuse};

/// What must be done to one address space, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The program break to set.
    pub(crate) brk: Option<u64>,
    /// Ranges to unmap.
    pub(crate) unmap: Vec<(u64, u64)>,
    /// Mappings to make.
    pub(crate) map: Vec<Mapping>,
    /// Protections to set.
    pub(crate) protect: Vec<(u64, u64, u8)>,
    /// Page ranges (addresses) that hold nothing of their own in the target.
    pub(crate) drop: Vec<(u64, u64)>,
    /// Pages (numbers) to write.
    pub(crate) write: Vec<u64>,
}

/// Plans the way from `now` (its index, and pages `dirty` that may differ from it) to `target`.
pub(crate) fn plan(
    now: &AddressSpace,
    target: &AddressSpace,
    dirty: &[u64],
    subject: &Subject,
) -> Result<MemoryPlan, EngineError> {
    let mut plan = MemoryPlan::default();
    if now.brk == target.brk && now.mappings == target.mappings {
        pages(now, target, dirty, &[], &mut plan);
        return Ok(plan);
    }
    let mut present: Vec<Mapping> = now.mappings.to_vec();
    if now.brk != target.brk {
        plan.brk = Some(target.brk);
        move_brk(&mut present, now.brk, target.brk);
    }
    let mut fresh = Vec::new();
    ranges(&present, &target.mappings, &mut plan, &mut fresh, subject)?;
    pages(now, target, dirty, &fresh, &mut plan);
    Ok(plan)
}

/// What the kernel does to the mappings at `brk(2)`.
fn move_brk(mappings: &mut Vec<Mapping>, from: u64, to: u64) {
    let (from, to) = (from.next_multiple_of(4096), to.next_multiple_of(4096));
    if to < from {
        let mut kept = Vec::with_capacity(mappings.len());
        for mapping in mappings.drain(..) {
            // Everything between the new and the old break goes.
            if mapping.end <= to || mapping.start >= from {
                kept.push(mapping);
                continue;
            }
            if mapping.start < to {
                kept.push(Mapping {
                    end: to,
                    ..mapping.clone()
                });
            }
            if mapping.end > from {
                kept.push(Mapping {
                    start: from,
                    backing: mapping.backing_at(from - mapping.start),
                    ..mapping
                });
            }
        }
        *mappings = kept;
    } else if to > from {
        let heap = Mapping {
            start: from,
            end: to,
            prot: 3,
            shared: false,
            backing: Backing::Anonymous,
            grows_down: false,
        };
        let at = mappings.partition_point(|m| m.start < from);
        mappings.insert(at, heap);
    }
}

/// Compares range by range: mapping objects merge and split by themselves and are never compared as such.
fn ranges(
    present: &[Mapping],
    wanted: &[Mapping],
    plan: &mut MemoryPlan,
    fresh: &mut Vec<(u64, u64)>,
    subject: &Subject,
) -> Result<(), EngineError> {
    let mut edges: BTreeSet<u64> = BTreeSet::new();
    for mapping in present.iter().chain(wanted) {
        edges.insert(mapping.start);
        edges.insert(mapping.end);
    }
    let edges: Vec<u64> = edges.into_iter().collect();
    let (mut p, mut w) = (0, 0);
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        while p < present.len() && present[p].end <= start {
            p += 1;
        }
        while w < wanted.len() && wanted[w].end <= start {
            w += 1;
        }
        let old = present.get(p).filter(|m| m.start <= start);
        let new = wanted.get(w).filter(|m| m.start <= start);
        match (old, new) {
            (None, None) => {}
            (Some(old), None) if old.backing == Backing::Special => {
                return Err(refuse(
                    subject,
                    "a mapping of the kernel's appeared since the checkpoint",
                ));
            }
            // A stack that grew stays grown: the kernel may grow it again at any moment by itself.
            (Some(old), None) if old.grows_down => push_drop(&mut plan.drop, start, end),
            (Some(_), None) => push_range(&mut plan.unmap, start, end),
            (None, Some(new)) if new.backing == Backing::Special => {
                return Err(refuse(
                    subject,
                    "a mapping of the kernel's was removed since the checkpoint",
                ));
            }
            (None, Some(new)) => {
                push_map(&mut plan.map, new, start, end, subject)?;
                push_range(fresh, start, end);
            }
            (Some(old), Some(new)) => {
                let same =
                    old.shared == new.shared && old.backing_at(start - old.start) == new.backing_at(start - new.start);
                if !same {
                    push_range(&mut plan.unmap, start, end);
                    push_map(&mut plan.map, new, start, end, subject)?;
                    push_range(fresh, start, end);
                } else if old.prot != new.prot && new.backing != Backing::Special {
                    match plan.protect.last_mut() {
                        Some(last) if last.1 == start && last.2 == new.prot => last.1 = end,
                        _ => plan.protect.push((start, end, new.prot)),
                    }
                }
            }
        }
    }
    Ok(())
}

fn push_range(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}

fn push_drop(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    push_range(ranges, start, end);
}

fn push_map(
    maps: &mut Vec<Mapping>,
    wanted: &Mapping,
    start: u64,
    end: u64,
    subject: &Subject,
) -> Result<(), EngineError> {
    if let Backing::File { path, .. } = &wanted.backing
        && path.ends_with(b" (deleted)")
    {
        let path = String::from_utf8_lossy(path).into_owned();
        return Err(refuse(
            subject,
            format!("unmapped a file since the checkpoint that no path leads to ({path})"),
        ));
    }
    let piece = Mapping {
        start,
        end,
        backing: wanted.backing_at(start - wanted.start),
        ..wanted.clone()
    };
    match maps.last_mut() {
        Some(last)
            if last.end == start
                && last.prot == piece.prot
                && last.shared == piece.shared
                && last.backing_at(start - last.start) == piece.backing =>
        {
            last.end = end;
        }
        _ => maps.push(piece),
    }
    Ok(())
}

/// Which pages to write and which to drop.
fn pages(now: &AddressSpace, target: &AddressSpace, dirty: &[u64], fresh: &[(u64, u64)], plan: &mut MemoryPlan) {
    let mut candidates: Vec<u64> = dirty.iter().map(|address| address / 4096).collect();
    now.pages.differences(&target.pages, |page, old, new| {
        let equal = matches!((old.bytes(), new.bytes()), (Some(a), Some(b)) if a == b);
        if !equal {
            candidates.push(page);
        }
    });
    candidates.sort_unstable();
    candidates.dedup();
    let is_fresh = |page: u64| {
        let at = fresh.partition_point(|(_, end)| *end <= page * 4096);
        fresh.get(at).is_some_and(|(start, _)| *start <= page * 4096)
    };
    candidates.retain(|page| !is_fresh(*page));
    let mut at = 0;
    let wanted = &target.mappings;
    for page in candidates {
        let address = page * 4096;
        while at < wanted.len() && wanted[at].end <= address {
            at += 1;
        }
        // Outside the target's private mappings there is nothing to put back.
        if wanted.get(at).is_none_or(|m| m.start > address || !m.is_private()) {
            continue;
        }
        match target.pages.get(page) {
            Slot::Absent => push_drop(&mut plan.drop, address, address + 4096),
            Slot::Zero | Slot::Bytes(_) => plan.write.push(page),
        }
    }
    for (start, end) in fresh {
        target
            .pages
            .for_each_in(start / 4096, end / 4096, |page, _| plan.write.push(page));
    }
    plan.write.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::memory::PageIndex;
    use std::sync::Arc;

    fn anonymous(start: u64, end: u64, prot: u8) -> Mapping {
        Mapping {
            start,
            end,
            prot,
            shared: false,
            backing: Backing::Anonymous,
            grows_down: false,
        }
    }

    fn space(mappings: Vec<Mapping>, brk: u64) -> AddressSpace {
        AddressSpace {
            mappings: Arc::new(mappings),
            pages: PageIndex::default(),
            brk,
        }
    }

    fn subject() -> Subject {
        Subject::new(1, "t")
    }

    #[test]
    fn merged_and_split_mappings_are_the_same() {
        let now = space(vec![anonymous(0x1000, 0x3000, 3), anonymous(0x3000, 0x5000, 3)], 0);
        let target = space(vec![anonymous(0x1000, 0x5000, 3)], 0);
        assert_eq!(
            plan(&now, &target, &[], &subject()).expect("plans"),
            MemoryPlan::default()
        );
    }

    #[test]
    fn layout_goes_back_both_ways() {
        let now = space(vec![anonymous(0x1000, 0x3000, 1), anonymous(0x8000, 0x9000, 3)], 0);
        let mut target = space(vec![anonymous(0x1000, 0x4000, 3)], 0);
        target.pages.set(3, Slot::Zero);
        let plan = plan(&now, &target, &[0x1000], &subject()).expect("plans");
        assert_eq!(plan.unmap, [(0x8000, 0x9000)]);
        assert_eq!(plan.map, [anonymous(0x3000, 0x4000, 3)]);
        assert_eq!(plan.protect, [(0x1000, 0x3000, 3)]);
        assert_eq!((plan.drop, plan.write), (vec![(0x1000, 0x2000)], vec![3]));
    }

    #[test]
    fn the_break_moves_before_the_ranges_are_compared() {
        let now = space(vec![anonymous(0x1000, 0x3000, 3)], 0x3000);
        let target = space(vec![anonymous(0x1000, 0x5000, 3)], 0x4800);
        let plan = plan(&now, &target, &[], &subject()).expect("plans");
        assert_eq!(
            plan,
            MemoryPlan {
                brk: Some(0x4800),
                ..MemoryPlan::default()
            }
        );
    }
}
