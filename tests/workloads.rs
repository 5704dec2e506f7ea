//! Every workload in every mode. Without root or a built `deltabox` only the native modes run, and it says so.
//! `cargo test -p deltabox-tests --test workloads -- pipe` runs those with `pipe` in their names.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use deltabox_tests::run;
use libtest_mimic::Arguments;

#[expect(
    clippy::disallowed_methods,
    reason = "a test program's main: settings are read once here"
)]
fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the tmp directory lies in the target directory");
    let list = match run::prepare(Path::new(env!("CARGO_MANIFEST_DIR")), &output) {
        Ok(list) => list,
        Err(error) => {
            say(&error);
            return ExitCode::FAILURE;
        }
    };
    let named = std::env::var("DELTABOX_BIN").ok().map(Into::into);
    if let Some(Err(error)) = named.clone().map(|named| run::find_program(Some(named), target)) {
        say(&error);
        return ExitCode::FAILURE;
    }
    run::workloads(&mut arguments, list, run::boxes(named, target), say).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test program speaks to whoever runs it")]
fn say(line: &str) {
    eprintln!("{line}");
}
