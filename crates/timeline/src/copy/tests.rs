//! Streams into and out of a plain directory that plays the box's root, with links that point out of it.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

const IDS: Ids = Ids {
    first: 100_000,
    count: 65536,
};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("deltabox-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("root/srv")).unwrap();
        fs::create_dir_all(path.join("outside")).unwrap();
        fs::write(path.join("outside/secret"), "secret").unwrap();
        Self(path)
    }

    fn root(&self) -> fs::File {
        fs::File::open(self.0.join("root")).unwrap()
    }

    fn unpack(&self, path: &str, stream: &[u8]) -> Result<u64, TimelineError> {
        unpack(self.root().as_fd(), path.as_bytes(), stream, IDS)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn entry(tar: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, content: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_uid(33);
    header.set_gid(0);
    header.set_mtime(1_000_000);
    // Names are written as they are: the builder's own setters would refuse the evil ones.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
        header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        header.set_size(0);
        header.set_cksum();
        tar.append(&header, &[][..]).unwrap();
    } else {
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
}

fn stream(entries: &[(tar::EntryType, &str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    entries
        .iter()
        .for_each(|(kind, name, content)| entry(&mut tar, *kind, name, content));
    tar.into_inner().unwrap()
}

use tar::EntryType::{Block, Directory, Fifo, Link, Regular, Symlink};

#[test]
fn everything_arrives_with_the_boxs_ids_and_comes_back_the_same() {
    let place = Place::new("roundtrip");
    let files = stream(&[
        (Directory, "d", ""),
        (Regular, "d/file", "hello"),
        (Link, "d/same", "d/file"),
        (Symlink, "d/link", "/etc/passwd"),
        (Fifo, "d/fifo", ""),
    ]);
    assert_eq!(place.unpack("/srv/new/deep", &files).unwrap(), 5);
    let made = place.0.join("root/srv/new/deep/d");
    let meta = fs::metadata(made.join("file")).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777, meta.mtime()),
        (100_033, 100_000, 0o4755, 1_000_000)
    );
    assert_eq!(fs::metadata(&made).unwrap().mtime(), 1_000_000);
    assert_eq!(fs::metadata(made.join("same")).unwrap().ino(), meta.ino());
    assert_eq!(fs::read_link(made.join("link")).unwrap(), Path::new("/etc/passwd"));
    assert!(fs::metadata(made.join("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(place.0.join("root/srv/new")).unwrap().uid(), 100_000);

    let packed = pack(place.root().as_fd(), b"/srv/new/deep/d", IDS).unwrap();
    let mut archive = tar::Archive::new(&packed[..]);
    let lines: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let link = entry
                .link_name()
                .unwrap()
                .map(|link| format!(" -> {}", link.display()))
                .unwrap_or_default();
            format!(
                "{:?} {} {}{link}",
                header.entry_type(),
                entry.path().unwrap().display(),
                header.uid().unwrap()
            )
        })
        .collect();
    let expected = [
        "Directory d 33",
        "Fifo d/fifo 33",
        "Regular d/file 33",
        "Symlink d/link 33 -> /etc/passwd",
        "Link d/same 33 -> d/file",
    ];
    assert_eq!(lines, expected);
    assert_eq!(place.unpack("/again", &packed).unwrap(), 5);
    assert_eq!(fs::read(place.0.join("root/again/d/same")).unwrap(), b"hello");
}

#[test]
fn nothing_leads_out_of_the_box() {
    let place = Place::new("escape");
    let outside = place.0.join("outside");
    symlink(&outside, place.0.join("root/srv/out")).unwrap();
    symlink("../../outside/secret", place.0.join("root/srv/secret")).unwrap();
    // A link that points out is resolved inside: there is nothing there.
    assert!(matches!(
        pack(place.root().as_fd(), b"/srv/secret", IDS),
        Err(TimelineError::UnknownPath { .. })
    ));
    assert!(matches!(
        pack(place.root().as_fd(), b"/../../outside/secret", IDS),
        Err(TimelineError::UnknownPath { .. })
    ));
    // Writing below it is refused, or lands inside; never outside.
    drop(place.unpack("/srv/out", &stream(&[(Regular, "x", "x")])));
    drop(place.unpack("/srv", &stream(&[(Regular, "out/y", "y")])));
    drop(place.unpack("/srv", &stream(&[(Symlink, "up", "/"), (Regular, "up/outside/z", "z")])));
    place.unpack("/srv", &stream(&[(Regular, "secret", "mine")])).unwrap();
    for bad in ["../x", "a/../../x", "/../x"] {
        let refused = place.unpack("/srv", &stream(&[(Regular, "first", "1"), (Regular, bad, "x")]));
        assert!(matches!(refused, Err(TimelineError::CopyRefused { .. })), "{bad}");
    }
    assert!(
        !place.0.join("root/srv/first").exists(),
        "a stream that is refused changes nothing"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read(place.0.join("root/srv/secret")).unwrap(), b"mine");
}

#[test]
fn a_file_is_replaced_and_not_written_through() {
    let place = Place::new("replace");
    let old = place.0.join("root/srv/file");
    fs::write(&old, "old").unwrap();
    fs::hard_link(&old, place.0.join("root/srv/other")).unwrap();
    place.unpack("/srv", &stream(&[(Regular, "file", "new")])).unwrap();
    assert_eq!(fs::read(&old).unwrap(), b"new");
    assert_eq!(fs::read(place.0.join("root/srv/other")).unwrap(), b"old");
    fs::create_dir(place.0.join("root/srv/dir")).unwrap();
    fs::set_permissions(place.0.join("root/srv/dir"), fs::Permissions::from_mode(0o700)).unwrap();
    place.unpack("/srv", &stream(&[(Directory, "dir", "")])).unwrap();
    assert_eq!(
        fs::metadata(place.0.join("root/srv/dir")).unwrap().mode() & 0o777,
        0o700
    );
    let refused = place.unpack("/srv", &stream(&[(Regular, "dir", "x")])).unwrap_err();
    assert_eq!(refused.to_string(), "dir: Is a directory (os error 21)");
    let left = fs::read_dir(place.0.join("root/srv")).unwrap().count();
    assert_eq!(left, 3, "no temporary name stays behind");
}

#[test]
fn devices_and_damage_are_refused() {
    let place = Place::new("damage");
    let device = place
        .unpack("/srv", &stream(&[(Regular, "a", "a"), (Block, "sda", "")]))
        .unwrap_err();
    assert_eq!(
        device.to_string(),
        "sda: the stream holds a device or something unknown"
    );
    let mut damaged = stream(&[(Regular, "a", "a")]);
    damaged[10] ^= 1;
    assert!(place.unpack("/srv", &damaged).is_err());
    assert!(
        place
            .unpack("/srv", b"no tar at all, but long enough to be looked at")
            .is_err()
    );
    assert!(!place.0.join("root/srv/a").exists());
}
