//! What a box shall be: plain data, checked once. It names nothing that exists yet and opens nothing.

use std::path::PathBuf;

use linux::namespace::IdRange;

use crate::error::SandboxError;

/// What the root of a box is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// The allowed parts of the host's own root (see `rootfs`).
    Host,
    /// A directory that holds a root file system. It must not change while a box uses it.
    Directory(PathBuf),
}

/// Bounds on what a box may use; `None`: no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time in thousandths of one processor.
    pub cpu_milli: Option<u32>,
    /// Number of tasks.
    pub task_count: Option<u32>,
}

/// A host directory or file that the box sees. It is outside the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where the box sees it (absolute).
    pub inside: String,
    /// The box cannot write to it.
    pub read_only: bool,
}

/// A box to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Names the box's groups and nothing else: letters, digits and `-`, at most 64.
    pub id: String,
    /// What `hostname` prints inside.
    pub hostname: String,
    /// The root.
    pub image: Image,
    /// Bounds.
    pub limits: Limits,
    /// Environment of every command, `NAME`, value.
    pub env: Vec<(String, String)>,
    /// Working directory of every command that names none.
    pub workdir: String,
    /// User of every command that names none: `user[:group]`, names or numbers.
    pub user: String,
    /// Host directories.
    pub volumes: Vec<Volume>,
    /// Real root and no filter: for the owner of the machine only.
    pub privileged: bool,
    /// The box may make user namespaces of its own (and mount in them).
    pub nested_userns: bool,
    /// Which id range the box gets; the caller gives each live box another one.
    pub id_range_index: u32,
}

/// Ids of a box: 0 to 65535 inside.
const IDS_PER_BOX: u32 = 65536;
/// The first id outside that belongs to a box.
const IDS_FIRST: u32 = 100_000;
/// As many ranges as fit below `u32::MAX`.
pub const ID_RANGE_COUNT: u32 = (u32::MAX - IDS_FIRST) / IDS_PER_BOX;
/// Most volumes; they travel in one message.
const VOLUMES_MAX: usize = 32;
/// What the kernel takes as a host name.
const HOSTNAME_BYTES_MAX: usize = 64;

impl Spec {
    /// A box from the host's root with everything else at its default.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            hostname: id.to_owned(),
            image: Image::Host,
            limits: Limits::default(),
            env: Vec::new(),
            workdir: "/".to_owned(),
            user: "root".to_owned(),
            volumes: Vec::new(),
            privileged: false,
            nested_userns: false,
            id_range_index: 0,
        }
    }

    /// The ids outside that the box's ids are.
    pub fn id_range(&self) -> IdRange {
        if self.privileged {
            return IdRange {
                first: 0,
                count: u32::MAX,
            };
        }
        IdRange {
            first: IDS_FIRST + self.id_range_index * IDS_PER_BOX,
            count: IDS_PER_BOX,
        }
    }

    /// Says what makes no sense.
    ///
    /// # Errors
    /// `Invalid` with a sentence for the user.
    pub fn check(&self) -> Result<(), SandboxError> {
        let name_like = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        let invalid = |text: String| Err(SandboxError::Invalid(text));
        if self.id.is_empty() || self.id.len() > 64 || !name_like(&self.id) || self.id.starts_with('.') {
            return invalid(format!("id {:?}: letters, digits, '-' and '.', at most 64", self.id));
        }
        if self.hostname.is_empty() || self.hostname.len() > HOSTNAME_BYTES_MAX || !name_like(&self.hostname) {
            return invalid(format!(
                "host name {:?}: letters, digits, '-' and '.', at most 64",
                self.hostname
            ));
        }
        if !self.workdir.starts_with('/') {
            return invalid(format!("working directory {:?} is not absolute", self.workdir));
        }
        if self.id_range_index >= ID_RANGE_COUNT {
            return invalid(format!(
                "id range {} is past the last one ({ID_RANGE_COUNT})",
                self.id_range_index
            ));
        }
        if self.volumes.len() > VOLUMES_MAX {
            return invalid(format!("more than {VOLUMES_MAX} volumes"));
        }
        for volume in &self.volumes {
            let parts = volume.inside.split('/').skip(1);
            let plain = parts
                .clone()
                .all(|part| !part.is_empty() && part != "." && part != "..");
            if !volume.inside.starts_with('/') || !plain || parts.count() == 0 || volume.inside.len() > 255 {
                return invalid(format!(
                    "volume target {:?}: a plain absolute path, not the root",
                    volume.inside
                ));
            }
        }
        for (name, value) in &self.env {
            check_env(name, value)?;
        }
        if self.limits.memory_bytes == Some(0) || self.limits.cpu_milli == Some(0) || self.limits.task_count == Some(0)
        {
            return invalid("a limit of 0 leaves no room to run".to_owned());
        }
        Ok(())
    }
}

/// An environment entry that `execve` can carry.
pub(crate) fn check_env(name: &str, value: &str) -> Result<(), SandboxError> {
    if name.is_empty() || name.contains('=') || name.contains('\0') || value.contains('\0') {
        return Err(SandboxError::Invalid(format!("environment variable {name:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_touch() {
        let mut spec = Spec::new("a");
        assert_eq!(
            spec.id_range(),
            IdRange {
                first: 100_000,
                count: 65536
            }
        );
        spec.id_range_index = 1;
        assert_eq!(spec.id_range().first, 165_536);
        spec.id_range_index = ID_RANGE_COUNT - 1;
        spec.check().expect("the last range is whole");
        assert!(spec.id_range().first.checked_add(65535).is_some());
        spec.id_range_index = ID_RANGE_COUNT;
        assert!(spec.check().is_err());
    }

    #[test]
    fn refuses_targets_that_climb() {
        for target in ["data", "/", "/a/../b", "/a//b", "/."] {
            let mut spec = Spec::new("a");
            spec.volumes.push(Volume {
                host: "/srv".into(),
                inside: target.to_owned(),
                read_only: false,
            });
            assert!(spec.check().is_err(), "{target}");
        }
    }
}
