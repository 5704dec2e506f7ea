//! Kernel interfaces as safe, typed Rust; one file per kernel facility. The only library crate that may contain
//! `unsafe`. It never decides anything: it says what the kernel said, with call, object and errno.
#![allow(unsafe_code, reason = "this crate is the boundary to the kernel")]

pub mod cgroup;
pub mod clone;
pub mod error;
pub mod mount;
pub mod namespace;
pub mod probe;
pub mod pty;
pub mod seccomp;
pub mod fanotify;
pub mod openat;
pub mod reflink;

pub use error::SysError;
