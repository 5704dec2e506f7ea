//! A daemon of our own in a directory of our own: it ends with us, and nothing of it stays.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use api::Code;
use node::config::Place;
use rustix::process::{Pid, Signal, kill_process};

use crate::attach::Signals;
use crate::client::Client;
use crate::daemon;
use crate::error::{CliError, Result};

/// A private daemon.
#[derive(Debug)]
pub(crate) struct Private {
    child: Option<Child>,
    place: Place,
}

impl Private {
    /// Starts one in a fresh directory.
    pub(crate) fn start() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(CliError::new(
                Code::Denied,
                "the demo starts a daemon, which must be root today: use sudo",
            ));
        }
        let state = fresh_directory()?;
        let place = Place {
            socket: state.join("deltabox.sock"),
            state,
        };
        let mut private = Self { child: None, place };
        let log_path = daemon::log_path(&private.place.state);
        let log = std::fs::File::create(&log_path).map_err(|error| CliError::io(log_path.display(), &error))?;
        let mut command = daemon::serve_command(&private.place, "--background");
        command
            .arg("--with-parent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let child = command
            .spawn()
            .map_err(|error| CliError::io("starting the demo's daemon", &error))?;
        let child = private.child.insert(child);
        daemon::wait_ready(child, &private.place.state)?;
        Ok(private)
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<Client> {
        let stream = UnixStream::connect(&self.place.socket);
        stream
            .map(Client::new)
            .map_err(|error| CliError::io(self.place.socket.display(), &error))
    }

    /// Takes the daemon down when one of these signals comes; whoever waits for it then fails, and cleans up.
    pub(crate) fn end_on(&self, signals: &Signals) -> Result<()> {
        let pid = self.pid();
        signals.on_each(move |_| {
            if let Some(pid) = pid {
                // It may have ended by the same signal: then there is nothing to do.
                let _ = kill_process(pid, Signal::TERM);
            }
        })
    }

    fn pid(&self) -> Option<Pid> {
        self.child
            .as_ref()
            .and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?))
    }

    /// Takes the daemon and its directory down, and says so when something stays.
    pub(crate) fn end(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        let pid = self.pid();
        if let (Some(pid), Some(mut child)) = (pid, self.child.take()) {
            let _ = kill_process(pid, Signal::TERM);
            child
                .wait()
                .map_err(|error| CliError::io("waiting for the demo's daemon", &error))?;
        }
        let state = std::mem::take(&mut self.place.state);
        if state.as_os_str().is_empty() {
            return Ok(());
        }
        std::fs::remove_dir_all(&state)
            .map_err(|error| CliError::io(format_args!("removing {}", state.display()), &error))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(CliError {
            problem: Some(problem), ..
        }) = self.take_down()
        {
            crate::output::say(&format!("deltabox: {}\n", problem.detail));
        }
    }
}

fn fresh_directory() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    for number in 0_u32.. {
        let path = parent.join(format!("deltabox-demo-{}-{number}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CliError::io(path.display(), &error)),
        }
    }
    unreachable!("there are fewer directories than numbers")
}
