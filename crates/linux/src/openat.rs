//! Opening files of a hostile tree: by path below a root, never following anything; or by the kernel's file handle,
//! which no rename can swing elsewhere. Never resolves a path from the daemon's own root.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::{Result, SysError};

/// A file handle: what the kernel names an inode by (number and generation), for the life of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The file system's type of handle.
    pub kind: i32,
    len: u8,
    bytes: [u8; Handle::CAPACITY],
}

impl Handle {
    /// The longest handle that is taken.
    pub const CAPACITY: usize = 27;

    /// A handle of these bytes; `None` when there are too many.
    pub fn new(kind: i32, handle: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self {
            kind,
            len: u8::try_from(handle.len()).ok()?,
            bytes,
        })
    }

    /// The kernel's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {:x}:{}", self.kind, self.bytes().escape_ascii())
    }
}

/// `struct file_handle` with room for our longest handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; 32],
}

/// The handle of what `directory`/`name` is (a link itself, not its target); an empty name is `directory` itself.
///
/// # Errors
/// `ENOENT` when there is no such name; `EOVERFLOW` when the handle is longer than ours; `EOPNOTSUPP` when the file
/// system has none.
pub fn handle_of(directory: impl AsFd, name: &[u8]) -> Result<Handle> {
    let describe = || name.escape_ascii().to_string();
    let path =
        std::ffi::CString::new(name).map_err(|_| SysError::new("name_to_handle_at", describe(), libc::EINVAL))?;
    let capacity = u32::try_from(Handle::CAPACITY).expect("27 fits in u32");
    let mut raw = RawHandle {
        handle_bytes: capacity,
        handle_type: 0,
        f_handle: [0; 32],
    };
    let mut mount_id: libc::c_int = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `raw` is a `struct file_handle` with 32 bytes of room, of which handle_bytes (27) are offered; `path`
    // is NUL-terminated; both and `mount_id` outlive the call.
    let done = unsafe {
        libc::name_to_handle_at(
            directory.as_fd().as_raw_fd(),
            path.as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount_id,
            flags,
        )
    };
    if done != 0 {
        return Err(SysError::last("name_to_handle_at", describe()));
    }
    let length = usize::try_from(raw.handle_bytes).unwrap_or(usize::MAX);
    assert!(
        length <= Handle::CAPACITY,
        "the kernel returned a longer handle than it was offered room for"
    );
    Handle::new(raw.handle_type, &raw.f_handle[..length])
        .ok_or_else(|| SysError::new("name_to_handle_at", describe(), libc::EOVERFLOW))
}

/// Opens the inode of `handle` on the file system of `mount` (any real descriptor on it, not `O_PATH`).
///
/// # Errors
/// `ESTALE` when the inode is gone; `EPERM` without `CAP_DAC_READ_SEARCH`.
///
/// While somebody else is just creating an inode under the number of one that is gone, the kernel says `ENOMEM`
/// (`iget_locked` in fs/inode.c has no other word for an inode with `I_CREATING`); a moment later it says `ESTALE`. So
/// `ENOMEM` is believed only when it lasts.
pub fn open_handle(mount: impl AsFd, handle: &Handle, flags: OFlags) -> Result<OwnedFd> {
    const LASTS: Duration = Duration::from_millis(20);
    let since = Instant::now();
    loop {
        match open_handle_once(&mount, handle, flags) {
            Err(error) if error.errno == libc::ENOMEM && since.elapsed() < LASTS => rustix::thread::sched_yield(),
            other => return other,
        }
    }
}

fn open_handle_once(mount: &impl AsFd, handle: &Handle, flags: OFlags) -> Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: u32::from(handle.len),
        handle_type: handle.kind,
        f_handle: [0; 32],
    };
    raw.f_handle[..handle.bytes().len()].copy_from_slice(handle.bytes());
    let flags = i32::try_from((flags | OFlags::CLOEXEC).bits()).expect("open flags fit in an int");
    // SAFETY: `raw` is a `struct file_handle` whose handle_bytes (at most 27) are within its 32 bytes of room.
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_fd().as_raw_fd(),
            (&raw mut raw).cast::<libc::file_handle>(),
            flags,
        )
    };
    if fd < 0 {
        return Err(SysError::last("open_by_handle_at", format!("{handle:?}")));
    }
    // SAFETY: the kernel has just returned `fd`, open, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens `path` below `root`, following no link of any kind and crossing no mount. An empty path is `root` itself.
///
/// # Errors
/// `ENOENT`, `ELOOP` when a component is a link, `EXDEV` when it is a mount point.
pub fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let resolve =
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    open_resolved(root, path, flags, Mode::empty(), resolve)
}

/// Opens the entry `name` of `directory` (a single component), never following it.
///
/// # Errors
/// As [`open_beneath`]; a link opens only with `O_PATH`.
pub fn open_entry(directory: impl AsFd, name: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd> {
    assert!(!name.contains(&b'/'), "a name in a directory is one component");
    rustix::fs::openat(
        directory.as_fd(),
        OsStr::from_bytes(name),
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    )
    .map_err(|errno| SysError::rustix("openat", name.escape_ascii(), errno))
}

fn open_resolved(root: impl AsFd, path: &[u8], flags: OFlags, mode: Mode, resolve: ResolveFlags) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    openat2(root, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, resolve)
        .map_err(|errno| SysError::rustix("openat2", path.escape_ascii(), errno))
}

/// `openat2(2)`, asked again where it says so: anything that is renamed or mounted on the machine makes a path with `..`
/// in it, or in a link on its way, fail with `EAGAIN` (some in a thousand calls beside a loop of renames).
///
/// # Errors
/// What the kernel says, never `EAGAIN` or `EINTR`.
pub fn openat2(
    root: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    loop {
        match rustix::fs::openat2(root.as_fd(), path, flags, mode, resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The path under which this process can name the object of `fd` itself, for calls that take no `O_PATH` descriptor.
pub fn self_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    // Copies into a box were refused now and then while other daemons renamed and mounted.
    #[test]
    fn renames_elsewhere_are_no_error() {
        let top = std::env::temp_dir().join(format!("deltabox-openat-{}", std::process::id()));
        std::fs::create_dir_all(top.join("sub")).unwrap();
        std::fs::write(top.join("a"), b"").unwrap();
        let root = rustix::fs::open(&top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let done = AtomicBool::new(false);
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::fs::rename(top.join("a"), top.join("b")).unwrap();
                    std::fs::rename(top.join("b"), top.join("a")).unwrap();
                }
            });
            let open = || openat2(&root, "sub/..", OFlags::PATH, Mode::empty(), ResolveFlags::IN_ROOT);
            let refused = (0..20_000).find_map(|_| open().err());
            done.store(true, Ordering::Relaxed);
            refused
        });
        std::fs::remove_dir_all(&top).unwrap();
        assert_eq!(refused, None);
    }
}
