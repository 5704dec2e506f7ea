//! The state volume: made once, found again, honest about what it can.

use std::fs;
use std::path::Path;

use files::Volume;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

#[test]
fn a_volume_is_made_once_and_found_again() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root for mounts");
        return;
    }
    unshare(CloneFlags::CLONE_NEWNS).expect("root may unshare");
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("own propagation");
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("volume-{}", std::process::id()));
    fs::create_dir_all(&state).expect("mkdir");
    let volume = Volume::open(&state, 1 << 30).expect("volume");
    println!("{}", volume.how);
    assert!(volume.root.is_dir());
    fs::write(volume.root.join("kept"), b"kept").expect("writable");
    let again = Volume::open(&state, 1 << 30).expect("volume");
    assert_eq!(again.reflink, volume.reflink);
    assert_eq!(fs::read(again.root.join("kept")).expect("the same volume"), b"kept");
    volume.close().expect("unmount");
    if volume.reflink && volume.how.contains("loop") {
        assert!(!volume.root.join("kept").exists(), "unmounted");
        let third = Volume::open(&state, 1 << 30).expect("volume");
        assert_eq!(fs::read(third.root.join("kept")).expect("survives"), b"kept");
        third.close().expect("unmount");
    }
    fs::remove_dir_all(&state).expect("own directory");
}
