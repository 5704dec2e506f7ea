//! The way from any thread to a box's driver: a bounded queue, and an eventfd that the driver waits for together with
//! everything else. Sending is a lock, a push and one `write`.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linux::SysError;
use rustix::event::{EventfdFlags, eventfd};

use crate::command::{Outcome, Request};
use crate::error::TimelineError;

/// Commands that may wait for one box; beyond it, `Busy`.
pub const QUEUE_MAX: usize = 16;

/// Takes what came of one command; called once, from the driver's thread, so it must not block.
pub type Reply = Box<dyn FnOnce(Result<Outcome, TimelineError>) + Send>;

/// One command on its way.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) arrived: Instant,
    pub(crate) reply: Reply,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Why nothing is taken any more.
    closed: Option<&'static str>,
}

/// See the module.
pub(crate) struct Queue {
    state: Mutex<State>,
    bell: OwnedFd,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.lock().jobs.len())
    }
}

impl Queue {
    pub(crate) fn new() -> Result<Self, SysError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| SysError::rustix("eventfd", "a command queue", errno))?;
        Ok(Self {
            state: Mutex::default(),
            bell,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job over, or answers it at once with why not.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.lock();
        let refused = match (state.closed, state.jobs.len()) {
            (Some(why), _) => TimelineError::Gone(why),
            (None, waiting) if waiting >= QUEUE_MAX => TimelineError::QueueFull { waiting },
            (None, _) => {
                state.jobs.push_back(job);
                drop(state);
                self.ring();
                return;
            }
        };
        drop(state);
        (job.reply)(Err(refused));
    }

    /// Wakes the driver.
    pub(crate) fn ring(&self) {
        // Fails only when the counter is full, and then the driver is awake.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }

    /// What the driver waits for.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Stops the bell; then `pop` until there is nothing.
    pub(crate) fn quiet(&self) {
        rustix::io::read(&self.bell, &mut [0; 8]).ok();
    }

    pub(crate) fn pop(&self) -> Option<Job> {
        self.lock().jobs.pop_front()
    }

    /// Lets nothing more in; what waits is answered with `why`.
    pub(crate) fn close(&self, why: &'static str) {
        let mut state = self.lock();
        state.closed.get_or_insert(why);
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        jobs.into_iter()
            .for_each(|job| (job.reply)(Err(TimelineError::Gone(why))));
        self.ring();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use image::{Principal, Tenant};

    use super::*;
    use crate::command::Command;

    fn job(told: &mpsc::Sender<String>) -> Job {
        let told = told.clone();
        Job {
            request: Request {
                tenant: Tenant::default(),
                principal: Principal(String::new()),
                command: Command::Log,
            },
            arrived: Instant::now(),
            reply: Box::new(move |result| told.send(result.unwrap_err().to_string()).unwrap()),
        }
    }

    #[test]
    fn beyond_the_bound_it_is_busy_and_closed_it_is_gone() {
        let queue = Queue::new().unwrap();
        let (told, hears) = mpsc::channel();
        for _ in 0..QUEUE_MAX {
            queue.push(job(&told));
        }
        assert!(hears.try_recv().is_err());
        queue.push(job(&told));
        assert_eq!(
            hears.try_recv().unwrap(),
            format!("the sandbox is busy: {QUEUE_MAX} commands wait already")
        );
        drop(queue.pop().unwrap());
        queue.close("it was removed");
        assert_eq!(
            hears.try_iter().filter(|text| text.contains("it was removed")).count(),
            QUEUE_MAX - 1
        );
        queue.push(job(&told));
        assert_eq!(hears.try_recv().unwrap(), "the sandbox is no more: it was removed");
    }
}
