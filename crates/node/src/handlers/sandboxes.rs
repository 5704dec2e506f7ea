//! Create, list, get, inspect, delete.

use api::{Code, CreateRequest, Problem, Sandbox, SandboxList, SandboxState};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use image::SandboxId;
use serde::Deserialize;
use timeline::command::Revision;
use timeline::{BoxState, Command, Outcome};

use super::{Answer, Asked, Body, Reply, Shared, mismatch};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::live::{Birth, Entry, ImageSource};

/// Longest name of a sandbox.
pub const NAME_BYTES_MAX: usize = 63;

/// `POST /v1/sandboxes`.
pub async fn create(
    State(node): Shared,
    caller: Caller,
    Body(request): Body<CreateRequest>,
) -> Result<Response, ApiError> {
    check_rights(&caller, &request)?;
    let id = SandboxId::from_bits((node.config.random_bits)());
    let name = match &request.name {
        Some(name) => check_name(name)?.to_owned(),
        None => format!("box-{:08x}", id.bits() >> 32),
    };
    let image = image_source(request.image.as_deref())?;
    let created_ms = (node.config.now_ms)();
    let entry = node
        .live
        .create(Birth {
            id,
            name,
            image,
            request,
            created_ms,
            caller,
        })
        .await?;
    Ok((StatusCode::CREATED, Reply(wire(&entry))).into_response())
}

/// `GET /v1/sandboxes`.
pub async fn list(State(node): Shared, caller: Caller) -> Reply<SandboxList> {
    let sandboxes = node.live.list(&caller.tenant).iter().map(|entry| wire(entry)).collect();
    Reply(SandboxList { sandboxes })
}

/// `GET /v1/sandboxes/{box}`.
pub async fn get(State(node): Shared, caller: Caller, Path(name): Path<String>) -> Answer<Sandbox> {
    Ok(Reply(wire(&*node.live.find(&caller.tenant, &name)?)))
}

/// `DELETE /v1/sandboxes/{box}`.
pub async fn remove(State(node): Shared, caller: Caller, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    node.live.remove(&caller, &entry).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Query of `GET …/inspect`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InspectQuery {
    /// Which checkpoint; the sandbox itself when absent.
    at: Option<String>,
}

/// `GET …/inspect`.
pub async fn inspect(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Asked(query): Asked<InspectQuery>,
) -> Result<Response, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let command = Command::Inspect {
        at: query.at.map(Revision),
    };
    match node.live.ask(&caller, &entry, command).await? {
        Outcome::Inspected(json) => Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response()),
        other => Err(mismatch(&other)),
    }
}

fn wire(entry: &Entry) -> Sandbox {
    let summary = entry.summary();
    let state = match summary.state {
        BoxState::Running => SandboxState::Running,
        BoxState::Latched(_) => SandboxState::Latched,
        BoxState::Died | BoxState::Removed => SandboxState::Dead,
    };
    Sandbox {
        id: entry.id.to_string(),
        name: entry.name.clone(),
        tenant: entry.tenant.0.clone(),
        state,
        image: entry.image.clone(),
        created_ms: entry.created_ms,
        head: summary.head.map(|id| id.to_string()),
        checkpoint_count: u32::try_from(summary.checkpoint_count).unwrap_or(u32::MAX),
        process_count: summary.process_count,
        history_bytes: summary.history_bytes,
    }
}

fn check_rights(caller: &Caller, request: &CreateRequest) -> Result<(), ApiError> {
    let asked = if request.privileged {
        "a privileged sandbox"
    } else if !request.volumes.is_empty() {
        "a volume"
    } else if request.image.as_deref().is_some_and(|image| image != "host") {
        "an image from the host's files"
    } else {
        return Ok(());
    };
    if caller.root {
        return Ok(());
    }
    let detail = format!("{} may not ask for {asked}", caller.principal.0);
    Err(Problem::new(Code::Denied, detail)
        .hint("only root on the local socket may: use sudo")
        .into())
}

fn check_name(name: &str) -> Result<&str, ApiError> {
    let letters = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if letters && first && name.len() <= NAME_BYTES_MAX && !name.starts_with(SandboxId::PREFIX) {
        return Ok(name);
    }
    let hint =
        format!("1 to {NAME_BYTES_MAX} letters, digits and . _ -, starting with a letter or digit, not like an id");
    Err(
        Problem::new(Code::BadRequest, format!("{name:?} cannot be a sandbox's name"))
            .hint(hint)
            .into(),
    )
}

fn image_source(image: Option<&str>) -> Result<ImageSource, ApiError> {
    let path = match image {
        None | Some("host") => return Ok(ImageSource::Host),
        Some(path) => path,
    };
    let no = |detail: String| {
        ApiError::from(Problem::new(Code::BadRequest, detail).hint("an image is `host`, a directory, or a tar file"))
    };
    if !path.starts_with('/') {
        return Err(no(format!("the image {path:?} is not an absolute path")));
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(ImageSource::Directory(path.to_owned())),
        Ok(metadata) if metadata.is_file() => Ok(ImageSource::Tar(path.to_owned())),
        Ok(_) => Err(no(format!("the image {path:?} is neither a directory nor a file"))),
        Err(error) => Err(no(format!("the image {path:?}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "work", "9.b_c-d", &"x".repeat(63)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            ".",
            "a b",
            "a@b",
            "a~1",
            "a:b",
            "a/b",
            "é",
            "sbx_1",
            &"x".repeat(64),
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
