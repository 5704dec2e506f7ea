//! Joins our streams to a command in a box: output here, input and signals there. Three connections, so that a key
//! press never waits behind output. The terminal is put back however it ends.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use api::{Code, Frame, Problem, ResizeRequest, SignalRequest};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::client::{Client, Payload, escape};
use crate::daemon;
use crate::error::{CliError, Result};
use crate::output::{Output, say};
use crate::terminal::{self, Raw};

/// Most bytes of input in one request.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Signals that are the command's, not ours, while we are attached.
const FORWARDED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Which command, and what of ours it gets.
#[derive(Debug)]
pub(crate) struct Attached<'a> {
    /// The sandbox, as the user named it.
    pub(crate) sandbox: &'a str,
    /// `exe_…`.
    pub(crate) exec: &'a str,
    /// Our standard input.
    pub(crate) stdin: bool,
    /// Our terminal, raw.
    pub(crate) terminal: bool,
    /// Go on after the end, since a rollback can bring it back.
    pub(crate) always: bool,
}

/// Holds back the signals that a command will get, from before it is started.
#[derive(Debug)]
pub(crate) struct Signals(SigSet);

impl Signals {
    /// From now on these signals wait for [`attach`]. Every thread started from here on inherits that, and so would a
    /// daemon: connect first.
    pub(crate) fn hold() -> Result<Self> {
        let mut set: SigSet = FORWARDED.into_iter().collect();
        set.add(Signal::SIGWINCH);
        set.thread_block()
            .map_err(|errno| CliError::io("blocking signals", &errno.into()))?;
        Ok(Self(set))
    }

    /// Calls `each` with the number of every signal that comes, on a thread of its own.
    pub(crate) fn on_each(&self, mut each: impl FnMut(i32) + Send + 'static) -> Result<()> {
        let fail = |errno: nix::errno::Errno| CliError::io("reading signals", &errno.into());
        let descriptor = SignalFd::with_flags(&self.0, SfdFlags::SFD_CLOEXEC).map_err(fail)?;
        std::thread::spawn(move || {
            while let Ok(Some(info)) = descriptor.read_signal() {
                each(i32::try_from(info.ssi_signo).unwrap_or(0));
            }
        });
        Ok(())
    }
}

/// Until the command ends; gives its exit code.
pub(crate) fn attach(client: Client, attached: &Attached<'_>, signals: &Signals, output: &Output) -> Result<u8> {
    let base = format!("/v1/sandboxes/{}/execs/{}", escape(attached.sandbox), attached.exec);
    let _raw = if attached.terminal && terminal::is_terminal() {
        Some(Raw::new()?)
    } else {
        None
    };
    let hang_up = client.handle()?;
    forward_signals(&base, signals, attached.terminal, hang_up)?;
    if attached.stdin {
        forward_input(&base)?;
    }
    follow(client, &base, attached, output)
}

/// Only the output, from the beginning.
pub(crate) fn logs(client: Client, attached: &Attached<'_>, output: &Output) -> Result<u8> {
    let base = format!("/v1/sandboxes/{}/execs/{}", escape(attached.sandbox), attached.exec);
    follow(client, &base, attached, output)
}

fn follow(client: Client, base: &str, attached: &Attached<'_>, output: &Output) -> Result<u8> {
    let until = if attached.always { "always" } else { "exit" };
    let mut lines = client.stream(&format!("{base}/output?follow={until}"))?;
    let mut code = None;
    loop {
        let line = lines.next_line()?;
        if line.is_empty() {
            break;
        }
        if output.json {
            output.data(line)?;
        }
        let frame = serde_json::from_slice(line)
            .map_err(|error| CliError::new(Code::Internal, format!("the daemon's answer does not fit: {error}")))?;
        if let Some(ended) = show(frame, attached.exec, output)? {
            code = Some(ended);
        }
    }
    code.ok_or_else(|| CliError::new(Code::Unreachable, "the connection to the command was lost"))
}

/// Prints one frame; gives the exit code when it says one.
fn show(frame: Frame, exec: &str, output: &Output) -> Result<Option<u8>> {
    match frame {
        Frame::Stdout { .. } | Frame::Stderr { .. } if output.json => {}
        Frame::Stdout { bytes, .. } => output.data(&bytes.0)?,
        Frame::Stderr { bytes, .. } => {
            let written = std::io::stderr().lock().write_all(&bytes.0);
            written.map_err(|error| CliError::io("standard error", &error))?;
        }
        Frame::Skipped { bytes, .. } => output.note(format_args!("{bytes} bytes of older output are not kept\r")),
        Frame::RolledBack { to, gone: true, .. } => {
            let problem = Problem::new(Code::NotFound, format!("{exec} was undone by a rollback to {to}"));
            return Err(problem
                .hint("the sandbox is where the command had not been started yet")
                .into());
        }
        Frame::RolledBack { to, cut_at, .. } => {
            output.note(format_args!(
                "rolled back to {to}: output holds up to byte {cut_at} and goes on from there\r"
            ));
        }
        Frame::Exited { code } => return Ok(Some(u8::try_from(code & 0xff).unwrap_or(1))),
        Frame::Ended => {
            return Err(CliError::new(
                Code::Died,
                "the sandbox has ended, and the command with it",
            ));
        }
    }
    Ok(None)
}

fn forward_signals(base: &str, signals: &Signals, terminal: bool, hang_up: UnixStream) -> Result<()> {
    let mut client = daemon::connect_again()?;
    let base = base.to_owned();
    signals.on_each(move |number| {
        let sent = if number == Signal::SIGWINCH as i32 {
            match terminal::window_size().filter(|_| terminal) {
                Some((rows, columns)) => client.post_done(&format!("{base}/resize"), &ResizeRequest { rows, columns }),
                None => Ok(()),
            }
        } else {
            client.post_done(&format!("{base}/signal"), &SignalRequest { signal: number })
        };
        if let Err(error) = sent
            && error.is(Code::Unreachable)
        {
            // Nobody is there to take the signal: it is ours after all, and the stream of output ends.
            drop(hang_up.shutdown(Shutdown::Both));
        }
    })
}

fn forward_input(base: &str) -> Result<()> {
    let mut client = daemon::connect_again()?;
    let base = base.to_owned();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; INPUT_BYTES_MAX];
        loop {
            let (path, got) = match stdin.read(&mut buffer) {
                Ok(0) | Err(_) => (format!("{base}/stdin?close=true"), 0),
                Ok(got) => (format!("{base}/stdin"), got),
            };
            if let Err(error) = client.call("POST", &path, Payload::Bytes(&buffer[..got])) {
                // A command that ended does not want more; anything else is worth a word.
                if !error.is(Code::NotFound)
                    && !error.is(Code::Refused)
                    && let Some(problem) = error.problem
                {
                    say(&format!("deltabox: input: {}\r\n", problem.detail));
                }
                return;
            }
            if got == 0 {
                return;
            }
        }
    });
    Ok(())
}
