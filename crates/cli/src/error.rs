//! Errors of the command line: a problem as the API says it, and the exit code that goes with it. The table of exit
//! codes is here and nowhere else.

use api::{Code, Problem};

/// Printed at the end of `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done                      4  in conflict, busy or refused: nothing was changed
  1  failed                    5  unsupported here: `deltabox doctor` says why
  2  wrong usage               6  the daemon does not answer, or is of another version
  3  not found                 7  not allowed
  run, exec, shell, attach end with the command's own code: 128+N for signal N, 127 not found, 126 not executable,
  125 when deltabox itself failed.

Environment:
  DELTABOX_STATE  where state lies (/var/lib/deltabox)
  DELTABOX_HOST   the daemon's socket, unix:///path (/run/deltabox/deltabox.sock, or deltabox.sock in DELTABOX_STATE)

With --json, answers are JSON on standard output and errors are problem JSON (code, detail, hint) on standard error;
a daemon of another build of the same version is a warning there (warning, hint), and for `bench` an error.";

/// Exit code of `run`, `exec`, `shell` and `attach` when it is not the command that failed.
pub(crate) const OUR_FAILURE: u8 = 125;

/// Why a command of this program failed.
#[derive(Debug)]
pub(crate) struct CliError {
    /// What to say; `None` when there is nobody to say it to (a closed pipe).
    pub(crate) problem: Option<Box<Problem>>,
    /// What to end with.
    pub(crate) exit_code: u8,
}

/// What commands give: an exit code.
pub(crate) type Result<T> = std::result::Result<T, CliError>;

impl CliError {
    /// A failure of this code.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// The reader of our output is gone: end as a program killed by SIGPIPE would.
    pub(crate) fn closed_pipe() -> Self {
        Self {
            problem: None,
            exit_code: 141,
        }
    }

    /// A failure of an operation of this process on `what`.
    pub(crate) fn io(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::closed_pipe();
        }
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::NotFound,
            std::io::ErrorKind::PermissionDenied => Code::Denied,
            _ => Code::Internal,
        };
        Self::new(code, format!("{what}: {error}"))
    }

    /// The same for a command whose exit code is somebody else's.
    #[must_use]
    pub(crate) fn ours(mut self) -> Self {
        if let Some(problem) = &self.problem {
            self.exit_code = match problem.code {
                Code::CommandNotFound => 127,
                Code::CommandNotExecutable => 126,
                _ => OUR_FAILURE,
            };
        }
        self
    }

    /// True for a problem of this code.
    pub(crate) fn is(&self, code: Code) -> bool {
        self.problem.as_ref().is_some_and(|problem| problem.code == code)
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            self.problem
                .as_ref()
                .map_or("nobody reads any more", |problem| &problem.detail),
        )
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        let exit_code = exit_code(problem.code);
        Self {
            problem: Some(Box::new(problem)),
            exit_code,
        }
    }
}

fn exit_code(code: Code) -> u8 {
    match code {
        Code::BadRequest => 2,
        Code::NotFound | Code::CommandNotFound => 3,
        Code::Conflict | Code::Busy | Code::Refused => 4,
        Code::Unsupported => 5,
        Code::VersionMismatch | Code::ShuttingDown | Code::Unreachable => 6,
        Code::Denied => 7,
        Code::CommandNotExecutable | Code::Corrupt | Code::Died | Code::Exhausted | Code::Internal => 1,
    }
}
