//! Turns a root file system in a tar file into a directory that `Image::Directory` can name. The unpacking is `tar`'s:
//! it refuses names that climb and sets links last, so that an archive cannot write outside its directory.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::SandboxError;

/// Unpacks `archive` (plain, gzip, xz or zstd, where the host's `tar` has them) into the new directory `target`, owners
/// by number. A failure removes what was unpacked.
///
/// # Errors
/// `Image` with what `tar` said.
pub fn unpack(archive: &Path, target: &Path) -> Result<(), SandboxError> {
    let image = || archive.display().to_string();
    let failed = |why: String| SandboxError::Image { image: image(), why };
    if !archive.is_file() {
        return Err(failed("is not a file".to_owned()));
    }
    std::fs::create_dir_all(target).map_err(|e| failed(format!("cannot make {}: {e}", target.display())))?;
    let out = Command::new("tar")
        .args([
            "--extract",
            "--numeric-owner",
            "--same-permissions",
            "--same-owner",
            "--xattrs",
            "--file",
        ])
        .arg(archive)
        .arg("--directory")
        .arg(target)
        .args(["--exclude=./dev/*", "--exclude=dev/*"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(format!("tar cannot be run: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr)
        .lines()
        .next()
        .unwrap_or("no reason given")
        .to_owned();
    match std::fs::remove_dir_all(target) {
        Ok(()) => Err(failed(said)),
        Err(e) => Err(failed(format!("{said}; and {} is left: {e}", target.display()))),
    }
}
