//! Named points where tests make one kind of restore be left out, to prove that a workload would notice.
//! Empty in production. The names are one list for all crates, and `timeline::fault` refuses one that none of them knows.

/// Every fault point of this crate and what it leaves out.
pub const POINTS: &[(&str, &str)] = &[
    ("skip:files.content", "bytes of regular files"),
    ("skip:files.mode", "permission bits"),
    ("skip:files.xattr", "extended attributes"),
    ("skip:files.times", "access and modification times"),
    ("skip:files.owner", "owner and group"),
    ("skip:files.rename", "moving renamed files and directories back"),
    ("skip:files.delete", "removing what is new"),
    ("skip:files.create", "making deleted files and directories again"),
    ("skip:files.symlink", "making symbolic links again"),
    ("skip:files.hardlink", "linking further names of a file"),
    ("skip:files.special", "making FIFOs, sockets and device nodes again"),
    ("skip:files.sparse", "making holes again"),
    ("skip:files.shm", "everything in /dev/shm"),
    (
        "skip:files.lowerdir",
        "revealing deleted files and directories of the lower layers",
    ),
];

/// The fault points that are switched on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(u32);

impl Faults {
    /// Takes the names it knows from a list that other crates share.
    pub(crate) fn new(names: &[String]) -> Self {
        let bit = |(index, (name, _)): (usize, &(&str, &str))| u32::from(names.iter().any(|on| on == name)) << index;
        Self(POINTS.iter().enumerate().map(bit).sum())
    }

    /// True when no point is on.
    pub(crate) fn are_none(&self) -> bool {
        self.0 == 0
    }

    /// True when the restore of `kind` (`content`, `mode`) is to be left out.
    pub(crate) fn skips(&self, kind: &str) -> bool {
        if self.0 == 0 {
            return false;
        }
        let index = POINTS
            .iter()
            .position(|(name, _)| name.strip_prefix("skip:files.") == Some(kind));
        self.0 & (1 << index.expect("asked only for points of the table")) != 0
    }
}
