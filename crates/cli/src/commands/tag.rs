//! `tag`: name a checkpoint, or take a name away.

use api::TagRequest;

use super::{box_and_revision, connect, path};
use crate::args::Tag;
use crate::client::escape;
use crate::error::Result;
use crate::output::Output;

/// Names, or takes a name away.
pub(crate) fn tag(args: Tag, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let (sandbox, at) = box_and_revision(&mut client, Some(args.sandbox), args.revision)?;
    if args.delete {
        client.delete(&path(&sandbox, &format!("/tags/{}", escape(&args.name))))?;
    } else {
        client.post_done(&path(&sandbox, "/tags"), &TagRequest { at, name: args.name })?;
    }
    if output.json {
        output.data("{}\n")?;
    }
    Ok(0)
}
