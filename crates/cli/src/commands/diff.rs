//! `diff`: what differs between two checkpoints, or a checkpoint and now.

use api::{Change, Code, Difference};

use super::{box_and_revision, connect, path};
use crate::args::Diff;
use crate::client::escape;
use crate::error::{CliError, Result};
use crate::output::{Output, size};

/// Prints one line per difference.
pub(crate) fn diff(args: Diff, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let given = args.sandbox.as_ref().and_then(|place| place.revision.clone());
    let (first, second) = match (given, args.from, args.to) {
        (None, from, to) => (from, to),
        (Some(from), to, None) => (Some(from), to),
        (Some(_), Some(_), Some(_)) => return Err(CliError::new(Code::BadRequest, "three revisions were given")),
        (Some(_), None, Some(_)) => unreachable!("positional arguments are filled in order"),
    };
    let only = args.sandbox.map(|place| crate::args::Place {
        revision: None,
        ..place
    });
    let (sandbox, _) = box_and_revision(&mut client, only, None)?;
    let mut query = format!("/diff?from={}", escape(first.as_deref().unwrap_or("HEAD")));
    if let Some(to) = second {
        query += &format!("&to={}", escape(&to));
    }
    let diff: api::Diff = client.get(&path(&sandbox, &query))?;
    output.value(&diff, |diff| diff.differences.iter().map(line).collect())?;
    Ok(0)
}

fn line(difference: &Difference) -> String {
    let sign = |change: &Change| match change {
        Change::Added => '+',
        Change::Changed => '~',
        Change::Removed => '-',
    };
    match difference {
        Difference::File { change, path } => format!("{} {path}\n", sign(change)),
        Difference::Process {
            change,
            pid,
            comm,
            bytes,
        } => {
            format!("{} process {pid} ({comm}): {} of memory\n", sign(change), size(*bytes))
        }
    }
}
