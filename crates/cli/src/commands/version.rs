//! `version`: ours and the daemon's. Never starts a daemon.

use api::Version;
use serde::Serialize;

use crate::build_id::{self, short};
use crate::daemon;
use crate::error::Result;
use crate::output::Output;

#[derive(Debug, Serialize)]
struct Both {
    client: &'static str,
    build: String,
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
            build: build_id::own()?,
            daemon,
        },
        |both| match &both.daemon {
            Some(daemon) => {
                format!(
                    "deltabox {} (build {})\ndaemon   {} (build {}, pid {}, state {})\n",
                    both.client,
                    short(&both.build),
                    daemon.version,
                    short(&daemon.build),
                    daemon.pid,
                    daemon.state
                )
            }
            None => {
                format!(
                    "deltabox {} (build {})\ndaemon   does not run\n",
                    both.client,
                    short(&both.build)
                )
            }
        },
    )?;
    Ok(0)
}
