//! Dispositions, queues, timers, mask of new files, working directory, limits. Everything is compared first; what is
//! as it was is not touched.

use image::process::Process;
use image::signal::Queued;
use image::timer::Armed;

use super::nameless::Footing;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::freeze::Stopped;
use crate::remote::{self, Batch, Results};
use crate::tracee::LiveProcess;

/// Puts the process-wide state of one process to `target`.
pub(crate) fn apply(
    process: &LiveProcess,
    stopped: &mut Stopped,
    now: &Process,
    target: &Process,
    faults: &Faults,
) -> Result<(), EngineError> {
    let space = process.space.as_ref().expect("observed before");
    let mut batch = Batch::new(&space.annex);
    let mut checks: Checks = Vec::new();
    actions(&mut batch, &mut checks, now, target, faults);
    disarm(&mut batch, &mut checks, now, target, faults);
    if !batch.is_empty() {
        let thread = crate::capture::any_thread(process, stopped)?;
        let results = remote::run(&space.annex, thread, &mut batch)?;
        check(&results, &checks, process.pid)?;
    }
    // While no timer of either time can go off: what one queues would be taken for an old one, or stay as a stray.
    if !faults.skips("pending") {
        queues(process, stopped, now, target)?;
    }
    let thread = crate::capture::any_thread(process, stopped)?;
    let mut batch = Batch::new(&space.annex);
    let mut checks: Checks = Vec::new();
    itimers(&mut batch, &mut checks, now, target, faults);
    let ids = timers(&mut batch, &mut checks, now, target, faults);
    let footing = if faults.skips("cwd") {
        None
    } else {
        Footing::make(process, now, target)?
    };
    let cwd = footing.as_ref().map_or(&target.cwd.0, |footing| &footing.path);
    surroundings(&mut batch, &mut checks, now, target, cwd, faults);
    if !batch.is_empty() {
        for (room, id) in ids {
            remote::put(&space.annex, room, &id.to_ne_bytes());
        }
        let results = remote::run(&space.annex, thread, &mut batch)?;
        check(&results, &checks, process.pid)?;
    }
    if let Some(footing) = footing {
        footing.remove()?;
    }
    Ok(())
}

fn check(results: &Results, checks: &[(usize, &'static str)], pid: u32) -> Result<(), EngineError> {
    for (call, name) in checks {
        results.expect(*call, name, format!("pid {pid}"))?;
    }
    Ok(())
}

type Checks = Vec<(usize, &'static str)>;

fn actions(batch: &mut Batch, checks: &mut Checks, now: &Process, target: &Process, faults: &Faults) {
    if faults.skips("sigactions") {
        return;
    }
    for (signal, (old, new)) in (1u64..).zip(now.actions.iter().zip(target.actions.iter())) {
        if old == new {
            continue;
        }
        let bytes: Vec<u8> = [new.handler, new.flags, new.restorer, new.mask]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        let address = batch.bytes(&bytes);
        checks.push((
            batch.call(libc::SYS_rt_sigaction, [signal, address, 0, 8, 0, 0]),
            "rt_sigaction",
        ));
    }
}

/// Stops every timer that will be set or deleted.
fn disarm(batch: &mut Batch, checks: &mut Checks, now: &Process, target: &Process, faults: &Faults) {
    if !faults.skips("itimers") {
        for (which, (old, new)) in (0u64..).zip(now.itimers.iter().zip(&target.itimers)) {
            if old != new && old.value_ns != 0 {
                let zero = batch.bytes(&[0; 32]);
                checks.push((batch.call(libc::SYS_setitimer, [which, zero, 0, 0, 0, 0]), "setitimer"));
            }
        }
    }
    if !faults.skips("posix_timers") {
        for old in &now.timers {
            let zero = batch.bytes(&[0; 32]);
            let id = u64::from(old.id.cast_unsigned());
            checks.push((
                batch.call(libc::SYS_timer_settime, [id, 0, zero, 0, 0, 0]),
                "timer_settime",
            ));
        }
    }
}

fn itimers(batch: &mut Batch, checks: &mut Checks, now: &Process, target: &Process, faults: &Faults) {
    if faults.skips("itimers") {
        return;
    }
    for (which, (old, new)) in (0u64..).zip(now.itimers.iter().zip(&target.itimers)) {
        if old == new {
            continue;
        }
        // A value of zero with a period is a timer seen in the instant of its expiry: it must stay armed.
        let value = if new.value_ns == 0 && new.interval_ns != 0 {
            1000
        } else {
            new.value_ns
        };
        let words = [
            new.interval_ns / 1_000_000_000,
            new.interval_ns % 1_000_000_000 / 1000,
            value / 1_000_000_000,
            (value % 1_000_000_000).div_ceil(1000),
        ];
        let address = batch.bytes(&words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>());
        checks.push((
            batch.call(libc::SYS_setitimer, [which, address, 0, 0, 0, 0]),
            "setitimer",
        ));
    }
}

/// `struct itimerspec` that arms a timer again with what was left.
pub(crate) fn itimerspec(armed: Armed) -> [u8; 32] {
    let value = if armed.value_ns == 0 && armed.interval_ns != 0 {
        1
    } else {
        armed.value_ns
    };
    let words = [
        armed.interval_ns / 1_000_000_000,
        armed.interval_ns % 1_000_000_000,
        value / 1_000_000_000,
        value % 1_000_000_000,
    ];
    let mut bytes = [0; 32];
    for (at, word) in words.iter().enumerate() {
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The rooms in which `timer_create` finds the id that it must give.
fn timers(
    batch: &mut Batch,
    checks: &mut Checks,
    now: &Process,
    target: &Process,
    faults: &Faults,
) -> Vec<(remote::Room, i32)> {
    const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
    let mut ids = Vec::new();
    if faults.skips("posix_timers") {
        return ids;
    }
    let id = |id: i32| u64::from(id.cast_unsigned());
    let same = |a: &image::timer::PosixTimer, b: &image::timer::PosixTimer| {
        (a.id, a.clock, a.signal, a.notify, a.tid, a.value) == (b.id, b.clock, b.signal, b.notify, b.tid, b.value)
    };
    for old in now
        .timers
        .iter()
        .filter(|old| !target.timers.iter().any(|new| same(old, new)))
    {
        checks.push((
            batch.call(libc::SYS_timer_delete, [id(old.id), 0, 0, 0, 0, 0]),
            "timer_delete",
        ));
    }
    for new in &target.timers {
        if !now.timers.iter().any(|old| same(old, new)) {
            let clock = u64::from(new.clock.cast_unsigned());
            let mut event = [0; 64];
            event[0..8].copy_from_slice(&new.value.to_ne_bytes());
            event[8..12].copy_from_slice(&new.signal.to_ne_bytes());
            event[12..16].copy_from_slice(&new.notify.to_ne_bytes());
            event[16..20].copy_from_slice(&new.tid.to_ne_bytes());
            let event = batch.bytes(&event);
            let room = batch.room(4);
            ids.push((room, new.id));
            batch.call(libc::SYS_prctl, [PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0, 0]);
            checks.push((
                batch.call(libc::SYS_timer_create, [clock, event, room.address, 0, 0, 0]),
                "timer_create",
            ));
            batch.call(libc::SYS_prctl, [PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0, 0]);
        }
        let address = batch.bytes(&itimerspec(new.armed));
        checks.push((
            batch.call(libc::SYS_timer_settime, [id(new.id), 0, address, 0, 0, 0]),
            "timer_settime",
        ));
    }
    ids
}

fn surroundings(batch: &mut Batch, checks: &mut Checks, now: &Process, target: &Process, cwd: &[u8], faults: &Faults) {
    if now.umask != target.umask && !faults.skips("umask") {
        checks.push((
            batch.call(libc::SYS_umask, [target.umask.into(), 0, 0, 0, 0, 0]),
            "umask",
        ));
    }
    if !faults.skips("rlimits") {
        for (resource, (old, new)) in (0u64..).zip(now.limits.iter().zip(&target.limits)) {
            if old != new {
                let bytes: Vec<u8> = [new.0, new.1].iter().flat_map(|w| w.to_ne_bytes()).collect();
                let address = batch.bytes(&bytes);
                checks.push((
                    batch.call(libc::SYS_prlimit64, [0, resource, address, 0, 0, 0]),
                    "prlimit64",
                ));
            }
        }
    }
    if now.cwd != target.cwd && !faults.skips("cwd") {
        let path = batch.path(cwd);
        checks.push((batch.call(libc::SYS_chdir, [path, 0, 0, 0, 0, 0]), "chdir"));
    }
    if now.group != target.group {
        checks.push((
            batch.call(libc::SYS_setpgid, [0, target.group.into(), 0, 0, 0, 0]),
            "setpgid",
        ));
    }
}

/// Takes every queued signal and queues those of the target again, each with the siginfo it had.
fn queues(process: &LiveProcess, stopped: &mut Stopped, now: &Process, target: &Process) -> Result<(), EngineError> {
    let space = process.space.as_ref().expect("observed before");
    let queue_of = |p: &Process, tid: u32| -> Vec<Queued> {
        p.threads
            .iter()
            .find(|t| t.tid == tid)
            .map(|t| t.pending.clone())
            .unwrap_or_default()
    };
    // The dead children of an undone time have signalled since `now` was captured: look again.
    let mut shared_now: Vec<Queued> = now.pending.clone();
    if let Some(tid) = process.threads.keys().find(|tid| stopped.contains_key(tid)) {
        shared_now = linux::ptrace::peek_signals(*tid, true)?
            .into_iter()
            .map(Queued)
            .collect();
    }
    let mut shared_done = shared_now == target.pending && !of_timers(&shared_now);
    for (host_tid, live) in &process.threads {
        let Some(thread) = stopped.get_mut(host_tid) else {
            continue;
        };
        let present: Vec<Queued> = linux::ptrace::peek_signals(*host_tid, false)?
            .into_iter()
            .map(Queued)
            .collect();
        let wanted = queue_of(target, live.tid);
        if shared_done && present == wanted && !of_timers(&present) {
            continue;
        }
        let mut batch = Batch::new(&space.annex);
        let mut checks: Checks = Vec::new();
        let all = batch.bytes(&u64::MAX.to_ne_bytes());
        let zero = batch.bytes(&[0; 16]);
        let shared_count = if shared_done { 0 } else { shared_now.len() };
        // Its own queue is taken first, then that of the process.
        for _ in 0..present.len() + shared_count {
            batch.call(libc::SYS_rt_sigtimedwait, [all, 0, zero, 8, 0, 0]);
        }
        if !shared_done {
            for signal in &target.pending {
                let info = batch.bytes(&signal.0);
                let number = u64::from(signal.number().cast_unsigned());
                let arguments = [process.pid.into(), number, info, 0, 0, 0];
                checks.push((batch.call(libc::SYS_rt_sigqueueinfo, arguments), "rt_sigqueueinfo"));
            }
            shared_done = true;
        }
        for signal in &wanted {
            let info = batch.bytes(&signal.0);
            let number = u64::from(signal.number().cast_unsigned());
            let arguments = [process.pid.into(), live.tid.into(), number, info, 0, 0];
            checks.push((batch.call(libc::SYS_rt_tgsigqueueinfo, arguments), "rt_tgsigqueueinfo"));
        }
        let results = remote::run(&space.annex, thread, &mut batch)?;
        check(&results, &checks, process.pid)?;
    }
    Ok(())
}

/// True where a timer queued one of them: it looks like the one that is wanted, but setting the timer has made it void
/// (`posixtimer_deliver_signal` in kernel/time/posix-timers.c).
fn of_timers(queue: &[Queued]) -> bool {
    queue.iter().any(|signal| signal.code() == libc::SI_TIMER)
}
