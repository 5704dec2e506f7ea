//! Tar streams in and out of a box. Paths are the box's and are resolved there, never here.

use api::{Code, FilesQuery, TAR_TYPE};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use timeline::{Command, Outcome};

use super::{Asked, Shared, mismatch};
use crate::auth::Caller;
use crate::error::ApiError;

/// `GET …/files?path=`.
pub async fn read(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Asked(query): Asked<FilesQuery>,
) -> Result<Response, ApiError> {
    let path = absolute(query.path)?;
    let entry = node.live.find(&caller.tenant, &name)?;
    match node.live.ask(&caller, &entry, Command::ReadFiles { path }).await? {
        Outcome::Files(tar) => Ok(([(header::CONTENT_TYPE, TAR_TYPE)], tar).into_response()),
        other => Err(mismatch(&other)),
    }
}

/// `PUT …/files?path=`; the body is the tar stream.
pub async fn write(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Asked(query): Asked<FilesQuery>,
    tar: Bytes,
) -> Result<StatusCode, ApiError> {
    let path = absolute(query.path)?;
    let entry = node.live.find(&caller.tenant, &name)?;
    match node
        .live
        .ask(&caller, &entry, Command::WriteFiles { path, tar: tar.into() })
        .await?
    {
        Outcome::Done => Ok(StatusCode::NO_CONTENT),
        other => Err(mismatch(&other)),
    }
}

fn absolute(path: String) -> Result<Vec<u8>, ApiError> {
    if path.starts_with('/') {
        return Ok(path.into_bytes());
    }
    Err(ApiError::new(
        Code::BadRequest,
        format!("{path:?} is not an absolute path in the sandbox"),
    ))
}
