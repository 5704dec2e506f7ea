//! Threads: registers, mask, queue, waits. Reads them, and arranges that a stop is not seen afterwards; changes
//! nothing else.

use std::sync::Arc;

use image::signal::{AltStack, Queued};
use image::thread::{Rseq, Thread};
use linux::ptrace;

use crate::error::EngineError;
use crate::remote::{self, Annex, Batch, RIP, ORIG_RAX, Results, Room};
use crate::tracee::{LiveThread, Space, StoppedThread};
use crate::wait::{self, Standing};

/// What must be asked inside the thread itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    altstack: Room,
    clear_tid: Room,
}

/// Adds the questions that only the thread can answer.
pub(crate) fn ask(batch: &mut Batch) -> Asked {
    const PR_GET_TID_ADDRESS: u64 = 40;
    let (altstack, clear_tid) = (batch.room(24), batch.room(8));
    batch.call(libc::SYS_sigaltstack, [0, altstack.address, 0, 0, 0, 0]);
    batch.call(libc::SYS_prctl, [PR_GET_TID_ADDRESS, clear_tid.address, 0, 0, 0, 0]);
    Asked { altstack, clear_tid }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn answers(annex: &Annex, asked: Asked) -> (AltStack, u64) {
    let bytes = remote::answer(annex, asked.altstack);
    let altstack =
        AltStack { sp: word(&bytes, 0), flags: word(&bytes, 8) & 0xffff_ffff, size: word(&bytes, 16) };
    (altstack, word(&remote::answer(annex, asked.clear_tid), 0))
}

/// Signals of `queue` that `mask` does not block.
pub(crate) fn unblocked(queue: &[Queued], mask: u64) -> bool {
    queue.iter().any(|q| u32::try_from(q.number() - 1).is_ok_and(|bit| bit < 64 && mask >> bit & 1 == 0))
}

/// Captures one thread whose questions were answered, and readies it to go on unseen.
pub(crate) fn capture(
    space: &mut Space,
    live: &mut LiveThread,
    stopped: &mut StoppedThread,
    process_pending: &[Queued],
    asked: Asked,
    now_ns: Option<u64>,
    free_trampoline: &mut dyn FnMut() -> usize,
) -> Result<Arc<Thread>, EngineError> {
    let tid = stopped.host_tid;
    let (altstack, clear_tid) = answers(&space.annex, asked);
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
            let call = if i64::try_from(call) == Ok(libc::SYS_restart_syscall) { note.map_or(call, |n| n.call) } else { call };
            let remaining = note.filter(|n| n.call == call).and_then(|n| Some(n.end_ns.saturating_sub(now_ns?)));
            (wait::on_the_call(&raw, call), Some(wait::wait_image(call, remaining)))
        }
    };
    if let (Standing::Interrupted { call }, Some(waited)) = (standing, waited) {
        enter_again(&space.annex, live, stopped, &registers, call, waited.remaining_ns, free_trampoline);
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
    Ok(Arc::new(thread))
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
        if let Some((bytes, entered)) = wait::trampoline(annex.trampoline_address(index), call, canonical, remaining_ns) {
            annex.write_trampoline(index, &bytes);
            live.trampoline = Some(wait::Trampoline { index, canonical: *canonical });
            stopped.set_registers(entered);
            return;
        }
    }
    stopped.set_registers(*canonical);
}

fn rseq(tid: i32) -> Result<Rseq, EngineError> {
    match ptrace::rseq(tid) {
        Ok((address, size, signature)) => Ok(Rseq { address, size, signature }),
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

/// True where every call of `results` that [`ask`] added worked.
pub(crate) fn answered(results: &Results, first: usize) -> Result<(), EngineError> {
    results.expect(first, "sigaltstack", "a thread")?;
    results.expect(first + 1, "PR_GET_TID_ADDRESS", "a thread")?;
    Ok(())
}
