//! `run`, `exec`, `shell`, `attach`, `logs`: commands in a sandbox, joined to our streams.

use api::{ExecRequest, ExecStarted};

use super::{connect, create, named_or_only, path};
use crate::args::{AttachArgs, Exec, Logs, Run, ShellArgs, Streams, Variable};
use crate::attach::{self, Attached, Signals};
use crate::client::Client;
use crate::daemon;
use crate::error::Result;
use crate::output::Output;
use crate::terminal;

/// Starts bash where there is one.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh -i"];

/// `exec`.
pub(crate) fn exec(args: Exec, output: &Output) -> Result<u8> {
    let client = connect(output)?;
    let request = request(args.argv, &args.env, args.workdir, args.user, args.streams);
    start(client, &args.sandbox, &request, args.streams, output)
}

/// `run`.
pub(crate) fn run(args: Run, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let sandbox = create::create_with(&mut client, &args.create)?;
    let request = request(args.argv, &[], None, None, args.streams);
    let result = start(client, &sandbox.id, &request, args.streams, output);
    if args.rm && !args.streams.detach {
        // The connection may be in the middle of an answer.
        let removed = daemon::connect_again()?.delete(&path(&sandbox.id, ""));
        if result.is_ok() {
            removed?;
        }
    }
    result
}

/// `shell`.
pub(crate) fn shell(args: ShellArgs, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let sandbox = named_or_only(&mut client, args.sandbox)?;
    let streams = Streams {
        detach: false,
        interactive: true,
        tty: terminal::is_terminal(),
    };
    let argv = SHELL.map(str::to_owned).to_vec();
    let request = request(argv, &args.env, args.workdir, args.user, streams);
    start(client, &sandbox, &request, streams, output)
}

/// `attach`.
pub(crate) fn attach(args: &AttachArgs, output: &Output) -> Result<u8> {
    let client = connect(output)?;
    let signals = Signals::hold()?;
    let attached = Attached {
        sandbox: &args.sandbox,
        exec: &args.exec,
        stdin: args.interactive,
        terminal: args.tty,
        always: false,
    };
    attach::attach(client, &attached, &signals, output)
}

/// `logs`.
pub(crate) fn logs(args: &Logs, output: &Output) -> Result<u8> {
    let client = connect(output)?;
    let attached = Attached {
        sandbox: &args.sandbox,
        exec: &args.exec,
        stdin: false,
        terminal: false,
        always: args.follow,
    };
    attach::logs(client, &attached, output)?;
    Ok(0)
}

fn request(
    argv: Vec<String>,
    env: &[Variable],
    workdir: Option<String>,
    user: Option<String>,
    streams: Streams,
) -> ExecRequest {
    let mut env: Vec<_> = env
        .iter()
        .map(|variable| (variable.0.clone(), variable.1.clone()))
        .collect();
    if streams.tty && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".to_owned(), own_terminal_name()));
    }
    let terminal = streams.tty.then(|| terminal::window_size().unwrap_or((24, 80)));
    ExecRequest {
        argv,
        env,
        workdir,
        user,
        terminal,
        stdin: streams.interactive,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the terminal's name is a fact of our own terminal, passed into the box"
)]
fn own_terminal_name() -> String {
    std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned())
}

fn start(mut client: Client, sandbox: &str, request: &ExecRequest, streams: Streams, output: &Output) -> Result<u8> {
    if streams.detach {
        let started: ExecStarted = client.post(&path(sandbox, "/execs"), request)?;
        output.value(&started, |started| format!("{}\n", started.id))?;
        return Ok(0);
    }
    let signals = Signals::hold()?;
    let started: ExecStarted = client.post(&path(sandbox, "/execs"), request)?;
    let attached = Attached {
        sandbox,
        exec: &started.id,
        stdin: streams.interactive,
        terminal: streams.tty,
        always: false,
    };
    attach::attach(client, &attached, &signals, output)
}
