//! `create`: make a sandbox.

use api::{CreateRequest, Network, Sandbox};

use super::connect;
use crate::args::{Create, Net};
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::output::Output;

/// Makes one and prints its id.
pub(crate) fn create(args: &Create, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let sandbox = create_with(&mut client, args)?;
    output.value(&sandbox, |sandbox| format!("{}\n", sandbox.id))?;
    Ok(0)
}

/// Makes one.
pub(crate) fn create_with(client: &mut Client, args: &Create) -> Result<Sandbox> {
    client.post("/v1/sandboxes", &request(args)?)
}

fn request(args: &Create) -> Result<CreateRequest> {
    Ok(CreateRequest {
        name: args.name.clone(),
        image: Some(image(&args.image)?),
        memory_bytes: args.mem.map(|size| size.0),
        cpu_millis: args.cpus.map(|cpus| cpus.0),
        pids: args.pids,
        env: args
            .env
            .iter()
            .map(|variable| (variable.0.clone(), variable.1.clone()))
            .collect(),
        workdir: args.workdir.clone(),
        user: args.user.clone(),
        volumes: args.volume.iter().map(|volume| volume.0.clone()).collect(),
        privileged: args.privileged,
        network: match args.net {
            Net::None => Network::None,
        },
        history_bytes: args.history_mem.map(|size| size.0),
    })
}

/// The daemon has another working directory: paths go to it absolute.
fn image(image: &str) -> Result<String> {
    if image == "host" {
        return Ok(image.to_owned());
    }
    let path = std::fs::canonicalize(image).map_err(|error| CliError::io(format_args!("the image {image}"), &error))?;
    Ok(path.to_string_lossy().into_owned())
}
