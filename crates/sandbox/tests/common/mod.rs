//! A box for a test, and what is left of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use sandbox::{Dirs, ExecRequest, ExitStatus, Sandbox, SandboxError, Spec, Started, Stdio, Streams};

/// Ranges far from those of a daemon on the same machine; a second test program starts elsewhere.
static NEXT_RANGE: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Box {
    pub(crate) spec: Spec,
    pub(crate) dirs: Dirs,
    pub(crate) sandbox: Sandbox,
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
        eprintln!("{}: made in {:.1} ms", spec.hostname, start.elapsed().as_secs_f64() * 1000.0);
        Self { spec, dirs, sandbox }
    }

    /// Runs a shell line to its end; stdout and stderr in one.
    pub(crate) fn sh(&mut self, line: &str) -> (String, ExitStatus) {
        self.run(ExecRequest::new(["/bin/sh", "-c", &format!("{{ {line}\n}} 2>&1")]))
    }

    pub(crate) fn run(&mut self, request: ExecRequest) -> (String, ExitStatus) {
        let started = self.sandbox.exec(&request).unwrap_or_else(|e| panic!("{request:?}: {e}"));
        let pid = started.pid_inside;
        let out = output(started);
        (out, self.status_of(pid))
    }

    /// Waits for the end of one command.
    pub(crate) fn status_of(&self, pid_inside: u32) -> ExitStatus {
        loop {
            let mut polls = [rustix::event::PollFd::from_borrowed_fd(self.sandbox.events_fd(), rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polls, None).expect("poll the events");
            while let Some(exited) = self.sandbox.next_event().expect("the box lives") {
                if exited.pid_inside == pid_inside {
                    return exited.status;
                }
            }
        }
    }

    /// Takes the box down (twice) and checks that nothing is left but files.
    pub(crate) fn end(mut self) {
        let init = self.sandbox.init_host_pid();
        let group = self.sandbox.cgroup().map(PathBuf::from);
        self.sandbox.teardown().expect("take the box down");
        self.sandbox.teardown().expect("twice");
        assert!(!PathBuf::from(format!("/proc/{init}")).exists(), "PID 1 is left");
        if let Some(group) = group {
            assert!(!group.exists(), "{} is left", group.display());
        }
        for name in ["memory", "cpu", "pids"] {
            let group = PathBuf::from("/sys/fs/cgroup").join(name).join("deltabox").join(&self.spec.id);
            assert!(!group.exists(), "{} is left", group.display());
        }
        let range = self.spec.id_range();
        for process in std::fs::read_dir("/proc").expect("read /proc").flatten() {
            let map = std::fs::read_to_string(process.path().join("uid_map")).unwrap_or_default();
            let left = !self.spec.privileged && map.split_whitespace().nth(1) == Some(&range.first.to_string());
            assert!(!left, "{:?} is left", process.path());
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
        assert!(!mounts.contains(&self.spec.id), "a mount is left:\n{mounts}");
        let base = self.dirs.base.clone();
        drop(self);
        std::fs::remove_dir_all(&base).expect("remove the test directory: nothing is mounted there");
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
