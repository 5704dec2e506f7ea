//! Address spaces: the mappings, and for each private page where its bytes are. The page index is persistent: two
//! checkpoints share every 2 MiB leaf that did not change, so taking one, comparing two and dropping one cost what
//! differs. Never holds pages of read-only file mappings: those belong to the file.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes in a page, as a distance between addresses.
pub const PAGE_SIZE: u64 = PAGE_LENGTH as u64;
/// Bytes in a page, as the length of an array.
const PAGE_LENGTH: usize = 4096;
/// Pages in a leaf of the index (2 MiB, one page-table page).
pub const LEAF_PAGE_COUNT: usize = 512;

/// The bytes of one page, apart from the count of its owners: counts that lie close together are cheap to touch.
pub struct Page(Box<[u8; PAGE_LENGTH]>);

impl Page {
    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8; PAGE_LENGTH]) -> Self {
        // By way of a slice, which is copied without a stop on the stack.
        let copy: Box<[u8]> = bytes.as_slice().into();
        Self(copy.try_into().expect("of that length"))
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({:02x?}…)", &self.0[..8])
    }
}

/// What a page holds.
#[derive(Debug, Clone)]
pub enum Slot {
    /// Nothing of its own: zero, or the file's bytes.
    Absent,
    /// Present and all zero.
    Zero,
    /// Present, with these bytes.
    Bytes(Arc<Page>),
}

impl Slot {
    /// True where both are surely the same without looking at bytes.
    pub fn same(&self, other: &Slot) -> bool {
        match (self, other) {
            (Slot::Absent, Slot::Absent) | (Slot::Zero, Slot::Zero) => true,
            (Slot::Bytes(a), Slot::Bytes(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The bytes, `None` for absent.
    pub fn bytes(&self) -> Option<&[u8; PAGE_LENGTH]> {
        match self {
            Slot::Absent => None,
            Slot::Zero => Some(&[0; PAGE_LENGTH]),
            Slot::Bytes(page) => Some(&page.0),
        }
    }
}

/// 512 neighbouring pages.
#[derive(Debug, Clone)]
pub struct Leaf {
    slots: Vec<Slot>,
    present_count: usize,
}

impl Leaf {
    fn empty() -> Self {
        Self {
            slots: vec![Slot::Absent; LEAF_PAGE_COUNT],
            present_count: 0,
        }
    }
}

/// Page number (address / 4096) to [`Slot`]. Cloning copies one pointer a leaf.
#[derive(Debug, Clone, Default)]
pub struct PageIndex {
    leaves: BTreeMap<u64, Arc<Leaf>>,
}

fn split(page: u64) -> (u64, usize) {
    let slot = usize::try_from(page % LEAF_PAGE_COUNT as u64).expect("below 512");
    (page / LEAF_PAGE_COUNT as u64, slot)
}

impl PageIndex {
    /// What `page` holds.
    pub fn get(&self, page: u64) -> &Slot {
        let (leaf, slot) = split(page);
        self.leaves.get(&leaf).map_or(&Slot::Absent, |leaf| &leaf.slots[slot])
    }

    /// Sets what `page` holds.
    pub fn set(&mut self, page: u64, value: Slot) {
        let (number, slot) = split(page);
        let absent = matches!(value, Slot::Absent);
        if absent && !self.leaves.contains_key(&number) {
            return;
        }
        let leaf = Arc::make_mut(self.leaves.entry(number).or_insert_with(|| Arc::new(Leaf::empty())));
        let was = !matches!(leaf.slots[slot], Slot::Absent);
        leaf.present_count = leaf.present_count + usize::from(!absent) - usize::from(was);
        leaf.slots[slot] = value;
        if leaf.present_count == 0 {
            self.leaves.remove(&number);
        }
    }

    /// Calls `visit` for each page of `[from, to)` that holds something, ascending.
    pub fn for_each_in(&self, from: u64, to: u64, mut visit: impl FnMut(u64, &Slot)) {
        if from >= to {
            return;
        }
        for (number, leaf) in self.leaves.range(split(from).0..=split(to - 1).0) {
            let base = number * LEAF_PAGE_COUNT as u64;
            for (i, slot) in leaf.slots.iter().enumerate() {
                let page = base + i as u64;
                if page >= from && page < to && !matches!(slot, Slot::Absent) {
                    visit(page, slot);
                }
            }
        }
    }

    /// Pages that hold something.
    pub fn page_count(&self) -> u64 {
        self.leaves.values().map(|leaf| leaf.present_count as u64).sum()
    }

    /// The leaves with their number, ascending; a leaf shared by two indexes is the same allocation.
    pub fn leaf_numbers(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.leaves.iter().map(|(number, leaf)| (*number, leaf.present_count))
    }

    /// Calls `visit(page, in_self, in_other)` for each page whose slots are not surely the same, ascending within
    /// each leaf. Shared leaves cost nothing.
    pub fn differences(&self, other: &PageIndex, mut visit: impl FnMut(u64, &Slot, &Slot)) {
        for (number, leaf) in &self.leaves {
            match other.leaves.get(number) {
                Some(theirs) if Arc::ptr_eq(leaf, theirs) => {}
                Some(theirs) => {
                    for i in 0..LEAF_PAGE_COUNT {
                        if !leaf.slots[i].same(&theirs.slots[i]) {
                            visit(
                                number * LEAF_PAGE_COUNT as u64 + i as u64,
                                &leaf.slots[i],
                                &theirs.slots[i],
                            );
                        }
                    }
                }
                None => {
                    for (i, slot) in leaf.slots.iter().enumerate() {
                        if !matches!(slot, Slot::Absent) {
                            visit(number * LEAF_PAGE_COUNT as u64 + i as u64, slot, &Slot::Absent);
                        }
                    }
                }
            }
        }
        for (number, leaf) in &other.leaves {
            if !self.leaves.contains_key(number) {
                for (i, slot) in leaf.slots.iter().enumerate() {
                    if !matches!(slot, Slot::Absent) {
                        visit(number * LEAF_PAGE_COUNT as u64 + i as u64, &Slot::Absent, slot);
                    }
                }
            }
        }
    }
}

/// What a mapping is backed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Private, without a file (heap, stacks, anonymous memory).
    Anonymous,
    /// The kernel's own (`[vdso]`, `[vvar]`, `[vsyscall]`): left alone.
    Special,
    /// A file, at this offset in bytes.
    File {
        /// Path as the box sees it.
        path: Vec<u8>,
        /// Device and inode as `/proc/PID/maps` prints them.
        device: (u32, u32),
        /// Inode.
        inode: u64,
        /// Offset in bytes.
        offset: u64,
    },
    /// A shared memory object (memfd, shared anonymous memory, SysV) or a file of a tmpfs that was deleted.
    Shared {
        /// Which object of the image.
        object: u32,
        /// Offset in bytes.
        offset: u64,
    },
}

/// One range of an address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// `PROT_READ | PROT_WRITE | PROT_EXEC` bits.
    pub prot: u8,
    /// `MAP_SHARED` rather than private.
    pub shared: bool,
    /// What is behind it.
    pub backing: Backing,
    /// True for `[stack]`: it grows down by itself.
    pub grows_down: bool,
}

impl Mapping {
    /// True where pages of its own can be (private, not the kernel's).
    pub fn is_private(&self) -> bool {
        !self.shared && self.backing != Backing::Special
    }

    /// The backing at `start + delta`, for splitting.
    pub fn backing_at(&self, delta: u64) -> Backing {
        match self.backing.clone() {
            Backing::File {
                path,
                device,
                inode,
                offset,
            } => Backing::File {
                path,
                device,
                inode,
                offset: offset + delta,
            },
            Backing::Shared { object, offset } => Backing::Shared {
                object,
                offset: offset + delta,
            },
            other => other,
        }
    }
}

/// An address space.
#[derive(Debug, Clone)]
pub struct AddressSpace {
    /// Ascending, without overlap.
    pub mappings: Arc<Vec<Mapping>>,
    /// Private pages.
    pub pages: PageIndex,
    /// The program break.
    pub brk: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Slot {
        Slot::Bytes(Arc::new(Page::copy_of(&[byte; 4096])))
    }

    #[test]
    fn shared_leaves_have_no_differences() {
        let mut a = PageIndex::default();
        a.set(3, page(1));
        a.set(5000, page(2));
        let mut b = a.clone();
        b.set(5001, page(3));
        b.set(3, Slot::Absent);
        let mut seen = Vec::new();
        a.differences(&b, |page, _, _| seen.push(page));
        assert_eq!(seen, [3, 5001]);
        assert_eq!((a.page_count(), b.page_count()), (2, 2));
    }

    #[test]
    fn ranges_visit_what_is_there() {
        let mut a = PageIndex::default();
        for n in [511, 512, 1024] {
            a.set(n, page(1));
        }
        let mut seen = Vec::new();
        a.for_each_in(512, 1024, |page, _| seen.push(page));
        assert_eq!(seen, [512]);
    }
}
