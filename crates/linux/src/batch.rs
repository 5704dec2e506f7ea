//! Code that runs inside a stopped tracee: a loop over a table of system calls and page copies. It is position
//! independent, uses no stack, calls nothing, and ends by setting a word and spinning, so that the tracer can stop it
//! with `PTRACE_INTERRUPT`: a stop on the signal path, from which the kernel restarts an interrupted call by itself.
//! It is only bytes here; nothing in this process ever runs it.
//!
//! Registers at the start: `rbx` table, `r12` number of entries, `r13` results, `r14` status words (done, progress).
//! An entry is eight words: call number, six arguments, flags ([`SAVED_AS_FIRST`] …). Numbers below zero are copies.

use std::arch::global_asm;

/// Entry kind: copy pages out. Arguments: list of addresses, count, destination.
pub const GATHER: u64 = (-2i64).cast_unsigned();
/// Entry kind: copy pages in. Arguments: list of addresses, count, source.
pub const SCATTER: u64 = (-3i64).cast_unsigned();
/// Entry kind: wait until a word is at least a value. Arguments: address of the word, value.
pub const AWAIT: u64 = (-4i64).cast_unsigned();
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
    ".globl deltabox_batch_scattered",
    ".globl deltabox_batch_spin",
    ".globl deltabox_batch_end",
    "deltabox_batch_start:",
    "20:",
    "test r12, r12",
    "jz 29f",
    "mov rax, [rbx]",
    "cmp rax, -2",
    "je 23f",
    "cmp rax, -3",
    "je 25f",
    "cmp rax, -4",
    "je 28f",
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
    "dec r12",
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
    // scatter
    "25:",
    "mov r8, [rbx + 8]",
    "mov r9, [rbx + 16]",
    "mov rsi, [rbx + 24]",
    "xor r10d, r10d",
    "26:",
    "cmp r10, r9",
    "je 27f",
    "mov rdi, [r8 + r10*8]",
    "mov ecx, 4096",
    "rep movsb",
    "deltabox_batch_scattered:",
    "inc r10",
    "mov [r14 + 8], r10",
    "jmp 26b",
    "27:",
    "mov [r13], r10",
    "jmp 21b",
    // await
    "28:",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "22:",
    "cmp [rsi], rdx",
    "jae 21b",
    "pause",
    "jmp 22b",
    "29:",
    "mov qword ptr [r14], 1",
    "deltabox_batch_spin:",
    "pause",
    "jmp deltabox_batch_spin",
    "deltabox_batch_end:",
    ".popsection",
);

unsafe extern "C" {
    static deltabox_batch_start: u8;
    static deltabox_batch_gathered: u8;
    static deltabox_batch_scattered: u8;
    static deltabox_batch_spin: u8;
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

/// Offset of the loop that it ends in; and one past it.
pub fn spin() -> std::ops::Range<usize> {
    offset(&raw const deltabox_batch_spin)..offset(&raw const deltabox_batch_end)
}

/// Offset behind the copy of a page out (where it goes on after a page that could not be read).
pub fn gathered() -> usize {
    offset(&raw const deltabox_batch_gathered)
}

/// Offset behind the copy of a page in.
pub fn scattered() -> usize {
    offset(&raw const deltabox_batch_scattered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_small_and_ends_in_the_loop() {
        assert!(code().len() < 512, "fits its page with room to spare");
        assert_eq!(spin().end, code().len());
        assert_eq!(&code()[spin()][..2], [0xf3, 0x90], "pause");
    }
}
