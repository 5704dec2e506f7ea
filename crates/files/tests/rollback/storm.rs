//! Random operations on a tree through its mount, the kinds that programs do and a few that only hostile ones do.

use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, mknod};

/// A small generator of our own, so that a seed means the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("64-bit") % bound
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            None
        } else {
            Some(&from[self.below(from.len())])
        }
    }
}

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"\xff\xfe",
    b"new\nline",
    b"l1",
    b"l2",
    b"deep",
    b"python",
    b"etc",
    b"usr",
];

/// One tree to work in.
pub(crate) struct Storm<'a> {
    pub(crate) root: &'a Path,
    /// What was done, for the report of a failure.
    pub(crate) log: Vec<String>,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Self {
            root,
            log: Vec::new(),
            directories: Vec::new(),
            files: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Does `count` operations; what the kernel refuses does not count as a failure.
    pub(crate) fn blow(&mut self, random: &mut Random, count: usize) {
        for _ in 0..count {
            self.list();
            let before = self.log.len();
            let done = self.one(random);
            if self.log.len() > before
                && let Some(line) = self.log.last_mut()
                && let Some(Err(error)) = done
            {
                line.push_str(&format!("  -> {error}"));
            }
        }
    }

    fn list(&mut self) {
        self.directories = vec![self.root.to_path_buf()];
        self.files.clear();
        self.others.clear();
        let mut index = 0;
        while let Some(directory) = self.directories.get(index).cloned() {
            let mut entries: Vec<_> = fs::read_dir(&directory).expect("readdir").flatten().collect();
            entries.sort_by_key(|entry| entry.file_name());
            for entry in entries {
                let kind = entry.file_type().expect("type");
                match () {
                    () if kind.is_dir() => self.directories.push(entry.path()),
                    () if kind.is_file() => self.files.push(entry.path()),
                    () => self.others.push(entry.path()),
                }
            }
            index += 1;
        }
    }

    fn new_path(&self, random: &mut Random) -> Option<PathBuf> {
        let directory = random.pick(&self.directories)?;
        Some(directory.join(OsStr::from_bytes(random.pick(NAMES)?)))
    }

    fn any(&self, random: &mut Random) -> Option<PathBuf> {
        let all: Vec<&PathBuf> = self.directories[1..]
            .iter()
            .chain(&self.files)
            .chain(&self.others)
            .collect();
        random.pick(&all).map(|path| (*path).clone())
    }

    fn one(&mut self, random: &mut Random) -> Option<std::io::Result<()>> {
        let kind = random.below(26);
        let file = random.pick(&self.files).cloned();
        let mut note = |what: &str, paths: &[&Path]| self.log.push(format!("{what} {paths:?}"));
        Some(match kind {
            0..=2 => {
                let path = random
                    .pick(&self.directories)?
                    .join(OsStr::from_bytes(random.pick(NAMES)?));
                let bytes = bytes(random);
                note("write", &[&path]);
                write(&path, &bytes)
            }
            3 => {
                let path = file?;
                note("append", &[&path]);
                fs::OpenOptions::new()
                    .append(true)
                    .open(&path)
                    .and_then(|mut open| open.write_all(b"appended\n"))
            }
            4 => {
                let (path, size) = (file?, random.below(40_000) as u64);
                note("truncate", &[&path]);
                fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|open| open.set_len(size))
            }
            5 | 6 => {
                let (path, at, bytes) = (file?, random.below(30_000) as u64, bytes(random));
                note("overwrite", &[&path]);
                fs::OpenOptions::new().write(true).open(&path).and_then(|mut open| {
                    open.seek(SeekFrom::Start(at))?;
                    open.write_all(&bytes)
                })
            }
            7 => {
                let (path, to) = (file?, self.new_path(random)?);
                self.log.push(format!("rename file {path:?} {to:?}"));
                fs::rename(path, to)
            }
            8 | 9 => {
                let (path, to) = (random.pick(&self.directories[1..])?.clone(), self.new_path(random)?);
                // ext4 changes the times of the directory when this fails, and tells nobody.
                if fs::read_dir(&to).is_ok_and(|mut names| names.next().is_some()) {
                    return None;
                }
                self.log.push(format!("rename directory {path:?} {to:?}"));
                fs::rename(path, to)
            }
            10 => {
                let path = random.pick(&self.directories[1..])?.clone();
                note("rm -rf", &[&path]);
                fs::remove_dir_all(path)
            }
            11 | 12 => {
                let path = file?;
                note("unlink", &[&path]);
                fs::remove_file(path)
            }
            13 => {
                let (path, to) = (file?, self.new_path(random)?);
                self.log.push(format!("link {path:?} {to:?}"));
                fs::hard_link(path, to)
            }
            14 => {
                let path = self.new_path(random)?;
                self.log.push(format!("symlink {path:?}"));
                symlink("../somewhere", path)
            }
            15 => {
                let (path, mode) = (self.any(random)?, [0o600, 0o755, 0o4711, 0o1777][random.below(4)]);
                self.log.push(format!("chmod {path:?}"));
                if path.is_symlink() {
                    Ok(())
                } else {
                    fs::set_permissions(path, fs::Permissions::from_mode(mode))
                }
            }
            16 => {
                let path = self.any(random)?;
                let owner = Some(100_000 + u32::try_from(random.below(5)).expect("small"));
                self.log.push(format!("chown {path:?} {owner:?}"));
                std::os::unix::fs::lchown(path, owner, owner)
            }
            17 => {
                let path = if random.below(2) == 0 {
                    file?
                } else {
                    random.pick(&self.directories)?.clone()
                };
                note("setxattr", &[&path]);
                let (name, value) = (["user.one", "user.two"][random.below(2)], vec![b'v'; random.below(300)]);
                rustix::fs::setxattr(path, name, &value, rustix::fs::XattrFlags::empty()).map_err(Into::into)
            }
            18 => {
                let path = file?;
                note("removexattr", &[&path]);
                rustix::fs::removexattr(path, "user.one").map_err(Into::into)
            }
            19 => {
                let path = self.new_path(random)?;
                let kind = [SFlag::S_IFIFO, SFlag::S_IFSOCK, SFlag::S_IFCHR, SFlag::S_IFBLK][random.below(4)];
                self.log.push(format!("mknod {path:?} {kind:?}"));
                mknod(&path, kind, Mode::S_IRUSR, nix::sys::stat::makedev(1, 3)).map_err(Into::into)
            }
            20 => {
                let path = self.new_path(random)?;
                self.log.push(format!("sparse {path:?}"));
                create(&path).and_then(|mut open| {
                    open.set_len(65_536 * (1 + random.below(5) as u64))?;
                    open.seek(SeekFrom::Start(4096 * random.below(9) as u64))?;
                    open.write_all(&vec![b's'; 4096])
                })
            }
            21 => {
                let path = self.new_path(random)?;
                self.log.push(format!("mkdir {path:?}"));
                fs::create_dir(&path)
            }
            22 => {
                let path = file?;
                note("open for writing", &[&path]);
                fs::OpenOptions::new().write(true).open(path).map(drop)
            }
            23 => {
                let (path, beside) = (file?, self.new_path(random)?);
                self.log.push(format!("replace by rename {path:?} via {beside:?}"));
                write(&beside, &bytes(random)).and_then(|()| fs::rename(beside, path))
            }
            24 => {
                let path = self.new_path(random)?;
                self.log.push(format!("large {path:?}"));
                let byte = u8::try_from(random.below(256)).expect("a byte");
                write(&path, &vec![byte; 140_000 + random.below(100_000)])
            }
            _ => {
                let path = self.new_path(random)?;
                self.log.push(format!("look at {path:?}"));
                fs::symlink_metadata(path).map(drop)
            }
        })
    }
}

/// Opens for writing, as `File::create` does, but without waiting for the reader of a FIFO.
fn create(path: &Path) -> std::io::Result<fs::File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a small flag");
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(path)
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    create(path)?.write_all(bytes)
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = [0, 10, 5_000, 20_000][random.below(4)];
    let seed = random.below(256);
    (0..length)
        .map(|at| u8::try_from((at / 100 + seed) % 256).expect("a byte"))
        .collect()
}
