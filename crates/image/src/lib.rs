//! What a checkpoint *is*: an immutable, complete state of a box: its process image, its file tree, its place in
//! the history. Plain data: no I/O, no system calls, builds on any OS.
#![forbid(unsafe_code)]

pub mod fd;
pub mod id;
pub mod memory;
pub mod process;
pub mod signal;
pub mod thread;
pub mod timer;
pub mod tree;

pub use id::{CheckpointId, ExecId, Principal, SandboxId, Tenant};
