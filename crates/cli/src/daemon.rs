//! Finds the daemon, or starts one when none runs. It never waits by the clock: a new daemon writes to a pipe when it
//! listens, and two programs that start one at the same time queue on a lock.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use api::{Code, Problem};
use node::config::Place;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::client::Client;
use crate::error::{CliError, Result};
use crate::output::Output;

/// What a background daemon writes to its standard output when it listens.
pub(crate) const READY: &str = "ready";

/// Where state and socket are.
pub(crate) fn place() -> Result<Place> {
    Place::from_environment().map_err(|error| CliError::new(Code::BadRequest, error.to_string()))
}

/// A connection to the daemon; starts one when none runs and we may. A daemon of another build is said to `output`.
pub(crate) fn connect(output: &Output) -> Result<Client> {
    connect_again().map(|client| client.warns_of_another_build(output))
}

/// The same for who has spoken with the daemon already, or looks at its build itself.
pub(crate) fn connect_again() -> Result<Client> {
    let place = place()?;
    match UnixStream::connect(&place.socket) {
        Ok(stream) => Ok(Client::new(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => start(&place),
        Err(error) => Err(refused(&place.socket, &error)),
    }
}

/// A connection to a daemon that runs already.
pub(crate) fn connect_running(place: &Place) -> Option<Client> {
    UnixStream::connect(&place.socket).ok().map(Client::new)
}

fn refused(socket: &Path, error: &std::io::Error) -> CliError {
    let (code, hint) = match error.kind() {
        ErrorKind::PermissionDenied => (
            Code::Denied,
            format!("root and the group {} may use it: use sudo", node::config::SOCKET_GROUP),
        ),
        _ => (Code::Unreachable, "check DELTABOX_HOST and DELTABOX_STATE".to_owned()),
    };
    Problem::new(code, format!("cannot connect to {}: {error}", socket.display()))
        .hint(hint)
        .into()
}

fn start(place: &Place) -> Result<Client> {
    if !rustix::process::geteuid().is_root() {
        let problem = Problem::new(
            Code::Unreachable,
            format!("no daemon listens on {}", place.socket.display()),
        );
        return Err(problem.hint("start one as root: sudo deltabox serve").into());
    }
    std::fs::create_dir_all(&place.state).map_err(|error| CliError::io(place.state.display(), &error))?;
    let _lock = start_lock(&place.state)?;
    if let Ok(stream) = UnixStream::connect(&place.socket) {
        return Ok(Client::new(stream));
    }
    spawn(place)?;
    match UnixStream::connect(&place.socket) {
        Ok(stream) => Ok(Client::new(stream)),
        Err(error) => Err(refused(&place.socket, &error)),
    }
}

fn start_lock(state: &Path) -> Result<OwnedFd> {
    let path = state.join("start.lock");
    let open = rustix::fs::open(
        &path,
        OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    );
    let locked = open.and_then(|fd| rustix::fs::flock(&fd, FlockOperation::LockExclusive).map(|()| fd));
    locked.map_err(|errno| CliError::io(path.display(), &errno.into()))
}

/// Starts a daemon that outlives us, and waits until it listens.
fn spawn(place: &Place) -> Result<()> {
    let fail = |error: std::io::Error| CliError::io("starting the daemon", &error);
    let mut first = serve_command(place, "--detach");
    let mut child = first
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let ready = wait_ready(&mut child, &place.state);
    child.wait().map_err(fail)?;
    ready
}

/// Waits until the daemon at the other end of a child's standard output listens, or says why it does not.
pub(crate) fn wait_ready(child: &mut Child, state: &Path) -> Result<()> {
    let stdout = child.stdout.take().expect("standard output was asked for as a pipe");
    let mut said = String::new();
    let read = BufReader::new(stdout).read_line(&mut said);
    read.map_err(|error| CliError::io("starting the daemon", &error))?;
    match said.trim_end() {
        READY => Ok(()),
        text => match serde_json::from_str::<Problem>(text) {
            Ok(problem) => Err(problem.into()),
            Err(_) => {
                let problem = Problem::new(Code::Unreachable, "the daemon ended before it listened");
                Err(problem.hint(format!("{} says why", log_path(state).display())).into())
            }
        },
    }
}

/// The middle process of the start: leaves the caller's session, starts the daemon and ends, so that the daemon is no
/// session leader and can never get a terminal.
pub(crate) fn detach(place: &Place) -> Result<()> {
    let fail = |error: std::io::Error| CliError::io("detaching the daemon", &error);
    rustix::process::setsid().map_err(|errno| fail(errno.into()))?;
    let path = log_path(&place.state);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(|error| CliError::io(path.display(), &error))?;
    serve_command(place, "--background")
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(fail)?;
    Ok(())
}

/// Tells whoever waits that we listen, and lets go of their pipe.
pub(crate) fn say_ready() {
    answer(READY);
}

/// Tells whoever waits why we do not run.
pub(crate) fn say_failed(problem: &Problem) {
    answer(&serde_json::to_string(problem).expect("wire types have only text keys"));
}

fn answer(text: &str) {
    // Whoever started us may have been killed meanwhile; a daemon is none the worse for it.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Where a daemon in the background says what it has to say.
pub(crate) fn log_path(state: &Path) -> PathBuf {
    state.join("deltabox.log")
}

/// This same program as a daemon at `place`.
pub(crate) fn serve_command(place: &Place, mode: &str) -> Command {
    // The path of a program that was built anew meanwhile is gone; the kernel's link still leads to the old one.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
    command.arg("serve").arg(mode);
    command.env("DELTABOX_STATE", &place.state);
    command.env("DELTABOX_HOST", format!("unix://{}", place.socket.display()));
    command
}
