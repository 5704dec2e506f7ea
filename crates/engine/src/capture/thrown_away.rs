//! Private copies of file pages that were given up without a mark: how they are found. Decides nothing of other pages.

use std::fs::File;

use image::memory::{Backing, Mapping, PageIndex};
use linux::pagemap::{self, Query};

use super::memory::THERE;
use crate::error::EngineError;

/// Private copies of file pages that were thrown away. The kernel keeps the mark "unwritten" of a file mapping's page
/// through `MADV_DONTNEED` (`zap_install_uffd_wp_if_needed`), so they do not show as written: only what backs the page
/// now tells. Asked for the few pages of the index that lie in private file mappings.
#[derive(Debug, Default)]
pub(crate) struct ThrownAway {
    /// Page numbers: the file shows through.
    pub(crate) gone: Vec<u64>,
    /// Addresses: not there; thrown away or swapped out, its bytes will tell.
    pub(crate) doubtful: Vec<u64>,
}

/// Looks for [`ThrownAway`] pages.
pub(crate) fn look(pagemap: &File, pages: &PageIndex, mappings: &[Mapping]) -> Result<ThrownAway, EngineError> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings
        .iter()
        .filter(|m| m.is_private() && matches!(m.backing, Backing::File { .. }))
    {
        let (mut first, mut last) = (u64::MAX, 0);
        pages.for_each_in(mapping.start / 4096, mapping.end / 4096, |page, _| {
            first = first.min(page);
            last = page + 1;
        });
        if first != u64::MAX {
            spans.push((first, last));
        }
    }
    // One look at neighbours costs less than two.
    let mut groups: Vec<(u64, u64)> = Vec::new();
    for (first, last) in &spans {
        match groups.last_mut() {
            Some(group) if first - group.1 < image::memory::LEAF_PAGE_COUNT as u64 => group.1 = *last,
            _ => groups.push((*first, *last)),
        }
    }
    let mut regions = Vec::new();
    for (first, last) in groups {
        let query = Query {
            start: first * 4096,
            end: last * 4096,
            protect: false,
            inverted: 0,
            all: pagemap::WPALLOWED,
            any: THERE,
            returned: pagemap::PRESENT | pagemap::FILE,
        };
        pagemap::scan(pagemap, query, &mut regions)?;
    }
    let mut found = ThrownAway::default();
    for region in regions.iter().filter(|r| r.categories != pagemap::PRESENT) {
        for (first, last) in &spans {
            let (from, to) = ((region.start / 4096).max(*first), (region.end / 4096).min(*last));
            pages.for_each_in(from, to, |page, _| {
                if region.categories & pagemap::PRESENT == 0 {
                    found.doubtful.push(page * 4096);
                } else {
                    found.gone.push(page);
                }
            });
        }
    }
    Ok(found)
}
