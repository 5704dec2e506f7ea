//! Threads: registers, mask, queue, waits. Reads them, and arranges that a stop is not seen afterwards; changes
//! nothing else.

use std::sync::Arc;

use image::signal::{AltStack, Queued};
use image::thread::{Rseq, Thread};
use linux::ptrace;

use crate::error::EngineError;
use crate::freeze::{Live, Stopped};
use crate::remote::{self, Annex, Batch, ORIG_RAX, RIP, Results, Room};
use crate::tracee::{LiveThread, Space, StoppedThread};
use crate::wait::{self, Standing};

/// What must be asked inside the thread itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    first: usize,
    altstack: Room,
    clear_tid: Room,
}

/// Adds the questions that only the thread can answer.
pub(crate) fn ask(batch: &mut Batch) -> Asked {
    const PR_GET_TID_ADDRESS: u64 = 40;
    let (altstack, clear_tid) = (batch.room(24), batch.room(8));
    let first = batch.call(libc::SYS_sigaltstack, [0, altstack.address, 0, 0, 0, 0]);
    batch.call(libc::SYS_prctl, [PR_GET_TID_ADDRESS, clear_tid.address, 0, 0, 0, 0]);
    Asked {
        first,
        altstack,
        clear_tid,
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What a thread answered: alternate stack and `clear_child_tid`.
pub(crate) type Answers = (AltStack, u64);

/// Reads the answers to [`ask`].
pub(crate) fn answers(annex: &Annex, asked: Asked, results: &Results) -> Result<Answers, EngineError> {
    results.expect(asked.first, "sigaltstack", "a thread")?;
    results.expect(asked.first + 1, "PR_GET_TID_ADDRESS", "a thread")?;
    let bytes = remote::answer(annex, asked.altstack);
    let altstack = AltStack {
        sp: word(&bytes, 0),
        flags: word(&bytes, 8) & 0xffff_ffff,
        size: word(&bytes, 16),
    };
    Ok((altstack, word(&remote::answer(annex, asked.clear_tid), 0)))
}

/// Signals of `queue` that `mask` does not block.
pub(crate) fn unblocked(queue: &[Queued], mask: u64) -> bool {
    queue
        .iter()
        .any(|q| u32::try_from(q.number() - 1).is_ok_and(|bit| bit < 64 && mask >> bit & 1 == 0))
}

/// Captures one thread whose questions were answered, and readies it to go on unseen.
pub(crate) fn capture(
    space: &mut Space,
    live: &mut LiveThread,
    stopped: &mut StoppedThread,
    process_pending: &[Queued],
    (altstack, clear_tid): Answers,
    now_ns: Option<u64>,
    free_trampoline: &mut dyn FnMut() -> usize,
) -> Result<Arc<Thread>, EngineError> {
    let tid = stopped.host_tid;
    let pending: Vec<Queued> = ptrace::peek_signals(tid, false)?.into_iter().map(Queued).collect();
    let rseq = rseq(tid)?;
    leave_rseq_section(space, stopped, rseq)?;
    let mut raw = stopped.raw;
    match (space.annex.trampoline_at(raw[RIP]), &live.trampoline) {
        (Some((index, offset)), Some(trampoline)) if trampoline.index == index => {
            raw = wait::leave_trampoline(trampoline, &raw, offset);
        }
        _ => live.trampoline = None,
    }
    let signal = unblocked(&pending, stopped.mask) || unblocked(process_pending, stopped.mask);
    let standing = wait::standing(&raw, signal);
    let (registers, waited) = match standing {
        Standing::Outside => {
            raw[ORIG_RAX] = u64::MAX;
            (raw, None)
        }
        Standing::Restarts { call } | Standing::Interrupted { call } => {
            let note = live.waiting.as_ref();
            let call = if i64::try_from(call) == Ok(libc::SYS_restart_syscall) {
                note.map_or(call, |n| n.call)
            } else {
                call
            };
            let remaining = note
                .filter(|n| n.call == call)
                .and_then(|n| Some(n.end_ns.saturating_sub(now_ns?)));
            (wait::on_the_call(&raw, call), Some(wait::wait_image(call, remaining)))
        }
    };
    if let (Standing::Interrupted { call }, Some(waited)) = (standing, waited) {
        enter_again(
            &space.annex,
            live,
            stopped,
            &registers,
            call,
            waited.remaining_ns,
            free_trampoline,
        );
    }
    let mut comm = [0; 16];
    let mut text = Vec::new();
    live.dir.read("comm", &mut text)?;
    let name = text.trim_ascii_end();
    comm[..name.len().min(15)].copy_from_slice(&name[..name.len().min(15)]);
    let thread = Thread {
        tid: live.tid,
        comm,
        registers: wait::to_image(&registers),
        xstate: xstate(tid)?,
        mask: stopped.mask,
        pending,
        altstack,
        clear_tid,
        robust: ptrace::robust_list(tid)?,
        rseq,
        wait: waited,
    };
    let thread = Arc::new(thread);
    // Once to go on after the last stop, and once to come to this one.
    const OURS: u64 = 2;
    let runs = live.run_count(&mut text).unwrap_or(0);
    live.restful = live.image.as_ref().is_some_and(|image| {
        let waits = image.wait.zip(thread.wait);
        let same_wait = waits.is_some_and(|(before, now)| before.call == now.call);
        same_wait && image.registers == thread.registers && runs.saturating_sub(live.runs) <= OURS
    });
    live.runs = runs;
    live.image = Some(thread.clone());
    live.asleep_at = None;
    Ok(thread)
}

/// The image of a thread that was left asleep: as before, but for the time that has gone by.
pub(crate) fn asleep(live: &mut LiveThread, now_ns: Option<u64>) -> Arc<Thread> {
    let image = live.image.as_mut().expect("only a captured thread is left asleep");
    let remaining = live
        .waiting
        .as_ref()
        .and_then(|w| Some(w.end_ns.saturating_sub(now_ns?)));
    if let Some(wait) = image.wait.filter(|w| w.remaining_ns.is_some() && remaining.is_some()) {
        let wait = image::thread::Wait {
            remaining_ns: remaining,
            ..wait
        };
        *image = Arc::new(Thread {
            wait: Some(wait),
            ..(**image).clone()
        });
    }
    image.clone()
}

/// True where a thread sleeps in the very wait of its image.
pub(crate) fn sleeps_as_captured(live: &LiveThread, buffer: &mut Vec<u8>) -> bool {
    let Some(image) = &live.image else { return false };
    let Some(wait) = image.wait else { return false };
    let Some(line) = live.sleeping_call(buffer) else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(&line) else {
        return false;
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (Some(call), Some(sp), Some(pc)) = (words.first(), words.get(7), words.get(8)) else {
        return false;
    };
    let Ok(call) = call.parse::<u64>() else { return false };
    let expected = match &live.trampoline {
        Some(trampoline) => trampoline.entry + 2,
        None => image.registers.rip + 2,
    };
    let same_call = call == wait.call || i64::try_from(call) == Ok(libc::SYS_restart_syscall);
    let r = &image.registers;
    let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    // A trampoline puts one of them elsewhere.
    let same_arguments = live.trampoline.is_some()
        || arguments
            .iter()
            .zip(&words[1..])
            .all(|(wanted, word)| hex(word) == Some(*wanted));
    same_call && same_arguments && hex(sp) == Some(image.registers.rsp) && hex(pc) == Some(expected)
}

/// Makes a thread that would see `EINTR` enter its call again with what is left of its time-out.
pub(crate) fn enter_again(
    annex: &Annex,
    live: &mut LiveThread,
    stopped: &mut StoppedThread,
    canonical: &linux::ptrace::RawRegisters,
    call: u64,
    remaining_ns: Option<u64>,
    free_trampoline: &mut dyn FnMut() -> usize,
) {
    live.trampoline = None;
    if let Some(remaining_ns) = remaining_ns {
        let index = free_trampoline();
        if let Some((bytes, entered)) = wait::trampoline(annex.trampoline_address(index), call, canonical, remaining_ns)
        {
            annex.write_trampoline(index, &bytes);
            live.trampoline = Some(wait::Trampoline {
                index,
                entry: annex.trampoline_address(index),
                canonical: *canonical,
            });
            stopped.set_registers(entered);
            return;
        }
    }
    stopped.set_registers(*canonical);
}

/// Readies every stopped thread that was not captured (or captured and left as it was) to go on as if it had never been
/// stopped.
pub(crate) fn go_on_unseen(live: &mut Live, stopped: &mut Stopped) {
    for (tid, thread) in stopped {
        let Standing::Interrupted { .. } = wait::standing(&thread.raw, false) else {
            continue;
        };
        let signals = |of_process| ptrace::peek_signals(*tid, of_process).unwrap_or_default();
        let queued: Vec<Queued> = signals(false).into_iter().chain(signals(true)).map(Queued).collect();
        let Standing::Interrupted { call } = wait::standing(&thread.raw, unblocked(&queued, thread.mask)) else {
            continue;
        };
        let Some(process) = live.get_mut(&thread.host_pid) else {
            continue;
        };
        let (Some(space), Some(known)) = (&process.space, process.threads.get_mut(tid)) else {
            thread.set_registers(wait::on_the_call(&thread.raw, call));
            continue;
        };
        let raw = match (space.annex.trampoline_at(thread.raw[RIP]), &known.trampoline) {
            (Some((index, offset)), Some(t)) if t.index == index => wait::leave_trampoline(t, &thread.raw, offset),
            _ => thread.raw,
        };
        let canonical = wait::on_the_call(&raw, call);
        let now = linux::sched::monotonic_ns();
        let remaining = known
            .waiting
            .as_ref()
            .filter(|w| w.call == call)
            .map(|w| w.end_ns.saturating_sub(now));
        let mut next = process.next_trampoline;
        let mut free = || {
            next = (next + 1) % remote::TRAMPOLINE_COUNT;
            next
        };
        enter_again(&space.annex, known, thread, &canonical, call, remaining, &mut free);
        process.next_trampoline = next;
    }
}

fn rseq(tid: i32) -> Result<Rseq, EngineError> {
    match ptrace::rseq(tid) {
        Ok((address, size, signature)) => Ok(Rseq {
            address,
            size,
            signature,
        }),
        // Kernels without the request (before 5.13) or without restartable sequences.
        Err(e) if e.errno == libc::EIO || e.errno == libc::EINVAL => Ok(Rseq::default()),
        Err(e) => Err(e.into()),
    }
}

/// A thread stopped inside a restartable sequence starts it over, as the kernel would have made it do: our own code
/// running in between would make the kernel forget the section.
fn leave_rseq_section(space: &Space, stopped: &mut StoppedThread, rseq: Rseq) -> Result<(), EngineError> {
    if rseq.address == 0 {
        return Ok(());
    }
    let mut pointer = [0; 8];
    linux::process_vm::read_forced(&space.memory, rseq.address + 8, &mut pointer)?;
    let section = u64::from_ne_bytes(pointer);
    if section == 0 {
        return Ok(());
    }
    let mut bytes = [0; 32];
    if linux::process_vm::read_forced(&space.memory, section, &mut bytes).is_err() {
        return Ok(());
    }
    let (start, length, abort) = (word(&bytes, 8), word(&bytes, 16), word(&bytes, 24));
    let mut raw = stopped.raw;
    if raw[RIP].wrapping_sub(start) < length {
        raw[RIP] = abort;
        raw[ORIG_RAX] = u64::MAX;
        stopped.set_registers(raw);
    }
    Ok(())
}

fn xstate(tid: i32) -> Result<Arc<[u8]>, EngineError> {
    let mut buffer = [0; 16384];
    let size = ptrace::xstate(tid, &mut buffer)?;
    Ok(Arc::from(&buffer[..size]))
}
