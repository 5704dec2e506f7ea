//! PAGEMAP_SCAN (kernel 6.7, `Documentation/admin-guide/mm/pagemap.rst`): which pages are there, which were written
//! since they were protected, and protect them again in the same walk. Never asks for `PAGE_IS_FILE` on the hot path:
//! that looks up every folio.

use std::fs::File;
use std::os::fd::AsRawFd;

use linux_raw_sys::general::{page_region, pm_scan_arg};

use crate::error::{Result, SysError};

/// The range is registered for asynchronous write protection.
pub const WPALLOWED: u64 = 1 << 0;
/// Written since it was protected.
pub const WRITTEN: u64 = 1 << 1;
/// Backed by a file's page (expensive to ask).
pub const FILE: u64 = 1 << 2;
/// In memory.
pub const PRESENT: u64 = 1 << 3;
/// In swap.
pub const SWAPPED: u64 = 1 << 4;
/// Maps the zero page.
pub const ZERO: u64 = 1 << 5;
/// A guard region.
pub const GUARD: u64 = 1 << 8;

const PM_SCAN_WP_MATCHING: u64 = 1;
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// What to look for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Protect the pages that match.
    pub protect: bool,
    /// Categories to invert before matching.
    pub inverted: u64,
    /// All of these must hold.
    pub all: u64,
    /// One of these must hold.
    pub any: u64,
    /// Which categories come back.
    pub returned: u64,
}

/// Neighbouring pages of the same categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Categories, of those asked for.
    pub categories: u64,
}

/// The first `count_max` regions that match `query` (which must not protect), without looking further.
///
/// # Errors
/// As [`scan`].
pub fn first(pagemap: &File, query: Query, count_max: usize) -> Result<Vec<Region>> {
    assert!(!query.protect && count_max <= 64, "a look");
    let mut regions = [page_region {
        start: 0,
        end: 0,
        categories: 0,
    }; 64];
    let mut argument = pm_scan_arg {
        size: size_of::<pm_scan_arg>() as u64,
        flags: 0,
        start: query.start,
        end: query.end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: count_max as u64,
        max_pages: 0,
        category_inverted: query.inverted,
        category_mask: query.all,
        category_anyof_mask: query.any,
        return_mask: query.returned,
    };
    // SAFETY: `argument` is a live pm_scan_arg of the size it states, and `vec` has room for 64 entries, of which no
    // more than `count_max` are stated.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
    if count < 0 {
        return Err(SysError::last("PAGEMAP_SCAN", "first regions"));
    }
    let count = usize::try_from(count).expect("checked to be positive");
    Ok(regions[..count]
        .iter()
        .map(|r| Region {
            start: r.start,
            end: r.end,
            categories: r.categories,
        })
        .collect())
}

/// Runs `query` over the address space of an open `/proc/PID/pagemap`, appending to `out`.
///
/// # Errors
/// `ENOTTY` before kernel 6.7; `ESRCH`/`EFAULT` where the address space is gone.
pub fn scan(pagemap: &File, query: Query, out: &mut Vec<Region>) -> Result<()> {
    const CHUNK: usize = 256;
    let mut regions = [page_region {
        start: 0,
        end: 0,
        categories: 0,
    }; CHUNK];
    let mut start = query.start;
    while start < query.end {
        let mut argument = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: if query.protect { PM_SCAN_WP_MATCHING } else { 0 },
            start,
            end: query.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: CHUNK as u64,
            max_pages: 0,
            category_inverted: query.inverted,
            category_mask: query.all,
            category_anyof_mask: query.any,
            return_mask: query.returned,
        };
        // SAFETY: `argument` is a live pm_scan_arg of the size it states, its `vec` has room for the CHUNK entries
        // it states, and the kernel writes nothing else.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if count < 0 {
            return Err(SysError::last("PAGEMAP_SCAN", format!("{start:x}-{:x}", query.end)));
        }
        let count = usize::try_from(count).expect("checked to be positive");
        assert!(count <= CHUNK, "the kernel never writes more than asked for");
        out.extend(regions[..count].iter().map(|r| Region {
            start: r.start,
            end: r.end,
            categories: r.categories,
        }));
        assert!(argument.walk_end > start, "a scan makes progress");
        start = argument.walk_end;
    }
    Ok(())
}
