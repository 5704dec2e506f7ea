//! Operations on open file descriptions through a duplicate of ours: counters, timers, masks, terminal settings,
//! opening again, passing on. Never blocks.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};

use crate::error::{Result, SysError};

/// A new open file description of the same file, with `flags`.
///
/// # Errors
/// `ENXIO` for sockets; `ETXTBSY`, `EACCES` as `open(2)`.
pub fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| SysError::rustix("open", path, e))
}

/// The path of a descriptor of our own that has this device and inode: the way back to a pipe whose end in the box was
/// closed.
pub fn own(device: u64, inode: u64) -> Option<String> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    entries.flatten().find_map(|entry| {
        let path = entry.path();
        let stat = rustix::fs::stat(&path).ok()?;
        (stat.st_dev == device && stat.st_ino == inode).then(|| path.to_string_lossy().into_owned())
    })
}

/// A new timer on `clock`.
///
/// # Errors
/// `EINVAL` for an unknown clock.
pub fn timerfd(clock: i32) -> Result<OwnedFd> {
    // SAFETY: plain numbers; a new descriptor comes back.
    let fd = unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) };
    if fd < 0 {
        return Err(SysError::last("timerfd_create", clock));
    }
    // SAFETY: `fd` was just made and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks a timer what is left (`timerfd_gettime(2)`), for the effect: one that has fired and was not read goes on with its
/// next period, its unread expirations counted.
///
/// # Errors
/// `EINVAL` where the descriptor is no timer.
pub fn ask_timer(fd: BorrowedFd<'_>) -> Result<()> {
    let mut spec = [0u8; 32];
    // SAFETY: the kernel writes the 32 bytes of a struct itimerspec.
    let result = unsafe { libc::syscall(libc::SYS_timerfd_gettime, fd.as_raw_fd(), spec.as_mut_ptr()) };
    if result < 0 {
        Err(SysError::last("timerfd_gettime", fd.as_raw_fd()))
    } else {
        Ok(())
    }
}

/// Arms a timer with a relative `struct itimerspec` and sets its unread expirations.
///
/// # Errors
/// `EINVAL` where the descriptor is no timer.
pub fn set_timer(fd: BorrowedFd<'_>, spec: &[u8; 32], ticks: u64) -> Result<()> {
    const TFD_IOC_SET_TICKS: libc::c_ulong = 0x4008_5400;
    // SAFETY: `spec` is the 32 bytes of a struct itimerspec, read by the kernel; no old value is asked for.
    let result = unsafe {
        libc::syscall(
            libc::SYS_timerfd_settime,
            fd.as_raw_fd(),
            0,
            spec.as_ptr(),
            std::ptr::null_mut::<u8>(),
        )
    };
    if result < 0 {
        return Err(SysError::last("timerfd_settime", fd.as_raw_fd()));
    }
    if ticks > 0 {
        // SAFETY: the kernel reads one live word.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), TFD_IOC_SET_TICKS, &raw const ticks) };
        if result < 0 {
            return Err(SysError::last("TFD_IOC_SET_TICKS", fd.as_raw_fd()));
        }
    }
    Ok(())
}

/// A descriptor for the signals of `mask`; or the same description with another mask.
///
/// # Errors
/// `EINVAL` where the descriptor is no signalfd.
pub fn signalfd(fd: Option<BorrowedFd<'_>>, mask: u64) -> Result<Option<OwnedFd>> {
    let number = fd.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: the kernel reads eight bytes of mask.
    let result = unsafe { libc::syscall(libc::SYS_signalfd4, number, &raw const mask, 8usize, libc::SFD_CLOEXEC) };
    if result < 0 {
        return Err(SysError::last("signalfd4", number));
    }
    if fd.is_some() {
        return Ok(None);
    }
    let made = i32::try_from(result).expect("a descriptor");
    // SAFETY: `made` is a new descriptor that nothing else owns.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(made) }))
}

/// Sets the value of an eventfd.
///
/// # Errors
/// As `read(2)` and `write(2)`.
pub fn set_event(fd: BorrowedFd<'_>, count: u64, semaphore: bool) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let readable = |fd: &BorrowedFd<'_>| {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&zero)).is_ok_and(|n| n > 0)
    };
    let mut word = [0; 8];
    while readable(&fd) {
        rustix::io::read(fd, &mut word).map_err(|e| SysError::rustix("read", "eventfd", e))?;
        if !semaphore {
            break;
        }
    }
    if count > 0 {
        rustix::io::write(fd, &count.to_ne_bytes()).map_err(|e| SysError::rustix("write", "eventfd", e))?;
    }
    Ok(())
}

/// Sets a terminal's `struct termios2` (44 bytes) and `struct winsize` (8 bytes).
///
/// # Errors
/// `ENOTTY` where it is none.
pub fn set_terminal(fd: BorrowedFd<'_>, settings: &[u8], size: &[u8]) -> Result<()> {
    const TCSETS2: libc::c_ulong = 0x402c_542b;
    assert!(settings.len() == 44 && size.len() == 8, "as they were captured");
    // SAFETY: the kernel reads the 44 bytes of a struct termios2.
    if unsafe { libc::ioctl(fd.as_raw_fd(), TCSETS2, settings.as_ptr()) } < 0 {
        return Err(SysError::last("TCSETS2", fd.as_raw_fd()));
    }
    // SAFETY: the kernel reads the 8 bytes of a struct winsize.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSWINSZ, size.as_ptr()) } < 0 {
        return Err(SysError::last("TIOCSWINSZ", fd.as_raw_fd()));
    }
    Ok(())
}

/// A terminal's `struct termios2` (44 bytes) and `struct winsize` (8 bytes).
///
/// # Errors
/// `ENOTTY` where it is none.
pub fn terminal(fd: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    const TCGETS2: libc::c_ulong = 0x802c_542a;
    let (mut settings, mut size) = (vec![0u8; 44], vec![0u8; 8]);
    // SAFETY: the kernel writes the 44 bytes of a struct termios2.
    if unsafe { libc::ioctl(fd.as_raw_fd(), TCGETS2, settings.as_mut_ptr()) } < 0 {
        return Err(SysError::last("TCGETS2", fd.as_raw_fd()));
    }
    // SAFETY: the kernel writes the 8 bytes of a struct winsize.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) } < 0 {
        return Err(SysError::last("TIOCGWINSZ", fd.as_raw_fd()));
    }
    Ok((settings, size))
}

/// A pair of connected unix sockets of `kind` (`SOCK_STREAM` …).
///
/// # Errors
/// `EMFILE`.
pub fn unix_pair(kind: i32) -> Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::from_raw(kind.cast_unsigned());
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(|e| SysError::rustix("socketpair", "unix", e))
}

/// Shuts a socket down in the ways of `ways` (receive 1, send 2).
///
/// # Errors
/// `ENOTCONN` where it is not connected.
pub fn shut_down(socket: BorrowedFd<'_>, ways: u8) -> Result<()> {
    use rustix::net::Shutdown;
    let how = match ways & 3 {
        0 => return Ok(()),
        1 => Shutdown::Read,
        2 => Shutdown::Write,
        _ => Shutdown::Both,
    };
    rustix::net::shutdown(socket, how).map_err(|e| SysError::rustix("shutdown", socket.as_raw_fd(), e))
}

/// Sends descriptors over a unix socket with one byte.
///
/// # Errors
/// `EAGAIN`, `ETOOMANYREFS`.
pub fn send(socket: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(255))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(fds)),
        "fewer than 255 at once"
    );
    let byte = [rustix::io::IoSlice::new(&[0u8])];
    rustix::net::sendmsg(socket, &byte, &mut control, SendFlags::DONTWAIT)
        .map_err(|e| SysError::rustix("sendmsg", "descriptors", e))?;
    Ok(())
}
