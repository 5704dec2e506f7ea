//! `version`: ours and the daemon's. Never starts a daemon.

use api::Version;
use serde::Serialize;

use crate::daemon;
use crate::error::Result;
use crate::output::Output;

#[derive(Debug, Serialize)]
struct Both {
    client: &'static str,
    daemon: Option<Version>,
}

/// Prints both.
pub(crate) fn version(output: &Output) -> Result<u8> {
    let place = daemon::place()?;
    let daemon = match daemon::connect_running(&place) {
        Some(mut client) => Some(client.version()?),
        None => None,
    };
    output.value(
        &Both {
            client: api::VERSION,
            daemon,
        },
        |both| match &both.daemon {
            Some(daemon) => {
                format!(
                    "deltabox {}\ndaemon   {} (pid {}, state {})\n",
                    both.client, daemon.version, daemon.pid, daemon.state
                )
            }
            None => format!("deltabox {}\ndaemon   does not run\n", both.client),
        },
    )?;
    Ok(0)
}
