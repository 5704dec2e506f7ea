//! The product: one sandbox's history: checkpoint, rollback, log, diff. The only crate that sees processes and files
//! together, so the only one that can say "checkpoint".
#![forbid(unsafe_code)]

pub mod command;
pub mod copy;
pub mod error;
pub mod events;
pub mod execs;
pub mod handle;
pub mod history;
pub mod output;
mod pump;
mod queue;
mod retention;
pub mod revision;
mod streams;

pub use command::{Command, Outcome, Request};
pub use error::{Kind, TimelineError};
pub use handle::{BoxState, Handle, Summary};
pub use output::{ExecEvent, ExecState, Follower, Position, Stream};
pub use queue::{QUEUE_MAX, Reply};
