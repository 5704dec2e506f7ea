//! Everything known of a sandbox, or of one checkpoint, as JSON text for programs. Only reads.

use image::CheckpointId;
use serde_json::{Value, json};

use crate::checkpoint::State;
use crate::command::CheckpointLine;
use crate::driver::Driver;
use crate::error::TimelineError;
use crate::execs::ExecLine;
use crate::handle::BoxState;
use crate::output::ExecState;

impl Driver {
    /// The sandbox.
    pub(crate) fn inspect_box(&self) -> String {
        let summary = self.window.lock().clone();
        let (state, why) = match &summary.state {
            BoxState::Running => ("running", None),
            BoxState::Latched(why) => ("latched", Some(why.as_str())),
            BoxState::Died => ("died", None),
            BoxState::Removed => ("removed", None),
        };
        let value = json!({
            "id": summary.id.to_string(),
            "name": summary.name,
            "tenant": summary.tenant.0,
            "state": state,
            "why": why,
            "created_ms": summary.created_ms,
            "head": summary.head.map(|id| id.to_string()),
            "checkpoints": summary.checkpoint_count,
            "checkpoints_resident": summary.resident_count,
            "history_bytes": summary.history_bytes,
            "history_mem_bytes": summary.history_mem_bytes,
            "outside": summary.outside,
            "commands": self.execs.lines().iter().map(exec).collect::<Vec<_>>(),
            "events_unwritten": self.surroundings.events.unwritten(),
        });
        value.to_string()
    }

    /// One checkpoint.
    pub(crate) fn inspect_checkpoint(&self, id: CheckpointId) -> Result<String, TimelineError> {
        let line = self.history.line(id).ok_or(TimelineError::NoCheckpoint)?;
        let state = self.history.state(id).ok().map(|state| state.as_ref());
        Ok(checkpoint(&line, state).to_string())
    }
}

fn checkpoint(line: &CheckpointLine, state: Option<&State>) -> Value {
    let process = |process: engine::ProcessLine| {
        json!({
            "pid": process.pid,
            "parent": process.parent,
            "comm": process.comm,
            "threads": process.thread_count,
            "descriptors": process.fd_count,
            "memory_bytes": process.memory_bytes,
        })
    };
    json!({
        "id": line.id.to_string(),
        "parent": line.parent.map(|id| id.to_string()),
        "message": line.message,
        "tags": line.tags,
        "created_ms": line.created_ms,
        "head": line.head,
        "automatic": line.automatic,
        "dropped": line.dropped,
        "memory_bytes": line.memory_bytes,
        "file_bytes": line.file_bytes,
        "changed_files": line.changed_files,
        "outside": line.outside,
        "processes": state.map(|state| state.process.lines().into_iter().map(process).collect::<Vec<_>>()),
    })
}

fn exec(line: &ExecLine) -> Value {
    json!({
        "id": line.id.to_string(),
        "pid": line.pid,
        "argv": line.argv,
        "terminal": line.terminal,
        "started_ms": line.started_ms,
        "exit_code": match line.state {
            ExecState::Running => None,
            ExecState::Exited(code) => Some(code),
        },
        "output_bytes": line.output_bytes,
    })
}
