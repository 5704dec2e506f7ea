//! A box for a test, and what is left of it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::{Dirs, ExecRequest, ExitStatus, Exited, Sandbox, Spec, Started, Streams};

/// Ranges far from those of a daemon on the same machine; a second test program starts elsewhere.
static NEXT_RANGE: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Box {
    pub(crate) spec: Spec,
    pub(crate) dirs: Dirs,
    pub(crate) sandbox: Sandbox,
    pub(crate) born_in: Duration,
}

/// A specification with a name and a range of its own.
pub(crate) fn spec(name: &str) -> Spec {
    let process = std::process::id();
    let mut spec = Spec::new(&format!("test-{process}-{name}"));
    spec.hostname = name.to_owned();
    spec.id_range_index = 1000 + process % 500 * 100 + NEXT_RANGE.fetch_add(1, Ordering::Relaxed);
    spec
}

pub(crate) fn directory(id: &str) -> PathBuf {
    let path = PathBuf::from("/var/tmp").join(format!("deltabox-{id}"));
    std::fs::create_dir_all(&path).expect("make a test directory");
    path
}

impl Box {
    /// From the host's root.
    pub(crate) fn host(name: &str) -> Self {
        Self::from(spec(name))
    }

    pub(crate) fn from(spec: Spec) -> Self {
        let dirs = Dirs::new(directory(&spec.id));
        let start = Instant::now();
        let sandbox = Sandbox::spawn(&spec, &dirs).unwrap_or_else(|e| panic!("{}: {e}: {e:?}", spec.id));
        let born_in = start.elapsed();
        Self {
            spec,
            dirs,
            sandbox,
            born_in,
        }
    }

    /// Runs a shell line to its end; stdout and stderr in one.
    pub(crate) fn sh(&self, line: &str) -> (String, ExitStatus) {
        self.run(ExecRequest::new(["/bin/sh", "-c", &format!("{{ {line}\n}} 2>&1")]))
    }

    pub(crate) fn run(&self, request: ExecRequest) -> (String, ExitStatus) {
        let started = self
            .sandbox
            .exec(&request)
            .unwrap_or_else(|e| panic!("{request:?}: {e}"));
        let pid = started.pid_inside;
        let out = output(started);
        (out, self.status_of(pid))
    }

    /// The next `count` ends of commands.
    pub(crate) fn events(&self, count: usize) -> Vec<Exited> {
        let mut events = Vec::new();
        while events.len() < count {
            match self.sandbox.next_event().expect("the box lives") {
                Some(exited) => events.push(exited),
                None => self.wait_for_event(),
            }
        }
        events
    }

    fn wait_for_event(&self) {
        let mut polls = [PollFd::from_borrowed_fd(self.sandbox.events_fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(
            poll(&mut polls, Some(&patience)),
            Ok(1),
            "a command did not end within a minute"
        );
    }

    /// Waits for the end of one command; ends of others are forgotten.
    pub(crate) fn status_of(&self, pid_inside: u32) -> ExitStatus {
        loop {
            let exited = self.events(1)[0];
            if exited.pid_inside == pid_inside {
                return exited.status;
            }
        }
    }

    /// Drops the value without taking the box down; removes its directory.
    pub(crate) fn drop_sandbox(self) {
        drop(self.sandbox);
        std::fs::remove_dir_all(&self.dirs.base).expect("remove the test directory");
    }

    /// Takes the box down (twice) and checks that nothing is left but files.
    pub(crate) fn end(mut self) {
        let init = self.sandbox.init_host_pid();
        self.sandbox.teardown().expect("take the box down");
        self.sandbox.teardown().expect("twice");
        assert!(!PathBuf::from(format!("/proc/{init}")).exists(), "PID 1 is left");
        check_nothing_left(&self.spec, &self.dirs);
        let base = self.dirs.base.clone();
        drop(self);
        std::fs::remove_dir_all(&base).expect("remove the test directory: nothing is mounted there");
    }
}

/// No process, group or mount of a box is left.
pub(crate) fn check_nothing_left(spec: &Spec, dirs: &Dirs) {
    let groups = std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for hierarchy in groups.chain([PathBuf::from("/sys/fs/cgroup")]) {
        let group = hierarchy.join("deltabox").join(&spec.id);
        assert!(!group.exists(), "{} is left", group.display());
    }
    let first = spec.id_range().first.to_string();
    for process in std::fs::read_dir("/proc").expect("read /proc").flatten() {
        let map = std::fs::read_to_string(process.path().join("uid_map")).unwrap_or_default();
        assert!(
            spec.privileged || map.split_whitespace().nth(1) != Some(&first),
            "{:?} is left",
            process.path()
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    assert!(
        !mounts.contains(&*dirs.base.to_string_lossy()),
        "a mount is left:\n{mounts}"
    );
}

/// Types on a terminal and waits for what it shows.
pub(crate) struct Typist {
    streams: Streams,
    terminal: File,
    shown: String,
}

impl Typist {
    pub(crate) fn new(streams: Streams) -> Self {
        let Streams::Terminal(controller) = &streams else {
            panic!("a terminal was asked for")
        };
        let terminal = File::from(controller.try_clone().expect("duplicate a descriptor"));
        Self {
            streams,
            terminal,
            shown: String::new(),
        }
    }

    /// Returns when `wanted` has been shown since the last call.
    pub(crate) fn type_and_wait(&mut self, keys: &str, wanted: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("type");
        let mut chunk = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(wanted) {
                self.shown.drain(..at + wanted.len());
                return;
            }
            let mut polls = [PollFd::new(&self.terminal, PollFlags::IN)];
            let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(
                poll(&mut polls, Some(&patience)),
                Ok(1),
                "typed {keys:?}, no {wanted:?} in {:?}",
                self.shown
            );
            let count = self
                .terminal
                .read(&mut chunk)
                .unwrap_or_else(|e| panic!("{e}; {:?}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.streams.resize(rows, columns).expect("resize");
    }
}

/// Everything a command writes, both streams.
pub(crate) fn output(started: Started) -> String {
    let mut text = Vec::new();
    match started.streams {
        Streams::Pipes { stdin, stdout, stderr } => {
            drop(stdin);
            let reader = std::thread::spawn(move || read_all(stderr));
            text.extend(read_all(stdout));
            text.extend(reader.join().expect("the reader ends"));
        }
        Streams::Terminal(terminal) => text.extend(read_all(terminal)),
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Until the end, which a terminal tells as EIO.
fn read_all(fd: OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = File::from(fd);
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = file.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
    }
    bytes
}
