//! PROCMAP_QUERY (kernel 6.11, `Documentation/filesystems/proc.rst`): the mappings of a process as numbers, without the
//! text. Half the cost of reading `maps` where all are wanted, a twentieth where few are.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::error::{Result, SysError};

const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const WRITABLE: u64 = 0x02;
const EXECUTABLE: u64 = 0x04;
const SHARED: u64 = 0x08;
const COVERING_OR_NEXT: u64 = 0x10;
const FILE_BACKED: u64 = 0x20;

/// `struct procmap_query` (`include/uapi/linux/fs.h`).
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `PROT_READ | PROT_WRITE | PROT_EXEC`.
    pub prot: u8,
    /// Shared rather than private.
    pub shared: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// Device, major and minor.
    pub device: (u32, u32),
    /// Inode; 0 for none.
    pub inode: u64,
}

/// Which mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Writable, shared, of a file.
    SharedWritableFiles,
}

/// The mappings of an open `/proc/PID/maps`, ascending, until `visit` answers false.
///
/// # Errors
/// `ENOTTY` before kernel 6.11; `ESRCH` where the address space is gone.
pub fn areas(maps: &File, which: Which, mut visit: impl FnMut(Area) -> bool) -> Result<()> {
    areas_and_names(maps, which, |_| false, |area, _| visit(area))
}

/// As [`areas`]; the name comes with those (counted from 0) for which `named` says so, as `maps` would print it, but for
/// its escapes. It is empty where there is none.
///
/// # Errors
/// As [`areas`]; `ENAMETOOLONG` for a name of more than 4095 bytes.
pub fn areas_and_names(
    maps: &File,
    which: Which,
    named: impl Fn(usize) -> bool,
    mut visit: impl FnMut(Area, &[u8]) -> bool,
) -> Result<()> {
    let mut name = [0u8; 4096];
    let mut number = 0;
    let filter = match which {
        Which::All => 0,
        Which::SharedWritableFiles => WRITABLE | SHARED | FILE_BACKED,
    };
    let mut at = 0;
    loop {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT | filter,
            query_addr: at,
            ..Query::default()
        };
        if named(number) {
            query.vma_name_size = u32::try_from(name.len()).expect("a page");
            query.vma_name_addr = name.as_mut_ptr() as u64;
        }
        number += 1;
        // SAFETY: `query` is a live procmap_query of the size it states; its buffer for a name is `name`, of the size it
        // states, or stated to be empty.
        let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
        if result < 0 {
            let error = SysError::last("PROCMAP_QUERY", format!("{at:x}"));
            return if error.errno == libc::ENOENT {
                Ok(())
            } else {
                Err(error)
            };
        }
        let flags = query.vma_flags;
        let prot = flags & 1 | flags & WRITABLE | flags & EXECUTABLE;
        let area = Area {
            start: query.vma_start,
            end: query.vma_end,
            prot: u8::try_from(prot).expect("three bits"),
            shared: flags & SHARED != 0,
            offset: query.vma_offset,
            device: (query.dev_major, query.dev_minor),
            inode: query.inode,
        };
        let length = usize::try_from(query.vma_name_size).expect("a page").saturating_sub(1);
        let name = if query.vma_name_addr == 0 {
            &[][..]
        } else {
            &name[..length]
        };
        if !visit(area, name) || area.end <= at {
            return Ok(());
        }
        at = area.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and text tell the same of this very process.
    #[test]
    fn agrees_with_the_text() {
        let maps = File::open("/proc/self/maps").expect("our own");
        let mut found = Vec::new();
        match areas(&maps, Which::All, |area| {
            found.push(area);
            true
        }) {
            Err(error) if error.errno == libc::ENOTTY => return,
            other => other.expect("our own mappings"),
        }
        let text = std::fs::read("/proc/self/maps").expect("our own");
        let lines: Vec<Area> = crate::procfs::maps(&text)
            .map(|line| Area {
                start: line.start,
                end: line.end,
                prot: line.prot,
                shared: line.shared,
                offset: line.offset,
                device: line.device,
                inode: line.inode,
            })
            .collect();
        // Other tests of this process map and unmap meanwhile; the program itself stays where it is.
        let fixed = |areas: &[Area]| areas.iter().filter(|a| a.inode != 0).copied().collect::<Vec<_>>();
        assert!(!fixed(&found).is_empty());
        assert_eq!(fixed(&found), fixed(&lines));
    }
}
