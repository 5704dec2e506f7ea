//! A second thread that does what needs no tracer while the first one, which holds the box, does what only it can. What
//! it has not begun when its result is wanted is done at once by whoever wants it, so giving it work never costs time.
//! It never touches a task.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// The second thread. Ends with its owner.
#[derive(Debug)]
pub(crate) struct Onlooker {
    jobs: Option<Sender<Slot>>,
    thread: Option<JoinHandle<()>>,
    processor_count: usize,
}

/// A job until somebody begins it.
#[derive(Clone)]
struct Slot(Arc<Mutex<Option<Job>>>);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl Slot {
    fn take(&self) -> Option<Job> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a job will give.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    slot: Slot,
    answer: Receiver<T>,
}

impl Onlooker {
    /// Starts the thread. Where there is none to be had, jobs are done by those who want them.
    pub(crate) fn start() -> Self {
        let (jobs, receiver) = channel::<Slot>();
        let work = move || {
            while let Ok(slot) = receiver.recv() {
                if let Some(job) = slot.take() {
                    job();
                }
            }
        };
        let thread = std::thread::Builder::new().name("onlooker".to_owned()).spawn(work);
        Self {
            jobs: Some(jobs),
            thread: thread.ok(),
            processor_count: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// True where there is a processor for it beside ours and one on which a thread of the box runs.
    pub(crate) fn has_room(&self) -> bool {
        self.processor_count > 2
    }

    /// A job that is done when its result is wanted.
    pub(crate) fn later<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Promise<T> {
        let (sender, answer) = channel();
        // Nobody waits for the answer any more after an error.
        let job: Job = Box::new(move || drop(sender.send(job())));
        let slot = Slot(Arc::new(Mutex::new(Some(job))));
        Promise { slot, answer }
    }

    /// Has `job` done, after those that were given before.
    pub(crate) fn give<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Promise<T> {
        let promise = Self::later(job);
        if let Some(jobs) = self.jobs.as_ref().filter(|_| self.thread.is_some()) {
            jobs.send(promise.slot.clone())
                .expect("the onlooker lives as long as we");
        }
        promise
    }
}

impl<T> Promise<T> {
    /// Waits for it, or does it.
    ///
    /// # Panics
    /// Where the job did.
    pub(crate) fn wait(self) -> T {
        if let Some(job) = self.slot.take() {
            job();
        }
        self.answer.recv().expect("a job answers unless it panicked")
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once() {
        let onlooker = Onlooker::start();
        let promises: Vec<Promise<usize>> = (0..10).map(|n| onlooker.give(move || n * n)).collect();
        let answers: Vec<usize> = promises.into_iter().map(Promise::wait).collect();
        assert_eq!(answers, [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]);
    }
}
