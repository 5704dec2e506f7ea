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
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// One line of `GET …/execs/{exec}/output` (`application/x-ndjson`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Frame {
    /// Bytes of standard output, or of the terminal.
    Stdout {
        /// Position of the first byte in the stream of this command.
        offset: u64,
        /// The bytes.
        bytes: Base64,
    },
    /// Bytes of standard error.
    Stderr {
        /// Position of the first byte in the stream of this command.
        offset: u64,
        /// The bytes.
        bytes: Base64,
    },
    /// A rollback took the box to before what was said since; output goes on from `offset`.
    RolledBack {
        /// Where the box is now.
        to: String,
        /// Length of the stream there.
        offset: u64,
    },
    /// A rollback took the box to before this command was started: it is unknown again. The last line.
    Undone {
        /// Where the box is now.
        to: String,
    },
    /// It ended. The stream stays open, since a rollback can make it alive again; a follower that wants only the
    /// first end stops reading here (`?follow=exit`, the default, ends the stream).
    Exited {
        /// Exit code as a shell says it: 128 + N for signal N.
        code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// The box is gone. The last line.
    Gone,
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
