//! The commands of a box: which are known, whether they run, what they printed; and what becomes of them when the box
//! goes back. A command is part of the box's state: one started after the checkpoint becomes unknown again, one whose
//! end or output is undone has them undone here too.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use image::{CheckpointId, ExecId};
use linux::SysError;
use rustix::process::Signal;

use crate::command::ExecSpec;
use crate::error::TimelineError;
use crate::output::{Content, ExecState, Follower, Output, Position};
use crate::pump::Pump;
use crate::streams::{Ends, InputMark, Streams};

/// How many commands a box remembers; beyond it the ones that ended first are forgotten.
pub const EXECS_MAX: usize = 256;

/// A started command, as the sandbox gives it.
#[derive(Debug)]
pub struct Process {
    /// Pid inside.
    pub pid: u32,
    /// Pid on the host.
    pub host_pid: u32,
    /// Our ends of its streams.
    pub ends: Ends,
}

/// One command.
#[derive(Debug)]
pub struct Exec {
    id: ExecId,
    key: u64,
    pid: u32,
    host_pid: u32,
    argv: Vec<String>,
    terminal: bool,
    started_ms: u64,
    output: Arc<Output>,
    streams: Mutex<Streams>,
}

impl Exec {
    pub(crate) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    /// What is known of it.
    pub fn line(&self) -> ExecLine {
        ExecLine {
            id: self.id,
            pid: self.pid,
            argv: self.argv.clone(),
            terminal: self.terminal,
            started_ms: self.started_ms,
            state: self.output.exec_state(),
            output_bytes: self.output.mark().0.end(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.output.exec_state() == ExecState::Running
    }
}

/// One line of a list of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecLine {
    /// Its id.
    pub id: ExecId,
    /// Pid inside.
    pub pid: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// It has a terminal.
    pub terminal: bool,
    /// When, Unix time in milliseconds.
    pub started_ms: u64,
    /// Whether it runs.
    pub state: ExecState,
    /// What it printed so far.
    pub output_bytes: u64,
}

/// What a checkpoint keeps of one command.
#[derive(Debug, Clone)]
struct Mark {
    exec: Arc<Exec>,
    content: Content,
    state: ExecState,
    input: InputMark,
}

/// What a checkpoint keeps of all commands.
#[derive(Debug, Clone, Default)]
pub struct Marks(Vec<Mark>);

impl Marks {
    /// An upper bound of the bytes that only `self` holds beside `earlier`.
    pub fn own_bytes(&self, earlier: Option<&Marks>) -> u64 {
        let before = |exec: &Arc<Exec>| {
            earlier.and_then(|marks| {
                marks
                    .0
                    .iter()
                    .find(|mark| mark.exec.id == exec.id)
                    .map(|mark| &mark.content)
            })
        };
        self.0
            .iter()
            .map(|mark| mark.content.own_bytes(before(&mark.exec)))
            .sum()
    }
}

#[derive(Debug, Default)]
struct Table {
    list: Vec<Arc<Exec>>,
    /// Pids of commands that a rollback ended: their end is still to be reported and means nobody.
    undone: Vec<u32>,
}

/// The commands of a box. Shared between its driver, which changes it, and everybody who looks.
#[derive(Debug)]
pub struct Execs {
    table: Mutex<Table>,
    next_key: AtomicU64,
    pump: Pump,
}

impl Execs {
    /// # Errors
    /// The kernel's, when it gives no thread or epoll.
    pub fn new() -> Result<Self, SysError> {
        Ok(Self {
            table: Mutex::default(),
            next_key: AtomicU64::new(0),
            pump: Pump::start()?,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Vec<Arc<Exec>> {
        self.table().list.clone()
    }

    /// A command was started.
    ///
    /// # Errors
    /// `Kernel` when its process or streams cannot be held; the caller ends it then.
    pub fn started(&self, id: ExecId, spec: &ExecSpec, process: Process, now_ms: u64) -> Result<(), SysError> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let exec = Arc::new(Exec {
            id,
            key,
            pid: process.pid,
            host_pid: process.host_pid,
            argv: spec.argv.clone(),
            terminal: process.ends.master.is_some(),
            started_ms: now_ms,
            output: Arc::default(),
            streams: Mutex::new(Streams::new(process.ends, open_process(process.host_pid)?)?),
        });
        self.pump.watch(key, &exec);
        let mut table = self.table();
        table.list.push(exec);
        if table.list.len() > EXECS_MAX
            && let Some(oldest) = table.list.iter().position(|exec| !exec.is_running())
        {
            let exec = table.list.remove(oldest);
            drop(table);
            self.close(&exec);
            exec.output.end();
        }
        Ok(())
    }

    /// The process `pid` ended. Everything it printed is read before anybody is told.
    pub fn exited(&self, pid: u32, code: i32) {
        let exec = {
            let mut table = self.table();
            if let Some(index) = table.undone.iter().position(|undone| *undone == pid) {
                table.undone.swap_remove(index);
                return;
            }
            // The last of that number: an earlier one may have ended before.
            table
                .list
                .iter()
                .rev()
                .find(|exec| exec.pid == pid && exec.is_running())
                .cloned()
        };
        if let Some(exec) = exec {
            exec.streams().ended(&exec.output);
            exec.output.exited(code);
        }
    }

    /// # Errors
    /// `UnknownExec`.
    pub(crate) fn get(&self, id: ExecId) -> Result<Arc<Exec>, TimelineError> {
        self.table()
            .list
            .iter()
            .find(|exec| exec.id == id)
            .cloned()
            .ok_or(TimelineError::UnknownExec(id))
    }

    /// All commands, in the order of their start.
    pub fn lines(&self) -> Vec<ExecLine> {
        self.list().iter().map(|exec| exec.line()).collect()
    }

    /// Reads a command's events from a place on.
    ///
    /// # Errors
    /// `UnknownExec`.
    pub fn follow(&self, id: ExecId, from: Position) -> Result<Follower, TimelineError> {
        Ok(self.get(id)?.output.follow(from))
    }

    /// Bytes for a command's standard input.
    ///
    /// # Errors
    /// `UnknownExec`, `ExecRefused`, `InputFull`.
    pub fn send(&self, id: ExecId, bytes: &[u8], close: bool) -> Result<(), TimelineError> {
        let exec = self.get(id)?;
        let mut streams = exec.streams();
        if streams.send(id, bytes, close)? {
            self.pump.rewatch(exec.key, &streams);
        }
        Ok(())
    }

    /// New size of a command's terminal.
    ///
    /// # Errors
    /// `UnknownExec`, `ExecRefused`, `Kernel`.
    pub fn resize(&self, id: ExecId, rows: u16, columns: u16) -> Result<(), TimelineError> {
        self.get(id)?.streams().resize(id, rows, columns)
    }

    /// A signal to a command's process.
    ///
    /// # Errors
    /// `UnknownExec`, `ExecRefused` when it ended or the signal is none, `Kernel`.
    pub fn signal(&self, id: ExecId, signal: i32) -> Result<(), TimelineError> {
        let exec = self.get(id)?;
        let Some(signal) = Signal::from_named_raw(signal) else {
            return Err(TimelineError::ExecRefused {
                exec: id,
                why: "takes only signals that have a name",
            });
        };
        let streams = exec.streams();
        let Some(process) = streams.process() else {
            return Err(TimelineError::ExecRefused {
                exec: id,
                why: "has ended",
            });
        };
        match rustix::process::pidfd_send_signal(process, signal) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::SRCH) => Err(TimelineError::ExecRefused {
                exec: id,
                why: "has ended",
            }),
            Err(errno) => Err(SysError::rustix("pidfd_send_signal", id, errno).into()),
        }
    }

    /// Lets no input through until the guard goes: from before a capture or a rollback until the thaw.
    pub fn hold_input(&self) -> impl Drop + '_ {
        self.pump.hold_input()
    }

    /// Reads everything that is in the streams. Called while the box stands still: afterwards what was printed and
    /// what is in the process image are one cut.
    pub fn drain(&self) {
        for exec in self.list() {
            exec.streams().drain(&exec.output);
        }
    }

    /// What a checkpoint keeps, after [`drain`](Self::drain).
    pub fn mark(&self) -> Marks {
        let mark = |exec: &Arc<Exec>| {
            let (content, state) = exec.output.mark();
            Mark {
                exec: Arc::clone(exec),
                content,
                state,
                input: exec.streams().mark(),
            }
        };
        Marks(self.list().iter().map(mark).collect())
    }

    /// Goes to what a checkpoint kept, after the processes went there and while they still stand. `runs(pid)` says
    /// whether the checkpoint has that process: a command whose end was on its way while the checkpoint was taken
    /// stays ended. Returns the commands whose output was cut or that are unknown again.
    pub fn rewind(&self, marks: &Marks, to: CheckpointId, runs: impl Fn(u32) -> bool) -> Vec<ExecId> {
        let mut cut = Vec::new();
        for exec in self.list() {
            if !marks.0.iter().any(|mark| mark.exec.id == exec.id) {
                self.forget(&exec, to);
                cut.push(exec.id);
            }
        }
        for mark in &marks.0 {
            let exec = &mark.exec;
            let ended = !exec.is_running() && mark.state == ExecState::Running && !runs(exec.pid);
            let state = if ended { exec.output.exec_state() } else { mark.state };
            let mut streams = exec.streams();
            streams.rewind(&mark.input, exec.host_pid);
            self.pump.rewatch(exec.key, &streams);
            drop(streams);
            if exec.output.rewind(&mark.content, state, to) {
                cut.push(exec.id);
            }
        }
        self.table().list = marks.0.iter().map(|mark| Arc::clone(&mark.exec)).collect();
        cut
    }

    fn forget(&self, exec: &Arc<Exec>, to: CheckpointId) {
        if exec.is_running() {
            self.table().undone.push(exec.pid);
        }
        self.close(exec);
        exec.output.forget(to);
    }

    fn close(&self, exec: &Exec) {
        self.pump.forget(exec.key);
        exec.streams().close_all();
    }

    /// The box is no more: what was printed can still be read.
    pub fn end(&self) {
        for exec in self.list() {
            exec.streams().drain(&exec.output);
            self.close(&exec);
            exec.output.end();
        }
    }
}

/// `None` when it has ended and was reaped already.
fn open_process(host_pid: u32) -> Result<Option<OwnedFd>, SysError> {
    let Some(pid) = i32::try_from(host_pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return Ok(None);
    };
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(errno) => Err(SysError::rustix("pidfd_open", host_pid, errno)),
    }
}

#[cfg(test)]
mod tests;
