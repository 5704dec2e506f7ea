//! What can go wrong with a box, by what the caller does next.

use linux::SysError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The specification makes no sense; mend it and ask again.
    #[error("{0}")]
    Invalid(String),
    /// The image cannot be used; take another one.
    #[error("image {image}: {why}")]
    Image {
        /// Which image.
        image: String,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel refused a step of the daemon: rights or features are missing; `doctor` says which.
    #[error("{step}: {source}")]
    Kernel {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: SysError,
    },
    /// PID 1 could not build the box from inside.
    #[error("the box could not be built ({stage}): {}", std::io::Error::from_raw_os_error(*errno))]
    Birth {
        /// Which step.
        stage: &'static str,
        /// Why.
        errno: i32,
    },
    /// The command could not be started; the box is unharmed. `ENOENT` at `exec` means: no such program.
    #[error("cannot start {program} ({stage}): {}", std::io::Error::from_raw_os_error(*errno))]
    Start {
        /// The program as it was named.
        program: String,
        /// Which step.
        stage: &'static str,
        /// Why.
        errno: i32,
    },
    /// The box does not know this user or group.
    #[error("no user or group {0:?} in the box")]
    UnknownUser(String),
    /// PID 1 is gone, and the box with it.
    #[error("the box has died")]
    Died,
}

/// Names the step of a kernel error.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, SandboxError>;
}

impl<T> Step<T> for Result<T, SysError> {
    fn step(self, step: &'static str) -> Result<T, SandboxError> {
        self.map_err(|source| SandboxError::Kernel { step, source })
    }
}
