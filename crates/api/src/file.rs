//! Wire types for files: tar streams in (`PUT`) and out (`GET`) of `/v1/sandboxes/{box}/files`.

use serde::{Deserialize, Serialize};

/// Query of both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesQuery {
    /// Absolute path inside: what to read, or the directory to unpack below (made when absent).
    pub path: String,
}
