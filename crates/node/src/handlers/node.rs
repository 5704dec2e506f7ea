//! The daemon itself: version, health, events.

use api::{Event, Health, Version};
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Asked, Reply, Shared};
use crate::auth::Caller;
use crate::stream;

/// `GET /v1/version`; answers whatever the caller's version.
pub async fn version(State(node): Shared) -> Reply<Version> {
    Reply(Version {
        version: api::VERSION.to_owned(),
        build: node.config.build.clone(),
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
    let (sender, receiver) = mpsc::channel(16);
    let mut more = node.events.watch();
    let mut since = query.since;
    tokio::spawn(async move {
        loop {
            // Seen before it is read: what comes while we read wakes us again.
            let last = !*more.borrow_and_update() || !query.follow;
            for event in node.events.since(since) {
                since = event.sequence;
                if event.tenant == caller.tenant && sender.send(stream::line(&wire(event))).await.is_err() {
                    return;
                }
            }
            if last {
                return;
            }
            let woken = tokio::select! {
                woken = more.changed() => woken.is_ok(),
                () = sender.closed() => false,
            };
            if !woken {
                return;
            }
        }
    });
    stream::lines(receiver)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds for people; exact up to centuries"
)]
fn wire(event: timeline::events::Event) -> Event {
    Event {
        id: event.sequence,
        at_ms: event.at_ms,
        tenant: event.tenant.0,
        principal: event.principal.0,
        sandbox: event.sandbox.to_string(),
        command: event.command,
        outcome: event.outcome.to_owned(),
        ms: event.micros as f64 / 1e3,
        bytes: event.bytes,
    }
}
