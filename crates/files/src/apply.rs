//! Carrying a plan out in place: first everything that can fail is looked at (`prepare`), then names change, then
//! bytes and attributes, times last; then our own traces are taken out of the event queue and the tree is brought up
//! to date.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use image::tree::{Body, Content, FileKey, Inode, Node, S_IFLNK, S_IFMT, S_IFREG, SHM_PATH};
use linux::openat::{open_beneath, open_handle};
use rustix::fs::OFlags;

use crate::attributes::{
    handle_of_key, is_plain, key_of, read_xattrs, stat, write_mode, write_owner, write_times, write_xattr,
};
use crate::blob::BlobDir;
use crate::content::{self, Source};
use crate::dirty::{Dirty, Parts, SideState};
use crate::fault::Faults;
use crate::place::Placer;
use crate::plan::{AsLower, Clear, Plan, Restore, SidePlan, user_xattrs};
use crate::refresh::{Refresh, change};
use crate::tracker::{Applied, Cost, Tracker, inside};
use crate::{FilesError, Result};

/// Descriptors that `prepare` keeps open for the writes to come; more files than this are opened again.
const PREPARED_OPEN_MAX: usize = 256;

/// The kernel takes paths of 4,095 bytes; a box can make longer ones step by step.
const PATH_BYTES_MAX: usize = 4000;

/// Files found writable in `prepare`.
type Prepared = HashMap<FileKey, OwnedFd>;

impl Tracker {
    /// Looks at everything that could make [`Tracker::apply`] fail, and touches nothing.
    ///
    /// # Errors
    /// `Refused` when a content is gone, a program to be rewritten is running, or the disk is too full.
    pub fn prepare(&self, plan: &Plan) -> Result<()> {
        let _opened = prepare(&self.root, &self.blobs, &plan.root)?;
        if let Some(shm) = &self.shm {
            let _opened = prepare(shm, &self.blobs, &plan.shm)?;
        }
        Ok(())
    }

    /// Makes the files what the target of `plan` says; `plan` must come from this tracker's present tree. The box
    /// must be stopped, and what was born since the target killed.
    ///
    /// # Errors
    /// `Refused` or `Kernel` before anything was touched; `Torn` after.
    pub fn apply(&mut self, plan: &Plan) -> Result<Applied> {
        self.cost = Cost::default();
        let started = Instant::now();
        let root_files = prepare(&self.root, &self.blobs, &plan.root)?;
        let shm_files = match &self.shm {
            Some(shm) if !self.faults.skips("shm") => prepare(shm, &self.blobs, &plan.shm)?,
            _ => Prepared::new(),
        };
        self.cost.phases.push(("prepare", started.elapsed()));
        let torn = |error| match error {
            FilesError::Kernel(error) => FilesError::Torn(error),
            other => other,
        };
        let mut applied = Applied::default();
        let (blobs, faults, cost) = (&mut self.blobs, &self.faults, &mut self.cost);
        apply_side(
            &mut self.root,
            blobs,
            faults,
            cost,
            &plan.root,
            root_files,
            b"/",
            &mut applied,
        )
        .map_err(torn)?;
        if let Some(shm) = self.shm.as_mut().filter(|_| !faults.skips("shm")) {
            let prefix = [b"/", SHM_PATH, b"/"].concat();
            apply_side(shm, blobs, faults, cost, &plan.shm, shm_files, &prefix, &mut applied).map_err(torn)?;
        }
        Ok(applied)
    }
}

fn refused(path: &[u8], why: impl std::fmt::Display) -> FilesError {
    FilesError::Refused(format!("/{}: {why}", path.escape_ascii()))
}

fn prepare(state: &SideState, blobs: &BlobDir, plan: &SidePlan) -> Result<Prepared> {
    let mut prepared = Prepared::new();
    let mut growth: u64 = 0;
    if let Some(long) = plan.paths().find(|path| path.len() > PATH_BYTES_MAX) {
        return Err(FilesError::Refused(format!(
            "a path of {} bytes is too long for the kernel",
            long.len()
        )));
    }
    for restore in &plan.restore {
        match &restore.node.body {
            Body::Regular(Content::Blob(blob)) => {
                drop(blobs.open(blob).map_err(|error| refused(&restore.path, error))?);
            }
            Body::Regular(Content::Lower(lower)) => {
                growth += restore.node.attributes.size;
                let gone = || {
                    refused(
                        &restore.path,
                        format!("its lower file /{} is gone", lower.escape_ascii()),
                    )
                };
                drop(state.lower.find(lower)?.ok_or_else(gone)?);
            }
            Body::Regular(Content::Bytes { bytes, .. }) => growth += bytes.len() as u64,
            _ => {}
        }
        let Some((key, now)) = &restore.now else { continue };
        open_for_writing(state, *key, now, &restore.path, &mut prepared)?;
    }
    for step in &plan.as_lower {
        if state.lower.find(&step.lower)?.is_none() {
            return Err(refused(&step.path, "its lower file is gone"));
        }
        open_for_writing(state, step.key, &step.node, &step.path, &mut prepared)?;
    }
    let volume = rustix::fs::fstatvfs(&state.upper).map_err(crate::attributes::failed("fstatvfs", b"upper"))?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    if growth > free {
        return Err(FilesError::Refused(format!(
            "{growth} bytes are needed, {free} are free"
        )));
    }
    Ok(prepared)
}

/// A regular file that is to be rewritten must open for writing (`ETXTBSY` while it is being run).
fn open_for_writing(state: &SideState, key: FileKey, now: &Node, path: &[u8], prepared: &mut Prepared) -> Result<()> {
    if !matches!(now.body, Body::Regular(_)) {
        return Ok(());
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOATIME;
    let file = open_handle(&state.upper, &handle_of_key(&key), flags).map_err(|error| refused(path, error))?;
    if prepared.len() < PREPARED_OPEN_MAX {
        let _none = prepared.insert(key, file);
    }
    Ok(())
}

#[expect(
    clippy::too_many_arguments,
    reason = "one call site a tree; the parts are borrowed separately"
)]
fn apply_side(
    state: &mut SideState,
    blobs: &mut BlobDir,
    faults: &Faults,
    cost: &mut Cost,
    plan: &SidePlan,
    prepared: Prepared,
    prefix: &[u8],
    applied: &mut Applied,
) -> Result<()> {
    let started = Instant::now();
    let was_lost = std::mem::replace(&mut state.lost, true);
    let mut placer = Placer::new(state, blobs, faults);
    placer.run(plan)?;
    let used_top = placer.used_top();
    applied
        .revealed
        .extend(placer.revealed.iter().map(|path| inside(prefix, path)));
    applied
        .replaced
        .extend(plan.replaced.iter().map(|path| inside(prefix, path)));
    cost.phases.push(("names", started.elapsed()));

    let started = Instant::now();
    let mut restorer = Restorer {
        state,
        blobs,
        faults,
        prepared,
        applied,
        written: Vec::new(),
    };
    for restore in &plan.restore {
        restorer.restore(restore)?;
    }
    for step in &plan.as_lower {
        restorer.as_lower(step)?;
    }
    if used_top {
        restorer.top_times()?;
    }
    let written = restorer.written;
    cost.phases.push(("content", started.elapsed()));

    let started = Instant::now();
    absorb(state, blobs, cost, plan, written, faults.are_none())?;
    state.lost = was_lost;
    cost.phases.push(("absorb", started.elapsed()));
    Ok(())
}

/// Puts bytes and attributes into inodes.
struct Restorer<'a> {
    state: &'a SideState,
    blobs: &'a BlobDir,
    faults: &'a Faults,
    prepared: Prepared,
    applied: &'a mut Applied,
    /// What was written: the inode on disk, and the record it is like now.
    written: Vec<(FileKey, Written)>,
}

enum Written {
    /// Like this inode of the target.
    Target(Node),
    /// Like what the lower layers hold; the content if it is a file.
    Lower(Content),
}

impl Restorer<'_> {
    /// Opens the inode of `key`, or what is at `path` in the upper now; `None` when a fault point left it out.
    fn open(&mut self, key: Option<FileKey>, path: &[u8], mode: u32) -> Result<Option<OwnedFd>> {
        if let Some(file) = key.and_then(|key| self.prepared.remove(&key)) {
            return Ok(Some(file));
        }
        let flags = match mode & S_IFMT {
            S_IFREG => OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOATIME,
            _ if is_plain(mode) => OFlags::RDONLY | OFlags::DIRECTORY,
            _ => OFlags::PATH,
        };
        let opened = match key {
            Some(key) => open_handle(&self.state.upper, &handle_of_key(&key), flags),
            None => open_beneath(&self.state.upper, path, flags),
        };
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(error)
                if error.is_gone()
                    && ["create", "symlink", "special", "hardlink", "rename", "lowerdir"]
                        .iter()
                        .any(|kind| self.faults.skips(kind)) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn restore(&mut self, restore: &Restore) -> Result<()> {
        let target = &restore.node;
        let now = restore.now.as_ref();
        let Some(file) = self.open(now.map(|(key, _)| *key), &restore.path, target.attributes.mode)? else {
            return Ok(());
        };
        if let Body::Regular(wanted) = &target.body {
            let had = now.and_then(|(_, node)| match &node.body {
                Body::Regular(content) => Some(content),
                _ => None,
            });
            if !had.is_some_and(|had| had.is_same(wanted)) {
                self.write_content(&file, wanted, had)?;
            }
        }
        let before = match now {
            Some((_, node)) => node.clone(),
            None => look_at(&file, !is_plain(target.attributes.mode))?,
        };
        self.write_attributes(&file, &restore.path, &before, target)?;
        let key = match now {
            Some((key, _)) => *key,
            None => key_of(linux::openat::handle_of(&file, b"")?),
        };
        self.written.push((key, Written::Target(target.clone())));
        Ok(())
    }

    fn write_content(&mut self, file: &OwnedFd, wanted: &Content, had: Option<&Content>) -> Result<()> {
        if self.faults.skips("content") {
            return Ok(());
        }
        let known = match had {
            Some(Content::Bytes { bytes, .. }) => Some(&**bytes),
            _ => None,
        };
        let source = match wanted {
            Content::Bytes { bytes, data } => Source::Bytes(bytes, data.as_deref()),
            Content::Blob(blob) => Source::File(self.blobs.open(blob)?),
            Content::Lower(lower) => {
                let is_metacopy =
                    read_xattrs(file.as_fd(), false)?.contains_key(b"trusted.overlay.metacopy".as_slice());
                let found = self.state.lower.find(lower)?;
                // A metacopy has the lower file's bytes by itself.
                let (false, Some(found)) = (is_metacopy, found) else {
                    return Ok(());
                };
                Source::File(self.state.lower.reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK)?)
            }
        };
        let bytes = content::write(file, &source, known, !self.faults.skips("sparse"))?;
        self.applied.bytes += bytes;
        self.applied.changed_file_count += u64::from(bytes > 0);
        Ok(())
    }

    /// Gives `file`, at `path`, the attributes of `target`; it has those of `before`.
    fn write_attributes(&self, file: &OwnedFd, path: &[u8], before: &Inode, target: &Inode) -> Result<()> {
        let (have, want) = (&before.attributes, &target.attributes);
        let is_path = !is_plain(want.mode);
        let owner_differs = (have.uid, have.gid) != (want.uid, want.gid) && !self.faults.skips("owner");
        let mode_differs = (have.mode != want.mode || owner_differs) && !self.faults.skips("mode");
        if owner_differs || mode_differs {
            // The merged mount keeps a copy of mode and owner: it must be told.
            let merged = open_beneath(&self.state.merged, path, OFlags::PATH)?;
            if owner_differs {
                write_owner(merged.as_fd(), want.uid, want.gid)?;
            }
            if mode_differs && want.mode & S_IFMT != S_IFLNK {
                write_mode(merged.as_fd(), want.mode)?;
            }
        }
        if !Arc::ptr_eq(&before.xattrs, &target.xattrs) && !self.faults.skips("xattr") {
            self.write_xattrs(file, path, before, target, is_path)?;
        }
        if !self.faults.skips("times") {
            write_times(file.as_fd(), is_path, want)?;
        }
        Ok(())
    }

    fn write_xattrs(&self, file: &OwnedFd, path: &[u8], before: &Inode, target: &Inode, is_path: bool) -> Result<()> {
        let gone = user_xattrs(before)
            .filter(|(name, _)| !target.xattrs.contains_key(*name))
            .map(|(name, _)| (name, None));
        let come = user_xattrs(target).filter(|(name, value)| before.xattrs.get(*name) != Some(*value));
        for (name, value) in gone.chain(come.map(|(name, value)| (name, Some(&**value)))) {
            if name.starts_with(b"system.posix_acl") {
                let merged = open_beneath(&self.state.merged, path, OFlags::PATH)?;
                write_xattr(merged.as_fd(), true, name, value)?;
            } else {
                write_xattr(file.as_fd(), is_path, name, value)?;
            }
        }
        Ok(())
    }

    /// Gives an inode of the upper what the lower layers hold under it.
    fn as_lower(&mut self, step: &AsLower) -> Result<()> {
        let Some(found) = self.state.lower.find(&step.lower)? else {
            return Ok(());
        };
        let target = look_at(&found.fd, true)?;
        let Some(file) = self.open(Some(step.key), &step.path, found.mode)? else {
            return Ok(());
        };
        let wanted = Content::Lower(step.lower.as_slice().into());
        if let Body::Regular(had) = &step.node.body
            && !had.is_same(&wanted)
        {
            self.write_content(&file, &wanted, Some(had))?;
        }
        self.write_attributes(&file, &step.path, &step.node, &target)?;
        self.written.push((step.key, Written::Lower(wanted)));
        Ok(())
    }

    /// Our own directory at the root changed the root's times.
    fn top_times(&self) -> Result<()> {
        let top = self.written.iter().rev().find(|(key, _)| *key == self.state.tree.top);
        let attributes = match top {
            Some((_, Written::Target(node))) => &node.attributes,
            _ => match self.state.tree.get(&self.state.tree.top) {
                Some(top) => &top.attributes,
                None => return Ok(()),
            },
        };
        if self.faults.skips("times") {
            return Ok(());
        }
        write_times(self.state.upper.as_fd(), false, attributes)
    }
}

/// Attributes of an open inode that no tree holds. `is_path`: the descriptor is `O_PATH`.
fn look_at(file: &OwnedFd, is_path: bool) -> Result<Node> {
    let stat = stat(file)?;
    let xattrs = Arc::new(read_xattrs(file.as_fd(), is_path)?);
    let (attributes, ino, dev) = (stat.attributes, stat.ino, stat.dev);
    let body = Body::Special;
    Ok(Node(Arc::new(Inode {
        attributes,
        xattrs,
        body,
        ino,
        dev,
        names: Vec::new(),
        as_lower: false,
    })))
}

/// Brings the tree up to date after our own changes, so that they do not count as the box's: what was restored is
/// what the target says (and shares its record), the rest is looked at. `trusting`: no fault point left anything out.
fn absorb(
    state: &mut SideState,
    blobs: &mut BlobDir,
    cost: &mut Cost,
    plan: &SidePlan,
    written: Vec<(FileKey, Written)>,
    trusting: bool,
) -> Result<()> {
    let only_inodes = plan.clear.is_empty() && plan.place.is_empty() && plan.link.is_empty();
    let mut dirty: Dirty = if only_inodes {
        state.drain()?
    } else {
        forget_discarded(state, plan);
        state.take_dirty()?
    };
    if dirty.overflow {
        dirty = state.everything();
    }
    let mut known = Vec::new();
    for (key, how) in &written {
        match how {
            // In place, nothing moved, all of it written: it is what the target says, without another look.
            Written::Target(node) if only_inodes && trusting && is_whole(state, key, node) => {
                let _ours = dirty.inodes.remove(key);
                known.push((*key, node.clone()));
            }
            _ => {
                let _our_own_writes = dirty.inodes.insert(
                    *key,
                    Parts {
                        content: false,
                        xattrs: true,
                    },
                );
            }
        }
    }
    Refresh::new(state, blobs, cost).run(dirty)?;
    for (key, node) in known {
        let _old = state.tree.inodes.insert(key, node);
    }
    for (key, how) in written {
        match how {
            Written::Target(node) => take_record(state, key, node),
            Written::Lower(wanted) => change(&mut state.tree, &key, |inode| {
                inode.as_lower = true;
                if let Body::Regular(content) = &mut inode.body {
                    *content = wanted;
                }
            }),
        }
    }
    Ok(())
}

/// True when the target's record can take the place of ours after a restore in place.
fn is_whole(state: &SideState, key: &FileKey, node: &Inode) -> bool {
    state.tree.get(key).is_some_and(|now| {
        now.ino == node.ino && now.names == node.names && now.xattrs == node.xattrs && now.children() == node.children()
    })
}

/// Directories that were removed whole need not be walked again.
fn forget_discarded(state: &mut SideState, plan: &SidePlan) {
    let is_below = |path: &[u8], top: &[u8]| {
        path.strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let tops = |wanted: fn(&Clear) -> Option<&[u8]>| plan.clear.iter().filter_map(wanted).collect::<Vec<_>>();
    let gone = tops(|step| {
        if let Clear::Discard { path } = step {
            Some(path)
        } else {
            None
        }
    });
    let moved = tops(|step| {
        if let Clear::Park { path, .. } = step {
            Some(path)
        } else {
            None
        }
    });
    if gone.is_empty() {
        return;
    }
    let tree = &state.tree;
    let stays = |key: &FileKey| {
        let path = tree.path(key).unwrap_or_default();
        let within = |tops: &[&[u8]]| tops.iter().any(|top| is_below(&path, top));
        !within(&gone) || within(&moved)
    };
    state.unmarked.retain(stays);
    state.fresh.retain(stays);
}

/// The inode `key` was made like `node` of the target: share what is the same.
fn take_record(state: &mut SideState, key: FileKey, node: Node) {
    let Some(now) = state.tree.get(&key) else { return };
    let same_children = match (now.children(), node.children()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    let is_same = same_children
        && now.names == node.names
        && now.attributes.mode == node.attributes.mode
        && now.attributes.mtime == node.attributes.mtime
        && (now.attributes.uid, now.attributes.gid) == (node.attributes.uid, node.attributes.gid)
        && now.xattrs == node.xattrs
        && now.ino == node.ino;
    if is_same {
        let _old = state.tree.inodes.insert(key, node);
        return;
    }
    let body = node.body.clone();
    change(&mut state.tree, &key, |inode| {
        inode.as_lower = node.as_lower;
        if let (Body::Regular(now), Body::Regular(wanted)) = (&mut inode.body, body) {
            *now = wanted;
        }
    });
}
