//! Builds PID 1 of a box (`crates/stub/src/init.rs`) with the same compiler: freestanding, static, small. It is not a
//! cargo dependency, because a binary cannot be one on stable Rust, and because it must not inherit flags or profiles
//! that are meant for programs with a standard library.

use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let need = |name: &str| std::env::var_os(name).ok_or_else(|| format!("cargo sets {name}"));
    let source = PathBuf::from(need("CARGO_MANIFEST_DIR")?).join("../stub/src");
    let output = PathBuf::from(need("OUT_DIR")?).join("init");
    println!("cargo::rerun-if-changed={}", source.join("init.rs").display());
    println!("cargo::rerun-if-changed={}", source.join("init").display());
    let status = Command::new(need("RUSTC")?)
        .args(["--edition", "2024", "--crate-name", "init", "--crate-type", "bin"])
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "relocation-model=static",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "debuginfo=0",
            "-C",
            "overflow-checks=off",
            "-C",
            "codegen-units=1",
        ])
        .args([
            "-C",
            "link-arg=-nostdlib",
            "-C",
            "link-arg=-nostartfiles",
            "-C",
            "link-arg=-static",
        ])
        .arg("-o")
        .arg(&output)
        .arg(source.join("init.rs"))
        .status()?;
    if !status.success() {
        return Err(format!("PID 1 does not build: {status}").into());
    }
    Ok(())
}
