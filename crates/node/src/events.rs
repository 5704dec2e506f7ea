//! Fans out what happened to watchers. Keeps the last few; the durable record is the timeline's.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use api::Event;
use tokio::sync::mpsc;

/// Events that a late watcher can still read.
pub const EVENTS_KEPT_MAX: usize = 4096;

/// Events a watcher may lag behind before it is cut off.
pub const EVENTS_BEHIND_MAX: usize = 1024;

/// What happened since the daemon started.
#[derive(Debug, Default)]
pub struct Events {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    kept: VecDeque<Event>,
    watchers: Vec<mpsc::Sender<Event>>,
}

impl Events {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `event` its id, keeps it and tells the watchers.
    pub fn record(&self, mut event: Event) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last_id += 1;
        event.id = inner.last_id;
        inner.watchers.retain(|watcher| watcher.try_send(event.clone()).is_ok());
        if inner.kept.len() == EVENTS_KEPT_MAX {
            inner.kept.pop_front();
        }
        inner.kept.push_back(event);
    }

    /// The kept events after `since`, and a channel of those to come.
    pub fn watch(&self, since: u64) -> (Vec<Event>, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(EVENTS_BEHIND_MAX);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.watchers.push(sender);
        (
            inner.kept.iter().filter(|event| event.id > since).cloned().collect(),
            receiver,
        )
    }

    /// Lets every watcher's stream end.
    pub fn close(&self) {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .watchers
            .clear();
    }
}
