//! The `deltabox` program: daemon and command line in one binary. Every command is: parse, one call, print.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod build_id;
mod client;
mod commands;
mod daemon;
mod error;
mod output;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let output = output::Output { json: args.json };
    match commands::run(args.command, &output) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error);
            ExitCode::from(error.exit_code)
        }
    }
}
