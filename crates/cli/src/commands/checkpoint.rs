//! `checkpoint`: keep the whole state.

use api::{CheckpointRequest, Checkpointed};

use super::{connect, named_or_only, path};
use crate::args::Checkpoint;
use crate::error::Result;
use crate::output::{Output, size};

/// Takes one.
pub(crate) fn checkpoint(args: Checkpoint, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let sandbox = named_or_only(&mut client, args.sandbox)?;
    let request = CheckpointRequest {
        message: args.message,
        tag: args.tag,
    };
    let taken: Checkpointed = client.post(&path(&sandbox, "/checkpoints"), &request)?;
    output.value(&taken, |taken| {
        let line = &taken.checkpoint;
        format!(
            "{}  {} processes, {} of memory, {} changed files; stood still {:.2} ms of {:.2} ms\n",
            line.id,
            line.process_count,
            size(line.memory_bytes),
            line.changed_files,
            taken.timing.stop_ms,
            taken.timing.total_ms
        )
    })?;
    for outside in &taken.checkpoint.outside {
        output.note(format_args!("outside the history: {outside}"));
    }
    Ok(0)
}
