//! `serve`: the daemon, in front or (hidden flags) in the background.

use api::{Code, Problem};
use node::NodeError;

use super::doctor;
use crate::args::Serve;
use crate::build_id;
use crate::daemon;
use crate::error::{CliError, Result};
use crate::output::{Output, say};

/// Runs until SIGTERM or SIGINT.
pub(crate) fn serve(args: &Serve, output: &Output) -> Result<u8> {
    let place = daemon::place()?;
    if args.detach {
        return daemon::detach(&place).map(|()| 0);
    }
    if args.with_parent {
        let bound = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
        bound.map_err(|errno| CliError::io("binding to the parent process", &errno.into()))?;
    }
    let result = run(place, args.background, output);
    if args.background
        && let Err(error) = &result
        && let Some(problem) = &error.problem
    {
        daemon::say_failed(problem);
    }
    result
}

fn run(place: node::config::Place, background: bool, output: &Output) -> Result<u8> {
    if !rustix::process::geteuid().is_root() {
        let problem = Problem::new(Code::Denied, "the daemon must be root today");
        return Err(problem.hint("sudo deltabox serve").into());
    }
    let socket = place.socket.clone();
    linux::memfd::keep_freed_memory();
    linux::sched::go_first();
    let mut config = node::Config::new(place);
    std::fs::create_dir_all(&config.state).map_err(|error| CliError::io(config.state.display(), &error))?;
    config.scan = doctor::scans(&doctor::features(&config.state)?);
    config.verify = verifies();
    config.build = build_id::own()?;
    config.faults = faults();
    let ready = || {
        if background {
            daemon::say_ready();
        } else if output.json {
            drop(output.data(format!("{{\"listening\":{:?}}}\n", socket.display().to_string())));
        } else {
            say(&format!("deltabox: listening on {}\n", socket.display()));
        }
    };
    node::serve(config, ready).map(|()| 0).map_err(problem)
}

/// True where tests let every rollback be compared with its checkpoint before anything runs.
#[expect(clippy::disallowed_methods, reason = "the one place where this setting is read")]
fn verifies() -> bool {
    std::env::var("DELTABOX_VERIFY").is_ok_and(|value| value == "1")
}

/// Restores that tests let be left out (`skip:files.mode,skip:pages`), to prove that they would notice.
#[expect(clippy::disallowed_methods, reason = "the one place where this setting is read")]
fn faults() -> Vec<String> {
    let names = std::env::var("DELTABOX_FAULTS").unwrap_or_default();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn problem(error: NodeError) -> CliError {
    let code = match &error {
        NodeError::AlreadyRuns { .. } | NodeError::DoesNotEnd { .. } | NodeError::SocketInUse { .. } => Code::Conflict,
        NodeError::SocketPathTooLong { .. } | NodeError::UnknownFault(_) => Code::BadRequest,
        NodeError::Io { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => Code::Denied,
        NodeError::Io { .. } => Code::Internal,
    };
    let near = match &error {
        NodeError::UnknownFault(unknown) => unknown.near.clone(),
        _ => Vec::new(),
    };
    let problem = Problem::new(code, error.to_string());
    problem.hint(error.hint()).candidates(near).into()
}
