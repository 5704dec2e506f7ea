//! Where errors of this crate come together: what keeps a daemon from running, and how a failure of a box is said over
//! HTTP. The mapping from kind to code is here and nowhere else.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use api::{Code, PROBLEM_TYPE, Problem};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandbox::SandboxError;
use timeline::fault::{self, UnknownPoint};
use timeline::{Kind, TimelineError};

/// No such file.
const ENOENT: i32 = 2;

/// Why a daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Another one has this state directory.
    #[error("a daemon already runs on {}", state.display())]
    AlreadyRuns {
        /// The directory.
        state: PathBuf,
    },
    /// Another one has this state directory and does not listen any more.
    #[error("the daemon before this one has not ended within {} s: {}", crate::lock::PREDECESSOR_END_MAX.as_secs(), state.display())]
    DoesNotEnd {
        /// The directory.
        state: PathBuf,
    },
    /// Another one listens there.
    #[error("a daemon already listens on {}", socket.display())]
    SocketInUse {
        /// The path.
        socket: PathBuf,
    },
    /// The kernel has a bound on a socket's path.
    #[error("the socket's path is longer than {} bytes: {}", crate::config::SOCKET_PATH_BYTES_MAX, socket.display())]
    SocketPathTooLong {
        /// The path.
        socket: PathBuf,
    },
    /// A fault point that nobody knows.
    #[error(transparent)]
    UnknownFault(#[from] UnknownPoint),
    /// The operating system said no.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        error: std::io::Error,
    },
}

impl NodeError {
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            error,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Cow<'static, str> {
        let hint = match self {
            Self::AlreadyRuns { .. } | Self::SocketInUse { .. } => "use it, or stop it with SIGTERM first",
            Self::DoesNotEnd { .. } => "deltabox.log there may say what keeps it; then try again",
            Self::SocketPathTooLong { .. } => "set DELTABOX_HOST=unix:///run/... to a shorter path",
            Self::Io { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => {
                "the daemon must be root: sudo deltabox serve"
            }
            Self::Io { .. } => "`deltabox doctor` says what this machine lacks",
            Self::UnknownFault(unknown) if unknown.near.is_empty() => {
                return format!("DELTABOX_FAULTS takes {}", fault::points().join(", ")).into();
            }
            Self::UnknownFault(unknown) => return format!("did you mean {}?", unknown.near.join(" or ")).into(),
        };
        hint.into()
    }
}

/// A problem on its way out. The request's id is filled in by the router.
#[derive(Debug, Clone)]
pub struct ApiError(pub Box<Problem>);

impl ApiError {
    /// A problem without hint.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)))
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<TimelineError> for ApiError {
    fn from(error: TimelineError) -> Self {
        let mut problem = Problem::new(code_of(&error), error.to_string());
        problem.hint = error.hint().map(str::to_owned);
        if let TimelineError::UnknownRevision { near, .. } | TimelineError::UnknownTag { near, .. } = error {
            problem.candidates = near;
        }
        Self(Box::new(problem))
    }
}

/// Error of a box -> code of the API.
fn code_of(error: &TimelineError) -> Code {
    match error {
        TimelineError::Sandbox(SandboxError::Start { errno: ENOENT, .. }) => Code::CommandNotFound,
        TimelineError::Sandbox(SandboxError::Start { .. }) => Code::CommandNotExecutable,
        TimelineError::Sandbox(SandboxError::Invalid(_) | SandboxError::Image { .. }) => Code::BadRequest,
        TimelineError::AmbiguousRevision { .. } => Code::Conflict,
        error => code(error.kind()),
    }
}

/// Kind of a failure in a box -> code of the API.
fn code(kind: Kind) -> Code {
    match kind {
        Kind::Busy => Code::Busy,
        Kind::NotFound => Code::NotFound,
        Kind::Unsupported => Code::Unsupported,
        Kind::Refused => Code::Refused,
        Kind::Corrupt => Code::Corrupt,
        Kind::Died => Code::Died,
        Kind::Internal => Code::Internal,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_TYPE)]).into_response();
        response.extensions_mut().insert(*self.0);
        response
    }
}
