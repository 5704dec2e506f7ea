//! A program that speaks the workload protocol on its standard streams, here or at the other end of `deltabox exec -i`.
//! Every read has a time-out; dropping it ends the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long any answer may take.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(12);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The program's output has ended.
    Ended,
    /// Nothing came in time.
    TimedOut,
}

/// What a program said first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// It is set up.
    Yes,
    /// It cannot be run here, and why.
    Skip(String),
}

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All as set up.
    Ok,
    /// The first difference.
    Fail(String),
    /// No answer.
    Silent(Silence),
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Program {
    /// Starts it with all streams in our hands.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("asked for");
        let mut stderr = child.stderr.take().expect("asked for");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is all there is to show.
            let _read = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self {
            child,
            stdin,
            lines,
            errors: Some(errors),
        })
    }

    /// The next line of its output.
    ///
    /// # Errors
    /// When none comes.
    pub fn line(&self, within: Duration) -> Result<String, Silence> {
        self.lines.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::TimedOut,
            RecvTimeoutError::Disconnected => Silence::Ended,
        })
    }

    /// Says a line and gives the next line of its output.
    ///
    /// # Errors
    /// When none comes.
    pub fn ask(&mut self, line: &str) -> Result<String, Silence> {
        self.send(format!("{line}\n").as_bytes())?;
        self.line(ANSWER_WITHIN)
    }

    /// Gives it bytes to read.
    ///
    /// # Errors
    /// When it does not read any more.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Silence> {
        let stdin = self.stdin.as_mut().ok_or(Silence::Ended)?;
        stdin.write_all(bytes).map_err(|_closed| Silence::Ended)
    }

    /// Waits until it is set up.
    ///
    /// # Errors
    /// What it said or did instead.
    pub fn ready(&mut self) -> Result<Ready, String> {
        match self.line(ANSWER_WITHIN) {
            Ok(line) if line == "READY" => Ok(Ready::Yes),
            Ok(line) => match line.strip_prefix("SKIP ") {
                Some(reason) => Ok(Ready::Skip(reason.to_owned())),
                None => Err(format!("wanted READY, got {line:?}")),
            },
            Err(silence) => Err(format!("wanted READY, got {silence:?}: {}", self.last_words())),
        }
    }

    /// Lets it check its state. `undone_ms`: how much the last rollback undid, at least and at most.
    pub fn check(&mut self, undone_ms: (u64, u64)) -> Verdict {
        let mut answer = self.ask(&format!("check {} {}", undone_ms.0, undone_ms.1));
        // Output is part of a box's state: going to a checkpoint whose program has said more than we had seen last shows
        // its words again. A check never says this one.
        while answer.as_deref() == Ok("DISTURBED") {
            answer = self.line(ANSWER_WITHIN);
        }
        match answer {
            Ok(line) if line == "OK" => Verdict::Ok,
            Ok(line) => Verdict::Fail(line),
            Err(silence) => Verdict::Silent(silence),
        }
    }

    /// Lets it change its state.
    ///
    /// # Errors
    /// What it said or did instead.
    pub fn disturb(&mut self, round: u32) -> Result<(), String> {
        match self.ask(&format!("disturb {round}")) {
            Ok(line) if line == "DISTURBED" => Ok(()),
            Ok(line) => Err(format!("disturb {round}: wanted DISTURBED, got {line:?}")),
            Err(silence) => Err(format!("disturb {round}: {silence:?}: {}", self.last_words())),
        }
    }

    /// Ends it and gives what it wrote to standard error.
    pub fn last_words(&mut self) -> String {
        self.end();
        self.errors
            .take()
            .map_or_else(String::new, |errors| errors.join().expect("the reader does not panic"))
    }

    fn end(&mut self) {
        // At the end of its input a workload ends by itself and puts away what it made outside its directory.
        if let Some(mut stdin) = self.stdin.take() {
            let _gone = stdin.write_all(b"quit\n");
        }
        let patience = Duration::from_secs(3);
        while self.line(patience).is_ok() {}
        // Its output has ended, or it does not want to: either way it is over. Killing an ended child does nothing.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
