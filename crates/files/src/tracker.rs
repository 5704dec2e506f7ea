//! The tracker of one box's files: what it is given, what it keeps between operations, and the verbs in order.
//!
//! ```text
//! new ──> capture ──(box runs: settle)──> capture ── plan ──> apply ──(box runs: settle)──> capture …
//! ```
//!
//! `capture` and `apply` are called while the box is stopped, `settle` after it runs again. One thread per box.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use image::tree::{SHM_PATH, Tree};
use linux::openat::open_entry;
use rustix::fs::OFlags;

use crate::Result;
use crate::attributes::stat;
use crate::blob::BlobDir;
use crate::dirty::SideState;
use crate::fault::Faults;
use crate::lower::Lower;

/// Where a box's files are, as the daemon sees them. Every descriptor is a directory (`O_PATH` will do).
#[derive(Debug)]
pub struct Roots {
    /// The upper directory of the overlay, on the file system that holds it.
    pub upper: OwnedFd,
    /// The root of the mounted overlay. Best a mount of its own that nothing is mounted on: names under a mount
    /// point are refused (`EXDEV`).
    pub merged: OwnedFd,
    /// Roots of the lower layers, topmost first, through the (idmapped) mounts that the overlay uses.
    pub lowers: Vec<OwnedFd>,
    /// A directory for our own use on the file system of the upper, outside it. Emptied at the start.
    pub blobs: OwnedFd,
    /// The tmpfs at `/dev/shm` of the box, if it has one; still owned by the root of the box.
    pub shm: Option<OwnedFd>,
    /// Names of fault points that are switched on; names of other crates are ignored.
    pub faults: Vec<String>,
}

/// Tracks the files of one box.
#[derive(Debug)]
pub struct Tracker {
    pub(crate) root: SideState,
    pub(crate) shm: Option<SideState>,
    pub(crate) blobs: BlobDir,
    pub(crate) faults: Faults,
    pub(crate) cost: Cost,
}

/// What the last operation cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Files and directories looked at.
    pub inode_count: u64,
    /// Bytes read or cloned.
    pub bytes: u64,
    /// Everything was walked (first capture, or events were lost).
    pub walked: bool,
    /// Named phases in the order they ran.
    pub phases: Vec<(&'static str, Duration)>,
}

/// What a rollback did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files whose content was written.
    pub changed_file_count: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Paths inside the box whose inode is another one than at the checkpoint, because the original had been
    /// unlinked: descriptors, mappings and working directories of the target on them must be opened again.
    pub replaced: Vec<PathBuf>,
    /// Paths inside the box at which a deleted lower file or directory shows again, with its old inode number.
    pub revealed: Vec<PathBuf>,
}

impl Tracker {
    /// Begins to track. Nothing is read yet: the first capture walks what is there.
    ///
    /// # Errors
    /// `Kernel` when fanotify, file handles or the given descriptors do not work.
    pub fn new(roots: Roots) -> Result<Self> {
        let reopen = |fd: &OwnedFd| open_entry(fd, b".", OFlags::RDONLY | OFlags::DIRECTORY, 0);
        let upper = reopen(&roots.upper)?;
        let merged = reopen(&roots.merged)?;
        let blobs = BlobDir::new(reopen(&roots.blobs)?)?;
        let shm = match &roots.shm {
            Some(shm) => {
                // Nobody but who mounted it has been in it: the root of the box.
                let root = stat(shm)?.attributes;
                let maker = Some((root.uid, root.gid));
                Some(SideState::new(
                    reopen(shm)?,
                    reopen(shm)?,
                    Lower::new(Vec::new()),
                    maker,
                )?)
            }
            None => None,
        };
        Ok(Self {
            root: SideState::new(upper, merged, Lower::new(roots.lowers), None)?,
            shm,
            blobs,
            faults: Faults::new(&roots.faults),
            cost: Cost::default(),
        })
    }

    /// Takes what the kernel has queued of changes, so that its queue does not overflow (then all would be walked). The
    /// box may be running.
    ///
    /// # Errors
    /// `Kernel` when the queue cannot be read.
    pub fn gather(&mut self) -> Result<()> {
        self.root.gather()?;
        match &mut self.shm {
            Some(shm) => shm.gather(),
            None => Ok(()),
        }
    }

    /// What is readable once something has changed and was not taken yet.
    pub fn changes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.root), self.shm.as_ref()]
            .into_iter()
            .flatten()
            .map(|side| side.group.as_fd())
    }

    /// True where nothing that events tell of has happened since the last capture: the next one costs next to nothing.
    ///
    /// # Errors
    /// `Kernel` when the kernel's queue cannot be asked.
    pub fn is_quiet(&self) -> Result<bool> {
        let mut quiet = self.root.is_quiet()?;
        if let Some(shm) = &self.shm {
            quiet &= shm.is_quiet()?;
        }
        Ok(quiet)
    }

    /// What changed since the last capture, as a new tree that shares the rest with the last one. `extra_paths` are
    /// absolute paths inside the box of files written through shared mappings, which raise no event. The box must be
    /// stopped.
    ///
    /// # Errors
    /// `Kernel` when a changed file could not be read; the next capture walks everything.
    pub fn capture(&mut self, extra_paths: &[PathBuf]) -> Result<Tree> {
        self.cost = Cost::default();
        let (mut in_root, mut in_shm) = (Vec::new(), Vec::new());
        for path in extra_paths {
            let path = path.as_os_str().as_bytes();
            let path = path.strip_prefix(b"/").unwrap_or(path);
            match path.strip_prefix(SHM_PATH) {
                Some(rest) if self.shm.is_some() && rest.starts_with(b"/") => in_shm.push(&rest[1..]),
                _ => in_root.push(path),
            }
        }
        self.root.capture(&in_root, &mut self.blobs, &mut self.cost)?;
        if let Some(shm) = &mut self.shm {
            shm.capture(&in_shm, &mut self.blobs, &mut self.cost)?;
        }
        Ok(self.tree())
    }

    /// The tree as of the last capture or apply.
    pub fn tree(&self) -> Tree {
        Tree {
            root: self.root.tree.clone(),
            shm: self.shm.as_ref().map(|shm| shm.tree.clone()),
        }
    }

    /// Work that was put off until the box runs again: marks on new directories, deletion of what a rollback removed
    /// and of contents that no tree names any more. Call it after every capture and apply.
    ///
    /// # Errors
    /// `Kernel`; nothing is lost, new directories are walked until they could be marked.
    pub fn settle(&mut self) -> Result<()> {
        self.root.mark_new()?;
        if let Some(shm) = &mut self.shm {
            shm.mark_new()?;
        }
        self.blobs.sweep()
    }

    /// What the last capture or apply cost.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }
}

/// A path of a side as the box sees it.
pub(crate) fn inside(prefix: &[u8], path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&[prefix, path].concat()))
}
