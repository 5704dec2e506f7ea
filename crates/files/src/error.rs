//! What can go wrong with files. A variant exists because a caller acts on it.

use linux::SysError;

/// Why the file tree could not be tracked, captured or put back.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The rollback cannot succeed (no space, a content that is gone, a program being run); nothing was touched.
    #[error("the files cannot be rolled back: {0}")]
    Refused(String),
    /// The rollback failed after it had begun: the tree is neither the old nor the new one.
    #[error("the rollback of the files failed half way: {0}")]
    Torn(SysError),
    /// The kernel refused a call that should have worked; nothing was touched.
    #[error(transparent)]
    Kernel(#[from] SysError),
}
