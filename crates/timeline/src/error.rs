//! Why a sandbox did not do what was asked. A variant exists because a caller acts on it; [`Kind`] is the contract,
//! the text is free.

use std::fmt;

use engine::EngineError;
use files::FilesError;
use image::ExecId;
use sandbox::SandboxError;

/// What a caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Try again later.
    Busy,
    /// What was named is not there.
    NotFound,
    /// The box is in a state that cannot be captured or put back; nothing was touched.
    Unsupported,
    /// Asked for something that must not or cannot be done; nothing was touched.
    Refused,
    /// The box can no longer be trusted.
    Corrupt,
    /// The box is no more.
    Died,
    /// Our fault or the kernel's.
    Internal,
}

impl Kind {
    /// In lower case, as events write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::NotFound => "not_found",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
            Self::Corrupt => "corrupt",
            Self::Died => "died",
            Self::Internal => "internal",
        }
    }
}

/// Why a sandbox did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// Too many commands wait for this box.
    #[error("the sandbox is busy: {waiting} commands wait already")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// A command's standard input takes no more for now.
    #[error("{exec} does not read its input: {pending} bytes wait already")]
    InputFull {
        /// Which command.
        exec: ExecId,
        /// What waits.
        pending: usize,
    },
    /// No such place in the history.
    #[error("no checkpoint {text:?}{}", nearest(near))]
    UnknownRevision {
        /// What was asked for.
        text: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// A prefix that several checkpoints share.
    #[error("{text:?} is the start of several checkpoints: {}", candidates.join(", "))]
    AmbiguousRevision {
        /// What was asked for.
        text: String,
        /// Which.
        candidates: Vec<String>,
    },
    /// A text that is no revision.
    #[error("{text:?} is not a revision: {why}")]
    BadRevision {
        /// What was asked for.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Nothing was checkpointed yet.
    #[error("this sandbox has no checkpoint yet")]
    NoCheckpoint,
    /// Only the line of that checkpoint is left.
    #[error("{text} was dropped to keep the history within its memory bound")]
    Dropped {
        /// Its id.
        text: String,
    },
    /// No such command.
    #[error("no command {0} in this sandbox")]
    UnknownExec(ExecId),
    /// No such sandbox for this tenant.
    #[error("no such sandbox")]
    UnknownSandbox,
    /// No such name.
    #[error("no tag {name:?}{}", nearest(near))]
    UnknownTag {
        /// What was asked for.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// A name that cannot be given.
    #[error("{name:?} cannot be a tag: {why}")]
    BadTag {
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// What was asked of a command does not fit its state.
    #[error("{exec} {why}")]
    ExecRefused {
        /// Which command.
        exec: ExecId,
        /// What is wrong.
        why: &'static str,
    },
    /// A path or stream that cannot be copied.
    #[error("{path}: {why}")]
    CopyRefused {
        /// Which path, as given.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A path that is not there.
    #[error("{path}: no such file or directory in the sandbox")]
    UnknownPath {
        /// Which path, as given.
        path: String,
    },
    /// The processes could not be captured or put back.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The box could not be made, or not start a command.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The files could not be captured or put back.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The kernel refused something that should have worked.
    #[error(transparent)]
    Kernel(#[from] linux::SysError),
    /// An earlier rollback failed half way: the box is stopped for good.
    #[error("the sandbox was stopped by an earlier failure: {0}")]
    Latched(String),
    /// After a rollback the box differs from the checkpoint. It is stopped for good.
    #[error("after the rollback the sandbox differs from the checkpoint: {}", .0.join("; "))]
    Differs(Vec<String>),
    /// The box ended.
    #[error("the sandbox is no more: {0}")]
    Gone(&'static str),
    /// The thread that drives the box is gone.
    #[error("the sandbox's driver ended unexpectedly")]
    DriverLost,
}

impl TimelineError {
    /// What the kernel said where a caller prepared something for a box: which call, on what.
    pub fn io(call: &'static str, object: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::Kernel(linux::SysError::io(call, object, error))
    }

    /// What a caller should do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::QueueFull { .. } | Self::InputFull { .. } => Kind::Busy,
            Self::UnknownRevision { .. }
            | Self::NoCheckpoint
            | Self::UnknownExec(_)
            | Self::UnknownSandbox
            | Self::UnknownTag { .. }
            | Self::UnknownPath { .. } => Kind::NotFound,
            Self::AmbiguousRevision { .. }
            | Self::BadRevision { .. }
            | Self::Dropped { .. }
            | Self::BadTag { .. }
            | Self::ExecRefused { .. }
            | Self::CopyRefused { .. } => Kind::Refused,
            Self::Engine(error) => engine_kind(error),
            Self::Sandbox(error) => sandbox_kind(error),
            Self::Files(error) => files_kind(error),
            Self::Kernel(_) | Self::DriverLost => Kind::Internal,
            Self::Latched(_) | Self::Differs(_) => Kind::Corrupt,
            Self::Gone(_) => Kind::Died,
        }
    }

    /// What a person can do next.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::QueueFull { .. } => "try again when the commands before it are done",
            Self::InputFull { .. } => "send less, or wait until the command reads",
            Self::UnknownRevision { .. } => "`deltabox log` lists the checkpoints",
            Self::AmbiguousRevision { .. } => "give more digits, or a tag",
            Self::BadRevision { .. } => "an id, a unique prefix, a tag, HEAD, HEAD~2 or @{-1}",
            Self::NoCheckpoint => "take one with `deltabox checkpoint`",
            Self::Dropped { .. } => "tag a checkpoint to keep it, or raise --history-mem",
            Self::UnknownExec(_) => "a rollback to before its start makes a command unknown again",
            Self::UnknownSandbox => "`deltabox ls` lists the sandboxes",
            Self::UnknownTag { .. } => "`deltabox log` shows the tags",
            Self::BadTag { .. } => "letters, digits, '-', '_', '.' and '/', at most 128 bytes",
            Self::Engine(EngineError::Busy { .. }) => "end that program or wait for it, then try again",
            Self::Engine(EngineError::Unsupported(_)) => "end what is named, then try again; nothing was touched",
            Self::Engine(EngineError::Lost { .. }) => "go to a checkpoint where that process is as it is now",
            Self::Engine(EngineError::Torn(_))
            | Self::Files(FilesError::Torn(_))
            | Self::Latched(_)
            | Self::Differs(_) => "remove the sandbox with `deltabox rm`; its log can still be read",
            Self::Sandbox(SandboxError::Kernel { .. } | SandboxError::Birth { .. }) => {
                "`deltabox doctor` says what is missing"
            }
            Self::Gone(_) | Self::Sandbox(SandboxError::Died) => "make a new one with `deltabox create`",
            Self::ExecRefused { .. }
            | Self::CopyRefused { .. }
            | Self::UnknownPath { .. }
            | Self::Engine(EngineError::Kernel(_))
            | Self::Files(_)
            | Self::Sandbox(_)
            | Self::Kernel(_)
            | Self::DriverLost => return None,
        })
    }
}

fn engine_kind(error: &EngineError) -> Kind {
    match error {
        EngineError::Busy { .. } => Kind::Busy,
        EngineError::Unsupported(_) => Kind::Unsupported,
        EngineError::Lost { .. } => Kind::Refused,
        EngineError::Kernel(_) => Kind::Internal,
        EngineError::Torn(_) => Kind::Corrupt,
    }
}

fn sandbox_kind(error: &SandboxError) -> Kind {
    match error {
        SandboxError::Invalid(_)
        | SandboxError::Image { .. }
        | SandboxError::Start { .. }
        | SandboxError::UnknownUser(_) => Kind::Refused,
        SandboxError::Kernel { .. } | SandboxError::Birth { .. } => Kind::Internal,
        SandboxError::Died => Kind::Died,
    }
}

fn files_kind(error: &FilesError) -> Kind {
    match error {
        FilesError::Refused(_) => Kind::Refused,
        FilesError::Torn(_) => Kind::Corrupt,
        FilesError::Kernel(_) => Kind::Internal,
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(" (did you mean {}?)", near.join(" or ")),
    }
}
