//! Everything that can be asked of a sandbox, as data, and what comes of it. One operation at a time per sandbox: the
//! driver takes a `Command` and gives one `Outcome`.

use std::time::Duration;

use image::{CheckpointId, ExecId, Principal, Tenant};

/// How to start a command in a box.
#[derive(Debug, Clone)]
pub struct ExecSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables on top of the box's own.
    pub env: Vec<(String, String)>,
    /// Working directory; the box's when `None`.
    pub workdir: Option<String>,
    /// `name`, `uid` or `uid:gid`; root inside when `None`.
    pub user: Option<String>,
    /// A terminal of this many rows and columns; pipes when `None`.
    pub terminal: Option<(u16, u16)>,
    /// Whether standard input stays open for [`Command::Stdin`]; else it is at its end from the start.
    pub stdin: bool,
}

/// A place in a history as a user names it: an id, a unique prefix of one, a tag, `HEAD`, `HEAD~2`, `@{-1}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(pub String);

/// Everything that can be asked of a running sandbox.
#[derive(Debug, Clone)]
pub enum Command {
    /// Starts a command; answers at once with its id.
    Exec(ExecSpec),
    /// Bytes for a command's standard input; empty and `close` ends it.
    Stdin {
        /// Which command.
        exec: ExecId,
        /// What to write.
        bytes: Vec<u8>,
        /// No more will come.
        close: bool,
    },
    /// New size of a command's terminal.
    Resize {
        /// Which command.
        exec: ExecId,
        /// Rows.
        rows: u16,
        /// Columns.
        columns: u16,
    },
    /// A signal to a command.
    Signal {
        /// Which command.
        exec: ExecId,
        /// Signal number.
        signal: i32,
    },
    /// Takes a checkpoint of processes and files as one cut.
    Checkpoint {
        /// Why, in the user's words.
        message: Option<String>,
        /// A name that keeps it from being dropped.
        tag: Option<String>,
    },
    /// Puts the running box back.
    Rollback {
        /// Where to; the head when `None`.
        to: Option<Revision>,
        /// Keep the present as `@{-1}` first.
        keep_present: bool,
    },
    /// Names a checkpoint.
    Tag {
        /// Which.
        at: Revision,
        /// The name; must not be taken.
        name: String,
    },
    /// Removes a name.
    Untag {
        /// The name.
        name: String,
    },
    /// The history.
    Log,
    /// What differs between two places; the running box when `to` is `None`.
    Diff {
        /// From.
        from: Revision,
        /// To.
        to: Option<Revision>,
    },
    /// Everything that is known of the sandbox, or of one checkpoint.
    Inspect {
        /// Which checkpoint; the sandbox when `None`.
        at: Option<Revision>,
    },
    /// Reads a file or directory as a tar stream's bytes.
    ReadFiles {
        /// Path inside.
        path: Vec<u8>,
    },
    /// Unpacks a tar stream below a directory.
    WriteFiles {
        /// Directory inside; made when absent.
        path: Vec<u8>,
        /// The stream.
        tar: Vec<u8>,
    },
    /// Ends everything in the box and takes it down.
    Remove,
}

impl Command {
    /// Its name, as events and errors use it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Stdin { .. } => "stdin",
            Self::Resize { .. } => "resize",
            Self::Signal { .. } => "signal",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Rollback { .. } => "rollback",
            Self::Tag { .. } => "tag",
            Self::Untag { .. } => "untag",
            Self::Log => "log",
            Self::Diff { .. } => "diff",
            Self::Inspect { .. } => "inspect",
            Self::ReadFiles { .. } => "read_files",
            Self::WriteFiles { .. } => "write_files",
            Self::Remove => "remove",
        }
    }
}

/// A command with who asks and whose data it is about: what a driver takes.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose sandbox it must be.
    pub tenant: Tenant,
    /// Who asks.
    pub principal: Principal,
    /// What.
    pub command: Command,
}

/// Milliseconds are for people: every duration here is exact.
#[derive(Debug, Clone, Default)]
pub struct Timing {
    /// The sandbox stood still.
    pub stop: Duration,
    /// From the command's arrival at the driver to its outcome.
    pub total: Duration,
    /// Named phases, in order.
    pub phases: Vec<(String, Duration)>,
}

/// One checkpoint in a log.
#[derive(Debug, Clone)]
pub struct CheckpointLine {
    /// Its id.
    pub id: CheckpointId,
    /// The one it grew from.
    pub parent: Option<CheckpointId>,
    /// Why it was taken.
    pub message: Option<String>,
    /// Its names.
    pub tags: Vec<String>,
    /// When, Unix time in milliseconds.
    pub created_ms: u64,
    /// True for the head.
    pub head: bool,
    /// Processes in it.
    pub process_count: u32,
    /// Bytes of memory that only it holds.
    pub memory_bytes: u64,
    /// Bytes of files that only it holds.
    pub file_bytes: u64,
    /// Files changed since its parent.
    pub changed_files: u32,
    /// Dropped to keep the history within its memory bound; only its line is left.
    pub dropped: bool,
    /// Made by a rollback to keep the present.
    pub automatic: bool,
    /// What lies outside this history (volumes).
    pub outside: Vec<String>,
}

/// One line of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    /// A path that is new, changed or gone: `+`, `~`, `-`.
    File {
        /// `+`, `~` or `-`.
        change: char,
        /// Path inside, lossily as text.
        path: String,
    },
    /// A process that is new, changed or gone.
    Process {
        /// `+`, `~` or `-`.
        change: char,
        /// Pid inside.
        pid: u32,
        /// Its name.
        comm: String,
        /// Bytes of memory that differ.
        bytes: u64,
    },
}

/// What came of a [`Command`].
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A command runs.
    Started {
        /// Its id.
        exec: ExecId,
        /// Pid inside.
        pid: u32,
    },
    /// Done, nothing to say.
    Done,
    /// A checkpoint was taken.
    Checkpointed {
        /// The new head.
        line: CheckpointLine,
        /// What it cost.
        timing: Timing,
        /// Pages copied while the box stood still.
        page_count: u64,
    },
    /// The box is where it was.
    RolledBack {
        /// The head now.
        to: CheckpointId,
        /// The present that was kept, if any.
        kept: Option<CheckpointId>,
        /// What it cost.
        timing: Timing,
        /// Pages written.
        page_count: u64,
        /// Files put back.
        changed_files: u32,
        /// Commands whose output was cut or that are unknown again.
        cut: Vec<ExecId>,
    },
    /// The history, oldest first.
    Log(Vec<CheckpointLine>),
    /// Differences.
    Diff(Vec<DiffLine>),
    /// Everything known, as JSON text (what a program would want to read).
    Inspected(String),
    /// A tar stream.
    Files(Vec<u8>),
}
