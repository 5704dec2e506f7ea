//! Wire types for sandboxes.

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/sandboxes`. Everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateRequest {
    /// A name of its own; made up from the id when absent.
    pub name: Option<String>,
    /// `host`, a directory, or a tar file on the daemon's machine; `host` when absent.
    pub image: Option<String>,
    /// Memory limit in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor limit in thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Limit on processes and threads.
    pub pids: Option<u32>,
    /// Variables, `(name, value)`.
    pub env: Vec<(String, String)>,
    /// Working directory of commands.
    pub workdir: Option<String>,
    /// User of commands: `name`, `uid` or `uid:gid`.
    pub user: Option<String>,
    /// Directories of the host, outside the history; root on the local socket only.
    pub volumes: Vec<Volume>,
    /// Real root and no filter; root on the local socket only.
    pub privileged: bool,
    /// What the box can reach.
    pub network: Network,
    /// Bytes that the history may hold in memory.
    pub history_bytes: Option<u64>,
}

/// What a box can reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Loopback only.
    #[default]
    None,
}

/// A directory of the host in the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Absolute path on the host.
    pub host: String,
    /// Absolute path inside.
    #[serde(rename = "box")]
    pub inside: String,
    /// Whether the box may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// `sbx_…`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Whether it runs.
    pub state: SandboxState,
    /// What it was made from.
    pub image: String,
    /// When, Unix time in milliseconds.
    pub created_ms: u64,
    /// The checkpoint it has grown from.
    pub head: Option<String>,
    /// Checkpoints in its history.
    pub checkpoint_count: u32,
    /// Processes in it, without PID 1.
    pub process_count: u32,
    /// Bytes of memory that its history holds.
    pub history_bytes: u64,
}

/// Whether a sandbox runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// It runs.
    Running,
    /// A rollback failed half way: its processes were ended; its log can be read, then `rm`.
    Latched,
    /// Its PID 1 is gone; only `rm` is left.
    Dead,
}

/// Answer of `GET /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxList {
    /// Oldest first.
    pub sandboxes: Vec<Sandbox>,
}
