//! The daemon itself: version, health, events.

use api::{Health, Version};
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Asked, Reply, Shared};
use crate::driver::Caller;
use crate::stream;

/// `GET /v1/version`; answers whatever the caller's version.
pub async fn version(State(node): Shared) -> Reply<Version> {
    Reply(Version {
        version: api::VERSION.to_owned(),
        pid: std::process::id(),
        state: node.config.state.display().to_string(),
    })
}

/// `GET /v1/health`.
pub async fn health(State(node): Shared) -> Reply<Health> {
    let sandbox_count = u32::try_from(node.live.count()).unwrap_or(u32::MAX);
    Reply(Health {
        status: "ok".to_owned(),
        sandbox_count,
    })
}

/// Query of `GET /v1/events`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events after this one.
    since: u64,
    /// Go on as they happen.
    follow: bool,
}

/// `GET /v1/events`: one line per event.
pub async fn events(State(node): Shared, caller: Caller, Asked(query): Asked<EventsQuery>) -> Response {
    let (past, mut coming) = node.events.watch(query.since);
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        for event in past.iter().filter(|event| event.tenant == caller.tenant.0) {
            if sender.send(stream::line(event)).await.is_err() {
                return;
            }
        }
        while query.follow {
            let event = tokio::select! {
                event = coming.recv() => event,
                () = sender.closed() => None,
            };
            let Some(event) = event else { return };
            if event.tenant == caller.tenant.0 && sender.send(stream::line(&event)).await.is_err() {
                return;
            }
        }
    });
    stream::lines(receiver)
}
