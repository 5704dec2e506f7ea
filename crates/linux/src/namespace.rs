//! Namespaces: which ones a box gets, id maps, and a mount namespace for one thread. It enters nobody else's.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::error::{Result, SysError};

/// Every namespace of a box but the cgroup one, which PID 1 makes once it sits in the box's own group.
pub const BOX_NAMESPACES: u64 = 0x0002_0000 /* mount */
    | 0x0400_0000 /* uts */
    | 0x0800_0000 /* ipc */
    | 0x2000_0000 /* pid */
    | 0x4000_0000 /* net */
    | 0x0000_0080 /* time */;

/// The user namespace, which an unprivileged box gets besides.
pub const USER_NAMESPACE: u64 = 0x1000_0000;

/// Ids `0..count` inside are `first..first + count` outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The id outside that is 0 inside.
    pub first: u32,
    /// How many ids.
    pub count: u32,
}

/// Writes the user and group id maps of the process `host_pid`, which sits in a new user namespace.
///
/// # Errors
/// `EPERM` without the rights, `EINVAL` for a range that is not ours to give.
pub fn write_id_maps(host_pid: u32, range: IdRange) -> Result<()> {
    for name in ["uid_map", "gid_map"] {
        let path = PathBuf::from(format!("/proc/{host_pid}/{name}"));
        let line = format!("0 {} {}\n", range.first, range.count);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|e| SysError::io("write", path.display(), &e))?;
    }
    Ok(())
}

/// The user namespace of a process, held open.
///
/// # Errors
/// `ENOENT` when the process is gone.
pub fn user_namespace_of(host_pid: u32) -> Result<OwnedFd> {
    let path = format!("/proc/{host_pid}/ns/user");
    File::open(&path)
        .map(OwnedFd::from)
        .map_err(|e| SysError::io("open", path, &e))
}

/// Gives the calling thread a mount namespace and a working directory of its own. Both end with the thread; the rest of
/// the process is not touched.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_mounts_of_this_thread() -> Result<()> {
    // SAFETY: `unshare` takes no pointers; `CLONE_FS | CLONE_NEWNS` change only the calling thread's root, working
    // directory and mount namespace, none of which Rust code relies on sharing.
    let result = unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) };
    if result < 0 {
        Err(SysError::last("unshare", "mount namespace of a thread"))
    } else {
        Ok(())
    }
}
