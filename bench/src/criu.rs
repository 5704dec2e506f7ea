//! CRIU on the same Python program outside of a sandbox: `dump --leave-running`, and kill plus `restore`. Only the
//! program at the path the caller gives is run; without one there is no row.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

use crate::agent::{self, Fifos};
use crate::error::{BenchError, errno_on, io_on};
use crate::scratch::Scratch;
use crate::target::{Cost, Operation, Sizes, Target};

/// Killed processes that are children of PID 1 vanish when it reaps them; nothing says so but their absence.
const REAP_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Criu {
    program: PathBuf,
    images: PathBuf,
    dump_count: u32,
    pid: Pid,
    agent: Child,
    fifos: Fifos,
    _scratch: Scratch,
}

impl Criu {
    pub(crate) fn start(program: &Path, sizes: &Sizes) -> Result<Self, BenchError> {
        let scratch = Scratch::new()?;
        let mut fifos = Fifos::new(scratch.path())?;
        let agent = agent::start(&scratch, sizes, &fifos)?;
        fifos.ask("ping")?;
        let pid = Pid::from_child(&agent);
        let images = scratch.path().join("images");
        Ok(Self {
            program: program.to_owned(),
            images,
            dump_count: 0,
            pid,
            agent,
            fifos,
            _scratch: scratch,
        })
    }

    fn directory(&self) -> PathBuf {
        self.images.join(self.dump_count.to_string())
    }

    fn dump(&mut self) -> Result<(), BenchError> {
        drop(fs::remove_dir_all(self.directory()));
        self.dump_count += 1;
        let directory = self.directory();
        fs::create_dir_all(&directory).map_err(io_on(directory.display()))?;
        let pid = self.pid.as_raw_nonzero().to_string();
        self.run(&["dump", "--leave-running", "-t", &pid])
    }

    fn restore(&mut self) -> Result<(), BenchError> {
        kill_process_group(self.pid, Signal::KILL).map_err(errno_on("kill the dumped program"))?;
        drop(self.agent.wait());
        let start = Instant::now();
        while test_kill_process(self.pid).is_ok() && start.elapsed() < REAP_WAIT_MAX {
            std::thread::yield_now();
        }
        self.run(&["restore", "--restore-detached"])
    }

    fn run(&self, arguments: &[&str]) -> Result<(), BenchError> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg("-D")
            .arg(self.directory())
            .args(["-o", "criu.log", "-v1"]);
        let output = command.output().map_err(io_on(self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(self.directory().join("criu.log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::program("criu", format!("{}: {said}{log}", arguments[0])))
    }
}

impl Target for Criu {
    fn ask(&mut self, request: &str) -> Result<String, BenchError> {
        self.fifos.ask(request)
    }

    fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError> {
        match operation {
            Operation::Checkpoint => self.dump()?,
            Operation::Rollback | Operation::RollbackKeep => self.restore()?,
        }
        Ok(Cost::default())
    }
}

impl Drop for Criu {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = kill_process_group(self.pid, Signal::KILL);
        drop(self.agent.wait());
    }
}
