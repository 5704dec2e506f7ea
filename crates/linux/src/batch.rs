//! Code that runs inside a stopped tracee: a loop over a table of system calls and copies of pages. It is position
//! independent, uses no stack, calls nothing, and ends by sending [`END_SIGNAL`] to itself, which the tracer sees as a
//! stop and never lets through: a stop on the signal path, from which the kernel restarts an interrupted call by
//! itself. It is only bytes here; nothing in this process ever runs it.
//!
//! Registers at the start: `rbx` table, `r13` results, `r14` status words (done, progress). An entry is eight words:
//! call number, six arguments, flags ([`SAVED_AS_FIRST`] …). Numbers below zero are copies and the end.

use std::arch::global_asm;

/// Entry kind: copy pages out. Arguments: list of addresses, count, destination.
pub const GATHER: u64 = (-2i64).cast_unsigned();
/// Entry kind: the end. Arguments: pid and tid of the thread that runs it, as it sees them.
pub const END: u64 = (-3i64).cast_unsigned();
/// The signal by which a table ends. A bad page raises it too, so injected code runs with it unblocked in any case.
pub const END_SIGNAL: i32 = libc::SIGSEGV;
/// Flag: the saved value is the first argument.
pub const SAVED_AS_FIRST: u64 = 1;
/// Flag: save the result.
pub const SAVE: u64 = 2;
/// Flag: the saved value is the fifth argument.
pub const SAVED_AS_FIFTH: u64 = 4;

global_asm!(
    ".pushsection .rodata.deltabox_batch, \"a\", @progbits",
    ".globl deltabox_batch_start",
    ".globl deltabox_batch_gathered",
    ".globl deltabox_batch_ended",
    ".globl deltabox_batch_end",
    "deltabox_batch_start:",
    "20:",
    "mov rax, [rbx]",
    "cmp rax, -2",
    "je 23f",
    "cmp rax, -3",
    "je 29f",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "mov r15, [rbx + 56]",
    "test r15b, 1",
    "cmovnz rdi, rbp",
    "test r15b, 4",
    "cmovnz r8, rbp",
    "syscall",
    "test r15b, 2",
    "cmovnz rbp, rax",
    "mov [r13], rax",
    "21:",
    "add rbx, 64",
    "add r13, 8",
    "jmp 20b",
    // gather
    "23:",
    "mov r8, [rbx + 8]",
    "mov r9, [rbx + 16]",
    "mov rdi, [rbx + 24]",
    "xor r10d, r10d",
    "24:",
    "cmp r10, r9",
    "je 27f",
    "mov rsi, [r8 + r10*8]",
    "mov ecx, 4096",
    "rep movsb",
    "deltabox_batch_gathered:",
    "inc r10",
    "mov [r14 + 8], r10",
    "jmp 24b",
    "27:",
    "mov [r13], r10",
    "jmp 21b",
    // end: tgkill
    "29:",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov edx, {signal}",
    "mov eax, 234",
    "mov qword ptr [r14], 1",
    "syscall",
    "deltabox_batch_ended:",
    "ud2",
    "deltabox_batch_end:",
    ".popsection",
    signal = const libc::SIGSEGV,
);

unsafe extern "C" {
    static deltabox_batch_start: u8;
    static deltabox_batch_gathered: u8;
    static deltabox_batch_ended: u8;
    static deltabox_batch_end: u8;
}

fn offset(symbol: *const u8) -> usize {
    symbol.addr() - (&raw const deltabox_batch_start).addr()
}

/// The code.
pub fn code() -> &'static [u8] {
    let length = offset(&raw const deltabox_batch_end);
    // SAFETY: the assembly above places `start` and `end` around initialised read-only bytes of one section, alive
    // for the whole program.
    unsafe { std::slice::from_raw_parts(&raw const deltabox_batch_start, length) }
}

/// Offset at which a thread stands when its table is done.
pub fn ended() -> usize {
    offset(&raw const deltabox_batch_ended)
}

/// Offset behind the copy of a page out (where it goes on after a page that could not be read).
pub fn gathered() -> usize {
    offset(&raw const deltabox_batch_gathered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_small_and_ends_behind_a_call() {
        assert!(code().len() < 512, "fits its page with room to spare");
        assert_eq!(&code()[ended() - 2..], [0x0f, 0x05, 0x0f, 0x0b], "syscall, ud2");
    }
}
