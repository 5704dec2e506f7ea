//! Wire type of the event stream: one line for each command that was asked of a sandbox.

use serde::{Deserialize, Serialize};

/// One line of `GET /v1/events` (`application/x-ndjson`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from 1 while the daemon runs; `?since=` takes it.
    pub id: u64,
    /// When, Unix time in milliseconds.
    pub at_ms: u64,
    /// Whose.
    pub tenant: String,
    /// Who asked.
    pub principal: String,
    /// On which sandbox.
    pub sandbox: String,
    /// What, with what it is about: `create`, `rollback ckp_…`.
    pub command: String,
    /// `done`, or the kind of error.
    pub outcome: String,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// Bytes that were captured, put back or copied.
    pub bytes: u64,
}
