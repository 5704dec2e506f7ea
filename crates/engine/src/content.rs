//! Content that no path leads to: memory files, shared anonymous memory, files that were deleted while open. Captured
//! page by page without holes, put back page by page into the same inode. Never follows a path.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use image::fd::{Content, Inode};
use image::memory::{Page, PageIndex, Slot};
use linux::SysError;
use rustix::fs::{FallocateFlags, SeekFrom};

use crate::error::EngineError;

/// What tells that nobody wrote through a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What was captured of each inode last.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    known: BTreeMap<Inode, (Stamp, Content)>,
}

fn error(call: &'static str) -> impl FnOnce(std::io::Error) -> EngineError {
    move |e| SysError::io(call, "content without a name", &e).into()
}

/// Identity of an open file.
pub(crate) fn inode_of(file: &File) -> Result<Inode, EngineError> {
    let metadata = file.metadata().map_err(error("fstat"))?;
    Ok(Inode {
        device: metadata.dev(),
        number: metadata.ino(),
    })
}

impl Cache {
    /// Captures `file`. `mapped_writes` are pages that were written through mappings since the last capture; writes
    /// through descriptors show in the times.
    pub(crate) fn capture(&mut self, file: &File, mapped_writes: &[u64]) -> Result<(Inode, Content), EngineError> {
        let metadata = file.metadata().map_err(error("fstat"))?;
        let inode = Inode {
            device: metadata.dev(),
            number: metadata.ino(),
        };
        let stamp = Stamp {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let content = match self.known.get(&inode) {
            Some((known, content)) if *known == stamp => {
                let mut content = content.clone();
                reread(file, &mut content, mapped_writes)?;
                content
            }
            known => read_all(file, stamp.size, known.map(|(_, content)| content))?,
        };
        self.known.insert(inode, (stamp, content.clone()));
        Ok((inode, content))
    }

    /// Puts `target` back into `file`, touching only pages that differ.
    pub(crate) fn restore(&mut self, file: &File, target: &Content) -> Result<u64, EngineError> {
        let size = file.metadata().map_err(error("fstat"))?.size();
        if size != target.size {
            file.set_len(target.size).map_err(error("ftruncate"))?;
        }
        let now = read_all(file, target.size, None)?;
        let mut steps = Vec::new();
        now.pages.differences(&target.pages, |page, old, new| {
            if old.bytes() != new.bytes() {
                steps.push((page, new.clone()));
            }
        });
        for (page, slot) in &steps {
            let at = page * 4096;
            match slot.bytes() {
                Some(bytes) => {
                    let length = usize::try_from((target.size - at).min(4096)).expect("at most a page");
                    file.write_all_at(&bytes[..length], at).map_err(error("pwrite"))?;
                }
                None => rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, 4096)
                    .map_err(|e| SysError::rustix("fallocate", "content without a name", e))?,
            }
        }
        self.known.remove(&inode_of(file)?);
        Ok(steps.len() as u64)
    }
}

fn read_page(file: &File, page: u64) -> Result<Slot, EngineError> {
    let mut bytes = [0; 4096];
    let mut filled = 0;
    while filled < 4096 {
        let got = file
            .read_at(&mut bytes[filled..], page * 4096 + filled as u64)
            .map_err(error("pread"))?;
        if got == 0 {
            break;
        }
        filled += got;
    }
    Ok(if bytes == [0; 4096] {
        Slot::Zero
    } else {
        Slot::Bytes(Arc::new(Page::copy_of(&bytes)))
    })
}

fn reread(file: &File, content: &mut Content, pages: &[u64]) -> Result<(), EngineError> {
    if pages.is_empty() {
        return Ok(());
    }
    let mut index = (*content.pages).clone();
    for page in pages.iter().filter(|page| **page * 4096 < content.size) {
        keep_or_set(&mut index, *page, read_page(file, *page)?);
    }
    content.pages = Arc::new(index);
    Ok(())
}

fn keep_or_set(index: &mut PageIndex, page: u64, slot: Slot) {
    if index.get(page).bytes() != slot.bytes() || matches!(index.get(page), Slot::Absent) {
        index.set(page, slot);
    }
}

fn read_all(file: &File, size: u64, known: Option<&Content>) -> Result<Content, EngineError> {
    let mut index = PageIndex::default();
    let mut at = 0;
    while at < size {
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) else {
            break;
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))
            .map_err(|e| SysError::rustix("SEEK_HOLE", "content without a name", e))?;
        for page in data / 4096..hole.min(size).div_ceil(4096) {
            let slot = read_page(file, page)?;
            match known.map(|k| k.pages.get(page)) {
                Some(old) if !matches!(old, Slot::Absent) && old.bytes() == slot.bytes() => {
                    index.set(page, old.clone())
                }
                _ => index.set(page, slot),
            }
        }
        at = hole;
    }
    Ok(Content {
        size,
        pages: Arc::new(index),
    })
}
