//! `bench`: measures the daemon that runs (or is started) and prints what was found. The suites live in `bench`; this is
//! parse, one call, print.

use api::{Code, Problem, Version};
use bench::report::Row;
use bench::rewind::{self, Sizes};
use bench::{BenchError, Report};
use bench::{files, steady};

use crate::args::{Bench, BenchFiles, BenchRewind, BenchSteady};
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::{build_id, client, daemon};

pub(crate) fn bench(args: Bench, output: &Output) -> Result<u8> {
    same_build()?;
    match args {
        Bench::Rewind(args) => output.value(&rewind(args, output)?, Report::<Row>::text)?,
        Bench::Files(args) => output.value(&files(&args, output)?, Report::<Row>::text)?,
        Bench::Steady(args) => output.value(&steady(&args, output)?, Report::<steady::Row>::text)?,
    }
    Ok(0)
}

/// Starts a daemon when none runs; the suites open connections of their own. What another build does says nothing of
/// this one, and would be taken for it.
fn same_build() -> Result<()> {
    let daemon: Version = daemon::connect_again()?.get("/v1/version")?;
    let ours = build_id::own()?;
    if daemon.build == ours {
        return Ok(());
    }
    let (text, hint) = client::other_build(&daemon.build, &ours);
    let hint = format!("{hint}; or let it have one of its own: DELTABOX_STATE=DIR deltabox bench ...");
    Err(Problem::new(
        Code::VersionMismatch,
        format!("what would be measured is not this program: {text}"),
    )
    .hint(hint)
    .into())
}

fn rewind(args: BenchRewind, output: &Output) -> Result<Report> {
    let sizes = Sizes {
        heap_mb: args.heap_mb,
        dirty_mb: args.dirty_mb,
        files: args.files,
        file_kb: args.file_kb,
        processes: args.processes,
        threads: args.threads,
    };
    let params = rewind::Params {
        socket: daemon::place()?.socket,
        sizes,
        rounds: args.rounds,
        criu: args.criu,
    };
    let say_every = (params.rounds / 10).max(1);
    let progress = |round: u32| {
        if round.is_multiple_of(say_every) {
            output.note(format_args!("round {round} of {}", params.rounds));
        }
    };
    rewind::run(&params, progress).map_err(failed)
}

fn files(args: &BenchFiles, output: &Output) -> Result<Report> {
    let params = files::Params {
        socket: daemon::place()?.socket,
        database_mb: args.database_mb,
        made_files: args.made_files,
        deleted_files: args.deleted_files,
        rounds: args.rounds,
    };
    let progress = |case: &str, round: u32| output.note(format_args!("{case}: round {round} of {}", params.rounds));
    files::run(&params, progress).map_err(failed)
}

fn steady(args: &BenchSteady, output: &Output) -> Result<Report<steady::Row>> {
    let params = steady::Params {
        socket: daemon::place()?.socket,
        pairs: args.pairs,
    };
    steady::run(&params, |what| output.note(what)).map_err(failed)
}

fn failed(error: BenchError) -> CliError {
    CliError::new(Code::Internal, error.to_string())
}
