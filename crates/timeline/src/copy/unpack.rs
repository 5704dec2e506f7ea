//! A tar stream into a directory of a box. The whole stream is checked before anything is written, so that a stream
//! that cannot be unpacked changes nothing. A file that exists under a name is replaced in one step, never written
//! through; directories that exist are kept as they are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, fchmod, fchown, futimens, linkat, mkdirat,
    mkfifoat, openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::{COPY_MAX_BYTES, Ids, refused, relative, resolve, too_large, unreadable};
use crate::error::TimelineError;

/// A stream of more entries is refused.
const ENTRIES_MAX: usize = 1_000_000;
/// How often another temporary name is tried.
const NAMES_MAX: u32 = 64;

/// Unpacks `stream` below the directory `path` of `root`, which is made when absent. Returns the bytes of files.
///
/// # Errors
/// `CopyRefused`, `UnknownPath` (a link to nowhere).
pub fn unpack(root: BorrowedFd<'_>, path: &[u8], stream: &[u8], ids: Ids) -> Result<u64, TimelineError> {
    check(path, stream)?;
    let unpacker = Unpacker {
        root,
        ids,
        base: PathBuf::from(OsStr::from_bytes(relative(path))),
        given: path,
    };
    drop(unpacker.directory(&unpacker.base)?);
    let mut bytes = 0;
    // A directory's time is set when nothing more is put into it.
    let mut directories = Vec::new();
    for entry in tar::Archive::new(stream)
        .entries()
        .map_err(|error| unreadable(path, &error))?
    {
        let mut entry = entry.map_err(|error| unreadable(path, &error))?;
        let Some(name) = inner(&entry.path().map_err(|error| unreadable(path, &error))?) else {
            continue;
        };
        let meta = Meta::of(entry.header(), ids).map_err(|error| unreadable(name.as_os_str().as_bytes(), &error))?;
        if entry.header().entry_type() == tar::EntryType::Directory {
            if let Some(directory) = unpacker.make_directory(&name, &meta)? {
                directories.push((directory, meta.time));
            }
        } else {
            bytes += unpacker.put(&name, &mut entry, &meta)?;
        }
    }
    for (directory, time) in directories.iter().rev() {
        set_time(directory.as_fd(), *time).map_err(|errno| refused(path, errno))?;
    }
    Ok(bytes)
}

/// Reads the whole stream without writing.
fn check(path: &[u8], stream: &[u8]) -> Result<(), TimelineError> {
    if stream.len() as u64 > COPY_MAX_BYTES {
        return Err(too_large(path));
    }
    let mut total = 0_u64;
    let mut archive = tar::Archive::new(stream);
    for (index, entry) in archive.entries().map_err(|error| unreadable(path, &error))?.enumerate() {
        let entry = entry.map_err(|error| unreadable(path, &error))?;
        let name = entry.path_bytes().into_owned();
        let refuse = |why: &str| TimelineError::CopyRefused {
            path: String::from_utf8_lossy(&name).into_owned(),
            why: why.to_owned(),
        };
        let parts = Path::new(OsStr::from_bytes(&name)).components();
        if parts.into_iter().any(|part| part == Component::ParentDir) {
            return Err(refuse("a name in the stream has '..' in it"));
        }
        use tar::EntryType as Kind;
        match entry.header().entry_type() {
            Kind::Regular | Kind::Continuous | Kind::GNUSparse | Kind::Directory | Kind::Fifo => {}
            Kind::Symlink | Kind::Link | Kind::XGlobalHeader => {}
            _ => return Err(refuse("the stream holds a device or something unknown")),
        }
        total += entry.size();
        if total > COPY_MAX_BYTES || index >= ENTRIES_MAX {
            return Err(too_large(path));
        }
    }
    Ok(())
}

/// The plain part of a name; `None` for the directory itself.
fn inner(name: &Path) -> Option<PathBuf> {
    let plain: PathBuf = name
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    (!plain.as_os_str().is_empty()).then_some(plain)
}

/// Who owns an entry, what may be done with it, and since when.
struct Meta {
    uid: Uid,
    gid: Gid,
    mode: Mode,
    time: i64,
}

impl Meta {
    fn of(header: &tar::Header, ids: Ids) -> io::Result<Self> {
        Ok(Self {
            uid: Uid::from_raw(ids.host(header.uid()?)),
            gid: Gid::from_raw(ids.host(header.gid()?)),
            mode: Mode::from_raw_mode(header.mode()? & 0o7777),
            time: i64::try_from(header.mtime()?).unwrap_or(0),
        })
    }

    fn set(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // The owner first: changing it takes set-id bits away.
        fchown(file, Some(self.uid), Some(self.gid))?;
        fchmod(file, self.mode)
    }
}

fn set_time(file: BorrowedFd<'_>, seconds: i64) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    futimens(
        file,
        &Timestamps {
            last_access: time,
            last_modification: time,
        },
    )
}

struct Unpacker<'a> {
    root: BorrowedFd<'a>,
    ids: Ids,
    base: PathBuf,
    given: &'a [u8],
}

impl Unpacker<'_> {
    /// A directory of the box, made with its parents when absent.
    fn directory(&self, path: &Path) -> Result<OwnedFd, TimelineError> {
        let bytes = path.as_os_str().as_bytes();
        match resolve(self.root, relative(bytes), OFlags::DIRECTORY, self.given) {
            Err(TimelineError::UnknownPath { .. }) => {}
            done => return done,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(refused(bytes, Errno::NOENT));
        };
        let above = self.directory(parent)?;
        let root = Uid::from_raw(self.ids.host(0));
        match mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => chownat(
                &above,
                name,
                Some(root),
                Some(Gid::from_raw(root.as_raw())),
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| refused(bytes, errno))?;
        resolve(self.root, relative(bytes), OFlags::DIRECTORY, self.given)
    }

    /// Where an entry goes: the directory above it and its name there.
    fn place<'p>(&self, name: &'p Path) -> Result<(OwnedFd, &'p OsStr), TimelineError> {
        let above = self.base.join(name.parent().unwrap_or(Path::new("")));
        Ok((
            self.directory(&above)?,
            name.file_name().expect("names have a last part: `inner` saw to it"),
        ))
    }

    /// A directory entry; the directory if it is new.
    fn make_directory(&self, name: &Path, meta: &Meta) -> Result<Option<OwnedFd>, TimelineError> {
        let fail = |errno| refused(name.as_os_str().as_bytes(), errno);
        let (above, last) = self.place(name)?;
        match mkdirat(&above, last, Mode::from_raw_mode(0o700)) {
            Ok(()) => {}
            // There already: as a directory, or as a link to one.
            Err(Errno::EXIST) => return self.directory(&self.base.join(name)).map(|_| None),
            Err(errno) => return Err(fail(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&above, last, flags, Mode::empty()).map_err(fail)?;
        meta.set(directory.as_fd()).map_err(fail)?;
        Ok(Some(directory))
    }

    /// Anything but a directory; the bytes of a file.
    fn put(&self, name: &Path, entry: &mut tar::Entry<'_, &[u8]>, meta: &Meta) -> Result<u64, TimelineError> {
        let shown = name.as_os_str().as_bytes();
        let fail = |errno| refused(shown, errno);
        let kind = entry.header().entry_type();
        let link = entry
            .link_name_bytes()
            .map(|target| target.into_owned())
            .unwrap_or_default();
        if kind == tar::EntryType::XGlobalHeader {
            return Ok(0);
        }
        let (above, last) = self.place(name)?;
        if matches!(
            kind,
            tar::EntryType::Symlink | tar::EntryType::Link | tar::EntryType::Fifo
        ) {
            match unlinkat(&above, last, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        match kind {
            tar::EntryType::Symlink => {
                symlinkat(link.as_slice(), &above, last).map_err(fail)?;
                let (uid, gid) = (Some(meta.uid), Some(meta.gid));
                chownat(&above, last, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
                Ok(0)
            }
            tar::EntryType::Link => {
                let Some(target) = inner(Path::new(OsStr::from_bytes(&link))) else {
                    return Err(fail(Errno::INVAL));
                };
                let (target_above, target_last) = self.place(&target)?;
                linkat(&target_above, target_last, &above, last, AtFlags::empty()).map_err(fail)?;
                Ok(0)
            }
            tar::EntryType::Fifo => {
                mkfifoat(&above, last, meta.mode).map_err(fail)?;
                let (uid, gid) = (Some(meta.uid), Some(meta.gid));
                chownat(&above, last, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
                Ok(0)
            }
            _ => self.put_file(above.as_fd(), last, entry, meta, shown),
        }
    }

    /// Written beside under a name of its own, then put in place: no reader sees half of it, a full disk loses nothing.
    fn put_file(
        &self,
        above: BorrowedFd<'_>,
        last: &OsStr,
        content: &mut impl Read,
        meta: &Meta,
        shown: &[u8],
    ) -> Result<u64, TimelineError> {
        let (mut file, beside) = create_beside(above).map_err(|errno| refused(shown, errno))?;
        let done = io::copy(content, &mut file)
            .map_err(|error| unreadable(shown, &error))
            .and_then(|bytes| {
                meta.set(file.as_fd())
                    .and_then(|()| set_time(file.as_fd(), meta.time))
                    .and_then(|()| renameat(above, beside.as_str(), above, last))
                    .map_err(|errno| refused(shown, errno))?;
                Ok(bytes)
            });
        if done.is_err() {
            // What failed is what the caller hears; a name that stays behind is the lesser evil.
            unlinkat(above, beside.as_str(), AtFlags::empty()).ok();
        }
        done
    }
}

fn create_beside(above: BorrowedFd<'_>) -> Result<(File, String), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for count in 0..NAMES_MAX {
        let name = format!(".deltabox-copy-{count}");
        match openat(above, name.as_str(), flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((File::from(file), name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}
