//! The whole command line on one page. What is typed is parsed here into types that cannot be wrong.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::error::EXIT_CODES;

/// Sandboxes for AI agents that can be checkpointed and rolled back, whole, in about a millisecond.
#[derive(Debug, Parser)]
#[command(name = "deltabox", version, after_help = EXIT_CODES, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Answer in JSON, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Every verb.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a sandbox
    Create(Create),
    /// Make a sandbox and run a command in it
    Run(Run),
    /// Run a command in a sandbox
    Exec(Exec),
    /// An interactive shell in a sandbox
    Shell(ShellArgs),
    /// What a command has printed
    Logs(Logs),
    /// Join a command that runs
    Attach(AttachArgs),
    /// Copy files into or out of a sandbox
    #[command(after_help = COPY_RULES)]
    Cp(Cp),
    /// Keep the whole state of a sandbox
    #[command(visible_alias = "commit")]
    Checkpoint(Checkpoint),
    /// Put a running sandbox back to a checkpoint
    Rollback(Rollback),
    /// The history of a sandbox, as a tree
    Log(OneBox),
    /// What differs between two checkpoints, or a checkpoint and now
    Diff(Diff),
    /// Name a checkpoint, or take a name away
    Tag(Tag),
    /// List sandboxes
    #[command(visible_alias = "ps")]
    Ls(Ls),
    /// Everything known of a sandbox or a checkpoint, as JSON
    Inspect(Inspect),
    /// End sandboxes and all they hold
    Rm(Rm),
    /// What was done, by whom, and how long it took
    Events(Events),
    /// What this kernel and these rights allow, and what to do about what is missing
    Doctor,
    /// Show it all: checkpoint, destroy, roll back, prove
    Demo(Demo),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Run the daemon in front
    Serve(Serve),
    /// Completions for a shell
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// The version of this program and of the daemon
    Version,
    /// The program that `demo` runs in its sandbox
    #[command(hide = true)]
    DemoProgram(DemoProgram),
}

/// How a sandbox is made.
#[derive(Debug, Group)]
pub(crate) struct Create {
    /// A name of its own
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// `host`, a directory, or a tar file
    #[arg(long, default_value = "host")]
    pub(crate) image: String,
    /// Memory limit (512M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) mem: Option<Size>,
    /// Processors (1.5)
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Most processes and threads
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// Variable of every command
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<Variable>,
    /// Working directory of commands
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User of commands: name, uid or uid:gid
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Directory of the host, outside the history (root only)
    #[arg(short, long = "volume", value_name = "HOST:BOX[:ro]")]
    pub(crate) volume: Vec<Volume>,
    /// Real root and no filter, for judges (root only)
    #[arg(long)]
    pub(crate) privileged: bool,
    /// What it can reach
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) net: Net,
    /// Memory that the history may take (1G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) history_mem: Option<Size>,
}

/// What a sandbox can reach.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Net {
    /// Loopback only
    None,
}

/// `run`.
#[derive(Debug, Group)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) create: Create,
    /// Remove the sandbox when the command ends
    #[arg(long)]
    pub(crate) rm: bool,
    #[command(flatten)]
    pub(crate) streams: Streams,
    /// The command
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) argv: Vec<String>,
}

/// How a command is joined to us.
#[derive(Debug, Clone, Copy, Group)]
pub(crate) struct Streams {
    /// Leave it running; print its id
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub(crate) detach: bool,
    /// Give it our standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give it a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
}

/// `exec`.
#[derive(Debug, Group)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) streams: Streams,
    /// Variable
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<Variable>,
    /// Working directory
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User: name, uid or uid:gid
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Sandbox: name, id or unique prefix
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: String,
    /// The command
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) argv: Vec<String>,
}

/// `shell`.
#[derive(Debug, Group)]
pub(crate) struct ShellArgs {
    /// Variable
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<Variable>,
    /// Working directory
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User: name, uid or uid:gid
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Sandbox; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<String>,
}

/// `logs`.
#[derive(Debug, Group)]
pub(crate) struct Logs {
    /// Go on as it prints, also when a rollback brings it back
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Sandbox
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: String,
    /// Command (exe_…)
    pub(crate) exec: String,
}

/// `attach`.
#[derive(Debug, Group)]
pub(crate) struct AttachArgs {
    /// Give it our standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Our terminal becomes its terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Sandbox
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: String,
    /// Command (exe_…)
    pub(crate) exec: String,
}

/// Printed at the end of `cp --help`.
const COPY_RULES: &str = "\
As `docker cp` does it:
  SOURCE is a file
    TARGET is not there          the file under that name; an error when TARGET ends with /
    TARGET is a file             replaced
    TARGET is a directory        the file in it, under its own name
  SOURCE is a directory
    TARGET is not there          the directory under that name
    TARGET is a file             an error
    TARGET is a directory        the directory in it, under its own name; what is in SOURCE when SOURCE ends with /.

Directories above TARGET are not made. A link that is named is followed, links below it are copied as links. What is
there under the same names is replaced, what is there beside it stays. A tar stream is unpacked in TARGET, which is made
when it is not there.";

/// `cp`.
#[derive(Debug, Group)]
pub(crate) struct Cp {
    /// PATH, BOX:PATH, or - for a tar stream
    pub(crate) source: Side,
    /// PATH, BOX:PATH, or - for a tar stream
    pub(crate) target: Side,
}

/// `checkpoint`.
#[derive(Debug, Group)]
pub(crate) struct Checkpoint {
    /// Why
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// A name that keeps it from being dropped
    #[arg(long, value_name = "NAME")]
    pub(crate) tag: Option<String>,
    /// Sandbox; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<String>,
}

/// `rollback`.
#[derive(Debug, Group)]
pub(crate) struct Rollback {
    /// Do not keep the present as @{-1}
    #[arg(long)]
    pub(crate) discard: bool,
    /// Sandbox, or BOX@REV; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<Place>,
    /// An id, a prefix, a tag, HEAD~2, @{-1}; the head when absent
    #[arg(value_name = "REV")]
    pub(crate) revision: Option<String>,
}

/// One sandbox, the only one when absent.
#[derive(Debug, Group)]
pub(crate) struct OneBox {
    /// Sandbox; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<String>,
}

/// `diff`.
#[derive(Debug, Group)]
pub(crate) struct Diff {
    /// Sandbox, or BOX@REV; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<Place>,
    /// From; the head when absent
    pub(crate) from: Option<String>,
    /// To; the running sandbox when absent
    pub(crate) to: Option<String>,
}

/// `tag`.
#[derive(Debug, Group)]
pub(crate) struct Tag {
    /// Take the name away
    #[arg(short, long, conflicts_with = "revision")]
    pub(crate) delete: bool,
    /// Sandbox, or BOX@REV
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Place,
    /// The name
    pub(crate) name: String,
    /// Which checkpoint; the head when absent
    #[arg(value_name = "REV")]
    pub(crate) revision: Option<String>,
}

/// `ls`.
#[derive(Debug, Group)]
pub(crate) struct Ls {
    /// Only ids
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `inspect`.
#[derive(Debug, Group)]
pub(crate) struct Inspect {
    /// Sandbox, or BOX@REV; the only one when absent
    #[arg(value_name = "BOX")]
    pub(crate) sandbox: Option<Place>,
}

/// `rm`.
#[derive(Debug, Group)]
pub(crate) struct Rm {
    /// A sandbox that is not there is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Sandboxes
    #[arg(value_name = "BOX", required = true)]
    pub(crate) sandboxes: Vec<String>,
}

/// `events`.
#[derive(Debug, Group)]
pub(crate) struct Events {
    /// Go on as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only those after this one
    #[arg(long, default_value_t = 0, value_name = "ID")]
    pub(crate) since: u64,
}

/// `demo`.
#[derive(Debug, Group)]
pub(crate) struct Demo {
    /// How often to checkpoint, destroy and roll back
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Size of the program's heap
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub(crate) heap_mb: u32,
}

/// `demo-program`.
#[derive(Debug, Group)]
pub(crate) struct DemoProgram {
    /// Size of the heap
    #[arg(long, default_value_t = 100)]
    pub(crate) heap_mb: u32,
    /// Threads that count
    #[arg(long, default_value_t = 4)]
    pub(crate) threads: u32,
    /// The file it appends to
    pub(crate) file: PathBuf,
}

/// `bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Checkpoint and rollback of a process tree, beside the floor, a template fork and CRIU
    Rewind(BenchRewind),
    /// Checkpoint and rollback of files: a large database, many new files, a large tree deleted
    Files(BenchFiles),
    /// Real programs on the host, in a sandbox, and in a sandbox that is checkpointed every second
    Steady(BenchSteady),
}

/// `bench rewind`. Sizes are totals over the tree, threads are per process.
#[derive(Debug, Group)]
pub(crate) struct BenchRewind {
    /// Memory that the tree holds
    #[arg(long, default_value_t = 100)]
    pub(crate) heap_mb: u32,
    /// Memory written between a checkpoint and its rollback, scattered
    #[arg(long, default_value_t = 4)]
    pub(crate) dirty_mb: u32,
    /// Files rewritten between the two
    #[arg(long, default_value_t = 20)]
    pub(crate) files: u32,
    /// Size of each
    #[arg(long, default_value_t = 16)]
    pub(crate) file_kb: u32,
    /// Processes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) processes: u32,
    /// Threads in each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: u32,
    /// How often
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// The criu to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) criu: Option<PathBuf>,
}

/// `bench files`. The defaults are what is published.
#[derive(Debug, Group)]
pub(crate) struct BenchFiles {
    /// Size of the database
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) database_mb: u32,
    /// Files that are made
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) made_files: u32,
    /// Files that the tree has, at least, which is deleted
    #[arg(long, default_value_t = 3500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) deleted_files: u32,
    /// How often
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

/// `bench steady`.
#[derive(Debug, Group)]
pub(crate) struct BenchSteady {
    /// How often each program runs in each place
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
}

/// `serve`.
#[derive(Debug, Group)]
pub(crate) struct Serve {
    /// Start a daemon of its own session and end (the command line does this)
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(crate) detach: bool,
    /// Report on standard output, once, when ready or why not
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// End when the process that started us ends
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

/// A size in bytes: digits and K, M, G or T (of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let stem = lower
            .strip_suffix("ib")
            .or_else(|| lower.strip_suffix('b'))
            .unwrap_or(&lower);
        let (digits, shift) = match stem.as_bytes().last() {
            Some(b'k') => (&stem[..stem.len() - 1], 10),
            Some(b'm') => (&stem[..stem.len() - 1], 20),
            Some(b'g') => (&stem[..stem.len() - 1], 30),
            Some(b't') => (&stem[..stem.len() - 1], 40),
            _ => (stem, 0),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_| format!("{text:?} is not a size like 512M or 2G"))?;
        number
            .checked_shl(shift)
            .filter(|size| size >> shift == number && *size > 0)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size that can be"))
    }
}

/// Processors, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) u32);

impl FromStr for Cpus {
    type Err = String;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text
            .parse()
            .map_err(|_| format!("{text:?} is not a number of processors like 1.5"))?;
        if (0.01..=4096.0).contains(&number) {
            return Ok(Self((number * 1000.0).round() as u32));
        }
        Err(format!("{text:?} processors cannot be: 0.01 to 4096"))
    }
}

/// `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) String, pub(crate) String);

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self(name.to_owned(), value.to_owned())),
            _ => Err(format!("{text:?} is not NAME=VALUE")),
        }
    }
}

/// `HOST:BOX[:ro]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume(pub(crate) api::Volume);

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (host, inside, read_only) = match parts.as_slice() {
            [host, inside] | [host, inside, "rw"] => (host, inside, false),
            [host, inside, "ro"] => (host, inside, true),
            _ => return Err(format!("{text:?} is not HOST:BOX or HOST:BOX:ro")),
        };
        if !host.starts_with('/') || !inside.starts_with('/') {
            return Err(format!("{text:?}: both paths must be absolute"));
        }
        Ok(Self(api::Volume {
            host: (*host).to_owned(),
            inside: (*inside).to_owned(),
            read_only,
        }))
    }
}

/// A sandbox, or one with a revision: `BOX`, `BOX@ckp_1f`, `BOX@HEAD~2`, `BOX@{-1}`, `BOX~2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The sandbox; `None` when only a revision was given (`@{-1}`, `HEAD~2`).
    pub(crate) sandbox: Option<String>,
    /// The revision.
    pub(crate) revision: Option<String>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a sandbox's name cannot be empty".to_owned());
        }
        if text == "HEAD" || text.starts_with("HEAD~") || text.starts_with("HEAD^") || text.starts_with("ckp_") {
            return Ok(Self {
                sandbox: None,
                revision: Some(text.to_owned()),
            });
        }
        let (sandbox, revision) = match (text.find('@'), text.find('~')) {
            (Some(at), _) if text[at + 1..].starts_with('{') => (&text[..at], Some(text[at..].to_owned())),
            (Some(at), _) => (&text[..at], Some(text[at + 1..].to_owned())),
            (None, Some(at)) => (&text[..at], Some(format!("HEAD{}", &text[at..]))),
            (None, None) => (text, None),
        };
        if revision.as_deref() == Some("") {
            return Err(format!("{text:?} ends where a revision should be"));
        }
        Ok(Self {
            sandbox: (!sandbox.is_empty()).then(|| sandbox.to_owned()),
            revision,
        })
    }
}

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Side {
    /// A tar stream on standard input or output.
    Stream,
    /// A path of ours.
    Here(PathBuf),
    /// A path in a sandbox.
    Box {
        /// Which.
        sandbox: String,
        /// Absolute path inside.
        path: String,
    },
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        match text.split_once(':') {
            // As docker and scp have it: a slash before the colon makes it a path.
            Some((sandbox, path)) if !sandbox.is_empty() && !sandbox.contains('/') && !sandbox.starts_with('.') => {
                if !path.starts_with('/') {
                    return Err(format!("{path:?} is not an absolute path in the sandbox {sandbox}"));
                }
                Ok(Self::Box {
                    sandbox: sandbox.to_owned(),
                    path: path.to_owned(),
                })
            }
            _ if text.is_empty() => Err("a path cannot be empty".to_owned()),
            _ => Ok(Self::Here(PathBuf::from(text))),
        }
    }
}

#[cfg(test)]
mod tests;
