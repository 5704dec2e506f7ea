//! What can go wrong with processes. A variant exists because a caller acts on it; never wraps another crate's text.

use linux::SysError;

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A task did not stop in time; everything runs on.
    #[error("pid {pid} ({comm}) does not stop: {why}")]
    Busy {
        /// Pid inside the box.
        pid: u32,
        /// Its name.
        comm: String,
        /// What it is in.
        why: String,
    },
    /// A state that cannot be captured or put back, by name. Nothing was touched.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A process of the target is gone or another program by now. Nothing was touched.
    #[error("pid {pid} ({comm}) {why} since the checkpoint; bringing it back is not there yet")]
    Lost {
        /// Pid inside the box.
        pid: u32,
        /// Its name at the checkpoint.
        comm: String,
        /// `died` or `ran another program`.
        why: &'static str,
    },
    /// The kernel refused a call that should have worked.
    #[error(transparent)]
    Kernel(#[from] SysError),
    /// A rollback failed after it had begun: the box is stopped for good.
    #[error("the rollback failed half way ({0}); the box was stopped")]
    Torn(String),
}
