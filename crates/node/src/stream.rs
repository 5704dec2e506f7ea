//! A response body that is a channel: each value is one line of JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::NDJSON_TYPE;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;

struct Lines(mpsc::Receiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// A 200 answer whose body is what comes out of `receiver`.
pub(crate) fn lines(receiver: mpsc::Receiver<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, NDJSON_TYPE)], Body::new(Lines(receiver))).into_response()
}

/// One value as one line.
pub(crate) fn line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).expect("wire types have only text keys");
    text.push(b'\n');
    text.into()
}
