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
    let (down, is_down) = tokio::sync::oneshot::channel();
    let socket = node.config.socket.clone();
    let until = async move {
        stop.wait().await;
        node.live.close().await;
        node.events.close();
        let _ = down.send(());
    };
    let service = router.into_make_service_with_connect_info::<Peer>();
    let mut server = std::pin::pin!(
        axum::serve(listener, service)
            .with_graceful_shutdown(until)
            .into_future()
    );
    let result = tokio::select! {
        result = &mut server => result,
        _ = is_down => tokio::time::timeout(LAST_ANSWERS_MAX, server).await.unwrap_or(Ok(())),
    };
    result.map_err(|error| NodeError::io("serve on", &socket, error))
}
