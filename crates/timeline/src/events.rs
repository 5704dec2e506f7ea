//! One line for every command that anybody asked of any sandbox: who, what, outcome, how long, how much. Audit, usage
//! and "where am I" read it. The last ones are kept in memory, all are appended to a file that is rotated once at its
//! bound. A full disk never fails a command: what could not be written is counted.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use image::{Principal, SandboxId, Tenant};
use linux::SysError;

/// Events kept in memory.
pub const EVENTS_RING_MAX: usize = 4096;
/// Bytes of the file before it is put aside as `.1`.
pub const EVENTS_FILE_MAX_BYTES: u64 = 64 << 20;

/// One command and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Counts from 1 since this log was opened.
    pub sequence: u64,
    /// When it was answered, Unix time in milliseconds.
    pub at_ms: u64,
    /// Whose sandbox.
    pub tenant: Tenant,
    /// Who asked.
    pub principal: Principal,
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// What was asked: the command's name, with what it is about (`rollback ckp_…`).
    pub command: String,
    /// `done`, or the kind of error in lower case.
    pub outcome: &'static str,
    /// Microseconds from arrival to answer.
    pub micros: u64,
    /// Bytes that were captured, put back or copied.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    ring: VecDeque<Event>,
    sequence: u64,
    file: Option<File>,
    file_bytes: u64,
    unwritten: u64,
}

/// The event log of a daemon.
pub struct Events {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({:?})", self.path)
    }
}

impl Events {
    /// Opens `events.jsonl` in a directory that exists.
    ///
    /// # Errors
    /// `Kernel` when the file cannot be opened.
    pub fn open(directory: &Path) -> Result<Self, SysError> {
        let path = directory.join("events.jsonl");
        let (file, file_bytes) = open(&path)?;
        let state = State {
            file: Some(file),
            file_bytes,
            ..State::default()
        };
        Ok(Self {
            path: Some(path),
            state: Mutex::new(state),
        })
    }

    /// Only in memory.
    pub fn in_memory() -> Self {
        Self {
            path: None,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; its sequence number is set here.
    pub fn append(&self, mut event: Event) {
        let mut state = self.lock();
        state.sequence += 1;
        event.sequence = state.sequence;
        if let Some(path) = &self.path {
            let line = line(&event);
            if write(&mut state, path, line.as_bytes()).is_err() {
                state.unwritten += 1;
            }
        }
        if state.ring.len() == EVENTS_RING_MAX {
            state.ring.pop_front();
        }
        state.ring.push_back(event);
    }

    /// The last ones after `sequence`, oldest first.
    pub fn since(&self, sequence: u64) -> Vec<Event> {
        self.lock()
            .ring
            .iter()
            .filter(|event| event.sequence > sequence)
            .cloned()
            .collect()
    }

    /// How many could not be written to the file.
    pub fn unwritten(&self) -> u64 {
        self.lock().unwritten
    }
}

fn open(path: &Path) -> Result<(File, u64), SysError> {
    let fail = |error: &std::io::Error| SysError::io("open", path.display(), error);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| fail(&error))?;
    let bytes = file.metadata().map_err(|error| fail(&error))?.len();
    Ok((file, bytes))
}

fn write(state: &mut State, path: &Path, line: &[u8]) -> std::io::Result<()> {
    if state.file_bytes >= EVENTS_FILE_MAX_BYTES {
        std::fs::rename(path, path.with_extension("jsonl.1"))?;
        state.file = None;
    }
    if state.file.is_none() {
        state.file = Some(OpenOptions::new().append(true).create(true).open(path)?);
        state.file_bytes = 0;
    }
    let file = state.file.as_mut().expect("opened above");
    file.write_all(line)?;
    state.file_bytes += line.len() as u64;
    Ok(())
}

fn line(event: &Event) -> String {
    let value = serde_json::json!({
        "sequence": event.sequence,
        "at_ms": event.at_ms,
        "tenant": event.tenant.0,
        "principal": event.principal.0,
        "sandbox": event.sandbox.to_string(),
        "command": event.command,
        "outcome": event.outcome,
        "micros": event.micros,
        "bytes": event.bytes,
    });
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(command: &str) -> Event {
        Event {
            sequence: 0,
            at_ms: 5,
            tenant: Tenant::default(),
            principal: Principal("uid:0".to_owned()),
            sandbox: SandboxId::from_bits(1),
            command: command.to_owned(),
            outcome: "done",
            micros: 900,
            bytes: 7,
        }
    }

    #[test]
    fn the_ring_is_bounded_and_the_file_has_all() {
        let directory = std::env::temp_dir().join(format!("deltabox-events-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let events = Events::open(&directory).unwrap();
        for n in 0..EVENTS_RING_MAX + 2 {
            events.append(event(&format!("exec \"{n}\"\n")));
        }
        let text = std::fs::read_to_string(directory.join("events.jsonl")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(events.since(0).len(), EVENTS_RING_MAX);
        assert_eq!(events.since(0)[0].sequence, 3);
        assert_eq!(events.since(EVENTS_RING_MAX as u64 + 1).len(), 1);
        assert_eq!(text.lines().count(), EVENTS_RING_MAX + 2);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(
            (first["command"].as_str(), first["micros"].as_u64()),
            (Some("exec \"0\"\n"), Some(900))
        );
        assert_eq!(events.unwritten(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_said() {
        assert!(Events::open(Path::new("/nonexistent/deltabox")).is_err());
    }
}
