//! What operations cost. Asserts what was looked at (which does not depend on the machine) and prints the times.

use std::fs;
use std::time::{Duration, Instant};

use files::plan;

use crate::fixture::{Fixture, Home};

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// 20 files of 16 KiB rewritten among 2,000: `bench rewind --files 20 --file-kb 16`.
#[test]
fn twenty_changed_files() {
    for home in [Home::Plain, Home::Volume] {
        let done = std::thread::spawn(move || rewrite_files(home)).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn rewrite_files(home: Home) {
    let Some(fixture) = Fixture::new(home, None) else {
        return;
    };
    let directory = fixture.merged.join("srv/work/deep/er");
    fs::create_dir_all(&directory).expect("mkdir");
    let path = |index: usize| directory.join(format!("file-{index}"));
    for index in 0..2000 {
        fs::write(path(index), vec![1; 16 << 10]).expect("write");
    }
    let mut tracker = fixture.tracker(&[]);
    let started = Instant::now();
    let _first = tracker.capture(&[]).expect("capture");
    println!("{home:?}: first capture of 2,000 files: {:?}", started.elapsed());
    tracker.settle().expect("settle");
    let target = tracker.capture(&[]).expect("capture");
    let (mut captures, mut plans, mut applies) = (Vec::new(), Vec::new(), Vec::new());
    let mut phases = Vec::new();
    for round in 0..60_u8 {
        for index in 0..20 {
            fs::write(path(index * 90), vec![round + 2; 16 << 10]).expect("write");
        }
        let started = Instant::now();
        let now = tracker.capture(&[]).expect("capture");
        captures.push(started.elapsed());
        assert!(
            tracker.cost().inode_count <= 40,
            "looked at {}",
            tracker.cost().inode_count
        );
        let started = Instant::now();
        let steps = plan(&now, &target);
        plans.push(started.elapsed());
        assert_eq!(
            steps.root.restore.len(),
            20,
            "round {round}: files, and nothing else; looked at {:?}",
            tracker.cost()
        );
        let started = Instant::now();
        let applied = tracker.apply(&steps).expect("apply");
        applies.push(started.elapsed());
        phases = tracker.cost().phases.clone();
        assert_eq!(applied.changed_file_count, 20);
        tracker.settle().expect("settle");
    }
    println!(
        "{home:?}: 20 changed files of 16 KiB, p50: capture {:?}, plan {:?}, apply {:?} ({phases:?})",
        median(&mut captures),
        median(&mut plans),
        median(&mut applies),
    );
    let started = Instant::now();
    for index in 0..2000 {
        fs::write(directory.join(format!("new-{index}")), b"x").expect("write");
    }
    println!("{home:?}: making 2,000 files, tracked: {:?}", started.elapsed());
    let started = Instant::now();
    let now = tracker.capture(&[]).expect("capture");
    println!("{home:?}: capture of 2,000 new files: {:?}", started.elapsed());
    let started = Instant::now();
    let _applied = tracker.apply(&plan(&now, &target)).expect("apply");
    println!("{home:?}: removing them one by one: {:?}", started.elapsed());
    fs::create_dir(directory.join("modules")).expect("mkdir");
    for index in 0..2000 {
        fs::write(directory.join(format!("modules/new-{index}")), b"x").expect("write");
    }
    let now = tracker.capture(&[]).expect("capture");
    let steps = plan(&now, &target);
    assert_eq!(steps.root.clear.len(), 1, "a new tree goes in one step");
    let started = Instant::now();
    let _applied = tracker.apply(&steps).expect("apply");
    println!("{home:?}: removing a directory of 2,000: {:?}", started.elapsed());
    tracker.settle().expect("settle");
}

/// 64 KiB changed in a large file: shared extents against a copy.
#[test]
fn a_large_file() {
    for (home, megabytes) in [(Home::Plain, 64), (Home::Volume, 256)] {
        let done = std::thread::spawn(move || change_large_file(home, megabytes)).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn change_large_file(home: Home, megabytes: usize) {
    use std::os::unix::fs::FileExt;
    let Some(fixture) = Fixture::new(home, None) else {
        return;
    };
    let path = fixture.merged.join("srv/database");
    fs::write(&path, vec![1; megabytes << 20]).expect("write");
    let mut tracker = fixture.tracker(&[]);
    let target = tracker.capture(&[]).expect("capture");
    tracker.settle().expect("settle");
    let _marked = tracker.capture(&[]).expect("capture");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    for index in 0..8 {
        file.write_all_at(&[2; 8192], ((index * megabytes as u64) << 20) / 9)
            .expect("write");
    }
    let started = Instant::now();
    let now = tracker.capture(&[]).expect("capture");
    let captured = started.elapsed();
    let steps = plan(&now, &target);
    let started = Instant::now();
    let _applied = tracker.apply(&steps).expect("apply");
    println!(
        "{home:?}: {megabytes} MiB file, 64 KiB changed: capture {captured:?}, apply {:?}",
        started.elapsed()
    );
    assert!(fs::read(&path).expect("read").iter().all(|&byte| byte == 1));
}
