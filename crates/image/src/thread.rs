//! A thread as plain data. Registers are kept as the kernel's blobs, verbatim; never rebuilt by hand.

use std::sync::Arc;

use crate::signal::{AltStack, Queued};

/// `struct user_regs_struct` of x86-64, in the kernel's order (27 words).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are the processor's")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// Restartable sequences registration (`PTRACE_GET_RSEQ_CONFIGURATION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rseq {
    /// Address of the area; 0 when not registered.
    pub address: u64,
    /// Size given at registration.
    pub size: u32,
    /// Signature.
    pub signature: u32,
}

/// What a thread was waiting for when it was stopped inside a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Number of the call.
    pub call: u64,
    /// What is left of a relative time-out, in nanoseconds; `None` where the call has none (or it is absolute, or the
    /// kernel itself keeps it in the caller's memory).
    pub remaining_ns: Option<u64>,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Tid inside the box.
    pub tid: u32,
    /// Name.
    pub comm: [u8; 16],
    /// General registers, in the form from which it can simply be run: inside a call they stand on the call itself.
    pub registers: Registers,
    /// XSAVE area, verbatim.
    pub xstate: Arc<[u8]>,
    /// Blocked signals (the saved mask inside `ppoll` and its like).
    pub mask: u64,
    /// Its own queue.
    pub pending: Vec<Queued>,
    /// Alternate signal stack.
    pub altstack: AltStack,
    /// `set_tid_address`.
    pub clear_tid: u64,
    /// Robust futex list head and length.
    pub robust: (u64, u64),
    /// Restartable sequences.
    pub rseq: Rseq,
    /// The call it is in, if any.
    pub wait: Option<Wait>,
}
