//! userfaultfd, as far as write tracking needs it (userfaultfd(2), `WP_ASYNC` since 6.7). The descriptor was made
//! inside the tracked process; this file never handles fault events, since asynchronous protection has none.

use std::os::fd::{AsRawFd, BorrowedFd};

use linux_raw_sys::general::{uffdio_api, uffdio_range, uffdio_register};

use crate::error::{Result, SysError};

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const MODE_WP: u64 = 2;
/// `UFFD_FEATURE_WP_ASYNC | WP_UNPOPULATED | WP_HUGETLBFS_SHMEM`.
const FEATURES: u64 = (1 << 15) | (1 << 13) | (1 << 12);

/// Flags for `userfaultfd(2)` when it is made inside a process: close on exec, non-blocking, user mode only.
pub const CREATE_FLAGS: u64 = 0o2_000_000 | 0o4000 | 1;

/// Switches asynchronous write protection on. Once for each descriptor.
///
/// # Errors
/// `EINVAL` before kernel 6.7.
pub fn enable(uffd: BorrowedFd<'_>) -> Result<()> {
    let mut api = uffdio_api {
        api: UFFD_API,
        features: FEATURES,
        ioctls: 0,
    };
    // SAFETY: `api` is a live uffdio_api; the kernel reads and writes just that struct.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, &raw mut api) };
    if result < 0 {
        Err(SysError::last("UFFDIO_API", "userfaultfd"))
    } else {
        Ok(())
    }
}

/// Registers `[start, end)` for write tracking.
///
/// # Errors
/// `EINVAL` for a mapping that cannot be tracked (`MAP_DROPPABLE`, `[vdso]`), `EBUSY` where another userfaultfd has it,
/// `ENOENT`/`ENOMEM` where nothing is mapped or the process is gone (`ESRCH`).
pub fn register(uffd: BorrowedFd<'_>, start: u64, end: u64) -> Result<()> {
    let mut argument = uffdio_register {
        range: uffdio_range {
            start,
            len: end - start,
        },
        mode: MODE_WP,
        ioctls: 0,
    };
    // SAFETY: `argument` is a live uffdio_register; the kernel reads and writes just that struct.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_REGISTER, &raw mut argument) };
    if result < 0 {
        Err(SysError::last("UFFDIO_REGISTER", format!("{start:x}-{end:x}")))
    } else {
        Ok(())
    }
}
