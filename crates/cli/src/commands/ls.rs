//! `ls` and `rm`: which sandboxes there are, and fewer of them.

use api::{Code, SandboxList, SandboxState};

use super::{connect, path};
use crate::args::{Ls, Rm};
use crate::error::{CliError, Result};
use crate::output::{Output, age, now_ms, size, table};

/// Lists them.
pub(crate) fn ls(args: &Ls, output: &Output) -> Result<u8> {
    let list: SandboxList = connect(output)?.get("/v1/sandboxes")?;
    if args.quiet && !output.json {
        let ids: String = list
            .sandboxes
            .iter()
            .map(|sandbox| format!("{}\n", sandbox.id))
            .collect();
        return output.data(ids).map(|()| 0);
    }
    output.value(&list, text)?;
    Ok(0)
}

fn text(list: &SandboxList) -> String {
    let now_ms = now_ms();
    let rows = list.sandboxes.iter().map(|sandbox| {
        let state = match sandbox.state {
            SandboxState::Running => "running",
            SandboxState::Latched => "latched",
            SandboxState::Dead => "dead",
        };
        vec![
            sandbox.id.clone(),
            sandbox.name.clone(),
            state.to_owned(),
            sandbox.process_count.to_string(),
            sandbox.checkpoint_count.to_string(),
            size(sandbox.history_bytes),
            age(sandbox.created_ms, now_ms),
            sandbox.image.clone(),
        ]
    });
    table(
        &[
            "ID",
            "NAME",
            "STATE",
            ">PROCESSES",
            ">CHECKPOINTS",
            ">HISTORY",
            "CREATED",
            "IMAGE",
        ],
        rows,
    )
}

/// Ends several; what fails does not keep the others.
pub(crate) fn rm(args: &Rm, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let mut failed: Option<CliError> = None;
    for sandbox in &args.sandboxes {
        match client.delete(&path(sandbox, "")) {
            Ok(()) => {}
            Err(error) if args.force && error.is(Code::NotFound) => {}
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    output.error(&earlier);
                }
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None if output.json => output.data("{}\n").map(|()| 0),
        None => Ok(0),
    }
}
