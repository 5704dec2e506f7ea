//! The Python program that is measured, and the conversation with a program over two FIFOs. FIFOs rather than pipes,
//! because they have names: a process that is forked from a template or restored by another tool opens the same ones.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::{BenchError, errno_on, io_on};
use crate::scratch::Scratch;
use crate::target::Sizes;

/// The program itself.
pub(crate) const PROGRAM: &str = include_str!("agent.py");

/// The interpreter that is part of every default sandbox.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A program that has not answered by then never will.
const ANSWER_SECONDS_MAX: i64 = 120;

/// Both ends of a conversation. Both FIFOs are held open for reading and writing, so that opening never blocks and the
/// death of the program is not the end of the file.
#[derive(Debug)]
pub(crate) struct Fifos {
    requests: File,
    answers: File,
    requests_path: PathBuf,
    answers_path: PathBuf,
}

impl Fifos {
    pub(crate) fn new(directory: &Path) -> Result<Self, BenchError> {
        let make = |name: &str| {
            let path = directory.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(errno_on(path.display()))?;
            let file = File::options()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(io_on(path.display()))?;
            Ok::<_, BenchError>((file, path))
        };
        let ((requests, requests_path), (answers, answers_path)) = (make("requests")?, make("answers")?);
        Ok(Self {
            requests,
            answers,
            requests_path,
            answers_path,
        })
    }

    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.requests_path, &self.answers_path]
    }

    pub(crate) fn ask(&mut self, request: &str) -> Result<String, BenchError> {
        self.requests
            .write_all(format!("{request}\n").as_bytes())
            .map_err(io_on("request to the program"))?;
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            let mut waiting = [PollFd::new(&self.answers, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: ANSWER_SECONDS_MAX,
                tv_nsec: 0,
            };
            if poll(&mut waiting, Some(&limit)).map_err(errno_on("poll"))? == 0 {
                let what = format!("no answer to {request:?} in {ANSWER_SECONDS_MAX} s");
                return Err(BenchError::program("the measured program", what));
            }
            let mut bytes = [0_u8; 256];
            let got = self.answers.read(&mut bytes).map_err(io_on("answer of the program"))?;
            answer.extend_from_slice(&bytes[..got]);
        }
        Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }
}

/// Starts the Python program outside of any sandbox.
pub(crate) fn start(scratch: &Scratch, sizes: &Sizes, fifos: &Fifos) -> Result<Child, BenchError> {
    let mut arguments: Vec<OsString> = sizes.arguments().map(OsString::from).into();
    arguments.push(scratch.path().into());
    start_program(PROGRAM, &arguments, scratch, fifos)
}

/// Starts a Python text outside of any sandbox, in a session of its own. The FIFOs are its last arguments.
pub(crate) fn start_program(
    text: &str,
    arguments: &[OsString],
    scratch: &Scratch,
    fifos: &Fifos,
) -> Result<Child, BenchError> {
    let program = scratch.write("agent.py", text)?;
    let mut command = Command::new("setsid");
    command.arg(PYTHON).arg(program).args(arguments).args(fifos.paths());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(io_on("setsid python3"))
}
