//! Wire types for commands and their output.

use serde::{Deserialize, Serialize};

use crate::Base64;

/// Body of `POST /v1/sandboxes/{box}/execs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables on top of the box's own.
    pub env: Vec<(String, String)>,
    /// Working directory; the box's when absent.
    pub workdir: Option<String>,
    /// `name`, `uid` or `uid:gid`; the box's when absent.
    pub user: Option<String>,
    /// A terminal of this many rows and columns; pipes when absent.
    pub terminal: Option<(u16, u16)>,
    /// Whether standard input stays open for `POST …/stdin`.
    pub stdin: bool,
}

/// Answer of `POST …/execs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// `exe_…`.
    pub id: String,
    /// Pid inside.
    pub pid: u32,
}

/// Answer of `GET …/execs/{exec}/wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecState {
    /// `exe_…`.
    pub id: String,
    /// Exit code as a shell says it: 128 + N for signal N.
    pub code: i32,
}

/// A place in a command's output that stays meaningful after a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Changes with every rollback that changed this output; absent means "of whatever is true now".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Bytes of both streams before it.
    pub offset: u64,
}

/// One line of `GET …/execs/{exec}/output` (`application/x-ndjson`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Frame {
    /// Bytes of standard output, or of the terminal.
    Stdout {
        /// The bytes.
        bytes: Base64,
        /// The place after them: what to ask for to go on from here.
        next: Position,
    },
    /// Bytes of standard error.
    Stderr {
        /// The bytes.
        bytes: Base64,
        /// The place after them.
        next: Position,
    },
    /// So many bytes were forgotten before this reader came to them.
    Skipped {
        /// How many.
        bytes: u64,
        /// The place after them.
        next: Position,
    },
    /// The box went back: what this reader saw from `cut_at` on did not happen.
    RolledBack {
        /// The checkpoint where the box is now.
        to: String,
        /// Bytes of what was seen that still hold.
        cut_at: u64,
        /// The command had not been started then: nothing follows.
        gone: bool,
        /// The place to go on from.
        next: Position,
    },
    /// It ended. With `follow=exit` (the default) the last line; with `follow=always` more can come, since a rollback
    /// can make it alive again.
    Exited {
        /// Exit code as a shell says it: 128 + N for signal N.
        code: i32,
    },
    /// The box died or was removed. The last line.
    Ended,
}

/// Query of `POST …/execs/{exec}/stdin`; the body is the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StdinQuery {
    /// No more will come.
    pub close: bool,
}

/// Body of `POST …/execs/{exec}/resize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// Body of `POST …/execs/{exec}/signal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Signal number.
    pub signal: i32,
}
