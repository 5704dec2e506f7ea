//! Wire <-> domain, one file per noun. Each handler is: parse, one command, convert. None of them blocks.

pub mod checkpoints;
pub mod execs;
pub mod files;
pub mod node;
pub mod sandboxes;

use std::sync::Arc;

use api::Code;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use image::ExecId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use timeline::Outcome;

use crate::Node;
use crate::error::ApiError;

/// What handlers give.
pub type Answer<T> = Result<Reply<T>, ApiError>;

/// The shared node.
pub type Shared = axum::extract::State<Arc<Node>>;

/// A JSON body out.
#[derive(Debug)]
pub struct Reply<T>(pub T);

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// A JSON body in; an empty one is `{}`.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection| ApiError::new(Code::BadRequest, rejection.body_text()))?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = serde_json::from_slice(text);
        value
            .map(Self)
            .map_err(|error| ApiError::new(Code::BadRequest, format!("the body: {error}")))
    }
}

/// A query.
#[derive(Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|query| Self(query.0))
            .map_err(|rejection| ApiError::new(Code::BadRequest, rejection.body_text()))
    }
}

/// An exec id in a path.
fn exec_id(text: &str) -> Result<ExecId, ApiError> {
    text.parse()
        .map_err(|_| ApiError::new(Code::NotFound, format!("no command {text:?}")))
}

/// An outcome that does not belong to its command: a fault of ours.
fn mismatch(outcome: &Outcome) -> ApiError {
    let text = format!("{outcome:?}");
    let name = text.split([' ', '(', '{']).next().unwrap_or_default();
    ApiError::new(
        Code::Internal,
        format!("the driver answered {name}, which does not fit what was asked"),
    )
}
