//! A daemon of the real program in a state directory of its own. Stopping it takes everything down and says what is left:
//! mounts, control groups, processes, files.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long one command of the command line may take.
pub const COMMAND_WITHIN: Duration = Duration::from_secs(20);
/// How long a daemon may take to take everything down.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// How long the kernel may take to tear down what nobody uses any more.
const TEARDOWN_WITHIN: Duration = Duration::from_secs(3);
const LOG_TAIL_LINES: usize = 15;

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Option<Child>,
    _starter: Sender<()>,
    program: PathBuf,
    state: tempfile::TempDir,
}

/// What a command printed and how it ended.
#[derive(Debug, Clone)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit code; -1 for a signal.
    pub code: i32,
}

impl Daemon {
    /// Starts `program serve`, with these fault points on.
    ///
    /// # Errors
    /// When it does not come up, with what it said.
    pub fn start(program: &Path, faults: &[&str]) -> Result<Self, String> {
        let state = tempfile::Builder::new()
            .prefix("deltabox-t")
            .tempdir()
            .map_err(|error| error.to_string())?;
        let log = std::fs::File::create(state.path().join("test.log")).map_err(|error| error.to_string())?;
        let mut command = command_at(program, state.path());
        command
            .args(["serve", "--background", "--with-parent"])
            .env("DELTABOX_FAULTS", faults.join(","));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let (mut child, starter) =
            spawn_from_a_thread_that_stays(command).map_err(|error| format!("{}: {error}", program.display()))?;
        let stdout = child.stdout.take().expect("asked for");
        let mut said = String::new();
        let read = BufReader::new(stdout).read_line(&mut said);
        let daemon = Self {
            child: Some(child),
            _starter: starter,
            program: program.to_owned(),
            state,
        };
        match read {
            Ok(_) if said == "ready\n" => Ok(daemon),
            _ => Err(format!("the daemon did not come up: {said}\n{}", daemon.log_tail())),
        }
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// The command line, joined to this daemon.
    pub fn command(&self) -> Command {
        command_at(&self.program, self.state.path())
    }

    /// Runs one command, with nothing to read.
    ///
    /// # Errors
    /// When it cannot be run or does not end in time.
    pub fn run(&self, args: &[&str]) -> Result<Said, String> {
        // The command line would start another daemon.
        if self
            .child
            .as_ref()
            .is_none_or(|child| ends_within(child, Duration::ZERO))
        {
            return Err(format!("the daemon has ended by itself\n{}", self.log_tail()));
        }
        let mut command = self.command();
        command.args(args);
        finish(command, &[]).map_err(|error| format!("deltabox {}: {error}\n{}", args.join(" "), self.log_tail()))
    }

    /// Runs one command with `--json` and expects it to succeed.
    ///
    /// # Errors
    /// What it said otherwise.
    pub fn json(&self, args: &[&str]) -> Result<Value, String> {
        let mut all = vec!["--json"];
        all.extend(args);
        let said = self.run(&all)?;
        if said.code != 0 {
            let said = said.err.trim();
            return Err(format!("deltabox {}: {said}\n{}", args.join(" "), self.log_tail()));
        }
        let last = said.out.lines().last().unwrap_or("null");
        serde_json::from_str(last)
            .or_else(|_| serde_json::from_str(&said.out))
            .map_err(|error| format!("{args:?}: {error}: {}", said.out))
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let mut lines = Vec::new();
        for name in ["test.log", "deltabox.log"] {
            let text = std::fs::read(self.state.path().join(name)).unwrap_or_default();
            lines.extend(
                String::from_utf8_lossy(&text)
                    .lines()
                    .map(|line| format!("  daemon: {line}")),
            );
        }
        let from = lines.len().saturating_sub(LOG_TAIL_LINES);
        lines[from..].join("\n")
    }

    /// Stops it.
    ///
    /// # Errors
    /// How it ended, or what it left behind.
    pub fn stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let below = descendants(child.id());
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(|errno| errno.to_string())?;
        if !ends_within(&child, STOP_WITHIN) {
            let tail = self.log_tail();
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(|error| error.to_string())?;
            take_down(self.state.path());
            return Err(format!(
                "the daemon did not end within {STOP_WITHIN:?} and was killed\n{tail}"
            ));
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            take_down(self.state.path());
            return Err(format!("the daemon ended with {status}\n{}", self.log_tail()));
        }
        // The kernel lets go of a loop device only when the last namespace that saw its mount is torn down, which it does
        // in the background and announces nowhere: this one waits by the clock.
        let until = Instant::now() + TEARDOWN_WITHIN;
        let mut left = left_behind(self.state.path(), &below);
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            left = left_behind(self.state.path(), &below);
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left behind: {}", left.join("; ")))
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _left = self.end();
    }
}

/// `--with-parent` ties a daemon to the *thread* that started it, and the threads of a test run end when there are no more
/// tests for them. The thread here stays until the sender is dropped.
fn spawn_from_a_thread_that_stays(mut command: Command) -> std::io::Result<(Child, Sender<()>)> {
    let (sender, started) = channel();
    let (stay, dropped) = channel();
    std::thread::spawn(move || {
        let sent = sender.send(command.spawn());
        if sent.is_ok() {
            // Nothing is ever sent: this returns when the daemon's owner is done.
            let _done: Result<(), _> = dropped.recv();
        }
    });
    let child = started.recv().map_err(std::io::Error::other)??;
    Ok((child, stay))
}

fn ends_within(child: &Child, within: Duration) -> bool {
    let pid = rustix::process::Pid::from_child(child);
    let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return true;
    };
    let mut ended = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    let within = rustix::event::Timespec {
        tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    rustix::event::poll(&mut ended, Some(&within)).is_ok_and(|count| count > 0)
}

/// What a daemon that was killed could not take down itself: its mounts, the last first.
fn take_down(state: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for mount in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(mount).starts_with(state) {
            // A failure shows as a directory that cannot be removed; there is nobody else to tell.
            let _done = rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn command_at(program: &Path, state: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DELTABOX_STATE", state).env_remove("DELTABOX_HOST");
    command
}

/// Runs a command with bytes to read, to its end or for [`COMMAND_WITHIN`].
///
/// # Errors
/// When it cannot be run or does not end in time.
pub fn finish(mut command: Command, input: &[u8]) -> Result<Said, String> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().expect("asked for");
    let input = input.to_vec();
    std::thread::spawn(move || stdin.write_all(&input));
    let (sender, receiver) = channel();
    let mut stdout = child.stdout.take().expect("asked for");
    let mut stderr = child.stderr.take().expect("asked for");
    std::thread::spawn(move || {
        let mut err = Vec::new();
        let errors = std::thread::spawn(move || {
            let _read = stderr.read_to_end(&mut err);
            err
        });
        let mut out = Vec::new();
        let _read = stdout.read_to_end(&mut out);
        let _late = sender.send((out, errors.join().expect("the reader does not panic")));
    });
    let Ok((out, err)) = receiver.recv_timeout(COMMAND_WITHIN) else {
        let _ended = child.kill();
        let _status = child.wait();
        return Err(format!("no end within {COMMAND_WITHIN:?}"));
    };
    let status = child.wait().map_err(|error| error.to_string())?;
    Ok(Said {
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
        code: status.code().unwrap_or(-1),
    })
}

/// All processes below one, by the parent that `/proc` gives.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut found = vec![of];
    let mut index = 0;
    while index < found.len() {
        let above = found[index];
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == above)
                .map(|(pid, _)| *pid),
        );
        index += 1;
    }
    found.remove(0);
    found
}

/// What a daemon that has ended left: mounts below or of its state, loop devices on its files, control groups, processes.
fn left_behind(state: &Path, processes: &[u32]) -> Vec<String> {
    let state = state.to_string_lossy();
    let mut left = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&*state))
            .map(|line| format!("mount {line}")),
    );
    for pid in processes {
        let command = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        left.extend(command.ok().map(|name| format!("process {pid} ({})", name.trim())));
    }
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if backing.contains(&*state) {
            left.push(format!("loop device {}", entry.file_name().to_string_lossy()));
        }
    }
    left
}
