//! Memory files and our mappings over them: how bytes and words are exchanged with code that runs inside a tracee.
//! The other side can write to a shared window at any time, so nothing read from one is trusted: only plain copies
//! leave it, never references.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Result, SysError};

/// A memory file of `size` bytes, close-on-exec, sealable.
///
/// # Errors
/// `ENOMEM`, `EMFILE`.
pub fn create(name: &str, size: u64) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| SysError::rustix("memfd_create", name, e))?;
    rustix::fs::ftruncate(&fd, size).map_err(|e| SysError::rustix("ftruncate", name, e))?;
    Ok(fd)
}

/// Forbids new writable mappings and `write(2)` (ours stay), and any change of size.
///
/// # Errors
/// `EPERM` where sealing was sealed.
pub fn seal_read_only_for_others(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::fcntl_add_seals(
        fd,
        SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )
    .map_err(|e| SysError::rustix("F_ADD_SEALS", "memfd", e))
}

/// The seals of a memory file; what cannot be sealed has none.
pub fn seals(fd: BorrowedFd<'_>) -> u32 {
    rustix::fs::fcntl_get_seals(fd).map_or(0, |seals| seals.bits())
}

/// Seals a memory file.
///
/// # Errors
/// `EPERM` where sealing was sealed, `EBUSY` where it is mapped writable and shall not be written.
pub fn seal(fd: BorrowedFd<'_>, seals: u32) -> Result<()> {
    rustix::fs::fcntl_add_seals(fd, SealFlags::from_bits_retain(seals))
        .map_err(|e| SysError::rustix("F_ADD_SEALS", "memfd", e))
}

/// Our shared mapping of a memory file. Unmapped on drop.
#[derive(Debug)]
pub struct Window {
    base: *mut u8,
    size: usize,
    fd: OwnedFd,
}

impl Window {
    /// Maps the first `size` bytes of `fd`, readable and writable.
    ///
    /// # Errors
    /// `ENOMEM`; `EACCES` where it is sealed against writing.
    pub fn map(fd: OwnedFd, size: usize) -> Result<Self> {
        // SAFETY: a new shared mapping at an address the kernel chooses; nothing of ours lies there.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }
        .map_err(|e| SysError::rustix("mmap", "memfd", e))?;
        Ok(Self {
            base: base.cast(),
            size,
            fd,
        })
    }

    /// The memory file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes mapped.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset.checked_add(bytes.len()).is_some_and(|end| end <= self.size),
            "inside the window"
        );
        let target = self.at(offset);
        // SAFETY: the bounds were checked above and the mapping lives as long as `self`; the memory is shared with
        // another process, which Rust cannot see, and no reference into it exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) }
    }

    /// Copies words to `offset`, in the machine's byte order.
    pub fn write_words(&self, offset: usize, words: &[u64]) {
        let size = size_of_val(words);
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.size),
            "inside the window"
        );
        let target = self.at(offset);
        // SAFETY: as in `write`; any word is valid as bytes.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr().cast(), target, size) }
    }

    /// Copies words from `offset`, in the machine's byte order.
    pub fn read_words(&self, offset: usize, out: &mut [u64]) {
        let size = size_of_val(out);
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.size),
            "inside the window"
        );
        let source = self.at(offset);
        // SAFETY: as in `write`; any bytes are valid words.
        unsafe { ptr::copy_nonoverlapping(source, out.as_mut_ptr().cast(), size) }
    }

    /// Copies from `offset` into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(
            offset.checked_add(out.len()).is_some_and(|end| end <= self.size),
            "inside the window"
        );
        let source = self.at(offset);
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) }
    }

    /// A word at `offset` (a multiple of 8), read once, after what the other side wrote before it.
    pub fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores a word at `offset` (a multiple of 8) after everything written before.
    pub fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.size,
            "an aligned word inside the window"
        );
        let word = self.at(offset).cast();
        // SAFETY: aligned (the mapping is page-aligned), in bounds (checked above), alive as long as `self`; atomics
        // may be shared with another process.
        unsafe { AtomicU64::from_ptr(word) }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.size, "inside the window");
        // SAFETY: `base` is the start of a mapping of `size` bytes that lives as long as `self`, and `offset` is at
        // most its end (checked above).
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this size and no reference into it exists.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.cast(), self.size) } {
            debug_assert!(false, "munmap of a window: {error}");
        }
    }
}

/// Keeps freed memory in this process instead of giving it back to the kernel: pages of checkpoints come and go by the
/// thousand, and each first touch of a fresh page costs a fault.
pub fn keep_freed_memory() {
    const KEEP_BYTES: i32 = 256 << 20;
    // SAFETY: mallopt only sets numbers of the allocator; it is called before other threads are started.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEEP_BYTES) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TOP_PAD, 16 << 20) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20) };
}
