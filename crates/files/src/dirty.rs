//! Which paths of one tree (the upper, or `/dev/shm`) changed since the last capture: fanotify marks on its
//! directories, and the rules for directories that have none yet.
//!
//! A directory is *trusted* when its mark was set before the last capture: then events tell everything. A directory
//! that has no mark, or got it since the last capture (the box was running: something may have happened just
//! before), is walked at the next capture. Marks go with the inode, so renames change nothing.
//!
//! Kernel facts this rests on (6.18): writes through an overlay raise events on the upper inode with the upper
//! directory as parent; a file with several names reports one of them, so the handle of the file is what counts;
//! what a dirent event names may have been changed while it was somewhere unmarked, so it is read again whole.
//!
//! What raises no event and so is not seen until something else changes there: reads (access times), `touch -a`, and
//! the times of a directory of ext4 in which a rename onto a directory that is not empty has failed.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use image::tree::{FileKey, Name, Side};
use imbl::OrdMap;
use linux::fanotify::Group;
use linux::openat::{handle_of, open_handle};
use rustix::fs::OFlags;

use crate::Result;
use crate::attributes::{handle_of_key, key_of};
use crate::lower::Lower;

/// One tracked tree and what is known of it.
#[derive(Debug)]
pub(crate) struct SideState {
    pub(crate) group: Group,
    /// The tree's root directory, open for reading.
    pub(crate) upper: OwnedFd,
    /// The same directory as the box sees it: the overlay's root; the very same for `/dev/shm`.
    pub(crate) merged: OwnedFd,
    pub(crate) lower: Lower,
    /// User and group as which names are made in `merged`, where the daemon's own will not do.
    pub(crate) maker: Option<(u32, u32)>,
    /// As of the last capture or apply.
    pub(crate) tree: Side,
    /// Directories of the tree that have no mark.
    pub(crate) unmarked: HashSet<FileKey>,
    /// Directories whose mark is younger than the last capture.
    pub(crate) fresh: HashSet<FileKey>,
    /// The tree says nothing yet, or nothing reliable any more: walk all.
    pub(crate) lost: bool,
    pub(crate) event_buffer: Vec<u8>,
    /// What events told since the last capture, as far as they were taken.
    pub(crate) gathered: Dirty,
    pub(crate) content_buffer: Vec<u8>,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Names to look up, by directory.
    pub(crate) names: HashMap<FileKey, HashSet<Name>>,
    /// Inodes to read, and how much of them.
    pub(crate) inodes: HashMap<FileKey, Parts>,
    /// Directories of which every name is to be looked up.
    pub(crate) walks: HashSet<FileKey>,
    /// Events were lost.
    pub(crate) overflow: bool,
}

/// Parts of an inode to read again (`stat` is always read).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) content: bool,
    pub(crate) xattrs: bool,
}

impl Parts {
    pub(crate) const ALL: Parts = Parts {
        content: true,
        xattrs: true,
    };
    pub(crate) const STAT: Parts = Parts {
        content: false,
        xattrs: false,
    };

    pub(crate) fn or(self, other: Parts) -> Parts {
        Parts {
            content: self.content | other.content,
            xattrs: self.xattrs | other.xattrs,
        }
    }
}

impl Dirty {
    pub(crate) fn read(&mut self, key: FileKey, parts: Parts) {
        let known = self.inodes.entry(key).or_default();
        *known = known.or(parts);
    }

    pub(crate) fn look_up(&mut self, directory: FileKey, name: &[u8]) {
        let _new = self.names.entry(directory).or_default().insert(Name::new(name));
    }

    /// Keeps what is remembered small, however much happens.
    fn bound(&mut self) {
        if self.len() < REMEMBERED_MAX {
            return;
        }
        let crowded = self.names.extract_if(|_, names| names.len() >= NAMES_MAX);
        self.walks.extend(crowded.map(|(directory, _)| directory));
        if self.len() >= REMEMBERED_MAX {
            *self = Self {
                overflow: true,
                ..Self::default()
            };
        }
    }

    fn len(&self) -> usize {
        let names: usize = self.names.values().map(HashSet::len).sum();
        names + self.inodes.len() + self.walks.len()
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.inodes.is_empty() && self.walks.is_empty() && !self.overflow
    }
}

/// More is not remembered: some tens of megabytes.
const REMEMBERED_MAX: usize = 1 << 18;
/// Then directories with more names than this are walked as a whole, which reads all that is in them.
const NAMES_MAX: usize = 4096;

/// More directories than this are not marked in one `settle`, so that it stays short.
const MARKS_PER_SETTLE_MAX: usize = 20_000;

impl SideState {
    pub(crate) fn new(upper: OwnedFd, merged: OwnedFd, lower: Lower, maker: Option<(u32, u32)>) -> Result<Self> {
        let top = key_of(handle_of(&upper, b"")?);
        Ok(Self {
            group: Group::new()?,
            upper,
            merged,
            lower,
            maker,
            tree: Side {
                top,
                inodes: OrdMap::new(),
            },
            unmarked: HashSet::new(),
            fresh: HashSet::new(),
            lost: true,
            event_buffer: vec![0; 64 << 10],
            gathered: Dirty::default(),
            content_buffer: Vec::new(),
        })
    }

    /// True where a capture would find nothing to look at.
    pub(crate) fn is_quiet(&self) -> Result<bool> {
        let nothing = !self.lost && self.unmarked.is_empty() && self.fresh.is_empty() && self.gathered.is_empty();
        Ok(nothing && !self.group.has_events()?)
    }

    /// Takes all that events told since the last capture, and the directories that events do not cover.
    pub(crate) fn take_dirty(&mut self) -> Result<Dirty> {
        self.gather()?;
        let mut dirty = std::mem::take(&mut self.gathered);
        dirty.walks.extend(self.unmarked.iter().chain(&self.fresh));
        Ok(dirty)
    }

    /// Takes all queued events, and only those.
    pub(crate) fn drain(&mut self) -> Result<Dirty> {
        let mut dirty = Dirty::default();
        take_events(&self.group, &mut self.event_buffer, &mut dirty)?;
        Ok(dirty)
    }

    /// Takes queued events, before there are so many that the kernel drops them. The box may be running.
    pub(crate) fn gather(&mut self) -> Result<()> {
        take_events(&self.group, &mut self.event_buffer, &mut self.gathered)?;
        self.gathered.bound();
        Ok(())
    }

    /// Marks the directories that have none. The box may be running.
    pub(crate) fn mark_new(&mut self) -> Result<()> {
        let batch: Vec<FileKey> = self.unmarked.iter().take(MARKS_PER_SETTLE_MAX).copied().collect();
        for key in batch {
            match open_handle(&self.upper, &handle_of_key(&key), OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(directory) => {
                    self.group.mark_directory(&directory)?;
                    let _new = self.fresh.insert(key);
                }
                // Removed meanwhile: its parent tells.
                Err(error) if error.errno == rustix::io::Errno::STALE.raw_os_error() || error.is_gone() => continue,
                Err(error) => return Err(error.into()),
            }
            let _was = self.unmarked.remove(&key);
        }
        Ok(())
    }
}

fn take_events(group: &Group, buffer: &mut [u8], dirty: &mut Dirty) -> Result<()> {
    group.drain(buffer, |event| {
        dirty.overflow |= event.overflow;
        let directory = event.directory.map(key_of);
        if event.names_changed {
            if let Some(directory) = directory {
                dirty.look_up(directory, event.name);
            }
            return;
        }
        let parts = Parts {
            content: event.modified,
            xattrs: event.attributes,
        };
        if let Some(object) = event.object.map(key_of).or(directory) {
            dirty.read(object, parts);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> FileKey {
        FileKey::new(1, &number.to_ne_bytes()).expect("a short handle")
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut dirty = Dirty::default();
        for number in 0..REMEMBERED_MAX {
            dirty.look_up(key(1), number.to_string().as_bytes());
        }
        dirty.look_up(key(2), b"one");
        dirty.bound();
        assert_eq!((dirty.len(), dirty.overflow), (2, false), "the crowded one is walked");
        for number in 0..REMEMBERED_MAX as u64 {
            dirty.read(key(number), Parts::ALL);
        }
        dirty.bound();
        assert_eq!((dirty.len(), dirty.overflow), (0, true), "all is walked");
    }
}
