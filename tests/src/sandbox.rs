//! One box of a daemon with one program in it, and the clock of its checkpoints: how much of the program's time a rollback
//! undid, between which bounds.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::program::{Program, Ready, Verdict};
use crate::screen::Screen;

/// Where programs lie in a box.
pub const PLACE: &str = "/srv";
/// A directory that every box sees in its lower layer where the workloads could be compiled.
pub const LOWER: &str = "/usr/include/linux";

/// What a program's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Three pipes.
    Pipes,
    /// One terminal.
    Terminal,
}

/// A checkpoint, and when it was taken.
#[derive(Debug, Clone)]
pub struct Cut {
    /// `ckp_…`.
    pub id: String,
    taken: (Instant, Instant),
}

/// A box with a program.
#[derive(Debug)]
pub struct Sandbox<'a> {
    daemon: &'a Daemon,
    name: String,
    program: Option<Program>,
    undone_ms: (u64, u64),
}

impl<'a> Sandbox<'a> {
    /// Makes a box with these options and copies files into it.
    ///
    /// # Errors
    /// What the command line said.
    pub fn create(daemon: &'a Daemon, name: &str, options: &[&str], files: &[&Path]) -> Result<Self, String> {
        daemon.json(&[&["create", "--name", name], options].concat())?;
        let sandbox = Self {
            daemon,
            name: name.to_owned(),
            program: None,
            undone_ms: (0, 0),
        };
        for file in files {
            let file = file.to_str().ok_or("the path of a workload is not UTF-8")?;
            daemon.json(&["cp", file, &format!("{name}:{PLACE}/")])?;
        }
        Ok(sandbox)
    }

    /// Starts the program with pipes or on a terminal, and waits until it is set up.
    ///
    /// # Errors
    /// What it said or did instead.
    pub fn start(&mut self, argv: &[&str], streams: Streams) -> Result<Ready, String> {
        let mut command = self.daemon.command();
        let how = if streams == Streams::Terminal { "-it" } else { "-i" };
        command.args(["exec", how, &self.name, "--"]).args(argv);
        let mut program = Program::start(&mut command)?;
        let ready = program.ready().map_err(|error| self.with_log(&error))?;
        self.program = Some(program);
        Ok(ready)
    }

    /// Starts a program on a terminal whose screen we read as it comes.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_raw(&self, argv: &[&str]) -> Result<Screen, String> {
        let mut command = self.daemon.command();
        Screen::start(
            command
                .args(["exec", "-it", "-e", "TERM=xterm", &self.name, "--"])
                .args(argv),
        )
    }

    /// A file of the box; `None` when it is not there.
    ///
    /// # Errors
    /// When the command line cannot be run.
    pub fn read(&self, path: &str) -> Result<Option<String>, String> {
        let said = self.daemon.run(&["exec", &self.name, "--", "cat", path])?;
        Ok((said.code == 0).then_some(said.out))
    }

    /// The program, once started.
    pub fn program(&mut self) -> &mut Program {
        self.program.as_mut().expect("a mode starts the program first")
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// What the command line said.
    pub fn checkpoint(&self) -> Result<Cut, String> {
        let from = Instant::now();
        let answer = self.daemon.json(&["checkpoint", &self.name])?;
        let id = answer["checkpoint"]["id"]
            .as_str()
            .ok_or_else(|| format!("no id in {answer}"))?;
        Ok(Cut {
            id: id.to_owned(),
            taken: (from, Instant::now()),
        })
    }

    /// Goes back to a checkpoint.
    ///
    /// # Errors
    /// What the command line said.
    pub fn rollback(&mut self, cut: &Cut) -> Result<(), String> {
        let from = Instant::now();
        self.daemon.json(&["rollback", &self.name, &cut.id])?;
        let at_least = from.saturating_duration_since(cut.taken.1);
        let at_most = Instant::now().saturating_duration_since(cut.taken.0);
        self.undone_ms = (milliseconds(at_least), milliseconds(at_most) + 1);
        Ok(())
    }

    /// Goes to where the box was before the last rollback.
    ///
    /// # Errors
    /// What the command line said.
    pub fn rollback_to_present(&self) -> Result<(), String> {
        self.daemon.json(&["rollback", &self.name, "@{-1}"]).map(drop)
    }

    /// Lets the program check itself; anything but `OK` is an error.
    ///
    /// # Errors
    /// What it said or did instead.
    pub fn check_ok(&mut self, when: &str) -> Result<(), String> {
        match self.check() {
            Verdict::Ok => Ok(()),
            Verdict::Fail(line) => Err(self.with_log(&format!("{when}: {line}"))),
            Verdict::Silent(silence) => {
                let words = self.program().last_words();
                Err(self.with_log(&format!("{when}: no answer ({silence:?}); the program said: {words:?}")))
            }
        }
    }

    /// Lets the program check itself.
    pub fn check(&mut self) -> Verdict {
        let undone = self.undone_ms;
        self.program().check(undone)
    }

    /// Lets the program change its state.
    ///
    /// # Errors
    /// What it said or did instead.
    pub fn disturb(&mut self, round: u32) -> Result<(), String> {
        let done = self.program().disturb(round);
        done.map_err(|error| self.with_log(&error))
    }

    fn with_log(&self, text: &str) -> String {
        format!("{text}\n{}", self.daemon.log_tail())
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        drop(self.program.take());
        // A box that cannot be removed shows when its daemon stops.
        let _gone = self.daemon.run(&["rm", "--force", &self.name]);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
