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

use image::tree::{Body, Content, Node, S_IFCHR, S_IFMT};
use linux::openat::{open_beneath, open_entry};
use linux::owner::act_as;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Result;
use crate::attributes::{failed, stat_entry, write_owner};
use crate::blob::{BlobDir, remove_tree};
use crate::copy::Copier;
use crate::dirty::SideState;
use crate::fault::Faults;
use crate::plan::{Clear, Place, SidePlan};

/// The directory at the root of the box where things wait that are on their way; only while the box is stopped.
const PARK: &str = ".deltabox-parked";

/// The directory at the root of the box through which directories leave it.
const EXIT: &str = ".deltabox-gone";

/// Carries out the steps of one plan for one tree.
pub(crate) struct Placer<'a> {
    state: &'a SideState,
    blobs: &'a mut BlobDir,
    faults: &'a Faults,
    park: Option<OwnedFd>,
    exit: Option<OwnedFd>,
    used_top: bool,
    gone_count: u64,
    /// Paths to which something was moved back.
    unparked: Vec<Vec<u8>>,
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
        Self {
            state,
            blobs,
            faults,
            park: None,
            exit: None,
            used_top: false,
            gone_count: 0,
            unparked: Vec::new(),
            revealed: Vec::new(),
        }
    }

    /// True when a directory of ours was made at the root.
    pub(crate) fn used_top(&self) -> bool {
        self.used_top
    }

    /// All steps in order; leaves nothing of ours behind when it succeeds.
    pub(crate) fn run(&mut self, plan: &SidePlan) -> Result<()> {
        let maker = self.state.maker.filter(|_| plan.changes_names());
        let _acting = maker.map(|(uid, gid)| act_as(uid, gid)).transpose()?;
        for step in &plan.clear {
            self.clear(step)?;
        }
        for step in &plan.place {
            self.place(step)?;
        }
        self.forget_gone()?;
        for (from, to) in &plan.link {
            self.link(from, to)?;
        }
        if let Some(park) = self.park.take() {
            drop(park);
            // What a fault point left parked goes with it.
            remove_tree(&self.state.merged, PARK.as_bytes())?;
        }
        Ok(())
    }

    /// The directory of `path` through the merged mount, and the name in it.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8])> {
        let (directory, name) = split(path);
        Ok((
            open_beneath(&self.state.merged, directory, OFlags::PATH | OFlags::DIRECTORY)?,
            name,
        ))
    }

    fn park(&mut self) -> Result<&OwnedFd> {
        if self.park.is_none() {
            self.park = Some(self.own_directory(PARK)?);
        }
        Ok(self.park.as_ref().expect("made above"))
    }

    /// Makes a directory of ours at the root.
    fn own_directory(&mut self, name: &str) -> Result<OwnedFd> {
        self.used_top = true;
        // The box may have made the name itself; a daemon that died may have left it.
        remove_tree(&self.state.merged, name.as_bytes())?;
        rustix::fs::mkdirat(&self.state.merged, name, Mode::RWXU).map_err(failed("mkdirat", name.as_bytes()))?;
        Ok(open_entry(
            &self.state.merged,
            name.as_bytes(),
            OFlags::PATH | OFlags::DIRECTORY,
            0,
        )?)
    }

    /// Makes the merged mount forget the directories that left: as long as it remembers one, the lower file behind
    /// anything in it cannot be looked up elsewhere (`ESTALE`). Removing their parent throws out what is remembered
    /// below it.
    fn forget_gone(&mut self) -> Result<()> {
        let Some(exit) = self.exit.take() else { return Ok(()) };
        drop(exit);
        let done = rustix::fs::unlinkat(&self.state.merged, EXIT, AtFlags::REMOVEDIR);
        Ok(done.map_err(failed("rmdir", EXIT.as_bytes()))?)
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
        let gone = format!("gone-{}", self.gone_count);
        self.gone_count += 1;
        if self.exit.is_none() {
            self.exit = Some(self.own_directory(EXIT)?);
        }
        let exit = self.exit.as_ref().expect("made above");
        match rustix::fs::renameat(&directory, os(name), exit, &gone) {
            Ok(()) => {}
            // A lower directory where the overlay has no redirects: entry by entry.
            Err(Errno::XDEV) => return remove_tree(&directory, name),
            Err(errno) => return Err(failed("renameat", path)(errno).into()),
        }
        // Out of the upper, to be deleted while the box runs.
        let exit = open_beneath(&self.state.upper, EXIT.as_bytes(), OFlags::PATH | OFlags::DIRECTORY)?;
        let grave = self.blobs.new_grave();
        match rustix::fs::renameat(&exit, &gone, self.blobs.fd(), &grave) {
            Ok(()) => Ok(()),
            Err(_) => remove_tree(&exit, gone.as_bytes()),
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
                rustix::fs::renameat(park, parked, &directory, os(name)).map_err(failed("renameat", path))?;
                self.unparked.push(path.clone());
                Ok(())
            }
            Place::Reveal { path, lower } => self.reveal(path, lower),
            Place::Hide { path, is_dir } => self.hide(path, *is_dir),
            Place::CopyUp { path, node } => self.copy_up(path, node),
            Place::CopyLower { path, lower } => self.copy_lower(path, lower),
            Place::Make { path, node } => self.make(path, node),
        }
    }

    /// Deletes what the lower layers show at `path`. In a directory that has just been revealed the merged mount has
    /// not looked it up and must not: the lower file may be in use under the name that it was moved to, and would be
    /// remembered as a second name of it.
    fn hide(&mut self, path: &[u8], is_dir: bool) -> Result<()> {
        let deepest = |tops: &[Vec<u8>]| {
            let is_below = |top: &&Vec<u8>| {
                path.strip_prefix(top.as_slice())
                    .is_some_and(|rest| rest.starts_with(b"/"))
            };
            tops.iter().filter(is_below).map(Vec::len).max()
        };
        // (What was moved into it has been looked up where it was before.)
        if deepest(&self.revealed) > deepest(&self.unparked) {
            let (directory, name) = split(path);
            let upper = open_beneath(&self.state.upper, directory, OFlags::PATH | OFlags::DIRECTORY)?;
            if let Err(Errno::NOENT) = stat_entry(&upper, name) {
                return make_whiteout(&upper, name);
            }
        }
        let done = if is_dir {
            self.discard(path)
        } else {
            let (directory, name) = self.parent(path)?;
            let done = rustix::fs::unlinkat(&directory, os(name), AtFlags::empty());
            done.map_err(|errno| failed("unlinkat", path)(errno).into())
        };
        match done {
            Err(crate::FilesError::Kernel(error)) if error.is_gone() => Ok(()),
            done => done,
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
    fn reveal(&mut self, path: &[u8], lower: &[u8]) -> Result<()> {
        self.forget_gone()?;
        let (directory, name) = self.parent(path)?;
        let upper = open_beneath(&self.state.upper, split(path).0, OFlags::PATH | OFlags::DIRECTORY)?;
        match stat_entry(&upper, name) {
            Ok(there) if there.mode & S_IFMT == S_IFCHR && there.attributes.rdev == (0, 0) => {}
            _ => return Ok(()),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(open_entry(&directory, name, flags, 0o600)?);
        rustix::fs::unlinkat(&directory, os(name), AtFlags::empty()).map_err(failed("unlinkat", path))?;
        rustix::fs::unlinkat(&upper, os(name), AtFlags::empty()).map_err(failed("unlinkat whiteout", path))?;
        match open_entry(&directory, name, OFlags::PATH, 0) {
            Ok(_shows) => {
                self.revealed.push(path.to_vec());
                Ok(())
            }
            // The box still holds the deleted one open (or has its working directory in it), and the overlay will
            // not show the same lower inode twice: hide it again, and copy.
            Err(error) if error.errno == Errno::STALE.raw_os_error() => {
                make_whiteout(&upper, name)?;
                self.copy_lower(path, lower)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the overlay copy up what shows at `path`: an owner that is set is enough; content that will be restored
    /// from elsewhere is cut first, so that it is not copied for nothing.
    fn copy_up(&self, path: &[u8], node: &Node) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        if matches!(&node.body, Body::Regular(content) if !matches!(content, Content::Lower(_))) {
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
        let done = rustix::fs::linkat(
            &from_directory,
            os(from_name),
            &to_directory,
            os(to_name),
            AtFlags::empty(),
        );
        match done {
            // Something that should be there was left out by a fault point.
            Err(Errno::NOENT) if self.faults.skips("create") || self.faults.skips("rename") => Ok(()),
            done => Ok(done.map_err(failed("linkat", to))?),
        }
    }

    /// Copies what the lower layers hold at `lower` to `path`: where it cannot be revealed.
    fn copy_lower(&self, path: &[u8], lower: &[u8]) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        Copier::new(&self.state.lower).copy(lower, &directory, name)
    }
}

/// Puts the overlay's mark of a deleted name into a directory of the upper.
fn make_whiteout(upper: &OwnedFd, name: &[u8]) -> Result<()> {
    let device = rustix::fs::makedev(0, 0);
    let made = rustix::fs::mknodat(upper, os(name), FileType::CharacterDevice, Mode::empty(), device);
    Ok(made.map_err(failed("mknodat whiteout", name))?)
}
