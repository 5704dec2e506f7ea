//! The tracker against an oracle: random operations through the merged mount, checkpoints, rollbacks to any of them,
//! and everything a program could see compared with a plain copy.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests say what they skip and what things cost"
)]

mod cost;
mod fixture;
mod oracle;
mod storm;
mod truth;

use std::path::Path;

use files::{Tracker, Tree, plan};
use fixture::{Fixture, Home};
use image::tree::{Body, Content, Inode, Side};
use storm::{Random, Storm};

/// What the tracker believes against what a walk finds.
fn compare_trees(tracked: &Side, walked: &Side, what: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, walked_inode) in &walked.inodes {
        let path = walked.path(key).unwrap_or_default();
        let path = path.escape_ascii();
        let Some(inode) = tracked.get(key) else {
            lines.push(format!("{what}: not tracked: {path}"));
            continue;
        };
        let strip = |inode: &Inode| {
            let mut attributes = inode.attributes.clone();
            attributes.atime = Default::default();
            if inode.is_dir() {
                attributes.size = 0;
            }
            attributes
        };
        if strip(inode) != strip(walked_inode) {
            lines.push(format!(
                "{what}: {path}: attributes {:?} on disk {:?}",
                inode.attributes, walked_inode.attributes
            ));
        }
        // The overlay takes its `impure` mark off again when the directory is read.
        let stable = |inode: &Inode| {
            let mut xattrs = (*inode.xattrs).clone();
            let _impure = xattrs.remove(b"trusted.overlay.impure".as_slice());
            xattrs
        };
        if stable(inode) != stable(walked_inode) {
            lines.push(format!("{what}: {path}: xattrs"));
        }
        if inode.children() != walked_inode.children() {
            lines.push(format!(
                "{what}: {path}: names {:?} on disk {:?}",
                inode.children(),
                walked_inode.children()
            ));
        }
        if let (Body::Regular(Content::Bytes { bytes: a, .. }), Body::Regular(Content::Bytes { bytes: b, .. })) =
            (&inode.body, &walked_inode.body)
            && a != b
        {
            lines.push(format!("{what}: {path}: content"));
        }
        let sorted = |inode: &Inode| {
            let mut names = inode.names.clone();
            names.sort();
            names
        };
        if sorted(inode) != sorted(walked_inode) {
            lines.push(format!("{what}: {path}: its names"));
        }
    }
    lines.extend(
        tracked
            .inodes
            .keys()
            .filter(|key| walked.get(key).is_none())
            .map(|key| format!("{what}: gone: {key:?}")),
    );
    lines
}

fn check_belief(fixture: &Fixture, tree: &Tree) -> Vec<String> {
    let walked = fixture.fresh_walk();
    let mut lines = compare_trees(&tree.root, &walked.root, "upper");
    lines.extend(compare_trees(
        tree.shm.as_ref().expect("tracked"),
        walked.shm.as_ref().expect("tracked"),
        "shm",
    ));
    lines
}

fn roll_back(tracker: &mut Tracker, target: &Tree) -> files::Result<files::Applied> {
    let now = tracker.capture(&[])?;
    let plan = plan(&now, target);
    tracker.apply(&plan)
}

/// One seed: `round_count` bursts of operations with checkpoints and rollbacks between them.
fn storm(home: Home, lower: Option<&Path>, seed: u64, round_count: usize) {
    let Some(fixture) = Fixture::new(home, lower) else {
        return;
    };
    let mut random = Random::new(seed);
    let mut tracker = fixture.tracker(&[]);
    let mut checkpoints = Vec::new();
    let mut copied = false;
    let grain = if home == Home::Volume { 128 << 10 } else { 4096 };
    let mut root = Storm::new(&fixture.merged);
    let mut shm = Storm::new(&fixture.shm);
    for round in 0..round_count {
        let look = || (oracle::look(&fixture.merged), oracle::look(&fixture.shm));
        let tree = tracker.capture(&[]).expect("capture");
        let wrong = check_belief(&fixture, &tree);
        assert!(
            wrong.is_empty(),
            "seed {seed} round {round}: after capture:\n{}\n{}",
            wrong.join("\n"),
            root.log.join("\n")
        );
        checkpoints.push((tree, look()));
        if random.below(3) > 0 {
            tracker.settle().expect("settle");
        }
        root.log.push(format!("--- checkpoint {}", checkpoints.len() - 1));
        let count = 1 + random.below(12);
        root.blow(&mut random, count);
        if random.below(3) == 0 {
            tracker.gather().expect("gather");
            root.blow(&mut random, 3);
        }
        Fixture::in_shm(|| shm.blow(&mut random, 3));
        if random.below(4) == 0 {
            tracker.settle().expect("settle");
            root.blow(&mut random, 3);
        }
        if random.below(3) == 0 {
            continue;
        }
        let index = random.below(checkpoints.len());
        let (target, (wanted_root, wanted_shm)) = &checkpoints[index];
        let now = tracker.capture(&[]).expect("capture");
        let steps = plan(&now, target);
        root.log.push(format!("--- roll back to {index}"));
        let context = |what: &str| {
            format!(
                "seed {seed} round {round}: {what}\nplan {}\nlog:\n{}",
                describe(&steps),
                root.log.join("\n")
            )
        };
        if let Err(error) = tracker.apply(&steps) {
            panic!("{}", context(&format!("apply: {error}")));
        }
        let (found_root, found_shm) = look();
        let mut wrong = oracle::compare(wanted_root, &found_root, grain);
        wrong.extend(
            oracle::compare(wanted_shm, &found_shm, 4096)
                .iter()
                .map(|line| format!("shm: {line}")),
        );
        wrong.extend(check_belief(&fixture, &tracker.tree()));
        assert!(
            wrong.is_empty(),
            "{}",
            context(&format!("after rollback to {index}:\n{}", wrong.join("\n")))
        );
        // A renamed lower directory that was deleted comes back as a copy, whose files are in the upper by themselves.
        copied |= steps
            .root
            .place
            .iter()
            .any(|step| matches!(step, files::plan::Place::CopyLower { .. }));
        let visible = Tree::diff(target, &tracker.tree());
        assert!(
            copied || visible.is_empty(),
            "{}",
            context(&format!("diff after rollback: {visible:?}"))
        );
        if random.below(2) == 0 {
            tracker.settle().expect("settle");
        }
    }
}

/// A plan without the bytes.
fn describe(plan: &files::Plan) -> String {
    let text = |path: &[u8]| path.escape_ascii().to_string();
    let mut lines = Vec::new();
    for side in [&plan.root, &plan.shm] {
        for step in &side.clear {
            lines.push(match step {
                files::plan::Clear::Park { path, slot } => format!("park {} as {slot}", text(path)),
                files::plan::Clear::Unlink { path } => format!("unlink {}", text(path)),
                files::plan::Clear::Discard { path } => format!("discard {}", text(path)),
            });
        }
        for step in &side.place {
            let kind = format!("{step:?}");
            lines.push(format!(
                "{} {}",
                kind.split([' ', '{']).next().unwrap_or_default(),
                text(step.path())
            ));
        }
        lines.extend(
            side.link
                .iter()
                .map(|(from, to)| format!("link {} {}", text(from), text(to))),
        );
        lines.extend(side.restore.iter().map(|step| {
            format!(
                "restore {} in {:?}",
                text(&step.path),
                step.now.as_ref().map(|now| now.0)
            )
        }));
        lines.extend(
            side.as_lower
                .iter()
                .map(|step| format!("as lower {} from {}", text(&step.path), text(&step.lower))),
        );
    }
    lines.join("\n")
}

/// How many seeds, so that a soak can ask for more: `FILES_SEEDS=FIRST..LAST`.
fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Some(asked) = option_env!("FILES_SEEDS") else {
        return default;
    };
    let (first, last) = asked.split_once("..").expect("FILES_SEEDS=FIRST..LAST");
    first.parse().expect("a number")..last.parse().expect("a number")
}

#[test]
fn random_operations_on_the_plain_file_system() {
    for seed in seeds(1..13) {
        on_a_thread(move || storm(Home::Plain, None, seed, 14));
    }
}

#[test]
fn random_operations_on_a_volume_that_shares_extents() {
    for seed in seeds(100..106) {
        on_a_thread(move || storm(Home::Volume, None, seed, 14));
    }
}

#[test]
fn random_operations_over_two_lower_layers() {
    for seed in seeds(300..308) {
        on_a_thread(move || storm(Home::Layered, None, seed, 14));
    }
}

/// A mount namespace belongs to a thread, so every fixture gets one.
fn on_a_thread(body: impl FnOnce() + Send + 'static) {
    if let Err(panic) = std::thread::spawn(body).join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn nothing_changed_shares_everything() {
    let Some(fixture) = Fixture::new(Home::Plain, None) else {
        return;
    };
    let mut tracker = fixture.tracker(&[]);
    let first = tracker.capture(&[]).expect("capture");
    tracker.settle().expect("settle");
    let _second = tracker.capture(&[]).expect("capture");
    let third = tracker.capture(&[]).expect("capture");
    assert!(plan(&third, &first).is_empty());
    assert_eq!(tracker.cost().inode_count, 0, "a clean capture looks at nothing");
    roll_back(&mut tracker, &first).expect("rollback to where it is");
}
