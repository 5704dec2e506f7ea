//! The plain way: walk a directory with the standard library and write everything down. Slow, and right by being
//! simple; what the tracker restores is compared with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Everything a program could ask about one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, i64),
    pub(crate) content: Vec<u8>,
    pub(crate) holes: Vec<(u64, u64)>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same inode.
    pub(crate) same_as: PathBuf,
}

pub(crate) type Snapshot = BTreeMap<PathBuf, Seen>;

/// All names below `root`, and `root` itself as the empty path.
pub(crate) fn look(root: &Path) -> Snapshot {
    let mut snapshot = Snapshot::new();
    let mut first_names = BTreeMap::new();
    visit(root, Path::new(""), &mut snapshot, &mut first_names);
    snapshot
}

fn visit(root: &Path, path: &Path, snapshot: &mut Snapshot, first: &mut BTreeMap<(u64, u64), PathBuf>) {
    let full = root.join(path);
    let metadata = fs::symlink_metadata(&full).unwrap_or_else(|error| panic!("lstat {}: {error}", full.display()));
    let kind = metadata.file_type();
    let content = if kind.is_symlink() {
        fs::read_link(&full).expect("readlink").into_os_string().into_vec()
    } else if kind.is_file() {
        fs::read(&full).unwrap_or_else(|error| panic!("read {}: {error}", full.display()))
    } else {
        Vec::new()
    };
    let same_as = first.entry((metadata.dev(), metadata.ino())).or_insert_with(|| path.to_path_buf()).clone();
    let seen = Seen {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        rdev: if kind.is_char_device() || kind.is_block_device() { metadata.rdev() } else { 0 },
        size: if kind.is_dir() { 0 } else { metadata.size() },
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        holes: if kind.is_file() { holes(&full, metadata.size()) } else { Vec::new() },
        content,
        xattrs: xattrs(&full),
        same_as: if kind.is_dir() { path.to_path_buf() } else { same_as },
    };
    let _none = snapshot.insert(path.to_path_buf(), seen);
    if kind.is_dir() {
        let mut names: Vec<OsString> =
            fs::read_dir(&full).expect("readdir").map(|entry| entry.expect("entry").file_name()).collect();
        names.sort();
        for name in names {
            visit(root, &path.join(name), snapshot, first);
        }
    }
}

fn holes(path: &Path, size: u64) -> Vec<(u64, u64)> {
    let file = fs::File::open(path).expect("open");
    let data = linux::reflink::data_ranges(&file, size).expect("lseek");
    data.into_iter().map(|range| (range.start, range.end)).collect()
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, names.as_mut_slice()).unwrap_or(0);
    names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap_or(0);
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}

/// Differences, one line each.
pub(crate) fn compare(wanted: &Snapshot, found: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, want) in wanted {
        let Some(have) = found.get(path) else {
            lines.push(format!("missing {path:?}"));
            continue;
        };
        let mut differ = |what: &str, want: &dyn std::fmt::Debug, have: &dyn std::fmt::Debug| {
            let (want, have) = (format!("{want:?}"), format!("{have:?}"));
            if want != have {
                let cut = |text: String| text.chars().take(120).collect::<String>();
                lines.push(format!("{path:?}: {what}: want {} have {}", cut(want), cut(have)));
            }
        };
        differ("mode", &format!("{:o}", want.mode), &format!("{:o}", have.mode));
        differ("owner", &want.owner, &have.owner);
        differ("rdev", &want.rdev, &have.rdev);
        differ("size", &want.size, &have.size);
        differ("mtime", &want.mtime, &have.mtime);
        differ("xattrs", &want.xattrs, &have.xattrs);
        differ("link", &want.same_as, &have.same_as);
        differ("holes", &want.holes, &have.holes);
        if want.content != have.content {
            let at = want.content.iter().zip(&have.content).position(|(a, b)| a != b);
            lines.push(format!("{path:?}: content differs at {at:?} of {}", want.content.len()));
        }
    }
    lines.extend(found.keys().filter(|path| !wanted.contains_key(*path)).map(|path| format!("left over {path:?}")));
    lines
}
