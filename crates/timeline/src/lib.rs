//! The product: one sandbox's history: checkpoint, rollback, log, diff. The only crate that sees processes and files
//! together, so the only one that can say "checkpoint".
#![forbid(unsafe_code)]

pub mod command;
pub mod copy;
pub mod error;
pub mod events;
pub mod execs;
pub mod history;
pub mod output;
mod pump;
mod retention;
pub mod revision;
mod streams;

pub use command::{Command, Outcome};
pub use error::{Kind, TimelineError};
