//! What checkpoints and rollbacks cost, measured at the client, beside what they could cost at best and what others pay.
//! Drives a running daemon over its socket and programs of its own; knows nothing of the engine. Every suite proves
//! after each rollback that the program is where it was: a wrong rollback has no time.
#![forbid(unsafe_code)]

mod agent;
mod bare;
mod criu;
mod daemon;
mod error;
pub mod files;
mod http;
pub mod report;
pub mod rewind;
mod scratch;
pub mod steady;
mod target;

pub use error::BenchError;
pub use report::Report;
