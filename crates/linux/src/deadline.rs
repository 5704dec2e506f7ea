//! A time limit for a blocking call of this thread: when it passes, a signal to this very thread makes the call return
//! `EINTR`. Never used where the call has a time-out of its own.

use std::sync::Once;
use std::time::{Duration, Instant};

use crate::error::{Result, SysError};

const SIGEV_THREAD_ID: i32 = 4;

fn signal_number() -> i32 {
    libc::SIGRTMIN() + 7
}

extern "C" fn do_nothing(_: i32) {}

/// An armed limit. Disarmed on drop.
#[derive(Debug)]
pub struct Deadline {
    timer: libc::timer_t,
    until: Instant,
}

impl Deadline {
    /// Arms a limit that passes after `limit`, then fires every 10 ms until dropped (so that a call entered just
    /// after the first signal is interrupted too).
    ///
    /// # Errors
    /// `EAGAIN` where no timer is to be had.
    pub fn start(limit: Duration) -> Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: sigaction is plain data for which all-zero is valid.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = do_nothing as extern "C" fn(i32) as usize;
            // SAFETY: installs a handler that does nothing, without SA_RESTART, for a real-time signal that nothing
            // else in this process uses.
            unsafe { libc::sigaction(signal_number(), &raw const action, std::ptr::null_mut()) };
        });
        // SAFETY: sigevent is plain data for which all-zero is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = signal_number();
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to live values of the right types.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } < 0 {
            return Err(SysError::last("timer_create", "deadline"));
        }
        let deadline = Self {
            timer,
            until: Instant::now() + limit,
        };
        let nanoseconds = libc::c_long::from(limit.subsec_nanos()).max(1);
        let setting = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: nanoseconds,
            },
        };
        // SAFETY: `timer` was just created and `setting` is live.
        if unsafe { libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut()) } < 0 {
            return Err(SysError::last("timer_settime", "deadline"));
        }
        Ok(deadline)
    }

    /// True once the limit has passed.
    pub fn passed(&self) -> bool {
        Instant::now() >= self.until
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // SAFETY: the timer was created by `start` and is deleted once.
        unsafe { libc::timer_delete(self.timer) };
    }
}
