//! The wire contract: every type that crosses HTTP, and the names of headers and paths. No server and no client inside,
//! and no other crate of ours: conversion to the domain happens in `node/src/handlers`.
//!
//! Versions: the path begins with `/v1`; fields are only ever added, and a reader skips what it does not know. Our own
//! command line also sends [`VERSION_HEADER`], and a daemon of another version refuses it before it does anything.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod checkpoint;
pub mod error;
pub mod event;
pub mod exec;
pub mod file;
pub mod sandbox;

pub use bytes::Base64;
pub use checkpoint::{
    Change, Checkpoint, CheckpointRequest, Checkpointed, Diff, Difference, Log, Phase, RollbackRequest, RolledBack,
    TagRequest, Timing,
};
pub use error::{Code, Problem};
pub use event::Event;
pub use exec::{ExecRequest, ExecStarted, ExecState, Frame, Position, ResizeRequest, SignalRequest, StdinQuery};
pub use file::FilesQuery;
pub use sandbox::{CreateRequest, Network, Sandbox, SandboxList, SandboxState, Volume};

use serde::{Deserialize, Serialize};

/// The version of this contract's implementation; the daemon and the command line are one binary and share it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Header in which the command line names its version, and every answer names the daemon's.
pub const VERSION_HEADER: &str = "deltabox-version";

/// Header in which every answer names the daemon's build: two of the same version can be different programs.
pub const BUILD_HEADER: &str = "deltabox-build";

/// Header that carries a request's id, in answers and in [`Problem::request_id`].
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// Media type of an error.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// Media type of a stream of JSON values, one a line.
pub const NDJSON_TYPE: &str = "application/x-ndjson";

/// Media type of a tar stream.
pub const TAR_TYPE: &str = "application/x-tar";

/// Answer of `GET /v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The daemon's version.
    pub version: String,
    /// Which build of that version it is; empty when the daemon is too old to say.
    #[serde(default)]
    pub build: String,
    /// Its process id.
    pub pid: u32,
    /// Its state directory.
    pub state: String,
}

/// Answer of `GET /v1/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Always `ok`: a daemon that is not does not answer.
    pub status: String,
    /// Sandboxes that run.
    pub sandbox_count: u32,
}
