//! When a sleeping task went to sleep. No interface tells the time left of a wait; the scheduler's own record of when
//! a task last ran (`se.exec_start` in `/proc/PID/task/TID/sched`, `kernel/sched/debug.c`) does. Its clock is not
//! `CLOCK_MONOTONIC`: it is read here by asking for our own record while we run.

use std::fs::File;

use crate::error::Result;
use crate::procfs::read_from_start;

/// `se.exec_start` of an open `sched` file, in nanoseconds.
pub fn last_ran_ns(sched: &File, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
    read_from_start(sched, buffer)?;
    Ok(parse(buffer))
}

fn parse(text: &[u8]) -> Option<u64> {
    let line = text
        .split(|b| *b == b'\n')
        .find(|line| line.starts_with(b"se.exec_start"))?;
    let value = std::str::from_utf8(line).ok()?.rsplit(':').next()?.trim();
    let (milliseconds, rest) = value.split_once('.')?;
    let milliseconds: u64 = milliseconds.parse().ok()?;
    Some(milliseconds * 1_000_000 + rest.get(..6)?.parse::<u64>().ok()?)
}

/// The scheduler's clock now: the record of the calling thread, which runs. The record is as old as the last time the
/// scheduler looked, so the thread yields first.
///
/// # Errors
/// `ENOENT` where the kernel has no such file (`CONFIG_SCHED_DEBUG`).
pub fn now_ns(own: &File, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
    rustix::thread::sched_yield();
    last_ran_ns(own, buffer)
}

#[cfg(test)]
mod tests {
    #[test]
    fn milliseconds_with_six_digits() {
        let text = b"cat (1, #threads: 1)\n----\nse.exec_start       :     123456.000789\nse.vruntime : 1.0\n";
        assert_eq!(super::parse(text), Some(123_456_000_789));
    }
}
