//! Wakes those who watch what happens. The record itself is the timeline's; this only says that there is more of it.

use std::sync::Arc;

use timeline::events::{Event, Events as Log};
use tokio::sync::watch;

/// The log, and who waits for more of it.
#[derive(Debug)]
pub struct Events {
    log: Arc<Log>,
    more: watch::Sender<bool>,
}

impl Events {
    /// Over a log.
    pub fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            more: watch::Sender::new(true),
        }
    }

    /// The log, for those who write it.
    pub fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// There is more.
    pub fn wake(&self) {
        self.more.send_modify(|_| {});
    }

    /// The last ones after `sequence`.
    pub fn since(&self, sequence: u64) -> Vec<Event> {
        self.log.since(sequence)
    }

    /// Changes whenever there may be more; false when there never will be.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.more.subscribe()
    }

    /// Lets every watcher's stream end.
    pub fn close(&self) {
        self.more.send_replace(false);
    }
}
