//! `inspect` and `events`: everything known, as it is.

use api::Event;

use super::{box_and_revision, connect, path};
use crate::args::{Events, Inspect};
use crate::client::{Payload, escape};
use crate::error::Result;
use crate::output::Output;

/// Prints what the daemon knows: one line with `--json`, indented without.
pub(crate) fn inspect(args: Inspect, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let (sandbox, at) = box_and_revision(&mut client, args.sandbox, None)?;
    let query = at.map(|at| format!("?at={}", escape(&at))).unwrap_or_default();
    let body = client.call("GET", &path(&sandbox, &format!("/inspect{query}")), Payload::Nothing)?;
    let mut text = body.clone();
    if !output.json
        && let Ok(value) = serde_json::from_slice::<serde_json::Value>(&body)
    {
        text = serde_json::to_vec_pretty(&value).unwrap_or(body);
    }
    text.push(b'\n');
    output.data(text).map(|()| 0)
}

/// Prints what happened, one line each.
pub(crate) fn events(args: &Events, output: &Output) -> Result<u8> {
    let mut lines = connect(output)?.stream(&format!("/v1/events?since={}&follow={}", args.since, args.follow))?;
    loop {
        if output.json {
            match lines.next_line()? {
                [] => return Ok(0),
                line => output.data(line)?,
            }
            continue;
        }
        let Some(event) = lines.next_value::<Event>()? else {
            return Ok(0);
        };
        let Event {
            id,
            principal,
            sandbox,
            command,
            outcome,
            ms,
            bytes,
            ..
        } = event;
        output.data(format!(
            "{id}  {principal}  {sandbox}  {command}  {outcome}  {ms:.2} ms  {bytes} B\n"
        ))?;
    }
}
