//! Stops in order: no new connection, every box down, the streams of their followers ended, then the process.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::auth::Peer;
use crate::{Node, NodeError};

/// How long connections may take to finish once every box is down.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(5);

/// The signals that stop a daemon.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Listens from now on, so that a signal during start is not lost.
    pub fn install() -> Result<Self, NodeError> {
        let listen = |kind| signal(kind).map_err(|error| NodeError::io("listen for signals in", ".".as_ref(), error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Serves until told to stop.
pub async fn run(listener: UnixListener, router: Router, node: Arc<Node>, mut stop: Stop) -> Result<(), NodeError> {
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let socket = node.config.socket.clone();
    let service = router.into_make_service_with_connect_info::<Peer>();
    let until = async move { drop(closed.await) };
    let mut server = std::pin::pin!(
        axum::serve(listener, service)
            .with_graceful_shutdown(until)
            .into_future()
    );
    let ended = tokio::select! {
        // Who asks after the signal is not answered any more, however late we are.
        biased;
        () = stop.wait() => None,
        result = &mut server => Some(result),
    };
    // From here on whoever looks for a daemon finds none and starts the next, which waits for this one's lock.
    let removed = crate::remove(&socket);
    let result = match ended {
        Some(result) => result,
        None => {
            drop(close);
            let mut down = std::pin::pin!(async {
                node.live.close().await;
                node.events.close();
            });
            tokio::select! {
                result = &mut server => {
                    down.await;
                    result
                }
                () = &mut down => tokio::time::timeout(LAST_ANSWERS_MAX, server).await.unwrap_or(Ok(())),
            }
        }
    };
    result.map_err(|error| NodeError::io("serve on", &socket, error))?;
    removed
}
