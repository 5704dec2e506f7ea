//! States that cannot be captured or put back, each with the sentence that the user reads. Nothing has been touched
//! when one of these is returned.

use crate::error::EngineError;
use crate::tracee::LiveProcess;

/// Whose state it is.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pid: u32,
    comm: String,
}

impl Subject {
    pub(crate) fn new(pid: u32, comm: impl Into<String>) -> Self {
        Self { pid, comm: comm.into() }
    }

    /// From a running process.
    pub(crate) fn of(process: &LiveProcess) -> Self {
        let mut text = Vec::new();
        let comm = match process.dir.read("comm", &mut text) {
            Ok(()) => String::from_utf8_lossy(text.trim_ascii_end()).into_owned(),
            Err(_) => "?".to_owned(),
        };
        Self::new(process.pid, comm)
    }
}

/// `pid 12 (node): fd 7: netlink socket`.
pub(crate) fn refuse(subject: &Subject, what: impl std::fmt::Display) -> EngineError {
    EngineError::Unsupported(format!("pid {} ({}): {what}", subject.pid, subject.comm))
}
