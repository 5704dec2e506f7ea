//! Raw system calls for code that has no libc: numbers, the one `syscall` instruction, and the few structures that the
//! kernel reads. It never allocates and keeps no state.

use core::arch::asm;

/// One system call with six arguments; a negative result is `-errno`.
#[inline(always)]
pub fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the instruction follows the kernel's x86-64 convention and clobbers what is named; what the call does
    // with the addresses in `args` is the caller's promise, made where the address is formed from a live reference.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") args[0], in("rsi") args[1],
            in("rdx") args[2], in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

macro_rules! sys {
    ($number:expr) => { $crate::sys::call($number, [0; 6]) };
    ($number:expr, $a:expr) => { $crate::sys::call($number, [$a as usize, 0, 0, 0, 0, 0]) };
    ($number:expr, $a:expr, $b:expr) => { $crate::sys::call($number, [$a as usize, $b as usize, 0, 0, 0, 0]) };
    ($number:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::call($number, [$a as usize, $b as usize, $c as usize, 0, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::sys::call($number, [$a as usize, $b as usize, $c as usize, $d as usize, 0, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::sys::call($number, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0])
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::call($number, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize])
    };
}
pub(crate) use sys;

pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const CLOSE: usize = 3;
pub const MMAP: usize = 9;
pub const RT_SIGACTION: usize = 13;
pub const RT_SIGPROCMASK: usize = 14;
pub const IOCTL: usize = 16;
pub const DUP2: usize = 33;
pub const SOCKET: usize = 41;
pub const SENDMSG: usize = 46;
pub const RECVMSG: usize = 47;
pub const EXECVE: usize = 59;
pub const WAIT4: usize = 61;
pub const KILL: usize = 62;
pub const FCNTL: usize = 72;
pub const CHDIR: usize = 80;
pub const FCHDIR: usize = 81;
pub const UMASK: usize = 95;
pub const SETSID: usize = 112;
pub const SETGROUPS: usize = 116;
pub const SETRESUID: usize = 117;
pub const SETRESGID: usize = 119;
pub const SETPRIORITY: usize = 141;
pub const CAPSET: usize = 126;
pub const PIVOT_ROOT: usize = 155;
pub const PRCTL: usize = 157;
pub const MOUNT: usize = 165;
pub const UMOUNT2: usize = 166;
pub const SETHOSTNAME: usize = 170;
pub const EXIT_GROUP: usize = 231;
pub const OPENAT: usize = 257;
pub const MKDIRAT: usize = 258;
pub const SYMLINKAT: usize = 266;
pub const PPOLL: usize = 271;
pub const UNSHARE: usize = 272;
pub const SIGNALFD4: usize = 289;
pub const SECCOMP: usize = 317;
pub const MOVE_MOUNT: usize = 429;
pub const CLONE3: usize = 435;
pub const CLOSE_RANGE: usize = 436;

pub const AT_FDCWD: isize = -100;
pub const O_WRONLY: usize = 1;
pub const O_RDWR: usize = 2;
pub const O_CREAT: usize = 0o100;
pub const O_CLOEXEC: usize = 0o2000000;
pub const O_PATH: usize = 0o10000000;
pub const EINTR: isize = 4;
pub const EAGAIN: isize = 11;
pub const ENOENT: isize = 2;
pub const EACCES: isize = 13;
pub const EEXIST: isize = 17;
pub const ENOTDIR: isize = 20;
pub const EINVAL: isize = 22;

pub const CLONE_PIDFD: u64 = 0x1000;
pub const CLONE_PARENT: u64 = 0x8000;
pub const CLONE_NEWCGROUP: u64 = 0x0200_0000;
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
pub const SIGCHLD: u64 = 17;

/// `struct clone_args`, up to and with `cgroup`.
#[repr(C)]
#[derive(Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// Makes a child that shares nothing; 0 in the child. `pidfd` is filled in the parent.
#[inline(always)]
pub fn fork(flags: u64, cgroup: u64, pidfd: &mut i32) -> isize {
    let args = CloneArgs {
        flags: flags | CLONE_PIDFD,
        pidfd: pidfd as *mut i32 as u64,
        // A sibling has its maker's; naming one is EINVAL.
        exit_signal: if flags & CLONE_PARENT != 0 { 0 } else { SIGCHLD },
        cgroup,
        ..CloneArgs::default()
    };
    sys!(CLONE3, &raw const args, size_of::<CloneArgs>())
}

/// Ends the process.
pub fn exit(code: i32) -> ! {
    loop {
        sys!(EXIT_GROUP, code);
    }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    sys!(CLOSE, fd);
}

/// Opens `path` (ends with a zero byte); a negative result is `-errno`.
pub fn open(path: &[u8], flags: usize, mode: usize) -> isize {
    sys!(OPENAT, AT_FDCWD, zero_ended(path), flags | O_CLOEXEC, mode)
}

/// The address of a byte string that ends with a zero byte.
pub fn zero_ended(path: &[u8]) -> *const u8 {
    if path.last() != Some(&0) {
        exit(125);
    }
    path.as_ptr()
}

/// `struct pollfd`.
#[repr(C)]
pub struct Poll {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

#[repr(C)]
struct IoVec {
    base: *mut u8,
    len: usize,
}

#[repr(C)]
struct MsgHdr {
    name: usize,
    name_len: u32,
    iov: *mut IoVec,
    iov_len: usize,
    control: *mut u8,
    control_len: usize,
    flags: i32,
}

const CMSG_HEAD: usize = 16;
const FDS_MAX: usize = crate::protocol::MESSAGE_FDS_MAX;

#[repr(C, align(8))]
struct Control {
    bytes: [u8; CMSG_HEAD + FDS_MAX * 4],
}

const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;

/// Receives one message and its descriptors. The first is the number of bytes (0: the other side is gone) or `-errno`.
pub fn receive(socket: i32, bytes: &mut [u8], fds: &mut [i32; FDS_MAX]) -> (isize, usize) {
    let mut control = Control {
        bytes: [0; CMSG_HEAD + FDS_MAX * 4],
    };
    let mut iov = IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    };
    let mut head = MsgHdr {
        name: 0,
        name_len: 0,
        iov: &raw mut iov,
        iov_len: 1,
        control: (&raw mut control.bytes).cast(),
        control_len: control.bytes.len(),
        flags: 0,
    };
    let got = sys!(RECVMSG, socket, &raw mut head, MSG_CMSG_CLOEXEC);
    if got < 0 || head.control_len < CMSG_HEAD {
        return (got, 0);
    }
    let held = usize::from(control.bytes[0]) | usize::from(control.bytes[1]) << 8;
    let mut count = 0;
    while count < FDS_MAX && CMSG_HEAD + (count + 1) * 4 <= held {
        let at = CMSG_HEAD + count * 4;
        let b = &control.bytes;
        fds[count] = i32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        count += 1;
    }
    (got, count)
}

/// Sends one message of words and descriptors without ever waiting.
pub fn send(socket: i32, words: &[u32], fds: &[i32]) -> isize {
    let mut control = Control {
        bytes: [0; CMSG_HEAD + FDS_MAX * 4],
    };
    let held = CMSG_HEAD + fds.len() * 4;
    control.bytes[0] = held as u8;
    control.bytes[1] = (held >> 8) as u8;
    control.bytes[8] = 1; // SOL_SOCKET
    control.bytes[12] = 1; // SCM_RIGHTS
    for (index, fd) in fds.iter().enumerate() {
        let at = CMSG_HEAD + index * 4;
        control.bytes[at..at + 4].copy_from_slice(&fd.to_le_bytes());
    }
    let mut iov = IoVec {
        base: words.as_ptr().cast_mut().cast(),
        len: size_of_val(words),
    };
    let with_fds = !fds.is_empty();
    let head = MsgHdr {
        name: 0,
        name_len: 0,
        iov: &raw mut iov,
        iov_len: 1,
        control: if with_fds {
            (&raw mut control.bytes).cast()
        } else {
            core::ptr::null_mut()
        },
        control_len: if with_fds { held } else { 0 },
        flags: 0,
    };
    sys!(SENDMSG, socket, &raw const head, MSG_DONTWAIT | MSG_NOSIGNAL)
}

/// A little-endian word of a message.
pub fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    if at + 4 > bytes.len() {
        return 0;
    }
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Index of a stage by its name; `0` (unknown) when it is not in the table.
pub const fn stage(name: &str) -> u32 {
    let mut index = 0;
    while index < crate::protocol::STAGES.len() {
        let (left, right) = (crate::protocol::STAGES[index].as_bytes(), name.as_bytes());
        if left.len() == right.len() {
            let mut at = 0;
            while at < left.len() && left[at] == right[at] {
                at += 1;
            }
            if at == left.len() {
                return index as u32;
            }
        }
        index += 1;
    }
    0
}
