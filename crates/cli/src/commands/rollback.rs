//! `rollback`: put a running sandbox back.

use api::{RollbackRequest, RolledBack};

use super::{box_and_revision, connect, path};
use crate::args::Rollback;
use crate::error::Result;
use crate::output::Output;

/// Goes back.
pub(crate) fn rollback(args: Rollback, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let (sandbox, to) = box_and_revision(&mut client, args.sandbox, args.revision)?;
    let request = RollbackRequest {
        to,
        keep_present: !args.discard,
    };
    let back: RolledBack = client.post(&path(&sandbox, "/rollback"), &request)?;
    output.value(&back, |back| {
        format!(
            "{}  {} pages and {} files put back; stood still {:.2} ms of {:.2} ms\n",
            back.to, back.page_count, back.changed_files, back.timing.stop_ms, back.timing.total_ms
        )
    })?;
    if let Some(kept) = &back.kept {
        output.note(format_args!("the present was kept as @{{-1}} ({kept})"));
    }
    if !back.cut.is_empty() {
        output.note(format_args!(
            "output was cut, or the command undone: {}",
            back.cut.join(", ")
        ));
    }
    Ok(0)
}
