//! Starts the embedded PID 1. The daemon itself never forks: a small static program is started from a sealed memory file
//! (which is `vfork` and `exec`, whatever the size of the daemon), and that program makes the namespaces with `clone3`.
//! So there is no code of ours between `fork` and `exec` in a process with threads.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::error::{Result, SysError};

/// A memory file that holds `bytes`, sealed: nobody can change them, not even we.
///
/// # Errors
/// What the kernel says, `ENOSPC` or `ENOMEM` most likely.
pub fn sealed_memory_file(name: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| SysError::rustix("memfd_create", name, e))?;
    let mut file = File::from(fd);
    file.write_all(bytes).map_err(|e| SysError::io("write", name, &e))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals).map_err(|e| SysError::rustix("fcntl", name, e))?;
    Ok(file.into())
}

/// Runs the program in `image` (a static executable) with `stdin` as its only descriptor and an empty environment.
///
/// # Errors
/// What `exec` says.
pub fn run_program(image: &OwnedFd, name: &str, stdin: OwnedFd) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()))
        .arg0(name)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| SysError::io("exec", name, &e))
}
