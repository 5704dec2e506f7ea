//! `serve`: the daemon, in front or (hidden flags) in the background.

use api::{Code, Problem};
use node::NodeError;

use crate::args::Serve;
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
    let config = node::Config::new(place);
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

fn problem(error: NodeError) -> CliError {
    let code = match &error {
        NodeError::AlreadyRuns { .. } | NodeError::SocketInUse { .. } => Code::Conflict,
        NodeError::SocketPathTooLong { .. } => Code::BadRequest,
        NodeError::Io { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => Code::Denied,
        NodeError::Io { .. } => Code::Internal,
    };
    Problem::new(code, error.to_string()).hint(error.hint()).into()
}
