//! The product as its users meet it: a default sandbox made through the daemon, its program fed and read through the
//! API, every timed call on one kept connection. The sandbox is removed when it goes out of scope.

use std::path::{Path, PathBuf};

use api::{CheckpointRequest, Checkpointed, CreateRequest, ExecRequest, ExecStarted, ExecState, Frame};
use api::{RollbackRequest, RolledBack, Sandbox, Timing, Version};
use serde::Serialize;

use crate::agent::{PROGRAM, PYTHON};
use crate::error::BenchError;
use crate::http::{Connection, Lines};
use crate::target::{Cost, Operation, Sizes, Target};

/// Where programs in a sandbox put their files.
pub(crate) const DIRECTORY: &str = "/srv/bench";

/// A sandbox of the daemon.
#[derive(Debug)]
pub(crate) struct Boxed {
    connection: Connection,
    path: String,
}

impl Boxed {
    pub(crate) fn create(socket: &Path) -> Result<Self, BenchError> {
        let mut connection = Connection::open(socket)?;
        let made: Sandbox = connection.json("POST", "/v1/sandboxes", &body(&CreateRequest::default()))?;
        Ok(Self {
            connection,
            path: format!("/v1/sandboxes/{}", made.id),
        })
    }

    pub(crate) fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError> {
        match operation {
            Operation::Checkpoint => {
                let path = format!("{}/checkpoints", self.path);
                let done: Checkpointed = self
                    .connection
                    .json("POST", &path, &body(&CheckpointRequest::default()))?;
                Ok(cost(done.timing, done.page_count))
            }
            Operation::Rollback => self.rollback(None, false),
            Operation::RollbackKeep => self.rollback(None, true),
        }
    }

    /// Back to `to`, the head when `None`.
    pub(crate) fn rollback(&mut self, to: Option<&str>, keep_present: bool) -> Result<Cost, BenchError> {
        let path = format!("{}/rollback", self.path);
        let request = RollbackRequest {
            to: to.map(str::to_owned),
            keep_present,
        };
        let done: RolledBack = self.connection.json("POST", &path, &body(&request))?;
        Ok(cost(done.timing, done.page_count))
    }

    /// Runs a Python text to its end; its output.
    pub(crate) fn python(&mut self, socket: &Path, text: &str) -> Result<String, BenchError> {
        let argv = vec![PYTHON.to_owned(), "-c".to_owned(), text.to_owned()];
        let exec = self.start(ExecRequest {
            argv,
            ..ExecRequest::default()
        })?;
        let mut lines = Connection::open(socket)?.stream(&format!("{}/execs/{exec}/output", self.path))?;
        let mut output = Vec::new();
        while let Some(frame) = lines.next::<Frame>()? {
            if let Frame::Stdout { bytes, .. } | Frame::Stderr { bytes, .. } = frame {
                output.extend_from_slice(&bytes.0);
            }
        }
        let output = String::from_utf8_lossy(&output).trim_end().to_owned();
        let ended: ExecState = self
            .connection
            .json("GET", &format!("{}/execs/{exec}/wait", self.path), &[])?;
        if ended.code != 0 {
            return Err(BenchError::program(
                "python3 in the sandbox",
                format!("exit {}: {output}", ended.code),
            ));
        }
        Ok(output)
    }

    fn start(&mut self, request: ExecRequest) -> Result<String, BenchError> {
        let path = format!("{}/execs", self.path);
        Ok(self.connection.json::<ExecStarted>("POST", &path, &body(&request))?.id)
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        drop(self.connection.call("DELETE", &self.path, &[]));
    }
}

/// Takes checkpoints of a sandbox on a connection of its own, while another waits for something else.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    connection: Connection,
    path: String,
}

impl Checkpointer {
    pub(crate) fn take(&mut self) -> Result<Cost, BenchError> {
        let request = body(&CheckpointRequest::default());
        let done: Checkpointed = self.connection.json("POST", &self.path, &request)?;
        Ok(cost(done.timing, done.page_count))
    }
}

/// The state directory of the daemon.
pub(crate) fn state_directory(socket: &Path) -> Result<PathBuf, BenchError> {
    let version: Version = Connection::open(socket)?.json("GET", "/v1/version", &[])?;
    Ok(version.state.into())
}

/// A sandbox and the Python program in it.
#[derive(Debug)]
pub(crate) struct BoxedProgram {
    sandbox: Boxed,
    output: Lines,
    stdin: String,
    answered: Vec<u8>,
}

impl BoxedProgram {
    /// The program that `bench rewind` measures.
    pub(crate) fn agent(socket: &Path, sizes: &Sizes) -> Result<Self, BenchError> {
        let mut arguments: Vec<String> = sizes.arguments().into();
        arguments.push(DIRECTORY.to_owned());
        let mut agent = Self::start(socket, PROGRAM, arguments)?;
        agent.ask("ping")?;
        Ok(agent)
    }

    pub(crate) fn start(socket: &Path, text: &str, arguments: Vec<String>) -> Result<Self, BenchError> {
        let mut sandbox = Boxed::create(socket)?;
        let mut argv = vec![PYTHON.to_owned(), "-c".to_owned(), text.to_owned()];
        argv.extend(arguments);
        let exec = sandbox.start(ExecRequest {
            argv,
            stdin: true,
            ..ExecRequest::default()
        })?;
        let output = Connection::open(socket)?.stream(&format!("{}/execs/{exec}/output", sandbox.path))?;
        let stdin = format!("{}/execs/{exec}/stdin", sandbox.path);
        Ok(Self {
            sandbox,
            output,
            stdin,
            answered: Vec::new(),
        })
    }

    pub(crate) fn checkpointer(&self, socket: &Path) -> Result<Checkpointer, BenchError> {
        Ok(Checkpointer {
            connection: Connection::open(socket)?,
            path: format!("{}/checkpoints", self.sandbox.path),
        })
    }
}

impl Target for BoxedProgram {
    fn ask(&mut self, request: &str) -> Result<String, BenchError> {
        self.sandbox
            .connection
            .call("POST", &self.stdin, format!("{request}\n").as_bytes())?;
        let mut said = Vec::new();
        loop {
            if let Some(end) = self.answered.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.answered.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            match self.output.next::<Frame>()? {
                Some(Frame::Stdout { bytes, .. }) => self.answered.extend_from_slice(&bytes.0),
                Some(Frame::Stderr { bytes, .. }) => said.extend_from_slice(&bytes.0),
                // What had been said and not read is undone too.
                Some(Frame::RolledBack { gone: false, .. }) => self.answered.clear(),
                Some(Frame::Skipped { .. }) => {}
                other => {
                    let said = String::from_utf8_lossy(&said);
                    return Err(BenchError::program(
                        "the program in the sandbox",
                        format!("{other:?}: {said}"),
                    ));
                }
            }
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError> {
        self.sandbox.operate(operation)
    }
}

fn body(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types have only text keys")
}

fn cost(timing: Timing, page_count: u64) -> Cost {
    let mut phases: Vec<(String, f64)> = Vec::new();
    // Each tree of files has its own phases, of the same names.
    for phase in timing.phases {
        match phases.iter_mut().find(|(name, _)| *name == phase.name) {
            Some((_, ms)) => *ms += phase.ms,
            None => phases.push((phase.name, phase.ms)),
        }
    }
    Cost {
        stop_ms: Some(timing.stop_ms),
        phases,
        page_count,
    }
}
