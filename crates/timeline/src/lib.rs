//! The product: one sandbox's history: checkpoint, rollback, log, diff. The only crate that sees processes and files
//! together, so the only one that can say "checkpoint". (Interface first: the bodies are being written.)
#![forbid(unsafe_code)]

pub mod command;

pub use command::{Command, Outcome};
