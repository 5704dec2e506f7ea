//! Bulk copies out of and into another address space (`process_vm_readv(2)`, `/proc/PID/mem`). Never partial without
//! saying so: a short copy is an error.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Result, SysError};

/// Reads pages at `addresses` (each 4096 bytes) into `out`, one after another.
///
/// # Errors
/// `EFAULT` where a page cannot be read by the process itself (guard, `PROT_NONE`): use [`read_forced`] for that one.
pub fn read_pages(pid: i32, addresses: &[u64], out: &mut [u8]) -> Result<()> {
    assert_eq!(out.len(), addresses.len() * 4096, "room for each page");
    for (chunk, out) in addresses.chunks(512).zip(out.chunks_mut(512 * 4096)) {
        let remote: Vec<libc::iovec> = chunk
            .iter()
            .map(|a| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(usize::try_from(*a).expect("64 bit")),
                iov_len: 4096,
            })
            .collect();
        let local = libc::iovec {
            iov_base: out.as_mut_ptr().cast(),
            iov_len: out.len(),
        };
        // SAFETY: `local` is the exclusive buffer `out`; `remote` are numbers for the kernel, checked by it.
        let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0) };
        if got < 0 {
            return Err(SysError::last("process_vm_readv", pid));
        }
        if usize::try_from(got).expect("positive") != out.len() {
            return Err(SysError::new(
                "process_vm_readv",
                format!("{pid}, {got} of {} bytes", out.len()),
                libc::EFAULT,
            ));
        }
    }
    Ok(())
}

/// Writes pages to addresses.
///
/// # Errors
/// `EFAULT` where a page cannot be written by the process itself, with some of those before it written: use
/// [`write_forced`].
pub fn write_pages(pid: i32, pages: &[(u64, &[u8; 4096])]) -> Result<()> {
    for chunk in pages.chunks(512) {
        let remote: Vec<libc::iovec> = chunk
            .iter()
            .map(|(address, _)| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(usize::try_from(*address).expect("64 bit")),
                iov_len: 4096,
            })
            .collect();
        let local: Vec<libc::iovec> = chunk
            .iter()
            .map(|(_, bytes)| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: 4096,
            })
            .collect();
        let count = chunk.len() as u64;
        // SAFETY: the kernel only reads from `local`, which are borrowed arrays of that length; `remote` are numbers
        // for the kernel, checked by it.
        let got = unsafe { libc::process_vm_writev(pid, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        if got < 0 {
            return Err(SysError::last("process_vm_writev", pid));
        }
        if got.cast_unsigned() as u64 != count * 4096 {
            return Err(SysError::new(
                "process_vm_writev",
                format!("{pid}, {got} of {} bytes", count * 4096),
                libc::EFAULT,
            ));
        }
    }
    Ok(())
}

/// Reads whatever the protection (through an open `/proc/PID/mem`).
///
/// # Errors
/// `EIO` where nothing is mapped or it is a guard.
pub fn read_forced(memory: &File, address: u64, out: &mut [u8]) -> Result<()> {
    memory
        .read_exact_at(out, address)
        .map_err(|e| SysError::io("read /proc/PID/mem", format!("{address:x}"), &e))
}

/// Writes whatever the protection (through an open `/proc/PID/mem`): private pages are copied first.
///
/// # Errors
/// `EIO` where nothing is mapped or it is a guard.
pub fn write_forced(memory: &File, address: u64, bytes: &[u8]) -> Result<()> {
    memory
        .write_all_at(bytes, address)
        .map_err(|e| SysError::io("write /proc/PID/mem", format!("{address:x}"), &e))
}
