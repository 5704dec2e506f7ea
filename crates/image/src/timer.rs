//! Armed timers, as time remaining. Never holds an absolute time of a clock that runs on during a rollback.

/// `struct itimerspec` or `itimerval` in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Armed {
    /// Until it fires, in nanoseconds; 0 is disarmed.
    pub value_ns: u64,
    /// Period in nanoseconds; 0 is once.
    pub interval_ns: u64,
}

/// A POSIX timer of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PosixTimer {
    /// Its id in the process.
    pub id: i32,
    /// Clock.
    pub clock: i32,
    /// Signal number.
    pub signal: i32,
    /// `SIGEV_*`.
    pub notify: i32,
    /// Thread to signal, where `SIGEV_THREAD_ID`.
    pub tid: i32,
    /// `sigev_value`.
    pub value: u64,
    /// Remaining and period.
    pub armed: Armed,
}
