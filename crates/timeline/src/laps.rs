//! How long each part of an operation took, in order: what a person reads to see where a millisecond went.

use std::time::{Duration, Instant};

/// Names with durations. A part that two threads do at once is one part.
#[derive(Debug)]
pub(crate) struct Laps {
    last: Instant,
    list: Vec<(String, Duration)>,
}

impl Laps {
    pub(crate) fn start() -> Self {
        Self {
            last: Instant::now(),
            list: Vec::with_capacity(32),
        }
    }

    /// What was done since the last call was `name`.
    pub(crate) fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.list.push((name.to_owned(), now - self.last));
        self.last = now;
    }

    /// Parts that somebody else measured within the last lap.
    pub(crate) fn within(&mut self, whose: &str, parts: &[(&'static str, Duration)]) {
        self.list
            .extend(parts.iter().map(|(name, time)| (format!("{whose}: {name}"), *time)));
    }

    pub(crate) fn finish(self) -> Vec<(String, Duration)> {
        self.list
    }
}
