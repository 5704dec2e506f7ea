//! Control groups: where the hierarchies are mounted, one group per box in each that is needed, limits, kill, removal.
//! Version 2 first; version 1 where a controller lives there. Our own, over files: the known crate pulls in D-Bus. It
//! never touches a group that it did not make, but for switching controllers on along its own path in version 2.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use crate::error::{Result, SysError};

/// The directory under the root of a hierarchy that holds the groups of all boxes.
const PARENT: &str = "deltabox";

/// A thing that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Bytes of memory.
    Memory,
    /// Processor time.
    Cpu,
    /// Number of tasks.
    Pids,
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
        }
    }
}

/// Where the hierarchies of this machine are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Mount point of the version 2 hierarchy.
    pub v2: Option<PathBuf>,
    /// Controllers that version 2 offers.
    pub v2_controllers: Vec<&'static str>,
    /// Mount points of version 1 hierarchies, by controller.
    pub v1: Vec<(&'static str, PathBuf)>,
}

impl Hierarchies {
    /// Reads the mount table of this process.
    ///
    /// # Errors
    /// When `/proc/self/mountinfo` cannot be read.
    pub fn find() -> Result<Self> {
        let path = "/proc/self/mountinfo";
        let text = fs::read_to_string(path).map_err(|e| SysError::io("read", path, &e))?;
        let mut found = Self::parse(&text);
        if let Some(root) = &found.v2 {
            let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            found.v2_controllers = known_in(offered.split_whitespace());
        }
        Ok(found)
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split(' ').nth(4) else { continue };
            let mut right = right.split(' ');
            let kind = right.next().unwrap_or_default();
            let options = right.nth(1).unwrap_or_default();
            match kind {
                "cgroup2" if found.v2.is_none() => found.v2 = Some(PathBuf::from(point)),
                "cgroup" => {
                    for name in known_in(options.split(',')) {
                        found.v1.push((name, PathBuf::from(point)));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// The version 1 hierarchy of a controller.
    pub fn v1_of(&self, controller: Controller) -> Option<&Path> {
        self.v1
            .iter()
            .find(|(name, _)| *name == controller.name())
            .map(|(_, path)| path.as_path())
    }
}

fn known_in<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let names: Vec<&str> = names.collect();
    Controller::ALL
        .iter()
        .map(|c| c.name())
        .filter(|name| names.contains(name))
        .collect()
}

/// A group of a box. Removed by [`Group::remove`], not on drop: its processes must be gone first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes the group `deltabox/<name>` under the root of a hierarchy. An empty one that is left over is taken.
    ///
    /// # Errors
    /// What `mkdir` says.
    pub fn create(hierarchy: &Path, name: &str) -> Result<Self> {
        let path = hierarchy.join(PARENT).join(name);
        fs::create_dir_all(&path).map_err(|e| SysError::io("mkdir", path.display(), &e))?;
        Ok(Self { path })
    }

    /// Switches controllers on along the way to the groups of boxes in the version 2 hierarchy.
    ///
    /// # Errors
    /// `EBUSY` when the root has processes that forbid it, `EPERM` when it is not ours.
    pub fn delegate(hierarchy: &Path, controllers: &[&str]) -> Result<()> {
        let wanted: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
        let parent = hierarchy.join(PARENT);
        fs::create_dir_all(&parent).map_err(|e| SysError::io("mkdir", parent.display(), &e))?;
        for directory in [hierarchy, &parent] {
            write(&directory.join("cgroup.subtree_control"), &wanted.join(" "))?;
        }
        Ok(())
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory, open, for `CLONE_INTO_CGROUP`.
    ///
    /// # Errors
    /// What `open` says.
    pub fn open(&self) -> Result<OwnedFd> {
        fs::File::open(&self.path)
            .map(OwnedFd::from)
            .map_err(|e| SysError::io("open", self.path.display(), &e))
    }

    /// Writes one setting of the group.
    ///
    /// # Errors
    /// `ENOENT` when the kernel has no such setting here.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        write(&self.path.join(file), value)
    }

    /// Moves a process in.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn add_process(&self, host_pid: u32) -> Result<()> {
        self.set("cgroup.procs", &host_pid.to_string())
    }

    /// Kills everything in the group (version 2, kernel 5.14 and later).
    ///
    /// # Errors
    /// `ENOENT` on older kernels and in version 1.
    pub fn kill(&self) -> Result<()> {
        self.set("cgroup.kill", "1")
    }

    /// Waits until the group is empty, told by the kernel, at most `timeout_ms`; then removes it and what the box made
    /// below it. A group that is gone already is no error.
    ///
    /// # Errors
    /// `EBUSY` when processes are left in it.
    pub fn remove(&self, timeout_ms: u32) -> Result<()> {
        let events = self.path.join("cgroup.events");
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(u64::from(timeout_ms));
        loop {
            match remove_tree(&self.path) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                    let left = deadline.saturating_duration_since(std::time::Instant::now());
                    if left.is_zero() || !wait_for_change(&events, left) {
                        return Err(SysError::io("rmdir", self.path.display(), &e));
                    }
                }
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(SysError::io("rmdir", self.path.display(), &e));
                }
                _ => return Ok(()),
            }
        }
    }
}

fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Sleeps until the kernel says that `populated` changed. False when there is nothing to wait on, or in vain.
fn wait_for_change(events: &Path, left: std::time::Duration) -> bool {
    let Ok(mut file) = fs::File::open(events) else {
        return false;
    };
    let mut text = String::new();
    if io::Read::read_to_string(&mut file, &mut text).is_err() {
        return false;
    }
    if text.contains("populated 0") {
        return true;
    }
    let mut polls = [PollFd::new(&file, PollFlags::PRI)];
    let timeout = rustix::event::Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    poll(&mut polls, Some(&timeout)).is_ok_and(|count| count > 0)
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::File::options()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|e| SysError::io("write", format_args!("{} = {value}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_mixed_hierarchies() {
        let text = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                    32 31 0:29 / /sys/fs/cgroup/cpu rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(text);
        assert_eq!(found.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(
            found.v1_of(Controller::Memory),
            Some(Path::new("/sys/fs/cgroup/memory"))
        );
        assert_eq!(found.v1_of(Controller::Cpu), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(found.v1_of(Controller::Pids), None);
    }
}
