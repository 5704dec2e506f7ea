//! Job-control stops: a process that was stopped or continued since goes back to what it was, and its parent hears
//! nothing of it: the signal that the parent gets is taken from its queue with all others, and what it could ask for is
//! asked for here. Runs while everything stands still; no program's instruction is executed.

use linux::SysError;
use linux::ptrace::{self, Waited};

use crate::error::EngineError;
use crate::freeze::{Live, Stopped};
use crate::plan::StopChange;
use crate::remote::{self, Batch, STOP};
use crate::tracee::StoppedThread;

/// Stops or continues the process `host_pid`, all of whose threads are held; `parent` is its parent's, where that is in
/// the box.
pub(crate) fn apply(
    live: &Live,
    stopped: &mut Stopped,
    host_pid: i32,
    parent: Option<i32>,
    change: StopChange,
) -> Result<(), EngineError> {
    let process = &live[&host_pid];
    let tids: Vec<i32> = process
        .threads
        .keys()
        .copied()
        .filter(|tid| stopped.contains_key(tid))
        .collect();
    let asked = match change {
        StopChange::GoOn => {
            ptrace::kill(host_pid, libc::SIGCONT)?;
            // The parent is told by the first thread that comes by.
            let space = process.space.as_ref().expect("observed before");
            let thread = crate::capture::any_thread(process, stopped)?;
            remote::run(&space.annex, thread, &mut Batch::new(&space.annex))?;
            Some(libc::WCONTINUED)
        }
        StopChange::Stop { told } => {
            ptrace::kill(host_pid, libc::SIGSTOP)?;
            // The first one takes the signal and stops the group; only then may the others move, into the same stop.
            for tid in &tids {
                enter_stop(stopped.get_mut(tid).expect("filtered for it"))?;
            }
            told.then_some(libc::WUNTRACED)
        }
    };
    for tid in &tids {
        stopped.get_mut(tid).expect("filtered for it").group_stop = change != StopChange::GoOn;
    }
    let Some((asked, parent)) = asked.zip(parent.and_then(|parent| live.get(&parent))) else {
        return Ok(());
    };
    let space = parent.space.as_ref().expect("observed before");
    let thread = crate::capture::any_thread(parent, stopped)?;
    let mut batch = Batch::new(&space.annex);
    let flags = (asked | libc::WNOHANG | libc::__WALL).cast_unsigned();
    batch.call(libc::SYS_wait4, [u64::from(process.pid), 0, flags.into(), 0, 0, 0]);
    remote::run(&space.annex, thread, &mut batch).map(drop)
}

/// Lets a held thread go on into the stop of its group; it never gets as far as its program.
fn enter_stop(thread: &mut StoppedThread) -> Result<(), EngineError> {
    let tid = thread.host_tid;
    thread.block_signals(remote::RUN_MASK)?;
    let mut signal = 0;
    loop {
        ptrace::resume(tid, signal)?;
        match ptrace::wait(tid, true)? {
            Some((_, Waited::Stopped { event: STOP, signal })) if signal != libc::SIGTRAP => return Ok(()),
            Some((_, Waited::Stopped { event: 0, signal: got })) if got == libc::SIGSTOP => signal = got,
            Some((_, Waited::Stopped { .. })) => signal = 0,
            Some((_, Waited::Gone(_))) => return Err(SysError::new("stop", tid, libc::ESRCH).into()),
            None => {}
        }
    }
}
