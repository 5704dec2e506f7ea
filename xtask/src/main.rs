//! Repository chores in Rust: `cargo xtask TASK`. Never shipped, never needed to build the product.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of the console")]

mod bench;
mod source;
mod tidy;
mod tree;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

const TASKS: &str = "\
usage: cargo xtask TASK
  tidy        checks the house rules; each finding is one line
  bench FILE  compares the JSON of `deltabox bench` with bench/targets.toml";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let kept = match arguments.as_slice() {
        ["tidy"] => run_tidy(root),
        ["bench", report] => run_bench(root, report),
        _ => {
            eprintln!("{TASKS}");
            return ExitCode::from(2);
        }
    };
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run_tidy(root: &Path) -> Result<bool, String> {
    let tree = tree::Tree::read(root).map_err(|error| format!("cannot read {}: {error}", root.display()))?;
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
    Ok(findings.is_empty())
}

fn run_bench(root: &Path, report: &str) -> Result<bool, String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let comparison = bench::compare(&read(&root.join("bench/targets.toml"))?, &read(Path::new(report))?)?;
    for line in &comparison.lines {
        println!("{line}");
    }
    if comparison.lines.is_empty() {
        println!("no target has the suite and params of {report}");
    }
    Ok(comparison.broken_count == 0)
}
