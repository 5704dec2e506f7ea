//! The list of commands; each is a file below, and each is: one call, print.

mod bench;
mod checkpoint;
mod cp;
mod create;
mod demo;
mod diff;
mod doctor;
mod exec;
mod inspect;
mod log;
mod ls;
mod rollback;
mod serve;
mod tag;
mod version;

use api::{Code, Problem, SandboxList};
use clap::CommandFactory;

use crate::args::{Args, Command, Place};
use crate::client::{Client, escape};
use crate::daemon;
use crate::error::{CliError, Result};
use crate::output::Output;

/// Runs one; gives the exit code.
pub(crate) fn run(command: Command, output: &Output) -> Result<u8> {
    match command {
        Command::Create(args) => create::create(&args, output),
        Command::Run(args) => exec::run(args, output).map_err(CliError::ours),
        Command::Exec(args) => exec::exec(args, output).map_err(CliError::ours),
        Command::Shell(args) => exec::shell(args, output).map_err(CliError::ours),
        Command::Attach(args) => exec::attach(&args, output).map_err(CliError::ours),
        Command::Logs(args) => exec::logs(&args, output),
        Command::Cp(args) => cp::cp(args, output),
        Command::Checkpoint(args) => checkpoint::checkpoint(args, output),
        Command::Rollback(args) => rollback::rollback(args, output),
        Command::Log(args) => log::log(args, output),
        Command::Diff(args) => diff::diff(args, output),
        Command::Tag(args) => tag::tag(args, output),
        Command::Ls(args) => ls::ls(&args, output),
        Command::Inspect(args) => inspect::inspect(args, output),
        Command::Rm(args) => ls::rm(&args, output),
        Command::Events(args) => inspect::events(&args, output),
        Command::Serve(args) => serve::serve(&args, output),
        Command::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "deltabox", &mut text);
            output.data(text).map(|()| 0)
        }
        Command::Doctor => doctor::doctor(output),
        Command::Demo(args) => demo::demo(&args, output),
        Command::DemoProgram(args) => demo::program::program(&args),
        Command::Bench(args) => bench::bench(args, output),
        Command::Version => version::version(output),
    }
}

/// The path of a sandbox, with what follows.
pub(crate) fn path(sandbox: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{}{rest}", escape(sandbox))
}

/// The sandbox that was named, or the only one there is.
pub(crate) fn named_or_only(client: &mut Client, named: Option<String>) -> Result<String> {
    if let Some(name) = named {
        return Ok(name);
    }
    let list: SandboxList = client.get("/v1/sandboxes")?;
    let mut names: Vec<String> = list.sandboxes.into_iter().map(|sandbox| sandbox.name).collect();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 => {
            let problem = Problem::new(Code::NotFound, "there is no sandbox");
            Err(problem.hint("make one: deltabox create --name work").into())
        }
        count => {
            let problem = Problem::new(Code::BadRequest, format!("there are {count} sandboxes: name one"));
            Err(problem.hint(names.join(", ")).candidates(names).into())
        }
    }
}

/// `BOX`, `BOX@REV` or `REV` and perhaps a second `REV`, made one of each.
pub(crate) fn box_and_revision(
    client: &mut Client,
    place: Option<Place>,
    revision: Option<String>,
) -> Result<(String, Option<String>)> {
    let place = place.unwrap_or(Place {
        sandbox: None,
        revision: None,
    });
    if let (Some(first), Some(second)) = (&place.revision, &revision) {
        let detail = format!("two revisions were given: {first} and {second}");
        return Err(CliError::new(Code::BadRequest, detail));
    }
    let sandbox = named_or_only(client, place.sandbox)?;
    Ok((sandbox, place.revision.or(revision)))
}

/// Connects, starting a daemon when none runs.
pub(crate) fn connect(output: &Output) -> Result<Client> {
    daemon::connect(output)
}
