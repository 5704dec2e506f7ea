//! `cp`: files in and out, as tar streams. A target that ends with `/` is a directory; `-` is a tar stream.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use api::Code;

use super::{connect, path};
use crate::args::{Cp, Side};
use crate::client::{Client, Payload, escape};
use crate::error::{CliError, Result};
use crate::output::Output;

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
            unpack(&tar, &target)?;
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
            put(&mut client, &to, &target, &tar)?;
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

/// `deltabox cp FILE BOX:DIR/`, `BOX:DIR` where DIR is there, or `BOX:NEWNAME`.
fn into_box(client: &mut Client, source: &Path, sandbox: &str, target: &str) -> Result<()> {
    let name = source
        .canonicalize()
        .ok()
        .and_then(|path| path.file_name().map(PathBuf::from));
    let name = name.unwrap_or_else(|| PathBuf::from("."));
    if target.ends_with('/') {
        return put(client, sandbox, target, &pack(source, &name)?);
    }
    let (parent, last) = target.rsplit_once('/').expect("a path in a box is absolute");
    let parent = if parent.is_empty() { "/" } else { parent };
    match put(client, sandbox, parent, &pack(source, Path::new(last))?) {
        // The name is taken by a directory: then it is where to put it.
        Err(error) if error.is(Code::Refused) && !source.is_dir() => {
            put(client, sandbox, target, &pack(source, &name)?)
        }
        other => other,
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

/// Unpacks below `target` when it is a directory, else under that name.
fn unpack(tar: &[u8], target: &Path) -> Result<()> {
    if target.is_dir() {
        return unpack_below(tar, target);
    }
    let fail = |error: std::io::Error| CliError::io(target.display(), &error);
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let beside = parent.join(format!(".deltabox-cp-{}", std::process::id()));
    std::fs::create_dir(&beside).map_err(fail)?;
    let moved = unpack_below(tar, &beside).and_then(|()| {
        let mut tops = std::fs::read_dir(&beside).map_err(fail)?;
        let top = tops
            .next()
            .ok_or_else(|| CliError::new(Code::NotFound, "the sandbox sent nothing"))?;
        std::fs::rename(top.map_err(fail)?.path(), target).map_err(fail)
    });
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
        unpack(&tar, &into).unwrap();
        assert_eq!(std::fs::read(into.join("tree/sub/file")).unwrap(), b"text");
        unpack(&tar, &scratch.0.join("renamed")).unwrap();
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
        assert!(unpack(&builder.into_inner().unwrap(), &inside).is_err());
        assert!(!scratch.0.join("planted").exists());
    }
}
