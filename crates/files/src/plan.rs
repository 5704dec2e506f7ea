//! `plan(now, target)`: what has to be done to a tree so that it becomes the other one. Pure: no I/O, no clock; the
//! same two trees give the same plan. Skips everything the two share.
//!
//! The idea: inodes are matched first, names second, bytes last.
//!
//! - An inode in both trees is *kept*: it is moved back to its names and rewritten in place.
//! - An inode only in `now` (*born*) is removed, unless it can stand in for something: a *lost* inode of the target at
//!   the same name is rewritten into it (one inode number for another: reported as replaced); a file or directory that
//!   was copied up from the lower layers where the target shows those layers *stays*, moved back to where it came
//!   from, and is given what the lower layers say.
//! - An inode only in the target is made again.
//!
//! Order of the steps: clear (deepest first, paths of `now`), place (shallowest first, paths of the target), link
//! further names, then restore bytes and attributes, times last.

use std::sync::Arc;

use image::tree::{FileKey, Inode, Node, Tree};

use crate::planner::plan_side;

/// Everything to be done, per tracked tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the overlay.
    pub root: SidePlan,
    /// In `/dev/shm`.
    pub shm: SidePlan,
}

/// Steps for one tree. Paths are relative to its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SidePlan {
    /// Names that go, in order.
    pub clear: Vec<Clear>,
    /// Names that come, in order.
    pub place: Vec<Place>,
    /// Further names of files: existing path, new path.
    pub link: Vec<(Vec<u8>, Vec<u8>)>,
    /// Inodes that get the target's bytes and attributes.
    pub restore: Vec<Restore>,
    /// Inodes that get what the lower layers say.
    pub as_lower: Vec<AsLower>,
    /// Paths whose inode will be another one than the target's.
    pub replaced: Vec<Vec<u8>>,
}

impl SidePlan {
    /// True when there is more to do than to write into what is there.
    pub(crate) fn changes_names(&self) -> bool {
        !(self.clear.is_empty() && self.place.is_empty() && self.link.is_empty())
    }

    /// Every path that the steps use.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let clear = self.clear.iter().map(Clear::path);
        let place = self.place.iter().map(Place::path);
        let link = self.link.iter().flat_map(|(from, to)| [from.as_slice(), to.as_slice()]);
        let restore = self.restore.iter().map(|step| step.path.as_slice());
        let as_lower = self.as_lower.iter().map(|step| step.path.as_slice());
        clear.chain(place).chain(link).chain(restore).chain(as_lower)
    }
}

/// A name that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clear {
    /// Moved aside, to come back elsewhere under this number.
    Park {
        /// Where it is now.
        path: Vec<u8>,
        /// Its number.
        slot: u64,
    },
    /// A name of a file.
    Unlink {
        /// Where it is now.
        path: Vec<u8>,
    },
    /// A directory with all that is in it.
    Discard {
        /// Where it is now.
        path: Vec<u8>,
    },
}

impl Clear {
    /// The path at which it happens.
    pub fn path(&self) -> &[u8] {
        match self {
            Clear::Park { path, .. } | Clear::Unlink { path } | Clear::Discard { path } => path,
        }
    }
}

/// A name that comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// What was parked under a number.
    Unpark {
        /// Its number.
        slot: u64,
        /// Where it goes.
        path: Vec<u8>,
    },
    /// What the lower layers hold there shows again.
    Reveal {
        /// Where.
        path: Vec<u8>,
        /// Path in the lower layers, to copy from when it cannot be revealed.
        lower: Vec<u8>,
    },
    /// What the lower layers show there is deleted.
    Hide {
        /// Where.
        path: Vec<u8>,
        /// A directory, with all that is in it.
        is_dir: bool,
    },
    /// What the lower layers show there gets an inode in the upper.
    CopyUp {
        /// Where.
        path: Vec<u8>,
        /// The target's inode.
        node: Node,
    },
    /// A renamed lower directory that is gone: the lower directory is copied.
    CopyLower {
        /// Where.
        path: Vec<u8>,
        /// Path in the lower layers.
        lower: Vec<u8>,
    },
    /// A new, empty inode of the target's kind.
    Make {
        /// Where.
        path: Vec<u8>,
        /// The target's inode.
        node: Node,
    },
}

impl Place {
    /// The path at which it happens.
    pub fn path(&self) -> &[u8] {
        match self {
            Place::Unpark { path, .. }
            | Place::Reveal { path, .. }
            | Place::Hide { path, .. }
            | Place::CopyUp { path, .. }
            | Place::CopyLower { path, .. }
            | Place::Make { path, .. } => path,
        }
    }
}

/// An inode that gets the target's bytes and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// A name of it in the target.
    pub path: Vec<u8>,
    /// The inode in `now` that is rewritten; `None`: the one that was made or copied up at `path`.
    pub now: Option<(FileKey, Node)>,
    /// The target's key.
    pub key: FileKey,
    /// The target's inode.
    pub node: Node,
}

/// An inode of `now` that gets what the lower layers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsLower {
    /// Where it is in the target.
    pub path: Vec<u8>,
    /// The inode.
    pub key: FileKey,
    /// Its present state.
    pub node: Node,
    /// Path in the lower layers.
    pub lower: Vec<u8>,
}

/// What has to be done to get from `now` to `target`.
pub fn plan(now: &Tree, target: &Tree) -> Plan {
    let shm = match (&now.shm, &target.shm) {
        (Some(now), Some(target)) => plan_side(now, target),
        _ => SidePlan::default(),
    };
    Plan {
        root: plan_side(&now.root, &target.root),
        shm,
    }
}

impl Plan {
    /// True when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let is_empty = |side: &SidePlan| {
            side.clear.is_empty()
                && side.place.is_empty()
                && side.link.is_empty()
                && side.restore.is_empty()
                && side.as_lower.is_empty()
        };
        is_empty(&self.root) && is_empty(&self.shm)
    }
}

/// Extended attributes that are the box's, not the overlay's.
pub(crate) fn user_xattrs(inode: &Inode) -> impl Iterator<Item = (&Arc<[u8]>, &Arc<[u8]>)> {
    inode
        .xattrs
        .iter()
        .filter(|(name, _)| !name.starts_with(b"trusted.overlay."))
}
