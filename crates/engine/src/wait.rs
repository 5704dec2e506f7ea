//! Interrupted waits. A stop must not be seen: most calls are restarted by the kernel itself with the time that is
//! left, a few (`epoll_wait` and its like) return `EINTR` after any stop, and after a rollback none of the kernel's
//! own bookkeeping is there. Those are entered again through a trampoline: the call with what is left of its relative
//! time-out, then the argument register as it was, then back behind the call. Never changes memory of the program.

use image::thread::{Registers, Wait};
use linux::ptrace::RawRegisters;

use crate::remote::{ORIG_RAX, R8, R10, RAX, RDI, RDX, RIP, RSI, TRAMPOLINE_SIZE, TRAMPOLINE_TIMEOUT};

/// Where a call keeps its relative time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timeout {
    /// A register holds a pointer to a `struct timespec`.
    Pointer(usize),
    /// A register holds milliseconds; negative is for ever.
    Milliseconds(usize),
}

/// The waiting calls with a relative time-out that the kernel does not write back itself.
fn timeout_of(call: u64, registers: &RawRegisters) -> Option<Timeout> {
    const CLOCK_ABSOLUTE: u64 = 1;
    const FUTEX_COMMAND: u64 = 0x7f;
    let place = match i64::try_from(call).ok()? {
        libc::SYS_nanosleep => Timeout::Pointer(RDI),
        libc::SYS_clock_nanosleep if registers[RSI] & CLOCK_ABSOLUTE == 0 => Timeout::Pointer(RDX),
        libc::SYS_poll => Timeout::Milliseconds(RDX),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Timeout::Milliseconds(R10),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => Timeout::Pointer(R10),
        libc::SYS_futex if registers[RSI] & FUTEX_COMMAND == 0 => Timeout::Pointer(R10),
        libc::SYS_rt_sigtimedwait => Timeout::Pointer(RDX),
        libc::SYS_io_getevents => Timeout::Pointer(R8),
        _ => return None,
    };
    match place {
        Timeout::Pointer(register) if registers[register] == 0 => None,
        Timeout::Milliseconds(register) if registers[register] & 0x8000_0000 != 0 => None,
        place => Some(place),
    }
}

/// Calls that return `EINTR` after a stop although no signal came.
fn returns_eintr(call: u64) -> bool {
    matches!(
        i64::try_from(call).unwrap_or(-1),
        libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_io_getevents
            | libc::SYS_read
            | libc::SYS_msgrcv
            | libc::SYS_msgsnd
    )
}

/// How a thread stands in a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In none, or at its end.
    Outside,
    /// In one that the kernel will restart by itself when the thread goes on from this stop.
    Restarts {
        /// Its number.
        call: u64,
    },
    /// In one that would return `EINTR`.
    Interrupted {
        /// Its number.
        call: u64,
    },
}

/// How a thread with `raw` registers stands; `signal` says whether a signal waits that it does not block.
pub(crate) fn standing(raw: &RawRegisters, signal: bool) -> Standing {
    let call = raw[ORIG_RAX];
    if i64::from_ne_bytes(call.to_ne_bytes()) < 0 {
        return Standing::Outside;
    }
    match i64::from_ne_bytes(raw[RAX].to_ne_bytes()) {
        -516 | -514..=-512 => Standing::Restarts { call },
        -4 if returns_eintr(call) && !signal => Standing::Interrupted { call },
        _ => Standing::Outside,
    }
}

/// The registers from which the thread can simply be run: standing on the call's instruction.
pub(crate) fn on_the_call(raw: &RawRegisters, call: u64) -> RawRegisters {
    let mut registers = *raw;
    registers[RIP] -= 2;
    registers[RAX] = call;
    registers[ORIG_RAX] = u64::MAX;
    registers
}

/// The whole relative time-out of the call that `registers` (standing on or in it) make, in nanoseconds. `read`
/// fetches sixteen bytes from the program's memory.
pub(crate) fn whole_timeout_ns(
    call: u64,
    registers: &RawRegisters,
    read: impl FnOnce(u64) -> Option<[u8; 16]>,
) -> Option<u64> {
    match timeout_of(call, registers)? {
        Timeout::Milliseconds(register) => Some((registers[register] & 0x7fff_ffff) * 1_000_000),
        Timeout::Pointer(register) => {
            let bytes = read(registers[register])?;
            let seconds = i64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"));
            let nanoseconds = i64::from_ne_bytes(bytes[8..].try_into().expect("eight bytes"));
            let seconds = u64::try_from(seconds).ok()?;
            seconds
                .checked_mul(1_000_000_000)?
                .checked_add(u64::try_from(nanoseconds).ok()?)
        }
    }
}

/// Parses a line of `/proc/PID/task/TID/syscall` into what [`whole_timeout_ns`] wants.
pub(crate) fn parse_call(line: &[u8]) -> Option<(u64, RawRegisters)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split_ascii_whitespace();
    let call = words.next()?.parse().ok()?;
    let mut registers = [0; 27];
    for register in [RDI, RSI, RDX, R10, R8] {
        registers[register] = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((call, registers))
}

/// A thread that waits through a trampoline.
#[derive(Debug, Clone)]
pub(crate) struct Trampoline {
    /// Which one.
    pub(crate) index: usize,
    /// Its address.
    pub(crate) entry: u64,
    /// The registers that stand on the program's own call.
    pub(crate) canonical: RawRegisters,
}

/// Code and data of a trampoline for `canonical` (which stand on `call`) with `remaining_ns` left, and the registers
/// that enter it. `None` where the call has no relative time-out.
pub(crate) fn trampoline(
    address: u64,
    call: u64,
    canonical: &RawRegisters,
    remaining_ns: u64,
) -> Option<([u8; TRAMPOLINE_SIZE], RawRegisters)> {
    let place = timeout_of(call, canonical)?;
    let mut entered = *canonical;
    let register = match place {
        Timeout::Milliseconds(register) => {
            entered[register] = remaining_ns.div_ceil(1_000_000).min(0x7fff_ffff);
            register
        }
        Timeout::Pointer(register) => {
            entered[register] = address + TRAMPOLINE_TIMEOUT as u64;
            register
        }
    };
    entered[RIP] = address;
    let mut bytes = [0xcc; TRAMPOLINE_SIZE];
    let load: [u8; 2] = match register {
        RDX => [0x48, 0xba],
        RDI => [0x48, 0xbf],
        R10 => [0x49, 0xba],
        R8 => [0x49, 0xb8],
        _ => return None,
    };
    bytes[..2].copy_from_slice(&[0x0f, 0x05]);
    bytes[2..4].copy_from_slice(&load);
    bytes[4..12].copy_from_slice(&canonical[register].to_le_bytes());
    bytes[12..18].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    bytes[18..26].copy_from_slice(&(canonical[RIP] + 2).to_le_bytes());
    bytes[TRAMPOLINE_TIMEOUT..TRAMPOLINE_TIMEOUT + 8].copy_from_slice(&(remaining_ns / 1_000_000_000).to_le_bytes());
    bytes[TRAMPOLINE_TIMEOUT + 8..TRAMPOLINE_TIMEOUT + 16]
        .copy_from_slice(&(remaining_ns % 1_000_000_000).to_le_bytes());
    Some((bytes, entered))
}

/// What a thread found at byte `offset` of its trampoline stands for: registers as if it had never been there, and
/// whether it is still in (or before) the call.
pub(crate) fn leave_trampoline(trampoline: &Trampoline, raw: &RawRegisters, offset: usize) -> RawRegisters {
    let canonical = &trampoline.canonical;
    let mut registers = *raw;
    for register in [RDI, RDX, R10, R8] {
        registers[register] = canonical[register];
    }
    // At the instruction itself the call has not been made; behind it (in the call, or done) the program stands
    // behind its own.
    registers[RIP] = if offset == 0 {
        canonical[RIP]
    } else {
        canonical[RIP] + 2
    };
    registers
}

/// Plain registers as the image keeps them.
pub(crate) fn to_image(raw: &RawRegisters) -> Registers {
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    ] = *raw;
    Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    }
}

/// And back.
pub(crate) fn from_image(r: &Registers) -> RawRegisters {
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi,
        r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds, r.es, r.fs, r.gs,
    ]
}

/// What the image says of a wait.
pub(crate) fn wait_image(call: u64, remaining_ns: Option<u64>) -> Wait {
    Wait { call, remaining_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanosleep() -> RawRegisters {
        let mut raw = [0; 27];
        raw[ORIG_RAX] = 35;
        raw[RAX] = u64::from_ne_bytes((-516i64).to_ne_bytes());
        raw[RDI] = 0x1000;
        raw[RIP] = 0x4002;
        raw
    }

    #[test]
    fn a_restarted_call_stands_on_its_instruction() {
        let raw = nanosleep();
        assert_eq!(standing(&raw, false), Standing::Restarts { call: 35 });
        let canonical = on_the_call(&raw, 35);
        assert_eq!(
            (canonical[RIP], canonical[RAX], canonical[ORIG_RAX]),
            (0x4000, 35, u64::MAX)
        );
    }

    /// epoll_wait answers EINTR to any stop; with a signal under way that EINTR is the program's own.
    #[test]
    fn eintr_belongs_to_a_signal_if_one_waits() {
        let mut raw = nanosleep();
        raw[ORIG_RAX] = 232;
        raw[RAX] = u64::from_ne_bytes((-4i64).to_ne_bytes());
        assert_eq!(standing(&raw, false), Standing::Interrupted { call: 232 });
        assert_eq!(standing(&raw, true), Standing::Outside);
    }

    #[test]
    fn through_a_trampoline_and_out_again() {
        let canonical = on_the_call(&nanosleep(), 35);
        let (bytes, entered) = trampoline(0x9000, 35, &canonical, 1_500_000_000).expect("has a time-out");
        assert_eq!((entered[RIP], entered[RDI]), (0x9000, 0x9000 + 96));
        assert_eq!(bytes[96..104], 1u64.to_le_bytes());
        let t = Trampoline {
            index: 0,
            entry: 0x9000,
            canonical,
        };
        let out = leave_trampoline(&t, &entered, 0);
        assert_eq!(out, canonical);
        let mut done = entered;
        done[RIP] = 0x9002;
        done[RAX] = 0;
        let out = leave_trampoline(&t, &done, 2);
        assert_eq!((out[RIP], out[RDI], out[RAX]), (0x4002, 0x1000, 0));
    }
}
