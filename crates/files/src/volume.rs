//! The state volume: where uppers and blobs live. Large files are captured by sharing extents, which needs a file
//! system that can: the state directory's own, or an XFS image that is loop-mounted in it. Without either everything
//! works, and large files are copied.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linux::SysError;
use linux::openat::open_entry;
use linux::reflink::{clone_file, write_at};
use rustix::fs::OFlags;

use crate::Result;
use crate::attributes::failed;

/// A directory for uppers and blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The directory.
    pub root: PathBuf,
    /// It can share extents between files.
    pub reflink: bool,
    /// Why it is as it is, for `doctor`.
    pub how: String,
    is_mounted: bool,
}

impl Volume {
    /// Finds or makes the volume of `state_dir` (which exists). An image is `size` bytes long and sparse: it takes
    /// only what is written. A volume that is already mounted is used as it is.
    ///
    /// # Errors
    /// `Kernel` when the directory cannot be used at all.
    pub fn open(state_dir: &Path, size: u64) -> Result<Volume> {
        let own = state_dir.join("volume");
        std::fs::create_dir_all(&own).map_err(|error| SysError::io("mkdir", own.display(), &error))?;
        if can_reflink(&own)? {
            let how = "this file system shares extents".to_owned();
            return Ok(Volume { root: own.clone(), reflink: true, how, is_mounted: is_mount_point(&own) });
        }
        match mount_image(state_dir, &own, size) {
            Ok(()) => {
                let how = "an XFS image in the state directory, loop-mounted".to_owned();
                Ok(Volume { reflink: can_reflink(&own)?, root: own, how, is_mounted: true })
            }
            Err(why) => {
                let how = format!("no shared extents, large files are copied: {why}");
                Ok(Volume { root: own, reflink: false, how, is_mounted: false })
            }
        }
    }

    /// Unmounts the image, if there is one. Its files stay.
    ///
    /// # Errors
    /// `EBUSY` while something in it is in use.
    pub fn close(&self) -> Result<()> {
        if !self.is_mounted {
            return Ok(());
        }
        let done = rustix::mount::unmount(&self.root, rustix::mount::UnmountFlags::NOFOLLOW);
        Ok(done.map_err(failed("umount", self.root.as_os_str().as_encoded_bytes()))?)
    }
}

/// Tries it: clones a small file in `directory`.
fn can_reflink(directory: &Path) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())
        .map_err(failed("open", directory.as_os_str().as_encoded_bytes()))?;
    let temporary = || -> Result<OwnedFd> {
        Ok(open_entry(&here, b".", OFlags::RDWR | OFlags::TMPFILE, 0o600).or_else(|_| {
            let name = b".probe";
            let file = open_entry(&here, name, OFlags::RDWR | OFlags::CREATE, 0o600)?;
            let _gone = rustix::fs::unlinkat(&here, ".probe", rustix::fs::AtFlags::empty());
            Ok::<_, SysError>(file)
        })?)
    };
    let (source, target) = (temporary()?, temporary()?);
    write_at(&source, &[1; 4096], 0)?;
    Ok(clone_file(&source, &target).is_ok())
}

fn is_mount_point(directory: &Path) -> bool {
    let device = |path: &Path| rustix::fs::lstat(path).map(|stat| stat.st_dev);
    directory.parent().is_some_and(|parent| matches!((device(directory), device(parent)), (Ok(a), Ok(b)) if a != b))
}

/// Makes the image if it is not there, and mounts it. The error is for people.
fn mount_image(state_dir: &Path, target: &Path, size: u64) -> std::result::Result<(), String> {
    let image = state_dir.join("volume.xfs");
    if !image.exists() {
        let file = std::fs::File::create_new(&image).map_err(|error| format!("{}: {error}", image.display()))?;
        let made = file.set_len(size).map_err(|error| error.to_string()).and_then(|()| {
            run(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image))
        });
        if let Err(why) = made {
            let _gone = std::fs::remove_file(&image);
            return Err(why);
        }
    }
    run(Command::new("mount").args(["-t", "xfs", "-o", "loop,noatime"]).arg(&image).arg(target))
}

fn run(command: &mut Command) -> std::result::Result<(), String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
