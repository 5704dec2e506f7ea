//! `cp`: files in and out, as tar streams, by the rules of `docker cp`; `-` is a tar stream. The names in a stream begin
//! with the last part of the path it was made from.

mod landing;

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use api::{Code, Problem, Sandbox};

use super::{connect, path};
use crate::args::{Cp, Side};
use crate::client::{Client, Payload, escape};
use crate::error::{CliError, Result};
use crate::output::Output;
use landing::{Kind, Landing, Source, landing, last_part};

/// Copies.
pub(crate) fn cp(args: Cp, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    match (args.source, args.target) {
        (Side::Here(source), Side::Box { sandbox, path }) => into_box(&mut client, &source, &sandbox, &path)?,
        (Side::Stream, Side::Box { sandbox, path }) => {
            let mut tar = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut tar)
                .map_err(|error| CliError::io("standard input", &error))?;
            put(&mut client, &sandbox, &path, &tar)?;
        }
        (Side::Box { sandbox, path }, Side::Stream) => {
            let tar = fetch(&mut client, &sandbox, &path)?;
            let written = std::io::stdout().lock().write_all(&tar);
            written.map_err(|error| CliError::io("standard output", &error))?;
            return Ok(0);
        }
        (Side::Box { sandbox, path }, Side::Here(target)) => {
            let tar = fetch(&mut client, &sandbox, &path)?;
            unpack(&tar, &source_in(&tar, &path)?, &target)?;
        }
        (
            Side::Box {
                sandbox: from,
                path: source,
            },
            Side::Box {
                sandbox: to,
                path: target,
            },
        ) => {
            let tar = fetch(&mut client, &from, &source)?;
            let source = source_in(&tar, &source)?;
            let (directory, top) = place(&mut client, &source, &to, &target)?;
            put(&mut client, &to, &directory, &with_top(&tar, &source, &top)?)?;
        }
        _ => return Err(CliError::new(Code::BadRequest, "one side must be BOX:PATH")),
    }
    if output.json {
        output.data("{}\n")?;
    }
    Ok(0)
}

fn put(client: &mut Client, sandbox: &str, directory: &str, tar: &[u8]) -> Result<()> {
    let to = path(sandbox, &format!("/files?path={}", escape(directory)));
    client.call("PUT", &to, Payload::Bytes(tar)).map(drop)
}

fn fetch(client: &mut Client, sandbox: &str, inside: &str) -> Result<Vec<u8>> {
    client.call(
        "GET",
        &path(sandbox, &format!("/files?path={}", escape(inside))),
        Payload::Nothing,
    )
}

fn into_box(client: &mut Client, source: &Path, sandbox: &str, target: &str) -> Result<()> {
    let metadata = std::fs::metadata(source).map_err(|error| CliError::io(source.display(), &error))?;
    let of = Source {
        typed: source.to_string_lossy().into_owned(),
        // `..` has a name too, only not there.
        name: last_part(source).or_else(|| last_part(&source.canonicalize().ok()?)),
        directory: metadata.is_dir(),
    };
    let (directory, top) = place(client, &of, sandbox, target)?;
    put(client, sandbox, &directory, &pack(source, &top)?)
}

/// The directory of a box to unpack in, and what the stream's top is to be called there; `.` when it has none.
fn place(client: &mut Client, source: &Source, sandbox: &str, target: &str) -> Result<(String, PathBuf)> {
    match landing(source, target, kind_inside(client, sandbox, target)?)? {
        Landing::Below(name) => Ok((target.to_owned(), name)),
        Landing::Merged => Ok((target.to_owned(), PathBuf::from("."))),
        Landing::Instead => {
            let whole = target.trim_end_matches('/');
            let (parent, name) = whole.rsplit_once('/').expect("a path in a box is absolute");
            let parent = if parent.is_empty() { "/" } else { parent };
            if kind_inside(client, sandbox, parent)? == Kind::Absent {
                let problem = Problem::new(Code::NotFound, format!("no directory {parent:?} in {sandbox}"));
                let hint = format!("deltabox exec {sandbox} -- mkdir -p {parent}");
                return Err(problem.hint(hint).into());
            }
            Ok((parent.to_owned(), PathBuf::from(name)))
        }
    }
}

/// What a path of a box is. Asked by unpacking nothing in what is above a directory: that is there for a directory only,
/// is refused for a file, and never made.
fn kind_inside(client: &mut Client, sandbox: &str, inside: &str) -> Result<Kind> {
    let nothing = tar::Builder::new(Vec::new()).into_inner();
    let nothing = nothing.map_err(|error| CliError::io("an empty stream", &error))?;
    match put(client, sandbox, &format!("{inside}/.."), &nothing) {
        Ok(()) => Ok(Kind::Directory),
        // The sandbox itself may be what is not there.
        Err(error) if error.is(Code::NotFound) => client.get::<Sandbox>(&path(sandbox, "")).map(|_| Kind::Absent),
        Err(error) if error.is(Code::Refused) => Ok(Kind::File),
        Err(error) => Err(error),
    }
}

/// This program itself, as `target` in a box.
pub(crate) fn own_program_into(client: &mut Client, sandbox: &str, target: &str) -> Result<()> {
    into_box(client, Path::new("/proc/self/exe"), sandbox, target)
}

/// A tar stream of `source`, whose top is called `name`.
fn pack(source: &Path, name: &Path) -> Result<Vec<u8>> {
    let fail = |error: std::io::Error| CliError::io(source.display(), &error);
    let metadata = std::fs::metadata(source).map_err(fail)?;
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    if metadata.is_dir() {
        builder.append_dir_all(name, source).map_err(fail)?;
    } else {
        let mut file = std::fs::File::open(source).map_err(fail)?;
        builder.append_file(name, &mut file).map_err(fail)?;
    }
    builder.into_inner().map_err(fail)
}

/// What a box has sent of `typed`.
fn source_in(tar: &[u8], typed: &str) -> Result<Source> {
    let fail = |error: std::io::Error| CliError::io("what the sandbox sent", &error);
    let mut archive = tar::Archive::new(tar);
    let first = archive.entries().map_err(fail)?.next();
    let first = first.ok_or_else(|| CliError::new(Code::NotFound, "the sandbox sent nothing"))?;
    Ok(Source {
        typed: typed.to_owned(),
        name: last_part(Path::new(typed)),
        directory: first.map_err(fail)?.header().entry_type().is_dir(),
    })
}

/// The same stream with another top; without one for `.`.
fn with_top(tar: &[u8], source: &Source, top: &Path) -> Result<Vec<u8>> {
    let fail = |error: std::io::Error| CliError::io("what the sandbox sent", &error);
    let own = source.name.as_deref().unwrap_or(Path::new("."));
    let moved = |path: &Path| {
        let below = path.strip_prefix(own).unwrap_or(path);
        // Joining nothing would leave a slash behind a file's name.
        if below.as_os_str().is_empty() {
            top.to_owned()
        } else {
            top.join(below)
        }
    };
    let mut builder = tar::Builder::new(Vec::new());
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let path = moved(&entry.path().map_err(fail)?);
        let mut header = entry.header().clone();
        let link = entry.link_name().map_err(fail)?.map(std::borrow::Cow::into_owned);
        match link {
            Some(target) if header.entry_type().is_hard_link() => {
                builder.append_link(&mut header, path, moved(&target)).map_err(fail)?;
            }
            Some(target) => builder.append_link(&mut header, path, target).map_err(fail)?,
            None => builder.append_data(&mut header, path, &mut entry).map_err(fail)?,
        }
    }
    builder.into_inner().map_err(fail)
}

/// Unpacks a box's stream where the rules say.
fn unpack(tar: &[u8], source: &Source, target: &Path) -> Result<()> {
    let fail = |error: std::io::Error| CliError::io(target.display(), &error);
    let there = match std::fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => Kind::Directory,
        Ok(_) => Kind::File,
        Err(error) if error.kind() == ErrorKind::NotFound => Kind::Absent,
        // A file with a slash behind its name.
        Err(error) if error.kind() == ErrorKind::NotADirectory => Kind::File,
        Err(error) => return Err(fail(error)),
    };
    match landing(source, &target.to_string_lossy(), there)? {
        Landing::Below(_) => return unpack_below(tar, target),
        Landing::Merged => return unpack_below(&with_top(tar, source, Path::new("."))?, target),
        Landing::Instead => {}
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Made beside its place and moved there, so that nobody sees half of it.
    let beside = parent.join(format!(".deltabox-cp-{}", std::process::id()));
    std::fs::create_dir(&beside).map_err(fail)?;
    let top = OsStr::new("top");
    let moved = with_top(tar, source, Path::new(top))
        .and_then(|tar| unpack_below(&tar, &beside))
        .and_then(|()| std::fs::rename(beside.join(top), target).map_err(fail));
    std::fs::remove_dir_all(&beside).map_err(fail)?;
    moved
}

/// Unpacks below a directory. What a box sends is hostile: an entry that would land outside is refused.
fn unpack_below(tar: &[u8], directory: &Path) -> Result<()> {
    let fail = |error: std::io::Error| CliError::io(directory.display(), &error);
    let mut archive = tar::Archive::new(tar);
    archive.set_preserve_permissions(true);
    for entry in archive.entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        if !entry.unpack_in(directory).map_err(fail)? {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let detail = format!("{name:?} in the sandbox would land outside {}", directory.display());
            return Err(CliError::new(Code::Refused, detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("deltabox-cp-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn there_and_back_under_the_same_and_another_name() {
        let scratch = Scratch::new("names");
        let source = scratch.0.join("tree");
        std::fs::create_dir_all(source.join("sub")).unwrap();
        std::fs::write(source.join("sub/file"), b"text").unwrap();
        std::os::unix::fs::symlink("sub/file", source.join("link")).unwrap();
        let tar = pack(&source, Path::new("tree")).unwrap();
        let into = scratch.0.join("into");
        std::fs::create_dir(&into).unwrap();
        let of = source_in(&tar, "/a/tree").unwrap();
        unpack(&tar, &of, &into).unwrap();
        assert_eq!(std::fs::read(into.join("tree/sub/file")).unwrap(), b"text");
        let content = source_in(&tar, "/a/tree/.").unwrap();
        unpack(&tar, &content, &into).unwrap();
        assert_eq!(std::fs::read(into.join("link")).unwrap(), b"text");
        unpack(&tar, &of, &scratch.0.join("renamed")).unwrap();
        assert_eq!(std::fs::read(scratch.0.join("renamed/link")).unwrap(), b"text");
        let names: Vec<_> = std::fs::read_dir(&scratch.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn a_hostile_box_cannot_write_outside() {
        let scratch = Scratch::new("hostile");
        let inside = scratch.0.join("inside");
        std::fs::create_dir(&inside).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        builder.append_link(&mut link, "out", &scratch.0).unwrap();
        let mut file = tar::Header::new_gnu();
        file.set_size(1);
        file.set_mode(0o644);
        builder.append_data(&mut file, "out/planted", &b"x"[..]).unwrap();
        let tar = builder.into_inner().unwrap();
        for typed in ["/out", "/out/.", "/"] {
            let of = Source {
                directory: true,
                ..source_in(&tar, typed).unwrap()
            };
            for target in [&inside, &scratch.0.join("new")] {
                drop(unpack(&tar, &of, target));
                assert!(!scratch.0.join("planted").exists(), "{typed} {}", target.display());
            }
        }
        let climbing = |name: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            // The writer refuses such a name: a box's daemon would not.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            let mut builder = tar::Builder::new(Vec::new());
            builder.append(&header, &b"x"[..]).unwrap();
            builder.into_inner().unwrap()
        };
        for name in ["../planted", "out/../../planted"] {
            let tar = climbing(name);
            let of = source_in(&tar, "/out").unwrap();
            assert!(unpack(&tar, &of, &inside).is_err(), "{name}");
            assert!(unpack(&tar, &of, &scratch.0.join("new")).is_err(), "{name}");
            assert!(!scratch.0.join("planted").exists(), "{name}");
        }
    }
}
