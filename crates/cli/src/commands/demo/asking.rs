//! A program in a box that answers one line for each line, and commands that are run for what they print.

use std::collections::VecDeque;

use api::{Code, ExecRequest, ExecStarted, Frame};
use serde::Deserialize;

use super::private::Private;
use crate::client::{Client, Lines, Payload};
use crate::commands::path;
use crate::error::{CliError, Result};

/// A program that answers.
#[derive(Debug)]
pub(crate) struct Program {
    input: Client,
    output: Lines,
    stdin: String,
    partial: Vec<u8>,
    answers: VecDeque<String>,
    complaints: Vec<u8>,
}

/// What our own program says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct State {
    pub(crate) heap: String,
    pub(crate) counter: u64,
    pub(crate) lines: u64,
    pub(crate) position: u64,
    pub(crate) ticks: Vec<u64>,
}

impl State {
    /// Equal in all that does not run by itself.
    pub(crate) fn same_but_ticks(&self, other: &Self) -> bool {
        let ticks = other.ticks.clone();
        Self { ticks, ..self.clone() } == *other
    }
}

impl Program {
    /// Starts it.
    pub(crate) fn start(private: &Private, sandbox: &str, argv: &[&str]) -> Result<Self> {
        let mut input = private.connect()?;
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let request = ExecRequest {
            argv,
            stdin: true,
            ..ExecRequest::default()
        };
        let started: ExecStarted = input.post(&path(sandbox, "/execs"), &request)?;
        let base = path(sandbox, &format!("/execs/{}", started.id));
        let output = private.connect()?.stream(&format!("{base}/output?follow=always"))?;
        let stdin = format!("{base}/stdin");
        let (partial, answers, complaints) = (Vec::new(), VecDeque::new(), Vec::new());
        Ok(Self {
            input,
            output,
            stdin,
            partial,
            answers,
            complaints,
        })
    }

    /// Sends a line and waits for one.
    pub(crate) fn ask(&mut self, question: &str) -> Result<String> {
        let line = format!("{question}\n");
        self.input.call("POST", &self.stdin, Payload::Bytes(line.as_bytes()))?;
        self.answer()
    }

    /// Our own program's state.
    pub(crate) fn state(&mut self) -> Result<State> {
        let text = self.ask("state")?;
        let state = serde_json::from_str(&text);
        state.map_err(|error| CliError::new(Code::Internal, format!("the program answered {text:?}: {error}")))
    }

    fn answer(&mut self) -> Result<String> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Ok(answer);
            }
            match self.output.next_value::<Frame>()? {
                Some(Frame::Stdout { bytes, .. }) => self.take(&bytes.0),
                Some(Frame::Stderr { bytes, .. }) => self.complaints.extend_from_slice(&bytes.0),
                // What had been half said was said by a present that is no more.
                Some(Frame::RolledBack { gone: false, .. }) => self.partial.clear(),
                Some(Frame::Skipped { .. }) => {}
                other => {
                    let said = String::from_utf8_lossy(&self.complaints).into_owned();
                    let detail = format!("the program ended instead of answering ({other:?}): {said}");
                    return Err(CliError::new(Code::Died, detail));
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.answers
                    .push_back(String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned());
            } else {
                self.partial.push(byte);
            }
        }
    }
}

/// Runs a command to its end: its code and what it printed.
pub(crate) fn run(client: &mut Client, sandbox: &str, argv: &[&str]) -> Result<(i32, String)> {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    let request = ExecRequest {
        argv,
        ..ExecRequest::default()
    };
    let started: ExecStarted = client.post(&path(sandbox, "/execs"), &request)?;
    let output = path(sandbox, &format!("/execs/{}/output", started.id));
    let text = client.call("GET", &output, Payload::Nothing)?;
    let (mut code, mut printed) = (None, Vec::new());
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(Frame::Stdout { bytes, .. } | Frame::Stderr { bytes, .. }) => printed.extend_from_slice(&bytes.0),
            Ok(Frame::Exited { code: ended }) => code = Some(ended),
            _ => {}
        }
    }
    let code = code.ok_or_else(|| CliError::new(Code::Died, "a command in the box was lost"))?;
    Ok((code, String::from_utf8_lossy(&printed).into_owned()))
}
