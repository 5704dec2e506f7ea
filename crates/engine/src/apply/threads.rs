//! Thread steps: ends threads that were born since, makes those that ended again under their old number, and sets
//! what each thread goes on with. Registers come last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use image::process::Process;
use image::thread::{Rseq, Thread};
use linux::SysError;
use linux::ptrace::{self, Waited};

use crate::capture::threads::enter_again;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::freeze::Stopped;
use crate::remote::{self, Annex, Batch, RAX, STOP};
use crate::tracee::{LiveProcess, LiveThread, Space, StoppedThread};
use crate::wait;

const CLONE_EVENT: i32 = 3;
const THREAD_FLAGS: libc::c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// Ends the threads `tids` (numbers inside the box).
pub(crate) fn end(process: &mut LiveProcess, stopped: &mut Stopped, tids: &[u32]) -> Result<(), EngineError> {
    let doomed: Vec<i32> = process
        .threads
        .iter()
        .filter(|(_, t)| tids.contains(&t.tid))
        .map(|(host, _)| *host)
        .collect();
    let space = process.space.as_ref().expect("observed before");
    for host_tid in doomed {
        let thread = stopped
            .get_mut(&host_tid)
            .expect("every thread of a patched process stands still");
        let mut batch = Batch::new(&space.annex);
        batch.call(libc::SYS_set_robust_list, [0, 24, 0, 0, 0, 0]);
        batch.call(libc::SYS_set_tid_address, [0; 6]);
        batch.call(libc::SYS_exit, [0; 6]);
        remote::start(&space.annex, thread, &mut batch)?;
        loop {
            match ptrace::wait(host_tid, true)? {
                Some((_, Waited::Gone(_))) => break,
                Some((_, Waited::Stopped { event: 0, signal })) => {
                    return Err(SysError::new("exit", format!("{host_tid} got signal {signal}"), libc::EFAULT).into());
                }
                Some((_, Waited::Stopped { .. })) => ptrace::resume(host_tid, 0)?,
                None => {}
            }
        }
        stopped.remove(&host_tid);
        process.threads.remove(&host_tid);
    }
    Ok(())
}

/// Makes `wanted` again. `set_last_pid` makes the kernel give the next task its number.
pub(crate) fn make(
    process: &mut LiveProcess,
    stopped: &mut Stopped,
    wanted: &Thread,
    set_last_pid: &mut dyn FnMut(u32) -> Result<(), SysError>,
) -> Result<(), EngineError> {
    await_number(process, stopped, wanted.tid)?;
    set_last_pid(wanted.tid - 1)?;
    let space = process.space.as_ref().expect("observed before");
    let parent = crate::capture::any_thread(process, stopped)?;
    let mut calls = Batch::new(&space.annex);
    let clone = calls.call(libc::SYS_clone, [THREAD_FLAGS.cast_unsigned().into(), 0, 0, 0, 0, 0]);
    let lane = remote::start(&space.annex, parent, &mut calls)?;
    let child = loop {
        match ptrace::wait(parent.host_tid, true)? {
            Some((_, Waited::Stopped { event: CLONE_EVENT, .. })) => {
                let child = ptrace::event_message(parent.host_tid)?;
                ptrace::resume(parent.host_tid, 0)?;
                break i32::try_from(child).expect("a pid");
            }
            Some((_, Waited::Stopped { .. })) => ptrace::resume(parent.host_tid, 0)?,
            Some((_, Waited::Gone(_))) => return Err(SysError::new("clone", process.pid, libc::ESRCH).into()),
            None => {}
        }
    };
    let got = remote::finish(&space.annex, parent, &calls, lane)?.expect(clone, "clone", wanted.tid)?;
    loop {
        match ptrace::wait(child, true)? {
            Some((_, Waited::Stopped { event: STOP, .. })) => break,
            Some((_, Waited::Stopped { .. })) => ptrace::resume(child, 0)?,
            Some((_, Waited::Gone(_))) => return Err(SysError::new("clone", child, libc::ESRCH).into()),
            None => {}
        }
    }
    if got != i64::from(wanted.tid) {
        return Err(EngineError::Torn(format!("thread {} came back as {got}", wanted.tid)));
    }
    let mut thread = StoppedThread::new((process.host_pid, child), (process.pid, wanted.tid), false)?;
    set_up(&space.annex, &mut thread, wanted)?;
    stopped.insert(child, thread);
    process
        .threads
        .insert(child, LiveThread::open(process.host_pid, child, wanted.tid)?);
    Ok(())
}

/// Waits until nothing in the box has the number `tid`. A thread that has told everybody that it ended (`join` returned)
/// still has it until the kernel is through with it, and so has a dead process until PID 1 has waited for it. No event
/// tells when.
fn await_number(process: &LiveProcess, stopped: &mut Stopped, tid: u32) -> Result<(), EngineError> {
    const LIMIT: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_micros(100);
    let space = process.space.as_ref().expect("observed before");
    let thread = crate::capture::any_thread(process, stopped)?;
    let since = Instant::now();
    // `kill` says ESRCH as soon as no task has the number; who may own a descriptor is asked of the numbers themselves.
    const F_SETOWN_EX: u64 = 15;
    const F_OWNER_TID: u32 = 0;
    loop {
        let mut batch = Batch::new(&space.annex);
        let owner = batch.bytes(&[F_OWNER_TID.to_ne_bytes(), tid.to_ne_bytes()].concat());
        let made = batch.call_with(libc::SYS_eventfd2, [0; 6], linux::batch::SAVE);
        let set = [0, F_SETOWN_EX, owner, 0, 0, 0];
        let asked = batch.call_with(libc::SYS_fcntl, set, linux::batch::SAVED_AS_FIRST);
        batch.call_with(libc::SYS_close, [0; 6], linux::batch::SAVED_AS_FIRST);
        let results = remote::run(&space.annex, thread, &mut batch)?;
        results.expect(made, "eventfd", tid)?;
        if results.get(asked) == Err(libc::ESRCH) {
            return Ok(());
        }
        if since.elapsed() > LIMIT {
            return Err(EngineError::Torn(format!("the number of thread {tid} is not free")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a new thread sets for itself.
fn set_up(annex: &Annex, thread: &mut StoppedThread, wanted: &Thread) -> Result<(), EngineError> {
    const PR_SET_NAME: u64 = 15;
    let mut calls = Batch::new(annex);
    let name = calls.bytes(&wanted.comm);
    calls.call(libc::SYS_set_tid_address, [wanted.clear_tid, 0, 0, 0, 0, 0]);
    calls.call(
        libc::SYS_set_robust_list,
        [wanted.robust.0, wanted.robust.1, 0, 0, 0, 0],
    );
    calls.call(libc::SYS_prctl, [PR_SET_NAME, name, 0, 0, 0, 0]);
    let rseq = wanted.rseq;
    let register = (rseq.address != 0).then(|| {
        calls.call(
            libc::SYS_rseq,
            [rseq.address, rseq.size.into(), 0, rseq.signature.into(), 0, 0],
        )
    });
    let results = remote::run(annex, thread, &mut calls)?;
    if let Some(register) = register {
        results.expect(register, "rseq", wanted.tid)?;
    }
    Ok(())
}

/// Sets what each thread of `process` goes on with.
pub(crate) fn set(
    process: &mut LiveProcess,
    stopped: &mut Stopped,
    now: &Process,
    target: &Process,
    faults: &Faults,
) -> Result<(), EngineError> {
    let space = process.space.as_ref().expect("observed before");
    let mut next = process.next_trampoline;
    for (host_tid, live) in &mut process.threads {
        let Some(wanted) = target.threads.iter().find(|t| t.tid == live.tid) else {
            continue;
        };
        // It sleeps in the very state of the target.
        let Some(thread) = stopped.get_mut(host_tid) else {
            continue;
        };
        let present = now.threads.iter().find(|t| t.tid == live.tid);
        if let Some(present) = present.filter(|p| p.rseq != wanted.rseq && !faults.skips("rseq")) {
            sequences(space, thread, present, wanted, target)?;
        }
        set_one(&space.annex, live, thread, present, wanted, &mut next, faults)?;
    }
    process.next_trampoline = next;
    Ok(())
}

/// The area of restartable sequences. A thread that was just starting at the checkpoint registers its area again when
/// it goes on, and must not find it registered.
fn sequences(
    space: &Space,
    thread: &mut StoppedThread,
    present: &Thread,
    wanted: &Thread,
    target: &Process,
) -> Result<(), EngineError> {
    const UNREGISTER: u64 = 1;
    let mut calls = Batch::new(&space.annex);
    let mut call = |rseq: &Rseq, flags| {
        let arguments = [rseq.address, rseq.size.into(), flags, rseq.signature.into(), 0, 0];
        (rseq.address != 0).then(|| calls.call(libc::SYS_rseq, arguments))
    };
    let made = [call(&present.rseq, UNREGISTER), call(&wanted.rseq, 0)];
    let results = remote::run(&space.annex, thread, &mut calls)?;
    for call in made.into_iter().flatten() {
        results.expect(call, "rseq", wanted.tid)?;
    }
    // The kernel empties an area that it lets go of.
    let (from, to) = (
        present.rseq.address,
        present.rseq.address + u64::from(present.rseq.size),
    );
    target
        .memory
        .pages
        .for_each_in(from / 4096, to.div_ceil(4096), |page, slot| {
            if let Some(bytes) = slot.bytes() {
                let start = from.max(page * 4096);
                let (a, b) = (start - page * 4096, to.min(page * 4096 + 4096) - page * 4096);
                let within = |at| usize::try_from(at).expect("within a page");
                // An area that is not mapped any more needs no bytes.
                linux::process_vm::write_forced(&space.memory, start, &bytes[within(a)..within(b)]).ok();
            }
        });
    Ok(())
}

fn set_one(
    annex: &Annex,
    live: &mut LiveThread,
    thread: &mut StoppedThread,
    present: Option<&Arc<Thread>>,
    wanted: &Arc<Thread>,
    next_trampoline: &mut usize,
    faults: &Faults,
) -> Result<(), EngineError> {
    let differs = |what: fn(&Thread) -> u64| present.is_none_or(|p| what(p) != what(wanted));
    let mut calls = Batch::new(annex);
    let mut altstack = None;
    if present.is_none_or(|p| p.altstack != wanted.altstack) && !faults.skips("altstack") {
        let stack = wanted.altstack;
        let bytes: Vec<u8> = [stack.sp, stack.flags, stack.size]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        let address = calls.bytes(&bytes);
        altstack = Some(calls.call(libc::SYS_sigaltstack, [address, 0, 0, 0, 0, 0]));
    }
    if differs(|t| t.clear_tid) {
        calls.call(libc::SYS_set_tid_address, [wanted.clear_tid, 0, 0, 0, 0, 0]);
    }
    if differs(|t| t.robust.0) {
        calls.call(
            libc::SYS_set_robust_list,
            [wanted.robust.0, wanted.robust.1, 0, 0, 0, 0],
        );
    }
    if present.is_none_or(|p| p.comm != wanted.comm) {
        const PR_SET_NAME: u64 = 15;
        let name = calls.bytes(&wanted.comm);
        calls.call(libc::SYS_prctl, [PR_SET_NAME, name, 0, 0, 0, 0]);
    }
    if !calls.is_empty() {
        let results = remote::run(annex, thread, &mut calls)?;
        if let Some(call) = altstack {
            results.expect(call, "sigaltstack", wanted.tid)?;
        }
    }
    if present.is_none_or(|p| p.xstate != wanted.xstate) && !faults.skips("xstate") {
        ptrace::set_xstate(thread.host_tid, &wanted.xstate)?;
    }
    if !faults.skips("sigmask") {
        thread.set_mask(wanted.mask);
    }
    if !faults.skips("regs") {
        registers(annex, live, thread, wanted, next_trampoline, faults);
    }
    live.image = Some(wanted.clone());
    live.asleep_at = None;
    Ok(())
}

/// Registers, by way of a trampoline where a relative time-out must go on with what was left of it.
fn registers(
    annex: &Annex,
    live: &mut LiveThread,
    thread: &mut StoppedThread,
    wanted: &Thread,
    next_trampoline: &mut usize,
    faults: &Faults,
) {
    let mut canonical = wait::from_image(&wanted.registers);
    if faults.skips("tls") {
        canonical[FS_BASE] = thread.raw[FS_BASE];
    }
    live.waiting = None;
    match wanted.wait {
        Some(waited) => {
            canonical[RAX] = waited.call;
            let remaining = waited.remaining_ns.filter(|_| !faults.skips("wait_remaining"));
            let mut free = || {
                *next_trampoline = (*next_trampoline + 1) % remote::TRAMPOLINE_COUNT;
                *next_trampoline
            };
            enter_again(annex, live, thread, &canonical, waited.call, remaining, &mut free);
        }
        None => {
            live.trampoline = None;
            thread.set_registers(canonical);
        }
    }
}

const FS_BASE: usize = 21;
