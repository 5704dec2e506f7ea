//! Work on files that goes on while the driver, which alone may touch the processes, works on those. A thread is made
//! only where it is worth one.

use std::panic::resume_unwind;
use std::thread::{Scope, ScopedJoinHandle};

/// Work that was begun.
#[derive(Debug)]
pub(crate) enum Beside<'scope, T> {
    Done(T),
    Runs(ScopedJoinHandle<'scope, T>),
}

impl<'scope, T: Send + 'scope> Beside<'scope, T> {
    /// Begins `work`: on a thread of its own where it is `long`, else it is done at once.
    pub(crate) fn start(
        scope: &'scope Scope<'scope, '_>,
        long: bool,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Self {
        if long {
            Self::Runs(scope.spawn(work))
        } else {
            Self::Done(work())
        }
    }

    /// Waits for it.
    ///
    /// # Panics
    /// Where it did.
    pub(crate) fn finish(self) -> T {
        match self {
            Self::Done(result) => result,
            Self::Runs(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        }
    }
}
