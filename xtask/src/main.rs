//! Repository chores in Rust: `cargo xtask TASK`. Never shipped, never needed to build the product.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of the console")]

mod source;
mod tidy;
mod tree;

use std::path::Path;
use std::process::ExitCode;

const TASKS: &str = "usage: cargo xtask tidy    checks the house rules; each finding is one line";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace");
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => run_tidy(root),
        _ => {
            eprintln!("{TASKS}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy(root: &Path) -> ExitCode {
    let tree = match tree::Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let findings = tidy::findings(&tree);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    println!(
        "tidy: {} rules, {} files, {} findings",
        tidy::RULES.len(),
        tree.files.len(),
        findings.len()
    );
    if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
