//! Wire types for checkpoints: taking one, going back, names, the log and differences.

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/sandboxes/{box}/checkpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointRequest {
    /// Why.
    pub message: Option<String>,
    /// A name that keeps it from being dropped.
    pub tag: Option<String>,
}

/// Where the time of an operation went, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The sandbox stood still.
    pub stop_ms: f64,
    /// From the command's arrival at the driver to its outcome.
    pub total_ms: f64,
    /// Named phases, in order.
    pub phases: Vec<Phase>,
}

/// One phase of a [`Timing`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What was done.
    pub name: String,
    /// How long it took.
    pub ms: f64,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// `ckp_…`.
    pub id: String,
    /// The one it grew from.
    pub parent: Option<String>,
    /// Why it was taken.
    pub message: Option<String>,
    /// Its names.
    pub tags: Vec<String>,
    /// When, Unix time in milliseconds.
    pub created_ms: u64,
    /// True for the head.
    pub head: bool,
    /// Processes in it.
    pub process_count: u32,
    /// Bytes of memory that only it holds.
    pub memory_bytes: u64,
    /// Bytes of files that only it holds.
    pub file_bytes: u64,
    /// Files changed since its parent.
    pub changed_files: u32,
    /// Dropped to keep within the memory bound; only this line is left.
    pub dropped: bool,
    /// Made by a rollback to keep the present.
    pub automatic: bool,
    /// What lies outside the history (volumes).
    pub outside: Vec<String>,
}

/// Answer of `POST …/checkpoints`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// The new head.
    pub checkpoint: Checkpoint,
    /// What it cost.
    pub timing: Timing,
    /// Pages copied while the box stood still.
    pub page_count: u64,
}

/// Body of `POST …/rollback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackRequest {
    /// An id, a unique prefix of one, a tag, `HEAD~2`, `@{-1}`; the head when absent.
    pub to: Option<String>,
    /// Keep the present as `@{-1}` first.
    pub keep_present: bool,
}

impl Default for RollbackRequest {
    fn default() -> Self {
        Self {
            to: None,
            keep_present: true,
        }
    }
}

/// Answer of `POST …/rollback`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The head now.
    pub to: String,
    /// The present that was kept, if any.
    pub kept: Option<String>,
    /// What it cost.
    pub timing: Timing,
    /// Pages written.
    pub page_count: u64,
    /// Files put back.
    pub changed_files: u32,
    /// Commands whose output was cut or that are unknown again.
    pub cut: Vec<String>,
}

/// Body of `POST …/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagRequest {
    /// Which checkpoint; the head when absent.
    #[serde(default)]
    pub at: Option<String>,
    /// The name.
    pub name: String,
}

/// Answer of `GET …/checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Oldest first.
    pub checkpoints: Vec<Checkpoint>,
}

/// Answer of `GET …/diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// Files and processes.
    pub differences: Vec<Difference>,
}

/// What happened to a file or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Added,
    /// It differs.
    Changed,
    /// It is gone.
    Removed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// A path.
    File {
        /// What happened.
        change: Change,
        /// Path inside, lossily as text.
        path: String,
    },
    /// A process.
    Process {
        /// What happened.
        change: Change,
        /// Pid inside.
        pid: u32,
        /// Its name.
        comm: String,
        /// Bytes of memory that differ.
        bytes: u64,
    },
}
