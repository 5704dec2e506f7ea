//! The product: one sandbox's history: checkpoint, rollback, log, diff. The only crate that sees processes and files
//! together, so the only one that can say "checkpoint".
#![forbid(unsafe_code)]

pub mod command;
pub mod error;
pub mod history;
pub mod output;
mod retention;
pub mod revision;

pub use command::{Command, Outcome};
pub use error::{Kind, TimelineError};
