//! Process steps: ends what was born since, so that its parent never learns of it; process groups.

use std::collections::BTreeMap;

use linux::ptrace::{self, Waited};

use crate::error::EngineError;
use crate::freeze::{Live, Stopped};
use crate::remote::{self, Batch};

/// Ends processes that were born since; `born` holds pids and parents, children before parents.
pub(crate) fn end(live: &mut Live, stopped: &mut Stopped, born: &[(u32, u32)]) -> Result<(), EngineError> {
    let by_pid: BTreeMap<u32, i32> = live.values().map(|p| (p.pid, p.host_pid)).collect();
    for (pid, _) in born {
        let host_pid = by_pid[pid];
        // A dying thread would mark its robust futexes in memory that others share.
        silence(live, stopped, host_pid)?;
    }
    for (pid, _) in born {
        let host_pid = by_pid[pid];
        match ptrace::kill(host_pid, libc::SIGKILL) {
            Err(e) if !e.is_gone() => return Err(e.into()),
            _ => {}
        }
        let process = live.remove(&host_pid).expect("listed from it");
        for tid in process.threads.keys().filter(|tid| **tid != host_pid) {
            stopped.remove(tid);
            await_end(*tid)?;
        }
        stopped.remove(&host_pid);
        await_end(host_pid)?;
    }
    for (pid, parent) in born {
        if let Some(parent) = by_pid.get(parent)
            && live.contains_key(parent)
        {
            reap(live, stopped, *parent, *pid)?;
        }
    }
    Ok(())
}

fn silence(live: &Live, stopped: &mut Stopped, host_pid: i32) -> Result<(), EngineError> {
    let process = &live[&host_pid];
    let Some(space) = &process.space else { return Ok(()) };
    for tid in process.threads.keys() {
        let Some(thread) = stopped.get_mut(tid) else { continue };
        let mut batch = Batch::new(&space.annex);
        batch.call(libc::SYS_set_robust_list, [0, 24, 0, 0, 0, 0]);
        batch.call(libc::SYS_set_tid_address, [0; 6]);
        remote::run(&space.annex, thread, &mut batch)?;
    }
    Ok(())
}

fn await_end(tid: i32) -> Result<(), EngineError> {
    loop {
        match ptrace::wait(tid, true) {
            Ok(Some((_, Waited::Gone(_)))) => return Ok(()),
            Ok(_) => {}
            // A thread that is not the leader may be gone without a word once its group is.
            Err(e) if e.errno == libc::ECHILD => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Takes the dead child from its stopped parent; the signal it raised is taken with the rest of the queue.
pub(crate) fn reap(live: &Live, stopped: &mut Stopped, parent: i32, pid: u32) -> Result<(), EngineError> {
    let process = &live[&parent];
    let space = process.space.as_ref().expect("observed before");
    let thread = crate::capture::any_thread(process, stopped)?;
    let mut batch = Batch::new(&space.annex);
    let flags = (libc::WNOHANG | libc::__WALL) as u64;
    batch.call(libc::SYS_wait4, [u64::from(pid), 0, flags, 0, 0, 0]);
    remote::run(&space.annex, thread, &mut batch)?;
    Ok(())
}
