//! A daemon for tests: the real program in a state directory of its own. Dropping it takes everything down and checks
//! that nothing stays: no mount, no process, no directory.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Daemon {
    child: Option<Child>,
    pub(crate) state: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Daemon {
    /// `None`, with the reason on standard error, where there is no daemon to be had.
    pub(crate) fn start() -> Option<Self> {
        Self::start_of(Path::new(env!("CARGO_BIN_EXE_deltabox")))
    }

    /// The same of another program than the command line is.
    pub(crate) fn start_of(serving: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: the daemon must be root");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = std::env::temp_dir().join(format!("deltabox-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&state).unwrap();
        let mut child = serve_of(serving, &state).spawn().unwrap();
        assert_eq!(first_line(&mut child), "ready\n");
        Some(Self {
            child: Some(child),
            state,
        })
    }

    /// Ends it; another must take its place.
    pub(crate) fn stop(&mut self, signal: Signal) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap()
    }

    /// Ends it and starts the next one at once; gives what that one said and how the first one ended.
    pub(crate) fn replace(&mut self, signal: Signal) -> (String, ExitStatus) {
        let mut old = self.child.take().expect("it runs");
        kill_process(Pid::from_child(&old), signal).unwrap();
        let mut next = serve(&self.state).spawn().unwrap();
        let said = first_line(&mut next);
        self.child = Some(next);
        (said, old.wait().unwrap())
    }

    /// The daemon that goes on in this one's place, once that was stopped.
    pub(crate) fn is_now(&mut self, next: Child) {
        self.child = Some(next);
    }

    /// Runs the command line.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        said(&program(&self.state).args(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the command line with something to read.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Said {
        let mut command = program(&self.state);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that does not read must not keep the test from reading what it says.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        said(&output)
    }

    /// Runs the command line and expects it to succeed; gives standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out
    }

    /// The same with `--json`.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["--json"];
        all.extend(args);
        let text = self.ok(&all);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// The command line, to be started otherwise.
    pub(crate) fn program(&self) -> Command {
        program(&self.state)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state.join("deltabox.sock")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let status = self.child.is_some().then(|| self.stop(Signal::TERM));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let left: Vec<&str> = mounts
            .lines()
            .filter(|line| line.contains(&*self.state.to_string_lossy()))
            .collect();
        let socket = self.socket().exists();
        std::fs::remove_dir_all(&self.state).unwrap();
        if !std::thread::panicking() {
            assert!(
                status.is_some_and(|status| status.success()),
                "the daemon ended with {status:?}"
            );
            assert!(left.is_empty(), "mounts are left: {left:?}");
            assert!(!socket, "the socket is left");
        }
    }
}

/// A daemon to be, which ends with this test and says on its standard output when it listens, or why not.
pub(crate) fn serve(state: &Path) -> Command {
    serve_of(Path::new(env!("CARGO_BIN_EXE_deltabox")), state)
}

fn serve_of(program: &Path, state: &Path) -> Command {
    let mut command = at(program, state);
    command
        .args(["serve", "--background", "--with-parent"])
        .env("DELTABOX_VERIFY", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// What a program says first; waits for it.
pub(crate) fn first_line(child: &mut Child) -> String {
    let mut said = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    said
}

fn program(state: &Path) -> Command {
    at(Path::new(env!("CARGO_BIN_EXE_deltabox")), state)
}

fn at(program: &Path, state: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DELTABOX_STATE", state).env_remove("DELTABOX_HOST");
    command
}

fn said(output: &Output) -> Said {
    Said {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code().unwrap_or(-1),
    }
}
