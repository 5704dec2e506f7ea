//! What a process that was there before sees after a rollback: the same inodes through its descriptors, mappings and
//! watches; and what is reported where that cannot be.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use files::{Tree, plan};

use crate::fixture::{Fixture, Home};
use crate::{oracle, roll_back};

#[test]
fn a_changed_file_keeps_its_inode_and_its_descriptors() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let path = fixture.merged.join("srv/log");
    fs::write(&path, vec![b'a'; 20_000]).expect("write");
    let mut reader = fs::File::open(&path).expect("open");
    let mut appender = fs::OpenOptions::new().append(true).open(&path).expect("open");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    tracker.settle().expect("settle");
    let _marked = tracker.capture(&[]).expect("capture");

    appender.write_all(b"more").expect("append");
    fs::write(&path, b"short").expect("overwrite");
    let moved = fixture.merged.join("srv/moved");
    fs::rename(&path, &moved).expect("rename");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");

    assert_eq!(applied.replaced, Vec::<PathBuf>::new());
    let there = fs::metadata(&path).expect("is back");
    assert_eq!(
        there.ino(),
        reader.metadata().expect("fstat").ino(),
        "the descriptor is on the file of that name"
    );
    let mut text = Vec::new();
    reader.read_to_end(&mut text).expect("read");
    assert_eq!(text, vec![b'a'; 20_000]);
    appender.write_all(b"!").expect("append");
    assert_eq!(
        fs::read(&path).expect("read").len(),
        20_001,
        "an appender goes on at the right end"
    );
}

#[test]
fn a_mapping_sees_the_restored_bytes() {
    for (home, size) in [
        (Home::Plain, 16 << 10),
        (Home::Plain, 300 << 10),
        (Home::Volume, 300 << 10),
    ] {
        let done = std::thread::spawn(move || mapping_sees(home, size)).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// A shared mapping in a process of its own, so that the test needs no unsafe code.
fn mapping_sees(home: Home, size: usize) {
    let Some(fixture) = Fixture::new(home, None) else {
        return;
    };
    let path = fixture.merged.join("srv/mapped");
    fs::write(&path, vec![b'a'; size]).expect("write");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let python = r#"
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 0)
assert memory[0] == 97
for line in sys.stdin:
    verb, at = line.split()
    if verb == "store": memory[int(at)] = 122
    print(memory[int(at)], flush=True)
"#;
    let child = std::process::Command::new("python3")
        .args(["-c", python])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: no python3 to hold a mapping");
        return;
    };
    let mut ask = child.stdin.take().expect("piped");
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let mut say = |text: &str| {
        writeln!(ask, "{text}").expect("the child lives");
        answers.next().expect("an answer").expect("text")
    };
    assert_eq!(say("read 5000"), "97");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    tracker.settle().expect("settle");
    let _marked = tracker.capture(&[]).expect("capture");
    file.write_all_at(b"XYZ", 5000).expect("write");
    assert_eq!(say("read 5000"), "88");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(applied.changed_file_count, 1);
    assert_eq!(say("read 5000"), "97", "the mapping sees what was put back");

    // A store through the mapping raises no event: the engine names the file.
    assert_eq!(say("store 9000"), "122");
    let now = tracker.capture(&[PathBuf::from("/srv/mapped")]).expect("capture");
    let steps = plan(&now, &tree);
    let applied = tracker.apply(&steps).expect("rollback");
    assert_eq!(applied.changed_file_count, 1, "the named file was looked at");
    assert_eq!(say("read 9000"), "97");
    assert_eq!(fs::read(&path).expect("read"), vec![b'a'; size]);
    drop(ask);
    let _status = child.wait().expect("wait");
}

#[test]
fn an_unlinked_file_comes_back_and_is_reported() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let path = fixture.merged.join("srv/kept-open");
    fs::write(&path, b"precious").expect("write");
    let open = fs::File::open(&path).expect("open");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::remove_file(&path).expect("unlink");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(fs::read(&path).expect("read"), b"precious");
    assert_eq!(applied.replaced, [PathBuf::from("/srv/kept-open")]);
    assert_ne!(
        fs::metadata(&path).expect("stat").ino(),
        open.metadata().expect("fstat").ino()
    );

    // An editor saves by rename: the new inode is rewritten, and reported too.
    fs::write(fixture.merged.join("srv/tmp"), b"edited").expect("write");
    fs::rename(fixture.merged.join("srv/tmp"), &path).expect("rename");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(fs::read(&path).expect("read"), b"precious");
    assert_eq!(applied.replaced, [PathBuf::from("/srv/kept-open")]);
}

#[test]
fn a_deleted_lower_directory_is_revealed_in_one_step() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let path = fixture.merged.join("usr/lib/python");
    let before = oracle::look(&fixture.merged);
    let ino = fs::metadata(path.join("deep/l5")).expect("stat").ino();
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::remove_dir_all(&path).expect("rm -rf");
    fs::remove_file(fixture.merged.join("etc/l1")).expect("rm");
    assert!(
        fs::metadata(path.join("deep/l5")).is_err(),
        "a negative entry is cached"
    );
    let now = tracker.capture(&[]).expect("capture");
    assert_eq!(
        Tree::diff(&tree, &now),
        [('D', b"/etc/l1".to_vec()), ('D', b"/usr/lib/python".to_vec())],
        "a deletion is one line, whatever was below"
    );
    let steps = plan(&now, &tree);
    assert_eq!(steps.root.place.len(), 2, "{steps:?}");
    let applied = tracker.apply(&steps).expect("rollback");
    assert_eq!(
        applied.revealed,
        [PathBuf::from("/etc/l1"), PathBuf::from("/usr/lib/python")]
    );
    assert_eq!(
        oracle::compare(&before, &oracle::look(&fixture.merged), 4096),
        Vec::<String>::new()
    );
    assert_eq!(fs::metadata(path.join("deep/l5")).expect("stat").ino(), ino);
    fs::write(path.join("deep/l5"), b"writable again").expect("write");
    fs::create_dir(path.join("deep/new")).expect("mkdir");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(applied.replaced, Vec::<PathBuf>::new());
    assert_eq!(
        oracle::compare(&before, &oracle::look(&fixture.merged), 4096),
        Vec::<String>::new()
    );
}

#[test]
fn a_deleted_lower_directory_that_is_in_use_is_copied() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let path = fixture.merged.join("usr/lib/python");
    let before = oracle::look(&fixture.merged);
    let held = fs::File::open(path.join("deep")).expect("a descriptor inside");
    let held_top = fs::File::open(&path).expect("a descriptor on it");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::remove_dir_all(&path).expect("rm -rf");
    let applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(
        applied.revealed,
        Vec::<PathBuf>::new(),
        "the overlay will not show it again while it is held"
    );
    assert_eq!(
        oracle::compare(&before, &oracle::look(&fixture.merged), 4096),
        Vec::<String>::new()
    );
    drop((held, held_top));
    let applied = roll_back(&mut tracker, &tree).expect("rollback again");
    assert_eq!(applied.revealed, [PathBuf::from("/usr/lib/python")], "now it will");
    assert_eq!(
        oracle::compare(&before, &oracle::look(&fixture.merged), 4096),
        Vec::<String>::new()
    );
}

#[test]
fn planted_links_are_never_followed() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let outside = fixture.upper.parent().expect("has a parent").join("outside");
    fs::create_dir_all(outside.join("sub")).expect("mkdir");
    fs::write(outside.join("sub/secret"), b"untouched").expect("write");
    let inside = fixture.merged.join("srv/sub");
    fs::create_dir(&inside).expect("mkdir");
    fs::write(inside.join("secret"), b"of the box").expect("write");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::remove_dir_all(&inside).expect("rm");
    symlink(outside.join("sub"), &inside).expect("plant");
    fs::remove_dir_all(fixture.merged.join("etc")).expect("rm");
    symlink(&outside, fixture.merged.join("etc")).expect("plant");
    symlink(&outside, fixture.merged.join(".deltabox-parked")).expect("plant");
    symlink(&outside, fixture.merged.join(".deltabox-gone")).expect("plant");
    let _applied = roll_back(&mut tracker, &tree).expect("rollback");
    tracker.settle().expect("settle");
    assert_eq!(fs::read(outside.join("sub/secret")).expect("is there"), b"untouched");
    assert_eq!(fs::read_dir(&outside).expect("readdir").count(), 1);
    assert_eq!(fs::read(inside.join("secret")).expect("is back"), b"of the box");
    assert!(
        fs::symlink_metadata(fixture.merged.join("etc"))
            .expect("is back")
            .is_dir()
    );
}

#[test]
fn a_content_that_is_gone_refuses_the_rollback_before_anything_is_touched() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let large = fixture.merged.join("srv/large-one");
    fs::write(&large, vec![b'a'; 400 << 10]).expect("write");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::write(&large, b"new").expect("write");
    fs::write(fixture.merged.join("srv/other"), b"new").expect("write");
    let blobs = fixture.upper.parent().expect("has a parent").join("blobs");
    for entry in fs::read_dir(&blobs).expect("readdir").flatten() {
        fs::rename(entry.path(), blobs.join("hidden")).expect("hide the content");
    }
    let error = roll_back(&mut tracker, &tree).expect_err("there is nothing to restore from");
    assert!(matches!(error, files::FilesError::Refused(_)), "{error}");
    assert_eq!(fs::read(fixture.merged.join("srv/other")).expect("untouched"), b"new");
    assert_eq!(fs::read(&large).expect("untouched"), b"new");
}

#[test]
fn lost_events_are_made_good_by_a_walk() {
    overflow(false);
}

// A box that made and deleted 5,000 files a second was read as a whole at each checkpoint.
#[test]
fn events_that_are_taken_in_time_are_not_lost() {
    overflow(true);
}

fn overflow(in_time: bool) {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    tracker.settle().expect("settle");
    let _marked = tracker.capture(&[]).expect("capture");
    let limit: usize = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events")
        .expect("sysctl")
        .trim()
        .parse()
        .expect("a number");
    // Each name is an event of its own, and more than one.
    for index in 0..limit + 10 {
        let path = fixture.shm.join(format!("file-{index}"));
        Fixture::in_shm(|| fs::write(&path, b"x").expect("write"));
        fs::remove_file(&path).expect("unlink");
        if in_time && index % (limit / 10) == 0 {
            tracker.gather().expect("gather");
        }
    }
    Fixture::in_shm(|| fs::write(fixture.shm.join("last"), b"not to be missed").expect("write"));
    assert!(!tracker.is_quiet().expect("quiet"));
    let now = tracker.capture(&[]).expect("capture");
    assert_eq!(
        tracker.cost().walked,
        !in_time,
        "the queue overflows unless it is emptied"
    );
    assert!(now.inode(b"/dev/shm/last").is_some());
    assert!(tracker.is_quiet().expect("quiet"));
    let _applied = roll_back(&mut tracker, &tree).expect("rollback");
    assert_eq!(fs::read_dir(&fixture.shm).expect("readdir").count(), 0);
}

/// Every fault point leaves its kind out, and the oracle sees it: so the oracle would see a fault of ours.
#[test]
fn every_fault_point_is_seen_by_the_oracle() {
    for (point, _) in files::fault::POINTS {
        let done = std::thread::spawn(move || fault_is_seen(point)).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn fault_is_seen(point: &str) {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let at = |path: &str| fixture.merged.join(path);
    fs::write(at("srv/file"), vec![b'a'; 9000]).expect("write");
    fs::write(at("srv/second"), b"second").expect("write");
    fs::hard_link(at("srv/second"), at("srv/third")).expect("link");
    symlink("somewhere", at("srv/link")).expect("symlink");
    rustix::fs::setxattr(at("srv/file"), "user.kind", b"old", rustix::fs::XattrFlags::empty()).expect("xattr");
    nix::unistd::mkfifo(&at("srv/fifo"), nix::sys::stat::Mode::S_IRUSR).expect("mkfifo");
    let sparse = fs::File::create(at("srv/holes")).expect("create");
    sparse.set_len(64 << 10).expect("truncate");
    Fixture::in_shm(|| fs::write(fixture.shm.join("shared"), b"old").expect("write"));
    let mut tracker = fixture.tracker(&[point]);
    let look = || (oracle::look(&fixture.merged), oracle::look(&fixture.shm));
    let (root, shm) = look();
    let tree = tracker.capture(&[]).expect("capture");

    let kind = point.strip_prefix("skip:files.").expect("a point of this crate");
    match kind {
        "content" => fs::OpenOptions::new()
            .write(true)
            .open(at("srv/file"))
            .and_then(|file| file.write_all_at(b"new", 10))
            .expect("write"),
        "mode" => {
            fs::set_permissions(at("srv/file"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("chmod")
        }
        "xattr" => {
            rustix::fs::setxattr(at("srv/file"), "user.kind", b"new", rustix::fs::XattrFlags::empty()).expect("xattr")
        }
        "times" => fs::File::open(at("srv/file"))
            .and_then(|file| file.set_modified(std::time::UNIX_EPOCH))
            .expect("utimes"),
        "owner" => std::os::unix::fs::chown(at("srv/file"), Some(100_007), None).expect("chown"),
        "rename" => fs::rename(at("srv/file"), at("srv/moved")).expect("rename"),
        "delete" => fs::write(at("srv/new"), b"new").expect("write"),
        "create" => fs::remove_file(at("srv/file")).expect("unlink"),
        "symlink" => fs::remove_file(at("srv/link")).expect("unlink"),
        "hardlink" => fs::remove_file(at("srv/third")).expect("unlink"),
        "special" => fs::remove_file(at("srv/fifo")).expect("unlink"),
        "sparse" => sparse.write_all_at(&[b'x'; 64 << 10], 0).expect("write"),
        "shm" => fs::write(fixture.shm.join("shared"), b"new").expect("write"),
        "lowerdir" => fs::remove_dir_all(at("usr/lib/python")).expect("rm -rf"),
        other => panic!("{other}: a fault point without a test"),
    }
    let _applied = roll_back(&mut tracker, &tree).expect("rollback");
    let (found_root, found_shm) = look();
    let mut wrong = oracle::compare(&root, &found_root, 4096);
    wrong.extend(oracle::compare(&shm, &found_shm, 4096));
    assert!(!wrong.is_empty(), "{point}: the oracle saw nothing");

    let mut whole = fixture.tracker(&[]);
    let _now = whole.capture(&[]).expect("capture");
    let _applied = roll_back(&mut whole, &tree).expect("rollback without the fault");
    let (found_root, found_shm) = look();
    let mut wrong = oracle::compare(&root, &found_root, 4096);
    wrong.extend(oracle::compare(&shm, &found_shm, 4096));
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "{point}: without the fault everything is back"
    );
}

#[test]
fn a_position_in_a_directory_survives() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let path = fixture.merged.join("srv/counter");
    fs::write(&path, b"1\n2\n3\n").expect("write");
    let mut open = fs::File::open(&path).expect("open");
    let _at = open.seek(SeekFrom::Start(2)).expect("seek");
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    fs::write(&path, b"").expect("truncate");
    let _applied = roll_back(&mut tracker, &tree).expect("rollback");
    let mut rest = String::new();
    let _length = open.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "2\n3\n", "the offset belongs to the engine, the bytes are back");
}

/// `Path` of the host's own tree: read-only, so a big and real lower.
#[test]
fn the_hosts_usr_as_lower() {
    let Some(fixture) = Fixture::new(Home::Plain, Some(Path::new("/usr"))) else {
        return;
    };
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    let list = |path: &str| {
        let mut names: Vec<_> = fs::read_dir(fixture.merged.join(path))
            .expect("readdir")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        names
    };
    let (bin, share) = (list("bin"), list("share"));
    let sh = fs::read(fixture.merged.join("bin/sh")).expect("read");
    fs::remove_dir_all(fixture.merged.join("share")).expect("rm -rf");
    fs::write(fixture.merged.join("bin/sh"), b"broken").expect("write");
    fs::rename(fixture.merged.join("lib"), fixture.merged.join("bin/lib")).expect("rename");
    let started = std::time::Instant::now();
    let _applied = roll_back(&mut tracker, &tree).expect("rollback");
    println!(
        "rm -rf /usr/share, mv /usr/lib, > /usr/bin/sh: undone in {:?}",
        started.elapsed()
    );
    assert_eq!(list("bin"), bin);
    assert_eq!(list("share"), share);
    assert_eq!(fs::read(fixture.merged.join("bin/sh")).expect("read"), sh);
    assert!(fixture.merged.join("lib").is_dir());
}

/// A box can nest directories without end; the daemon has a thousand descriptors and a small stack.
#[test]
fn a_tree_of_any_depth_is_captured_and_removed() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let mut tracker = fixture.tracker(&[]);
    let tree = tracker.capture(&[]).expect("capture");
    let script = "cd \"$0\" && for i in $(seq 1500); do mkdir d && cd d || exit 1; done";
    let status = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(fixture.merged.join("srv"))
        .status();
    assert!(status.expect("sh").success());
    let now = tracker.capture(&[]).expect("capture");
    assert!(now.root.inodes.len() > 1500);
    let _applied = tracker.apply(&plan(&now, &tree)).expect("rollback");
    assert!(!fixture.merged.join("srv/d").exists());
    tracker.settle().expect("settle removes it");
    let blobs = fixture.upper.parent().expect("has a parent").join("blobs");
    let left: Vec<_> = fs::read_dir(&blobs)
        .expect("readdir")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().starts_with("grave")),
        "{left:?}"
    );
}
