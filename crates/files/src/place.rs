//! The steps of a plan that change names, carried out through the merged mount, whose cache of names must stay true.
//!
//! Kernel facts this rests on (6.18, overlay with `redirect_dir=on,index=off,metacopy=on`):
//! - A directory of the lower layers is renamed in O(1): the upper gets a directory with a `redirect`, the old name a
//!   whiteout. So removing a tree of any size is one rename to a place of ours, then out of the upper.
//! - A whiteout that is lifted in the upper stays a cached "no such name" in the merged mount. Making the name through
//!   the merged mount and removing it there makes the mount forget the name; then the whiteout is lifted.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use image::tree::{Body, Content, Node, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG};
use linux::SysError;
use linux::openat::{open_beneath, open_entry};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Result;
use crate::attributes::{failed, is_plain, read_xattrs, stat, stat_entry, write_mode, write_owner, write_times, write_xattr};
use crate::blob::{BlobDir, names_in, remove_tree};
use crate::dirty::SideState;
use crate::fault::Faults;
use crate::plan::{Clear, Place, SidePlan};

/// The directory at the root of the box where things wait that are on their way; only while the box is stopped.
const PARK: &str = ".deltabox-parked";

/// Carries out the steps of one plan for one tree.
pub(crate) struct Placer<'a> {
    state: &'a SideState,
    blobs: &'a mut BlobDir,
    faults: &'a Faults,
    park: Option<OwnedFd>,
    park_count: u64,
    /// Paths that were revealed.
    pub(crate) revealed: Vec<Vec<u8>>,
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// A path's directory and last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

impl<'a> Placer<'a> {
    pub(crate) fn new(state: &'a SideState, blobs: &'a mut BlobDir, faults: &'a Faults) -> Self {
        Self { state, blobs, faults, park: None, park_count: 0, revealed: Vec::new() }
    }

    /// True when a directory of ours was made at the root.
    pub(crate) fn used_park(&self) -> bool {
        self.park.is_some()
    }

    /// All steps in order; leaves nothing of ours behind when it succeeds.
    pub(crate) fn run(&mut self, plan: &SidePlan) -> Result<()> {
        for step in &plan.clear {
            self.clear(step)?;
        }
        for step in &plan.place {
            self.place(step)?;
        }
        for (from, to) in &plan.link {
            self.link(from, to)?;
        }
        if self.park.take().is_some() {
            // What a fault point left parked goes with it.
            remove_tree(&self.state.merged, PARK.as_bytes())?;
            self.park = None;
        }
        Ok(())
    }

    /// The directory of `path` through the merged mount, and the name in it.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8])> {
        let (directory, name) = split(path);
        Ok((open_beneath(&self.state.merged, directory, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    fn park(&mut self) -> Result<&OwnedFd> {
        if self.park.is_none() {
            match rustix::fs::mkdirat(&self.state.merged, PARK, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    // The box may have made the name itself; a daemon that died may have left it.
                    remove_tree(&self.state.merged, PARK.as_bytes())?;
                    rustix::fs::mkdirat(&self.state.merged, PARK, Mode::RWXU).map_err(failed("mkdirat", b"park"))?;
                }
                Err(errno) => return Err(failed("mkdirat", PARK.as_bytes())(errno).into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            self.park = Some(open_entry(&self.state.merged, PARK.as_bytes(), flags, 0)?);
        }
        Ok(self.park.as_ref().expect("made above"))
    }

    fn clear(&mut self, step: &Clear) -> Result<()> {
        match step {
            Clear::Park { .. } if self.faults.skips("rename") => Ok(()),
            Clear::Unlink { .. } | Clear::Discard { .. } if self.faults.skips("delete") => Ok(()),
            Clear::Park { path, slot } => {
                let (directory, name) = self.parent(path)?;
                let park = self.park()?;
                let parked = format!("slot-{slot}");
                Ok(rustix::fs::renameat(&directory, os(name), park, parked).map_err(failed("renameat", path))?)
            }
            Clear::Unlink { path } => {
                let (directory, name) = self.parent(path)?;
                Ok(rustix::fs::unlinkat(&directory, os(name), AtFlags::empty()).map_err(failed("unlinkat", path))?)
            }
            Clear::Discard { path } => self.discard(path),
        }
    }

    /// Removes a directory with all that is in it: one rename, whatever its size; deleted later. What a small one
    /// holds would be deleted by now, but one way is enough.
    fn discard(&mut self, path: &[u8]) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let parked = format!("gone-{}", self.park_count);
        self.park_count += 1;
        let park = self.park()?;
        match rustix::fs::renameat(&directory, os(name), park, &parked) {
            Ok(()) => {}
            // A lower directory where the overlay has no redirects: entry by entry.
            Err(Errno::XDEV) => return remove_tree(&directory, name),
            Err(errno) => return Err(failed("renameat", path)(errno).into()),
        }
        // Out of the upper; the merged mount remembers a name in a directory of ours that is about to go.
        let parked = format!("{PARK}/{parked}");
        let grave = self.blobs.new_grave();
        match rustix::fs::renameat(&self.state.upper, &parked, self.blobs.fd(), &grave) {
            Ok(()) => Ok(()),
            Err(_) => {
                let park = open_beneath(&self.state.upper, PARK.as_bytes(), OFlags::PATH | OFlags::DIRECTORY)?;
                remove_tree(&park, split(parked.as_bytes()).1)
            }
        }
    }

    fn place(&mut self, step: &Place) -> Result<()> {
        match step {
            Place::Unpark { .. } if self.faults.skips("rename") => Ok(()),
            Place::Reveal { .. } | Place::CopyUp { .. } if self.faults.skips("lowerdir") => Ok(()),
            Place::Hide { .. } if self.faults.skips("delete") => Ok(()),
            Place::Make { node, .. } if self.skips_making(node) => Ok(()),
            Place::CopyLower { .. } if self.faults.skips("create") => Ok(()),
            Place::Unpark { slot, path } => {
                let (directory, name) = self.parent(path)?;
                let parked = format!("slot-{slot}");
                let park = self.park()?;
                Ok(rustix::fs::renameat(park, parked, &directory, os(name)).map_err(failed("renameat", path))?)
            }
            Place::Reveal { path } => self.reveal(path),
            Place::Hide { path, is_dir: true } => match self.discard(path) {
                Err(crate::FilesError::Kernel(error)) if error.is_gone() => Ok(()),
                done => done,
            },
            Place::Hide { path, is_dir: false } => {
                let (directory, name) = self.parent(path)?;
                match rustix::fs::unlinkat(&directory, os(name), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(errno) => Err(failed("unlinkat", path)(errno).into()),
                }
            }
            Place::CopyUp { path, node } => self.copy_up(path, node),
            Place::CopyLower { path, lower } => self.copy_lower(path, lower),
            Place::Make { path, node } => self.make(path, node),
        }
    }

    fn skips_making(&self, node: &Node) -> bool {
        self.faults.skips(match &node.body {
            Body::Symlink(_) => "symlink",
            Body::Special => "special",
            _ => "create",
        })
    }

    /// Makes what the lower layers hold at `path` show again.
    fn reveal(&mut self, path: &[u8]) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let upper = open_beneath(&self.state.upper, split(path).0, OFlags::PATH | OFlags::DIRECTORY)?;
        match stat_entry(&upper, name) {
            Ok(there) if there.mode & S_IFMT == S_IFCHR && there.attributes.rdev == (0, 0) => {}
            _ => return Ok(()),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        match open_entry(&directory, name, flags, 0o600) {
            Ok(_made) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::unlinkat(&directory, os(name), AtFlags::empty()).map_err(failed("unlinkat", path))?;
        rustix::fs::unlinkat(&upper, os(name), AtFlags::empty()).map_err(failed("unlinkat whiteout", path))?;
        self.revealed.push(path.to_vec());
        Ok(())
    }

    /// Makes the overlay copy up what shows at `path`: an owner that is set is enough; content that will be restored
    /// from elsewhere is cut first, so that it is not copied for nothing.
    fn copy_up(&self, path: &[u8], node: &Node) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        if matches!(&node.body, Body::Regular(content) if !matches!(content, Content::Lower)) {
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK;
            drop(open_entry(&directory, name, flags, 0)?);
        }
        let there = open_entry(&directory, name, OFlags::PATH, 0)?;
        write_owner(there.as_fd(), node.attributes.uid, node.attributes.gid)
    }

    fn make(&self, path: &[u8], node: &Node) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let mode = Mode::RUSR | Mode::WUSR;
        let done = match &node.body {
            Body::Regular(_) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                drop(open_entry(&directory, name, flags, 0o600)?);
                return Ok(());
            }
            Body::Directory(_) => rustix::fs::mkdirat(&directory, os(name), Mode::RWXU),
            Body::Symlink(target) => rustix::fs::symlinkat(os(target), &directory, os(name)),
            Body::Special => {
                let (major, minor) = node.attributes.rdev;
                let kind = FileType::from_raw_mode(node.attributes.mode);
                rustix::fs::mknodat(&directory, os(name), kind, mode, rustix::fs::makedev(major, minor))
            }
        };
        Ok(done.map_err(failed("make", path))?)
    }

    fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        if self.faults.skips("hardlink") {
            return Ok(());
        }
        let (from_directory, from_name) = self.parent(from)?;
        let (to_directory, to_name) = self.parent(to)?;
        let done = rustix::fs::linkat(&from_directory, os(from_name), &to_directory, os(to_name), AtFlags::empty());
        match done {
            // Something that should be there was left out by a fault point.
            Err(Errno::NOENT) if self.faults.skips("create") || self.faults.skips("rename") => Ok(()),
            done => Ok(done.map_err(failed("linkat", to))?),
        }
    }

    /// Copies a directory of the lower layers to `path`: for a renamed lower directory that is gone from the upper.
    fn copy_lower(&self, path: &[u8], lower: &[u8]) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let Some(found) = self.state.lower.find(lower)? else {
            return Err(SysError::new("lookup", lower.escape_ascii(), Errno::NOENT.raw_os_error()).into());
        };
        let source = self.state.lower.reopen(&found, OFlags::RDONLY | OFlags::DIRECTORY)?;
        copy_directory(&source, &directory, name)
    }
}

/// Copies the open directory `source` to `directory`/`name`.
fn copy_directory(source: &OwnedFd, directory: &OwnedFd, name: &[u8]) -> Result<()> {
    rustix::fs::mkdirat(directory, os(name), Mode::RWXU).map_err(failed("mkdirat", name))?;
    let target = open_entry(directory, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    for child in names_in(source)? {
        let there = stat_entry(source, &child).map_err(failed("fstatat", &child))?;
        match there.mode & S_IFMT {
            S_IFDIR => {
                let inner = open_entry(source, &child, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
                copy_directory(&inner, &target, &child)?;
            }
            S_IFREG => {
                let from = open_entry(source, &child, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
                let to = open_entry(&target, &child, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o600)?;
                let _bytes = linux::reflink::copy_sparse(&from, &to, there.attributes.size)?;
            }
            image::tree::S_IFLNK => {
                let to = rustix::fs::readlinkat(source, os(&child), Vec::new()).map_err(failed("readlinkat", &child))?;
                rustix::fs::symlinkat(to, &target, os(&child)).map_err(failed("symlinkat", &child))?;
            }
            kind => {
                let (major, minor) = there.attributes.rdev;
                let device = rustix::fs::makedev(major, minor);
                let kind = FileType::from_raw_mode(kind);
                rustix::fs::mknodat(&target, os(&child), kind, Mode::RUSR, device).map_err(failed("mknodat", &child))?;
            }
        }
        copy_attributes(source, &target, &child)?;
    }
    copy_attributes_between(source, &open_entry(directory, name, OFlags::PATH, 0)?)
}

fn copy_attributes(source: &OwnedFd, target: &OwnedFd, name: &[u8]) -> Result<()> {
    let from = open_entry(source, name, OFlags::PATH, 0)?;
    let to = open_entry(target, name, OFlags::PATH, 0)?;
    copy_attributes_between(&from, &to)
}

fn copy_attributes_between(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let there = stat(from)?;
    write_owner(to.as_fd(), there.attributes.uid, there.attributes.gid)?;
    if there.mode & S_IFMT != image::tree::S_IFLNK {
        write_mode(to.as_fd(), there.mode)?;
    }
    for (name, value) in read_xattrs(from.as_fd(), true)? {
        if !name.starts_with(b"trusted.overlay.") {
            write_xattr(to.as_fd(), true, &name, Some(&value))?;
        }
    }
    debug_assert!(is_plain(there.mode) || there.attributes.size < 1 << 20, "links and devices are small");
    write_times(to.as_fd(), true, &there.attributes)
}
