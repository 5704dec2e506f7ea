//! Stops the tasks of a box and proves that none is left running. Never sends a signal, never uses `PTRACE_ATTACH`;
//! dropping what it returns lets every task go on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linux::SysError;
use linux::deadline::Deadline;
use linux::procfs;
use linux::ptrace::{self, Waited};
use linux::sched::SchedClock;

use crate::error::EngineError;
use crate::remote::STOP;
use crate::tracee::{LiveProcess, LiveThread, StoppedThread};
use crate::{Config, Membership};

/// The processes of a box as the engine knows them, by host pid.
pub(crate) type Live = BTreeMap<i32, LiveProcess>;

/// The threads that stand still, by host tid.
pub(crate) type Stopped = BTreeMap<i32, StoppedThread>;

/// Host tids of every task of the box but PID 1.
pub(crate) fn list(membership: &Membership) -> Result<Vec<i32>, EngineError> {
    let init = i32::try_from(membership.init_host_pid).expect("pids are positive ints");
    let mut tids = match &membership.cgroup {
        Some(group) => list_group(group)?,
        None => list_children(init)?,
    };
    tids.retain(|tid| *tid != init);
    tids.sort_unstable();
    Ok(tids)
}

fn list_group(group: &Path) -> Result<Vec<i32>, EngineError> {
    let path = group.join("cgroup.threads");
    let text = std::fs::read_to_string(&path).map_err(|e| SysError::io("read", path.display(), &e))?;
    Ok(text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

fn list_children(init: i32) -> Result<Vec<i32>, EngineError> {
    let mut tids = Vec::new();
    let mut todo = vec![init];
    let mut text = Vec::new();
    while let Some(pid) = todo.pop() {
        let Ok(dir) = procfs::TaskDir::process(pid) else {
            continue;
        };
        for tid in dir.numbers("task").unwrap_or_default() {
            let tid = i32::try_from(tid).expect("pids are positive ints");
            tids.push(tid);
            if dir.read_list(&format!("task/{tid}/children"), &mut text).is_ok() {
                let words = String::from_utf8_lossy(&text).into_owned();
                todo.extend(
                    words
                        .split_ascii_whitespace()
                        .filter_map(|word| word.parse::<i32>().ok()),
                );
            }
        }
    }
    Ok(tids)
}

/// Which process a tid belongs to, and both numbers inside the box: `(host pid, pid, tid)`.
fn identify(host_tid: i32) -> Option<(i32, u32, u32)> {
    let mut text = Vec::new();
    procfs::TaskDir::process(host_tid)
        .ok()?
        .read("status", &mut text)
        .ok()?;
    let host_pid = procfs::field(&text, "Tgid")?.parse().ok()?;
    let last = |key| procfs::field(&text, key)?.split_ascii_whitespace().last()?.parse().ok();
    Some((host_pid, last("NStgid")?, last("NSpid")?))
}

/// Makes `host_tid` known; the host pid of its process, `None` where it is gone already.
fn meet(live: &mut Live, host_tid: i32) -> Result<Option<i32>, EngineError> {
    if let Some(process) = live.values().find(|process| process.threads.contains_key(&host_tid)) {
        return Ok(Some(process.host_pid));
    }
    let Some((host_pid, pid, tid)) = identify(host_tid) else {
        return Ok(None);
    };
    let known = live.get(&host_pid).is_some_and(|p| p.pid == pid);
    if !known {
        match LiveProcess::open(host_pid, pid) {
            Ok(process) => drop(live.insert(host_pid, process)),
            Err(EngineError::Kernel(e)) if e.is_gone() => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    match LiveThread::open(host_pid, host_tid, tid) {
        Ok(thread) => {
            live.get_mut(&host_pid)
                .expect("just inserted")
                .threads
                .insert(host_tid, thread);
            Ok(Some(host_pid))
        }
        Err(EngineError::Kernel(e)) if e.is_gone() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Forgets what is not in the box any more.
fn forget_missing(live: &mut Live, tids: &[i32]) {
    let present: BTreeSet<i32> = tids.iter().copied().collect();
    for process in live.values_mut() {
        process.threads.retain(|tid, _| present.contains(tid));
    }
    live.retain(|_, process| !process.threads.is_empty());
}

/// Stops every task for which `leave` is false, until no new one appears. On an error everything that was stopped is
/// let go.
pub(crate) fn stop(
    membership: &Membership,
    config: &Config,
    clock: &mut Option<SchedClock>,
    live: &mut Live,
    mut leave: impl FnMut(&Live, i32, i32) -> bool,
) -> Result<Stopped, EngineError> {
    let mut stopped = Stopped::new();
    match stop_into(membership, config, clock, live, &mut leave, &mut stopped) {
        Ok(()) => Ok(stopped),
        Err(error) => {
            let_go(stopped);
            Err(error)
        }
    }
}

/// Stops more of a box that partly stands still. On an error everything is let go.
pub(crate) fn stop_more(
    membership: &Membership,
    config: &Config,
    clock: &mut Option<SchedClock>,
    live: &mut Live,
    stopped: &mut Stopped,
    mut leave: impl FnMut(&Live, i32, i32) -> bool,
) -> Result<(), EngineError> {
    let result = stop_into(membership, config, clock, live, &mut leave, stopped);
    if result.is_err() {
        drop(let_go(std::mem::take(stopped)));
    }
    result
}

/// Lets every task go on; what is gone is gone.
///
/// A task that was killed meanwhile is waited for: as long as its tracer has not, its parent and its namespace cannot.
pub(crate) fn let_go(stopped: Stopped) -> Vec<EngineError> {
    let mut errors = Vec::new();
    let mut dying = Vec::new();
    for (tid, thread) in stopped {
        let is_leader = tid == thread.host_pid;
        if let Err(error) = thread.release() {
            errors.push(error);
            dying.push((is_leader, tid));
        }
    }
    // The first thread of a process has not ended before all others have.
    dying.sort_unstable();
    for (_, tid) in dying {
        await_or_detach(tid);
    }
    errors
}

/// For a task that could not be let go as it was: it is dying (then it is waited for) or stands still otherwise.
fn await_or_detach(tid: i32) {
    if ptrace::detach(tid, 0).is_ok() {
        return;
    }
    while let Ok(Some((_, what))) = ptrace::wait(tid, true) {
        match what {
            Waited::Gone(_) => return,
            Waited::Stopped { event: 0, signal } => drop(ptrace::detach(tid, signal)),
            Waited::Stopped { .. } => drop(ptrace::detach(tid, 0)),
        }
    }
}

/// Waits for every task of the box that this thread still traces, once all of them are dying. Asked for one by one: PID
/// 1 of the box is a child of this thread too.
pub(crate) fn reap_all(membership: &Membership, live: &Live, limit: std::time::Duration) -> Result<(), EngineError> {
    let init = i32::try_from(membership.init_host_pid).expect("pids are positive ints");
    let mut tids: BTreeSet<i32> = live
        .values()
        .flat_map(|process| process.threads.keys().copied())
        .collect();
    let mut text = Vec::new();
    if let Ok(dir) = procfs::TaskDir::process(init)
        && dir.read_list(&format!("task/{init}/children"), &mut text).is_ok()
    {
        let words = String::from_utf8_lossy(&text).into_owned();
        tids.extend(
            words
                .split_ascii_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    let ours = rustix::thread::gettid().as_raw_nonzero().to_string();
    let deadline = Deadline::start(limit)?;
    for tid in tids {
        let read = procfs::TaskDir::process(tid).and_then(|dir| dir.read("status", &mut text));
        while read.is_ok() && procfs::field(&text, "TracerPid") == Some(&ours) && !deadline.passed() {
            match ptrace::wait(tid, true)? {
                Some((_, Waited::Gone(_))) => break,
                Some((_, Waited::Stopped { event: 0, signal })) => drop(ptrace::detach(tid, signal)),
                Some((_, Waited::Stopped { .. })) => drop(ptrace::detach(tid, 0)),
                None => {}
            }
        }
    }
    Ok(())
}

fn stop_into(
    membership: &Membership,
    config: &Config,
    clock: &mut Option<SchedClock>,
    live: &mut Live,
    leave: &mut impl FnMut(&Live, i32, i32) -> bool,
    stopped: &mut Stopped,
) -> Result<(), EngineError> {
    let mut left: BTreeSet<i32> = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let tids = list(membership)?;
        forget_missing(live, &tids);
        let mut waiting = BTreeSet::new();
        let new = tids.into_iter().filter(|tid| !stopped.contains_key(tid));
        let result = seize_all(new, live, clock, leave, &mut left, &mut waiting);
        if result.is_ok() && waiting.is_empty() {
            return Ok(());
        }
        let result = result.and_then(|()| await_stops(config, live, &mut waiting, stopped));
        if let Err(error) = result {
            release_late(&waiting, stopped);
            return Err(error);
        }
    }
    let newest = stopped.values().max_by_key(|thread| thread.pid);
    let (pid, host_pid) = newest.map_or((0, 0), |thread| (thread.pid, thread.host_pid));
    Err(EngineError::Busy {
        pid,
        comm: name_of(host_pid),
        why: "it starts processes faster than they can be stopped".to_owned(),
    })
}

/// Asks every task to stop for which `leave` is false; those that will are `waiting`, even after an error.
fn seize_all(
    tids: impl Iterator<Item = i32>,
    live: &mut Live,
    clock: &mut Option<SchedClock>,
    leave: &mut impl FnMut(&Live, i32, i32) -> bool,
    left: &mut BTreeSet<i32>,
    waiting: &mut BTreeSet<i32>,
) -> Result<(), EngineError> {
    for tid in tids {
        if left.contains(&tid) {
            continue;
        }
        let Some(host_pid) = meet(live, tid)? else { continue };
        if leave(live, host_pid, tid) {
            left.insert(tid);
            continue;
        }
        note_wait(live, host_pid, tid, clock.as_mut());
        if seize(live, tid)? {
            waiting.insert(tid);
        }
    }
    Ok(())
}

/// How often the list of tasks is read again while new ones appear.
const ROUNDS_MAX: u32 = 1000;

fn name_of(host_pid: i32) -> String {
    let mut text = Vec::new();
    let read = procfs::TaskDir::process(host_pid).and_then(|dir| dir.read("status", &mut text));
    let name = read.ok().and_then(|()| procfs::field(&text, "Name"));
    name.unwrap_or("?").to_owned()
}

/// Seizes and interrupts; `false` where it is gone.
fn seize(live: &Live, tid: i32) -> Result<bool, EngineError> {
    // The box's own filter does not hit what we inject. Refused where we are under a filter ourselves; then that filter
    // must let our calls through.
    let whole = ptrace::OPTIONS | ptrace::OPTION_SUSPEND_SECCOMP;
    let seized = match ptrace::seize(tid, whole) {
        Err(e) if e.errno == libc::EPERM || e.errno == libc::EINVAL => ptrace::seize(tid, ptrace::OPTIONS),
        other => other,
    };
    match seized {
        Ok(()) => {}
        Err(e) if e.is_gone() => return Ok(false),
        Err(e) if e.errno == libc::EPERM => return seize_refused(live, tid, e),
        Err(e) => return Err(e.into()),
    }
    match ptrace::interrupt(tid) {
        Ok(()) => Ok(true),
        Err(e) if e.is_gone() => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// A task that cannot be seized is a zombie (fine: it is not running), or traced by somebody in the box.
fn seize_refused(live: &Live, tid: i32, error: SysError) -> Result<bool, EngineError> {
    let mut text = Vec::new();
    let dir = procfs::TaskDir::process(tid);
    if dir.and_then(|dir| dir.read("status", &mut text)).is_err() {
        return Ok(false);
    }
    if procfs::field(&text, "State").is_some_and(|s| s.starts_with('Z') || s.starts_with('X')) {
        return Ok(false);
    }
    let tracer = procfs::field(&text, "TracerPid").unwrap_or("0");
    if tracer == "0" {
        return Err(error.into());
    }
    // Born of a task of ours in the instant before that stopped: it is ours already, and its stop is on its way.
    if tracer == rustix::thread::gettid().as_raw_nonzero().to_string() {
        return Ok(true);
    }
    let pid = live
        .values()
        .find(|p| p.threads.contains_key(&tid))
        .map_or(0, |p| p.pid);
    let name = procfs::field(&text, "Name").unwrap_or("?").to_owned();
    Err(EngineError::Unsupported(format!(
        "pid {pid} ({name}): traced by another program"
    )))
}

/// Before a thread is interrupted: until when its relative wait lasts (afterwards the kernel does not tell).
fn note_wait(live: &mut Live, host_pid: i32, tid: i32, clock: Option<&mut SchedClock>) {
    let Some(process) = live.get_mut(&host_pid) else { return };
    let memory = process.space.as_ref().map(|space| &space.memory);
    if let Some(thread) = process.threads.get_mut(&tid) {
        thread.note_wait(memory, clock);
    }
}

fn await_stops(
    config: &Config,
    live: &mut Live,
    waiting: &mut BTreeSet<i32>,
    stopped: &mut Stopped,
) -> Result<(), EngineError> {
    let mut deadline: Option<Deadline> = None;
    let mut tries = 0u32;
    while !waiting.is_empty() {
        // The first looks do not sleep: a running task stops within microseconds. But it may need this very processor.
        let block = tries >= LOOK_COUNT;
        if block && deadline.is_none() {
            deadline = Some(Deadline::start(config.stop_timeout)?);
        }
        if block {
            free_vfork_children(live, waiting, stopped)?;
        }
        match ptrace::wait(-1, block)? {
            Some((tid, what)) => settle_stop(live, tid, what, waiting, stopped)?,
            None if !block => tries += 1,
            None if deadline.as_ref().is_some_and(Deadline::passed) => return Err(busy(live, waiting)),
            None => {}
        }
    }
    Ok(())
}

/// Looks for a stop before the driver sleeps: a few microseconds.
const LOOK_COUNT: u32 = 8;

/// A parent in `vfork` cannot stop before its child has run an exec: such a child is let go (the next round finds it
/// again, in its own address space).
fn free_vfork_children(live: &Live, waiting: &BTreeSet<i32>, stopped: &mut Stopped) -> Result<(), EngineError> {
    // Such a child has one thread, and was never captured: nobody but its parent has its memory.
    let fresh: Vec<i32> = stopped
        .values()
        .filter(|thread| {
            let process = live.get(&thread.host_pid);
            process.is_some_and(|process| process.space.is_none() && process.threads.len() == 1)
        })
        .map(|thread| thread.host_tid)
        .collect();
    for tid in fresh {
        let borrows = |parent: &i32| {
            let same_process = live[&stopped[&tid].host_pid].threads.contains_key(parent);
            !same_process && ptrace::shares(tid, *parent, ptrace::Resource::Memory).unwrap_or(false)
        };
        if waiting.iter().any(borrows) {
            stopped.remove(&tid).expect("listed from it").release()?;
        }
    }
    Ok(())
}

/// Handles one report of a tracee on its way to a stop.
fn settle_stop(
    live: &mut Live,
    tid: i32,
    what: Waited,
    waiting: &mut BTreeSet<i32>,
    stopped: &mut Stopped,
) -> Result<(), EngineError> {
    match what {
        Waited::Gone(_) => {
            waiting.remove(&tid);
            stopped.remove(&tid);
        }
        Waited::Stopped { event: STOP, signal } => {
            waiting.remove(&tid);
            let Some(host_pid) = meet(live, tid)? else {
                // Dying: nothing of it can be read any more.
                await_or_detach(tid);
                return Ok(());
            };
            let process = &live[&host_pid];
            let inside = (process.pid, process.threads[&tid].tid);
            stopped.insert(
                tid,
                StoppedThread::new((host_pid, tid), inside, signal != libc::SIGTRAP)?,
            );
        }
        // A signal is on its way in, or it was in the middle of a clone or exec. Any stop takes the pending interrupt away
        // (`ptrace_stop` in kernel/signal.c), so it is asked again.
        Waited::Stopped { event, signal } => {
            resume_if_alive(tid, if event == 0 { signal } else { 0 })?;
            match ptrace::interrupt(tid) {
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn resume_if_alive(tid: i32, signal: i32) -> Result<(), EngineError> {
    match ptrace::resume(tid, signal) {
        Err(e) if !e.is_gone() => Err(e.into()),
        _ => Ok(()),
    }
}

/// Names the task that does not stop.
fn busy(live: &Live, waiting: &BTreeSet<i32>) -> EngineError {
    let tid = *waiting.first().expect("called while something is waited for");
    let mut text = Vec::new();
    let (mut comm, mut state) = ("?".to_owned(), "?".to_owned());
    if procfs::TaskDir::process(tid)
        .and_then(|dir| dir.read("status", &mut text))
        .is_ok()
    {
        comm = procfs::field(&text, "Name").unwrap_or("?").to_owned();
        state = procfs::field(&text, "State").unwrap_or("?").to_owned();
    }
    let pid = live
        .values()
        .find(|p| p.threads.contains_key(&tid))
        .map_or(0, |p| p.pid);
    EngineError::Busy {
        pid,
        comm,
        why: format!("state {state}"),
    }
}

/// Those that were asked to stop but did not are let go at their stop: a parent in `vfork` stops as soon as its child,
/// which is let go first, has run on.
fn release_late(waiting: &BTreeSet<i32>, stopped: &mut Stopped) {
    drop(let_go(std::mem::take(stopped)));
    for tid in waiting {
        if let Ok(Some((_, what))) = ptrace::wait(*tid, true) {
            match what {
                Waited::Stopped { event: 0, signal } => drop(ptrace::detach(*tid, signal)),
                Waited::Stopped { .. } => drop(ptrace::detach(*tid, 0)),
                Waited::Gone(_) => {}
            }
        }
    }
}
