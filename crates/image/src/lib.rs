//! What a checkpoint *is*: an immutable, complete state of a box: its process image, its file tree, its place in
//! the history. Plain data: no I/O, no system calls, builds on any OS.
#![forbid(unsafe_code)]

pub mod id;
pub mod tree;

pub use id::{CheckpointId, ExecId, Principal, SandboxId, Tenant};
