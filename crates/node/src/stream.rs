//! A response body that is a channel: each value is one line of JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::{Frame, NDJSON_TYPE};
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use timeline::output::{ExecEvent, Follower};
use tokio::sync::{Notify, mpsc};

/// Lines that wait for a slow reader.
const LINES_WAITING_MAX: usize = 64;

struct Lines(mpsc::Receiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
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

/// The events of a command, awaited without a thread.
#[derive(Debug)]
pub(crate) struct Events {
    follower: Follower,
    ready: Arc<Notify>,
}

impl Events {
    pub(crate) fn new(mut follower: Follower) -> Self {
        let ready = Arc::new(Notify::new());
        let wake = Arc::clone(&ready);
        follower.on_ready(move || wake.notify_one());
        Self { follower, ready }
    }

    /// The next event; `None` when nothing can follow.
    pub(crate) async fn next(&mut self) -> Option<ExecEvent> {
        loop {
            if let Some(event) = self.follower.try_recv() {
                return Some(event);
            }
            if self.follower.is_over() {
                return None;
            }
            self.ready.notified().await;
        }
    }
}

/// The events of a command as lines, until nothing can follow, the reader goes, or (when asked) the command ends.
pub(crate) fn follow(follower: Follower, until_exit: bool, frame: fn(ExecEvent) -> Frame) -> Response {
    let (sender, receiver) = mpsc::channel(LINES_WAITING_MAX);
    let mut events = Events::new(follower);
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = sender.closed() => None,
            };
            let Some(event) = event else { return };
            let last = until_exit && matches!(event, ExecEvent::Exited { .. });
            if sender.send(line(&frame(event))).await.is_err() || last {
                return;
            }
        }
    });
    lines(receiver)
}
