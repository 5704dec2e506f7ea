//! Why a measurement has no result.

use std::fmt::Display;
use std::io;

/// A failed suite. Nothing of a suite is reported when part of it failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The daemon refused or could not be reached.
    #[error("the daemon: {0}")]
    Daemon(String),
    /// The daemon answered with a problem of its own.
    #[error("the daemon: {request}: {}: {}", problem.code.name(), problem.detail)]
    Refused {
        /// Method and path.
        request: String,
        /// What it said.
        problem: Box<api::Problem>,
    },
    /// A program beside the product did not do its part.
    #[error("{program}: {what}")]
    Program {
        /// Which.
        program: String,
        /// What happened.
        what: String,
    },
    /// After a rollback the program was not where it had been: the product (or the rival) is wrong, not slow.
    #[error("{name}, round {round}: memory and files differ after the rollback ({expected} before, {found} after)")]
    Differs {
        /// Which row.
        name: String,
        /// Which round.
        round: u32,
        /// Hash at the checkpoint.
        expected: String,
        /// Hash after the rollback.
        found: String,
    },
    /// An operation of this process failed.
    #[error("{what}: {source}")]
    Io {
        /// On what.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl BenchError {
    pub(crate) fn program(program: impl Display, what: impl Display) -> Self {
        Self::Program {
            program: program.to_string(),
            what: what.to_string(),
        }
    }
}

/// `map_err` argument for an operation on `what`.
pub(crate) fn io_on(what: impl Display) -> impl FnOnce(io::Error) -> BenchError {
    move |source| BenchError::Io {
        what: what.to_string(),
        source,
    }
}

/// The same for the errors of rustix.
pub(crate) fn errno_on(what: impl Display) -> impl FnOnce(rustix::io::Errno) -> BenchError {
    move |errno| BenchError::Io {
        what: what.to_string(),
        source: errno.into(),
    }
}
