//! Kernel interfaces as safe, typed Rust; one file per kernel facility. The only library crate that may contain
//! `unsafe`. It never decides anything: it says what the kernel said, with call, object and errno.
#![allow(unsafe_code, reason = "this crate is the boundary to the kernel")]

pub mod batch;
pub mod cgroup;
pub mod clone;
pub mod deadline;
pub mod descriptor;
pub mod error;
pub mod fanotify;
pub mod memfd;
pub mod mount;
pub mod namespace;
pub mod openat;
pub mod owner;
pub mod pagemap;
pub mod pidfd;
pub mod pipe;
pub mod probe;
pub mod process_vm;
pub mod procfs;
pub mod procmap;
pub mod ptrace;
pub mod pty;
pub mod reflink;
pub mod sched;
pub mod seccomp;
pub mod uffd;
pub mod unix_diag;

pub use error::SysError;
