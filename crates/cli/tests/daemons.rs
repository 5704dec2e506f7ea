//! Which daemon a command line talks to: one of another build, one that is just ending, one that serves.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::fs::File;
use std::path::PathBuf;

use daemon::Daemon;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

/// A program that does the same and is another build: its build id is changed, or, where the linker wrote none, its end.
struct OtherBuild {
    path: PathBuf,
}

impl OtherBuild {
    fn of(ours: &str, name: &str) -> Self {
        let mut program = std::fs::read(env!("CARGO_BIN_EXE_deltabox")).unwrap();
        let id: Vec<u8> = (0..ours.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&ours[at..at + 2], 16).unwrap())
            .collect();
        match program.windows(id.len()).position(|bytes| bytes == id) {
            Some(at) => program[at] ^= 0xff,
            None => program.push(0),
        }
        let path = std::env::temp_dir().join(format!("deltabox-{name}-{}", std::process::id()));
        let plain = path.with_extension("bytes");
        std::fs::write(&plain, program).unwrap();
        // Written by a process that has ended: a file that any fork of ours may still have open for writing cannot run.
        let mut install = std::process::Command::new("install");
        let installed = install.args(["-m", "755"]).args([&plain, &path]).status().unwrap();
        std::fs::remove_file(plain).unwrap();
        assert!(installed.success());
        Self { path }
    }
}

impl Drop for OtherBuild {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// A daemon from before the last `cargo build` served the measurements of an afternoon, and nobody noticed.
#[test]
fn another_build_is_named_and_never_measured() {
    let ours = {
        let Some(daemon) = Daemon::start() else { return };
        let version = daemon.json(&["version"]);
        assert_eq!(version["build"], version["daemon"]["build"]);
        let said = daemon.run(&["ls"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        version["build"].as_str().unwrap().to_owned()
    };
    let other = OtherBuild::of(&ours, "other-build");
    let daemon = Daemon::start_of(&other.path).unwrap();
    let theirs = daemon.json(&["version"])["daemon"]["build"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(theirs, ours);

    daemon.ok(&["create", "--name", "work"]);
    // Three connections, one warning.
    let said = daemon.feed(&["exec", "-i", "work", "--", "cat"], b"goes on");
    let expected = format!(
        "deltabox: warning: the daemon is build {} of version {}, this program is build {}: stop the daemon when its \
         sandboxes may go (`deltabox version` prints its pid); any command starts this one\n",
        &theirs[..12],
        env!("CARGO_PKG_VERSION"),
        &ours[..12]
    );
    assert_eq!((said.out.as_str(), said.err), ("goes on", expected));
    let said = daemon.run(&["--json", "ls"]);
    let warning: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert!(warning["warning"].as_str().unwrap().contains(&theirs[..12]), "{said:?}");
    assert!(warning["hint"].is_string(), "{said:?}");

    for suite in ["rewind", "files"] {
        let said = daemon.run(&["--json", "bench", suite, "--rounds", "1"]);
        let problem: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!((said.code, said.out.as_str()), (6, ""), "{said:?}");
        assert_eq!(problem["code"], "version_mismatch");
        assert!(problem["hint"].as_str().unwrap().contains("DELTABOX_STATE"), "{said:?}");
    }
}

#[test]
fn two_daemons_do_not_share_a_state() {
    let Some(daemon) = Daemon::start() else { return };
    let elsewhere = format!("unix://{}", daemon.state.join("other.sock").display());
    for host in [None, Some(elsewhere)] {
        let mut second = daemon.program();
        second.arg("serve").envs(host.map(|host| ("DELTABOX_HOST", host)));
        let second = second.output().unwrap();
        let said = String::from_utf8(second.stderr).unwrap();
        assert_eq!(second.status.code(), Some(4), "{said}");
        assert!(said.contains("already runs"), "{said}");
    }
}

/// `kill PID; deltabox serve` said that a daemon already runs: the old one had the lock until its last sandbox was down.
#[test]
fn a_daemon_that_is_ending_is_waited_for() {
    let Some(mut daemon) = Daemon::start() else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        for name in ["one", "two", "three"] {
            daemon.ok(&["create", "--name", name]);
        }
        let (said, ended) = daemon.replace(signal);
        assert_eq!(said, "ready\n", "{signal:?}");
        assert_eq!(ended.success(), signal == Signal::TERM, "{ended}");
        assert_eq!(daemon.ok(&["ls", "-q"]), "");
    }
}

/// The same with an end that lasts: what holds the lock is this test, which does not answer on any socket.
#[test]
fn a_start_waits_for_the_lock() {
    let Some(mut daemon) = Daemon::start() else { return };
    assert!(daemon.stop(Signal::TERM).success());
    let lock = File::open(daemon.state.join("daemon.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut next = daemon::serve(&daemon.state).spawn().unwrap();
    let mut said = [PollFd::new(next.stdout.as_ref().unwrap(), PollFlags::IN)];
    let within = Timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
    };
    assert_eq!(poll(&mut said, Some(&within)), Ok(0), "it did not wait");
    drop(lock);
    assert_eq!(daemon::first_line(&mut next), "ready\n");
    daemon.is_now(next);
}

/// A name with a slip in it switched nothing off, and the check that it was to break stayed green.
#[test]
fn an_unknown_fault_point_is_refused() {
    let Some(daemon) = Daemon::start() else { return };
    for (faults, candidate) in [
        ("skip:sigmaks", Some("skip:sigmask")),
        ("skip:pages,skip:files.mdoe", Some("skip:files.mode")),
        ("nothing-of-this-kind-at-all", None),
    ] {
        // The names are looked at before the lock, so it does not matter that a daemon runs there.
        let mut second = daemon.program();
        let said = second
            .args(["--json", "serve"])
            .env("DELTABOX_FAULTS", faults)
            .output()
            .unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&said.stderr).unwrap();
        assert_eq!(
            (said.status.code(), &problem["code"]),
            (Some(2), &"bad_request".into()),
            "{problem}"
        );
        assert_eq!(problem["candidates"][0].as_str(), candidate, "{problem}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains(candidate.unwrap_or("skip:files.lowerdir")), "{hint}");
    }
}
