//! ptrace: seize, interrupt, resume, registers, signal state. Calls must come from the thread that seized. Never
//! attaches with `PTRACE_ATTACH` (it would send a SIGSTOP) and never sets `PTRACE_O_EXITKILL`: tracees outlive us.

use crate::error::{Result, SysError};

/// General registers in the kernel's order for x86-64 (`struct user_regs_struct`, 27 words).
pub type RawRegisters = [u64; 27];

/// Report clones, forks and execs of the tracee, so that nothing is born unseen while a box is being stopped.
/// Call stops are told from signals (`SIGTRAP | 0x80`).
pub const OPTIONS: usize = (libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD) as usize;
/// With [`OPTIONS`]: injected calls pass the tracee's own seccomp filters.
pub const OPTION_SUSPEND_SECCOMP: usize = libc::PTRACE_O_SUSPEND_SECCOMP as usize;

const NT_X86_XSTATE: usize = 0x202;
const NT_PRSTATUS: usize = 1;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_PEEKSIGINFO: libc::c_uint = 0x4209;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

fn call(name: &'static str, request: libc::c_uint, tid: i32, address: usize, data: usize) -> Result<i64> {
    // SAFETY: every request used in this file either takes plain numbers, or a `data`/`address` pointer to a buffer
    // that the calling function owns for the duration of the call and whose size it states to the kernel.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    if result < 0 {
        Err(SysError::last(name, tid))
    } else {
        Ok(result)
    }
}

/// Attaches without stopping.
///
/// # Errors
/// `EPERM` where somebody else traces it or rights are missing, `ESRCH` where it is gone.
pub fn seize(tid: i32, options: usize) -> Result<()> {
    call("PTRACE_SEIZE", libc::PTRACE_SEIZE, tid, 0, options).map(drop)
}

/// Asks a seized tracee to stop (the stop is reported by `wait`).
///
/// # Errors
/// `ESRCH` where it is gone.
pub fn interrupt(tid: i32) -> Result<()> {
    call("PTRACE_INTERRUPT", libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Resumes a stopped tracee, delivering `signal` (0: none).
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn resume(tid: i32, signal: i32) -> Result<()> {
    call(
        "PTRACE_CONT",
        libc::PTRACE_CONT,
        tid,
        0,
        usize::try_from(signal).unwrap_or(0),
    )
    .map(drop)
}

/// Lets go of a stopped tracee, delivering `signal` (0: none).
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn detach(tid: i32, signal: i32) -> Result<()> {
    call(
        "PTRACE_DETACH",
        libc::PTRACE_DETACH,
        tid,
        0,
        usize::try_from(signal).unwrap_or(0),
    )
    .map(drop)
}

/// General registers.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn registers(tid: i32) -> Result<RawRegisters> {
    let mut out: RawRegisters = [0; 27];
    let mut io = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: size_of::<RawRegisters>(),
    };
    call(
        "PTRACE_GETREGSET",
        libc::PTRACE_GETREGSET,
        tid,
        NT_PRSTATUS,
        &raw mut io as usize,
    )?;
    assert_eq!(io.iov_len, size_of::<RawRegisters>(), "a 64-bit task");
    Ok(out)
}

/// Sets the general registers.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn set_registers(tid: i32, registers: &RawRegisters) -> Result<()> {
    let mut copy = *registers;
    let mut io = libc::iovec {
        iov_base: copy.as_mut_ptr().cast(),
        iov_len: size_of::<RawRegisters>(),
    };
    call(
        "PTRACE_SETREGSET",
        libc::PTRACE_SETREGSET,
        tid,
        NT_PRSTATUS,
        &raw mut io as usize,
    )
    .map(drop)
}

/// The XSAVE area (FP, SSE, AVX, AVX-512, PKRU …), verbatim, into `buffer`; its size in bytes.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn xstate(tid: i32, buffer: &mut [u8]) -> Result<usize> {
    let mut io = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    call(
        "PTRACE_GETREGSET",
        libc::PTRACE_GETREGSET,
        tid,
        NT_X86_XSTATE,
        &raw mut io as usize,
    )?;
    assert!(
        io.iov_len <= buffer.len(),
        "the kernel never writes past the length it was given"
    );
    Ok(io.iov_len)
}

/// Sets the XSAVE area from [`xstate`]'s bytes.
///
/// # Errors
/// `EINVAL` where the bytes come from a processor with other features.
pub fn set_xstate(tid: i32, bytes: &[u8]) -> Result<()> {
    let mut io = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    call(
        "PTRACE_SETREGSET",
        libc::PTRACE_SETREGSET,
        tid,
        NT_X86_XSTATE,
        &raw mut io as usize,
    )
    .map(drop)
}

/// Blocked signals; inside `ppoll`, `sigsuspend` and their like the saved mask.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn signal_mask(tid: i32) -> Result<u64> {
    let mut mask = 0u64;
    call(
        "PTRACE_GETSIGMASK",
        PTRACE_GETSIGMASK,
        tid,
        size_of::<u64>(),
        &raw mut mask as usize,
    )?;
    Ok(mask)
}

/// Sets the blocked signals; a call that had swapped its mask must be entered again after this.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn set_signal_mask(tid: i32, mask: u64) -> Result<()> {
    call(
        "PTRACE_SETSIGMASK",
        PTRACE_SETSIGMASK,
        tid,
        size_of::<u64>(),
        &raw const mask as usize,
    )
    .map(drop)
}

/// Queued signals without taking them: the thread's own, or those of its process.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn peek_signals(tid: i32, of_process: bool) -> Result<Vec<[u8; 128]>> {
    #[repr(C)]
    struct Arguments {
        offset: u64,
        flags: u32,
        count: i32,
    }
    const CHUNK: usize = 32;
    let mut all = Vec::new();
    loop {
        let mut chunk = [[0u8; 128]; CHUNK];
        let arguments = Arguments {
            offset: all.len() as u64,
            flags: u32::from(of_process),
            count: i32::try_from(CHUNK).expect("small"),
        };
        let count = call(
            "PTRACE_PEEKSIGINFO",
            PTRACE_PEEKSIGINFO,
            tid,
            &raw const arguments as usize,
            chunk.as_mut_ptr() as usize,
        )?;
        let count = usize::try_from(count).expect("checked to be positive");
        assert!(count <= CHUNK, "the kernel never writes more than asked for");
        all.extend_from_slice(&chunk[..count]);
        if count < CHUNK {
            return Ok(all);
        }
    }
}

/// Restartable sequences registration: address, size, signature; address 0 where there is none.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn rseq(tid: i32) -> Result<(u64, u32, u32)> {
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        pointer: u64,
        size: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut out = Configuration::default();
    call(
        "PTRACE_GET_RSEQ_CONFIGURATION",
        PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<Configuration>(),
        &raw mut out as usize,
    )?;
    Ok((out.pointer, out.size, out.signature))
}

/// The tid of a child reported by a clone, fork or vfork event; the old tid at an exec event.
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    call(
        "PTRACE_GETEVENTMSG",
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        &raw mut message as usize,
    )?;
    Ok(message)
}

/// What `wait` said of a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Stopped for ptrace: `PTRACE_EVENT_*` number (0 for a signal-delivery stop) and signal.
    Stopped {
        /// `PTRACE_EVENT_*`, 0 where a signal is about to be delivered.
        event: i32,
        /// The signal of the stop.
        signal: i32,
    },
    /// It is gone; exit code or `128 + signal`.
    Gone(i32),
}

/// Waits for any tracee of this thread. `block` off: `None` where nothing has happened yet. With `block`, `None`
/// means that a signal interrupted the wait.
///
/// # Errors
/// `ECHILD` where this thread traces nothing.
pub fn wait(tid: i32, block: bool) -> Result<Option<(i32, Waited)>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    // SAFETY: `status` outlives the call, which writes one int to it.
    let got = unsafe { libc::waitpid(tid, &raw mut status, flags) };
    match got {
        0 => Ok(None),
        got if got > 0 => Ok(Some((got, decode(status)))),
        _ => {
            let error = SysError::last("waitpid", tid);
            if error.errno == libc::EINTR {
                Ok(None)
            } else {
                Err(error)
            }
        }
    }
}

fn decode(status: i32) -> Waited {
    if libc::WIFSTOPPED(status) {
        Waited::Stopped {
            event: status >> 16,
            signal: libc::WSTOPSIG(status),
        }
    } else if libc::WIFSIGNALED(status) {
        Waited::Gone(128 + libc::WTERMSIG(status))
    } else {
        Waited::Gone(libc::WEXITSTATUS(status))
    }
}

/// Sends a signal to one process by pid.
///
/// # Errors
/// `ESRCH` where it is gone.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: plain numbers.
    if unsafe { libc::kill(pid, signal) } < 0 {
        Err(SysError::last("kill", pid))
    } else {
        Ok(())
    }
}

/// `get_robust_list(2)` of any task.
///
/// # Errors
/// `ESRCH` where it is gone.
pub fn robust_list(tid: i32) -> Result<(u64, u64)> {
    let (mut head, mut len) = (0u64, 0u64);
    // SAFETY: both pointers are to live words that the call writes.
    let result = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    if result < 0 {
        Err(SysError::last("get_robust_list", tid))
    } else {
        Ok((head, len))
    }
}

/// How two descriptors compare: `Ok(true)` where both are one open file description.
///
/// # Errors
/// `EBADF` where one is closed.
pub fn same_file(pid: i32, fd: u32, other_pid: i32, other_fd: u32) -> Result<bool> {
    const KCMP_FILE: i32 = 0;
    // SAFETY: plain numbers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            pid,
            other_pid,
            KCMP_FILE,
            u64::from(fd),
            u64::from(other_fd),
        )
    };
    if result < 0 {
        Err(SysError::last("kcmp", format!("{pid}:{fd} {other_pid}:{other_fd}")))
    } else {
        Ok(result == 0)
    }
}

/// Which resource two tasks are asked to share.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub enum Resource {
    /// Address space.
    Memory = 1,
    /// Descriptor table.
    Files = 2,
}

/// True where two tasks share `resource`.
///
/// # Errors
/// `ESRCH` where one is gone.
pub fn shares(pid: i32, other: i32, resource: Resource) -> Result<bool> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, pid, other, resource as i32, 0u64, 0u64) };
    if result < 0 {
        Err(SysError::last("kcmp", format!("{pid} {other}")))
    } else {
        Ok(result == 0)
    }
}

/// Resumes a stopped tracee until it enters or leaves a system call (needs [`OPTIONS`]).
///
/// # Errors
/// `ESRCH` where it is gone or not stopped.
pub fn resume_to_call(tid: i32) -> Result<()> {
    call("PTRACE_SYSCALL", libc::PTRACE_SYSCALL, tid, 0, 0).map(drop)
}
