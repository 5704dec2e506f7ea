//! Bringing a [`Side`] up to date with the disk, given what may have changed: first names, then inodes, then what
//! the lower layers hold under new names, then what has no name any more.
//!
//! Directories are opened by handle, files by name in them or by handle: a rename cannot mislead it, a link is never
//! followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use image::tree::{
    Body, Content, Dentry, Entry, FileKey, Inode, Name, Node, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Side, Xattrs, join,
};
use imbl::OrdMap;
use linux::openat::{handle_of, open_entry, open_handle};
use rustix::fs::OFlags;

use crate::Result;
use crate::attributes::{failed, handle_of_key, is_plain, key_of, read_xattrs, stat, stat_entry};
use crate::blob::{BlobDir, names_in};
use crate::content;
use crate::dirty::{Dirty, Parts, SideState};
use crate::tracker::Cost;

/// One run over the changed part of a tree.
pub(crate) struct Refresh<'a> {
    state: &'a mut SideState,
    blobs: &'a mut BlobDir,
    cost: &'a mut Cost,
    /// Inodes read in this run.
    done: HashSet<FileKey>,
    /// Inodes that lost a name.
    orphans: HashSet<FileKey>,
    /// Names that are new, for the look under them.
    new_names: Vec<(FileKey, Name)>,
    /// Files whose bytes are in the lower layers, at a path to be told when all names are known.
    metacopies: Vec<FileKey>,
}

impl<'a> Refresh<'a> {
    pub(crate) fn new(state: &'a mut SideState, blobs: &'a mut BlobDir, cost: &'a mut Cost) -> Self {
        let (done, orphans) = (HashSet::new(), HashSet::new());
        Self {
            state,
            blobs,
            cost,
            done,
            orphans,
            new_names: Vec::new(),
            metacopies: Vec::new(),
        }
    }

    /// Looks at all that `dirty` names, and at what is found to be new because of it.
    pub(crate) fn run(mut self, mut dirty: Dirty) -> Result<()> {
        for key in std::mem::take(&mut dirty.walks) {
            dirty.read(key, Parts::ALL);
            self.add_all_names(key, &mut dirty)?;
        }
        let mut names: Vec<(FileKey, HashSet<Name>)> = dirty.names.drain().collect();
        while let Some((directory, names_there)) = names.pop() {
            self.look_up_names(directory, names_there, &mut dirty)?;
            names.extend(dirty.names.drain());
        }
        for (key, parts) in std::mem::take(&mut dirty.inodes) {
            if !self.done.contains(&key) {
                self.read_known(key, parts)?;
            }
        }
        self.find_covered()?;
        for key in std::mem::take(&mut self.metacopies) {
            let tree = &mut self.state.tree;
            let path = tree
                .get(&key)
                .and_then(|inode| tree.origin_path(inode))
                .unwrap_or_default();
            change(tree, &key, |inode| {
                inode.body = Body::Regular(Content::Lower(path.into()))
            });
        }
        self.remove_orphans();
        Ok(())
    }

    /// Queues every name that `key` has on disk or in the tree.
    fn add_all_names(&mut self, key: FileKey, dirty: &mut Dirty) -> Result<()> {
        let Some(directory) = self.open(&key, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(());
        };
        if key == self.state.tree.top && self.state.tree.get(&key).is_none() {
            self.read_new(key, directory.try_clone().map_err(io)?, Vec::new())?;
        }
        for name in names_in(&directory)? {
            dirty.look_up(key, &name);
        }
        if let Some(children) = self.state.tree.get(&key).and_then(Inode::children) {
            dirty.names.entry(key).or_default().extend(children.keys().cloned());
        }
        Ok(())
    }

    fn open(&self, key: &FileKey, flags: OFlags) -> Result<Option<OwnedFd>> {
        match open_handle(&self.state.upper, &handle_of_key(key), flags) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.is_gone() || error.errno == rustix::io::Errno::STALE.raw_os_error() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn look_up_names(&mut self, directory: FileKey, names: HashSet<Name>, dirty: &mut Dirty) -> Result<()> {
        // A directory that is not in the tree (yet) is walked when its own name is found.
        if self.state.tree.get(&directory).is_none() {
            return Ok(());
        }
        let Some(fd) = self.open(&directory, OFlags::PATH | OFlags::DIRECTORY)? else {
            return Ok(());
        };
        for name in names {
            self.look_up_name(directory, &fd, &name, dirty)?;
        }
        if !self.done.contains(&directory) {
            dirty.read(directory, Parts::STAT);
        }
        Ok(())
    }

    fn look_up_name(&mut self, directory: FileKey, fd: &OwnedFd, name: &Name, dirty: &mut Dirty) -> Result<()> {
        let key = match handle_of(fd, &name.0) {
            Ok(handle) => key_of(handle),
            Err(error) if error.is_gone() => {
                self.set_name(directory, name, None);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if self.state.tree.get(&key).is_some() {
            self.set_name(directory, name, Some(Entry::Inode(key)));
            if !self.done.contains(&key) {
                dirty.read(key, Parts::ALL);
            }
            return Ok(());
        }
        let found = stat_entry(fd, &name.0).map_err(failed("fstatat", &name.0))?;
        if found.mode & S_IFMT == image::tree::S_IFCHR && found.attributes.rdev == (0, 0) {
            self.set_name(directory, name, Some(Entry::Whiteout));
            return Ok(());
        }
        let flags = if is_plain(found.mode) {
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME
        } else {
            OFlags::PATH
        };
        let file = open_entry(fd, &name.0, flags, 0)?;
        self.read_new(key, file, Vec::new())?;
        self.set_name(directory, name, Some(Entry::Inode(key)));
        if found.mode & S_IFMT == S_IFDIR {
            self.add_all_names(key, dirty)?;
        }
        Ok(())
    }

    /// Puts an inode into the tree that was not in it.
    fn read_new(&mut self, key: FileKey, file: OwnedFd, names: Vec<(FileKey, Name)>) -> Result<()> {
        let inode = self.read_inode(key, &file, None, Parts::ALL, names)?;
        if inode.is_dir() {
            let _new = self.state.unmarked.insert(key);
        }
        let _none = self.state.tree.inodes.insert(key, Node(Arc::new(inode)));
        let _new = self.done.insert(key);
        Ok(())
    }

    /// Reads an inode of the tree again.
    fn read_known(&mut self, key: FileKey, parts: Parts) -> Result<()> {
        let Some(node) = self.state.tree.inodes.get(&key).cloned() else {
            return Ok(());
        };
        let flags = match &node.body {
            Body::Regular(_) => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME,
            Body::Directory(_) => OFlags::RDONLY | OFlags::DIRECTORY,
            _ => OFlags::PATH,
        };
        let Some(file) = self.open(&key, flags)? else {
            return Ok(());
        };
        let inode = self.read_inode(key, &file, Some(&node), parts, node.names.clone())?;
        if !is_same_record(&node, &inode) {
            let _old = self.state.tree.inodes.insert(key, Node(Arc::new(inode)));
        }
        let _new = self.done.insert(key);
        Ok(())
    }

    fn read_inode(
        &mut self,
        key: FileKey,
        file: &OwnedFd,
        before: Option<&Inode>,
        parts: Parts,
        names: Vec<(FileKey, Name)>,
    ) -> Result<Inode> {
        let stat = stat(file)?;
        self.cost.inode_count += 1;
        let is_path = !is_plain(stat.mode);
        let was_metacopy = before.is_some_and(|before| before.overlay("metacopy").is_some());
        let xattrs = match before {
            Some(before) if !parts.xattrs && !was_metacopy => before.xattrs.clone(),
            _ => share_xattrs(read_xattrs(file.as_fd(), is_path)?, before),
        };
        let body = match (stat.mode & S_IFMT, before.map(|before| &before.body)) {
            (S_IFDIR, Some(Body::Directory(children))) => Body::Directory(children.clone()),
            (S_IFDIR, _) => Body::Directory(OrdMap::new()),
            (S_IFLNK, Some(Body::Symlink(target))) => Body::Symlink(target.clone()),
            (S_IFLNK, _) => {
                let target = rustix::fs::readlinkat(file, "", Vec::new()).map_err(failed("readlinkat", b"link"))?;
                Body::Symlink(target.as_bytes().into())
            }
            (S_IFREG, before) if xattrs.contains_key(b"trusted.overlay.metacopy".as_slice()) => match before {
                // Its bytes stay where they were, whatever it is called now.
                Some(Body::Regular(content @ Content::Lower(_))) => Body::Regular(content.clone()),
                _ => {
                    self.metacopies.push(key);
                    Body::Regular(Content::Lower(Arc::from([].as_slice())))
                }
            },
            (S_IFREG, Some(Body::Regular(content))) if !parts.content && !was_metacopy => {
                Body::Regular(content.clone())
            }
            (S_IFREG, before) => {
                let known = match before {
                    Some(Body::Regular(content)) => Some(content),
                    _ => None,
                };
                let scratch = &mut self.state.content_buffer;
                let (content, bytes) = content::read(file, &stat, known, scratch, self.blobs)?;
                self.cost.bytes += bytes;
                Body::Regular(content)
            }
            _ => Body::Special,
        };
        let still_lower = before.is_some_and(|before| {
            before.as_lower && !parts.content && before.attributes == stat.attributes && before.xattrs == xattrs
        });
        let (attributes, ino, dev) = (stat.attributes, stat.ino, stat.dev);
        Ok(Inode {
            attributes,
            xattrs,
            body,
            ino,
            dev,
            names,
            as_lower: still_lower,
        })
    }

    /// Makes `name` in `directory` (both in the tree) stand for `entry`.
    fn set_name(&mut self, directory: FileKey, name: &Name, entry: Option<Entry>) {
        let tree = &mut self.state.tree;
        let old = tree
            .get(&directory)
            .and_then(Inode::children)
            .and_then(|children| children.get(name))
            .copied();
        if old.map(|dentry| dentry.entry) == entry {
            return;
        }
        if let Some(Dentry {
            entry: Entry::Inode(key),
            ..
        }) = old
        {
            change(tree, &key, |inode| {
                inode
                    .names
                    .retain(|(parent, known)| *parent != directory || known != name)
            });
            let _new = self.orphans.insert(key);
        }
        if let Some(Entry::Inode(key)) = entry {
            change(tree, &key, |inode| inode.names.push((directory, name.clone())));
        }
        change(tree, &directory, |inode| {
            let Body::Directory(children) = &mut inode.body else {
                return;
            };
            match entry {
                // What lies under a name never changes: keep what is known of it.
                Some(entry) => {
                    let covers = old.and_then(|dentry| dentry.covers);
                    let _old = children.insert(name.clone(), Dentry { entry, covers });
                }
                None => {
                    let _old = children.remove(name);
                }
            }
        });
        if entry.is_some() && old.is_none() {
            self.new_names.push((directory, name.clone()));
        }
    }

    /// Looks up what the lower layers hold under new names.
    fn find_covered(&mut self) -> Result<()> {
        if self.state.lower.is_empty() {
            return Ok(());
        }
        let mut lower_paths: HashMap<FileKey, Option<Vec<u8>>> = HashMap::new();
        for (directory, name) in std::mem::take(&mut self.new_names) {
            let tree = &self.state.tree;
            let lower = lower_paths
                .entry(directory)
                .or_insert_with(|| tree.lower_path(&directory));
            let Some(lower) = lower else { continue };
            let Some(covered) = self.state.lower.covered(&join(lower, &name.0))? else {
                continue;
            };
            change(&mut self.state.tree, &directory, |inode| {
                let Body::Directory(children) = &mut inode.body else {
                    return;
                };
                if let Some(dentry) = children.get_mut(&name) {
                    dentry.covers = Some(covered);
                }
            });
        }
        Ok(())
    }

    /// Takes out inodes without a name, and what is below them.
    fn remove_orphans(&mut self) {
        let mut orphans: Vec<FileKey> = std::mem::take(&mut self.orphans).into_iter().collect();
        orphans.retain(|key| {
            let tree = &self.state.tree;
            *key != tree.top && tree.get(key).is_some_and(|inode| inode.names.is_empty())
        });
        while let Some(key) = orphans.pop() {
            let Some(node) = self.state.tree.inodes.remove(&key) else {
                continue;
            };
            let _was = self.state.unmarked.remove(&key);
            let _was = self.state.fresh.remove(&key);
            for (name, dentry) in node.children().into_iter().flatten() {
                let Entry::Inode(child) = dentry.entry else { continue };
                let tree = &mut self.state.tree;
                let is_here = |(parent, known): &(FileKey, Name)| *parent == key && known == name;
                if tree.get(&child).is_some_and(|inode| !inode.names.iter().all(is_here)) {
                    change(tree, &child, |inode| inode.names.retain(|at| !is_here(at)));
                } else {
                    orphans.push(child);
                }
            }
        }
    }
}

fn io(error: std::io::Error) -> linux::SysError {
    linux::SysError::io("dup", "directory", &error)
}

/// Changes an inode of `tree`, unsharing it from other trees.
pub(crate) fn change(tree: &mut Side, key: &FileKey, act: impl FnOnce(&mut Inode)) {
    if let Some(node) = tree.inodes.get_mut(key) {
        act(Arc::make_mut(&mut node.0));
    }
}

/// True when reading `new` taught nothing, so that the old record can go on being shared.
fn is_same_record(old: &Inode, new: &Inode) -> bool {
    let same_body = match (&old.body, &new.body) {
        (Body::Regular(a), Body::Regular(b)) => a.is_same(b),
        _ => true,
    };
    same_body && old.attributes == new.attributes && old.xattrs == new.xattrs && old.as_lower == new.as_lower
}

fn share_xattrs(read: Xattrs, before: Option<&Inode>) -> Arc<Xattrs> {
    static NONE: std::sync::LazyLock<Arc<Xattrs>> = std::sync::LazyLock::new(|| Arc::new(BTreeMap::new()));
    match before {
        Some(before) if *before.xattrs == read => before.xattrs.clone(),
        _ if read.is_empty() => NONE.clone(),
        _ => Arc::new(read),
    }
}
