//! Errors on the wire: RFC 9457 problems with a closed list of codes. The code is the contract; the text is free.

use serde::{Deserialize, Serialize};

/// What went wrong, as a caller acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request itself is wrong.
    BadRequest,
    /// No such sandbox, checkpoint, command or path; [`Problem::candidates`] may name what was meant.
    NotFound,
    /// The name is taken, or a prefix fits several.
    Conflict,
    /// Another operation is under way, or a program would not stop; nothing was changed, try again.
    Busy,
    /// The box holds a state that cannot be captured, or this kernel lacks what is needed; nothing was touched.
    Unsupported,
    /// The caller may not.
    Denied,
    /// The sandbox refuses because of what happened before; its text says what to do.
    Refused,
    /// Stored state is damaged.
    Corrupt,
    /// The sandbox has died.
    Died,
    /// A bound is reached: disk, memory, sandboxes.
    Exhausted,
    /// Command line and daemon are of different versions.
    VersionMismatch,
    /// The box has no such program.
    CommandNotFound,
    /// The box's program cannot be executed.
    CommandNotExecutable,
    /// The daemon is going down.
    ShuttingDown,
    /// The daemon does not answer (said by clients, never by a daemon).
    Unreachable,
    /// A fault of ours.
    Internal,
}

impl Code {
    /// Every code, for documents and tests.
    pub const ALL: [Self; 16] = [
        Self::BadRequest,
        Self::NotFound,
        Self::Conflict,
        Self::Busy,
        Self::Unsupported,
        Self::Denied,
        Self::Refused,
        Self::Corrupt,
        Self::Died,
        Self::Exhausted,
        Self::VersionMismatch,
        Self::CommandNotFound,
        Self::CommandNotExecutable,
        Self::ShuttingDown,
        Self::Unreachable,
        Self::Internal,
    ];

    /// The HTTP status it travels with.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::Conflict | Self::Busy | Self::Refused => 409,
            Self::Died => 410,
            Self::VersionMismatch => 412,
            Self::Unsupported | Self::CommandNotFound | Self::CommandNotExecutable => 422,
            Self::Exhausted => 507,
            Self::ShuttingDown | Self::Unreachable => 503,
            Self::Corrupt | Self::Internal => 500,
        }
    }

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Corrupt => "corrupt",
            Self::Died => "died",
            Self::Exhausted => "exhausted",
            Self::VersionMismatch => "version_mismatch",
            Self::CommandNotFound => "command_not_found",
            Self::CommandNotExecutable => "command_not_executable",
            Self::ShuttingDown => "shutting_down",
            Self::Unreachable => "unreachable",
            Self::Internal => "internal",
        }
    }

    /// A short sentence, the same for every problem of this code.
    pub const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "the request is wrong",
            Self::NotFound => "not found",
            Self::Conflict => "in conflict with what exists",
            Self::Busy => "busy",
            Self::Unsupported => "unsupported",
            Self::Denied => "not allowed",
            Self::Refused => "refused",
            Self::Corrupt => "stored state is damaged",
            Self::Died => "the sandbox has died",
            Self::Exhausted => "out of room",
            Self::VersionMismatch => "versions differ",
            Self::CommandNotFound => "no such program in the sandbox",
            Self::CommandNotExecutable => "the program cannot be executed",
            Self::ShuttingDown => "the daemon is going down",
            Self::Unreachable => "the daemon does not answer",
            Self::Internal => "internal error",
        }
    }
}

/// An error as `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `about:blank`: the code says it all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// [`Code::title`].
    pub title: String,
    /// [`Code::status`].
    pub status: u16,
    /// What a program acts on.
    pub code: Code,
    /// What happened, for a person.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Names that may have been meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// The request, as the daemon's log names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// A problem without hint.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            hint: None,
            candidates: Vec::new(),
            request_id: String::new(),
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with names that may have been meant.
    #[must_use]
    pub fn candidates(mut self, names: Vec<String>) -> Self {
        self.candidates = names;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_travels() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
    }
}
