//! From changed paths to a new tree: takes what `dirty` found and reads exactly that. The box is stopped, so what is
//! read is one cut.

use std::time::Instant;

use image::tree::{Entry, FileKey};

use crate::Result;
use crate::blob::BlobDir;
use crate::dirty::{Dirty, Parts, SideState};
use crate::refresh::Refresh;
use crate::tracker::Cost;

impl SideState {
    /// Brings `self.tree` up to date.
    pub(crate) fn capture(&mut self, extra_paths: &[&[u8]], blobs: &mut BlobDir, cost: &mut Cost) -> Result<()> {
        let started = Instant::now();
        let mut dirty = self.take_dirty()?;
        if self.lost || dirty.overflow {
            self.lost = true;
            cost.walked = true;
            dirty = self.everything();
        }
        for path in extra_paths {
            if let Some(Entry::Inode(key)) = self.tree.lookup(path).map(|dentry| dentry.entry) {
                dirty.read(
                    key,
                    Parts {
                        content: true,
                        xattrs: false,
                    },
                );
            }
        }
        cost.phases.push(("events", started.elapsed()));
        let started = Instant::now();
        // Until the end is reached the tree is not to be trusted.
        let walked_all = std::mem::replace(&mut self.lost, true);
        Refresh::new(self, blobs, cost).run(dirty)?;
        self.lost = false;
        if walked_all {
            let directories = self
                .tree
                .inodes
                .iter()
                .filter(|(_, node)| node.is_dir())
                .map(|(key, _)| *key);
            let known: std::collections::HashSet<FileKey> = directories.collect();
            self.unmarked.retain(|key| known.contains(key));
        }
        // Marked before this capture, and walked by it: trusted from here on.
        self.fresh.clear();
        cost.phases.push(("read", started.elapsed()));
        Ok(())
    }

    /// All of what is known, to be looked at again; and the top, from where the rest is found.
    pub(crate) fn everything(&mut self) -> Dirty {
        let mut dirty = Dirty::default();
        for (key, node) in &self.tree.inodes {
            dirty.read(*key, Parts::ALL);
            if node.is_dir() {
                dirty.walks.insert(*key);
            }
        }
        if self.tree.inodes.is_empty() {
            dirty.walks.insert(self.tree.top);
            dirty.read(self.tree.top, Parts::ALL);
        }
        dirty
    }
}
