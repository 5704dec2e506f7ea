//! Mount objects by descriptor: clone a tree, map its ids, mount an overlay over trees. Mounts made here are detached or
//! live in a mount namespace of the calling thread; nothing ever appears in the daemon's own namespace.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
};

use crate::error::{Result, SysError};

/// A detached clone of the mount that shows `path` (a directory or a file), without what is mounted below.
///
/// # Errors
/// What `open_tree` says.
pub fn clone_tree(path: &Path) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).map_err(|e| SysError::rustix("open_tree", path.display(), e))
}

/// Shows the files of a detached tree with the ids of `user_namespace`: its root owns what root owns.
///
/// # Errors
/// `EINVAL` where the file system below cannot map ids.
pub fn map_ids(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>, object: &Path) -> Result<()> {
    let user_namespace = user_namespace.as_raw_fd();
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace).expect("a borrowed descriptor is not negative"),
    };
    set_attributes(tree, &attributes, object)
}

/// Makes a detached tree read-only, and never honours set-id bits or device nodes in it.
///
/// # Errors
/// What `mount_setattr` says.
pub fn restrict(tree: BorrowedFd<'_>, read_only: bool, object: &Path) -> Result<()> {
    let read_only = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | read_only,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(tree, &attributes, object)
}

fn set_attributes(tree: BorrowedFd<'_>, attributes: &libc::mount_attr, object: &Path) -> Result<()> {
    // SAFETY: the empty path ends with a zero byte, the structure is a live reference of the size given, and
    // `mount_setattr` only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 {
        Err(SysError::last("mount_setattr", object.display()))
    } else {
        Ok(())
    }
}

/// What an overlay is made of.
#[derive(Debug)]
pub struct Overlay<'a> {
    /// A directory that exists and is used only while the mount is made; `upper` and `work` are named relative to it.
    pub staging: &'a Path,
    /// Detached trees, topmost first.
    pub lowers: Vec<OwnedFd>,
    /// The upper directory, relative to `staging` (`../tree`).
    pub upper: &'a str,
    /// The work directory, relative to `staging`.
    pub work: &'a str,
}

/// Options of every overlay (DESIGN 6): directories can be renamed, layers can be stacked again at the next start, and
/// `chmod` copies no data.
const OVERLAY_OPTIONS: [(&str, &str); 3] = [("redirect_dir", "on"), ("index", "off"), ("metacopy", "on")];

/// Mounts the overlay and returns it detached.
///
/// The layers must be attached somewhere while the kernel takes its private clones of them (it refuses detached ones
/// before 6.15, and takes layers as descriptors only since 6.13), so this runs on a thread with a mount namespace of its
/// own, which vanishes with the thread. Relative names keep the options below the 255 bytes that `fsconfig` takes.
///
/// # Errors
/// Which step was refused, on which layer.
pub fn mount_overlay(overlay: Overlay<'_>) -> Result<OwnedFd> {
    std::thread::scope(|scope| {
        scope
            .spawn(move || mount_overlay_here(&overlay))
            .join()
            .expect("the mounting thread does not panic")
    })
}

fn mount_overlay_here(overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let staging = overlay.staging.display();
    crate::namespace::unshare_mounts_of_this_thread()?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(|e| SysError::rustix("mount", "/ private", e))?;
    let tmpfs = mount_new("tmpfs", &[], "tmpfs")?;
    let attach = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tmpfs.as_fd(), "", CWD, overlay.staging, attach)
        .map_err(|e| SysError::rustix("move_mount", &staging, e))?;
    std::env::set_current_dir(overlay.staging).map_err(|e| SysError::io("chdir", &staging, &e))?;
    let mut names = Vec::with_capacity(overlay.lowers.len());
    for (index, lower) in overlay.lowers.iter().enumerate() {
        let name = index.to_string();
        rustix::fs::mkdir(&*name, rustix::fs::Mode::RWXU).map_err(|e| SysError::rustix("mkdir", &name, e))?;
        move_mount(lower.as_fd(), "", CWD, &*name, attach)
            .map_err(|e| SysError::rustix("move_mount", format_args!("lower layer {name}"), e))?;
        names.push(name);
    }
    let lower = names.join(":");
    let mut options = vec![
        ("lowerdir", lower.as_str()),
        ("upperdir", overlay.upper),
        ("workdir", overlay.work),
    ];
    options.extend(OVERLAY_OPTIONS);
    mount_new("overlay", &options, staging)
}

fn mount_new(kind: &str, options: &[(&str, &str)], object: impl std::fmt::Display) -> Result<OwnedFd> {
    let context =
        fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| SysError::rustix("fsopen", format_args!("{kind}"), e))?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)
            .map_err(|e| SysError::rustix("fsconfig", format_args!("{kind} {key}={value}"), e))?;
    }
    fsconfig_create(context.as_fd()).map_err(|e| {
        let why = kernel_log(context.as_fd());
        SysError::rustix("fsconfig", format_args!("{kind} at {object}{why}"), e)
    })?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .map_err(|e| SysError::rustix("fsmount", format_args!("{kind} at {object}"), e))
}

/// What the kernel wrote about a refused mount, if anything.
fn kernel_log(context: BorrowedFd<'_>) -> String {
    let mut text = String::new();
    let mut line = [0u8; 512];
    while let Ok(len) = rustix::io::read(context, &mut line) {
        text.push_str(": ");
        text.push_str(String::from_utf8_lossy(line.get(..len).unwrap_or(&[])).trim());
        if len == 0 {
            break;
        }
    }
    text
}

/// Makes an overlay whiteout: a device node that hides the name below it.
///
/// # Errors
/// What `mknod` says.
pub fn make_whiteout(path: &Path) -> Result<()> {
    use rustix::fs::{FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0)
        .map_err(|e| SysError::rustix("mknod", path.display(), e))
}

/// Sets an extended attribute of a file (not of what a link points to).
///
/// # Errors
/// What `lsetxattr` says.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    let name = CString::new(name).map_err(|_| SysError::new("lsetxattr", name, libc::EINVAL))?;
    rustix::fs::lsetxattr(path, &name, value, rustix::fs::XattrFlags::empty())
        .map_err(|e| SysError::rustix("lsetxattr", path.display(), e))
}
