//! When a sleeping task went to sleep. No interface tells the time left of a wait; the scheduler's own record of when
//! a task last ran (`se.exec_start` in `/proc/PID/task/TID/sched`, `kernel/sched/debug.c`) does. Its clock is one of
//! its processor's: it stands still while that processor serves interrupts or is taken away by a hypervisor, so two
//! processors are seconds apart after some hours. It is brought to `CLOCK_MONOTONIC` by reading our own record on the
//! same processor, at most a second old (what a processor loses within one second is far below the accuracy of a
//! time-out on such a machine).

use std::collections::BTreeMap;
use std::fs::File;

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Result, SysError};
use crate::procfs::{TaskDir, read_record, stat_fields};

const VALID_NS: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("time since boot");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("below a second")
}

/// How the clock of each processor stands to `CLOCK_MONOTONIC`. Belongs to the thread that made it.
#[derive(Debug)]
pub struct SchedClock {
    own: File,
    offsets: BTreeMap<usize, (u64, i128)>,
}

impl SchedClock {
    /// For the calling thread.
    ///
    /// # Errors
    /// `ENOENT` where the kernel has no such record (`CONFIG_SCHED_DEBUG`).
    pub fn of_this_thread() -> Result<Self> {
        let path = format!("/proc/self/task/{}/sched", rustix::thread::gettid().as_raw_nonzero());
        let own = File::open(&path).map_err(|e| SysError::io("open", path, &e))?;
        Ok(Self {
            own,
            offsets: BTreeMap::new(),
        })
    }

    /// When the sleeping task of `dir` last ran, on `CLOCK_MONOTONIC`; `None` where it is gone.
    pub fn last_ran_ns(&mut self, dir: &TaskDir) -> Option<u64> {
        let mut text = Vec::new();
        dir.read("stat", &mut text).ok()?;
        let processor: usize = stat_fields(&text).and_then(|(_, fields)| fields.get(36)?.parse().ok())?;
        dir.read("sched", &mut text).ok()?;
        let ran = parse(&text)?;
        let offset = self.offset(processor)?;
        u64::try_from(i128::from(ran) + offset).ok()
    }

    fn offset(&mut self, processor: usize) -> Option<i128> {
        let now = monotonic_ns();
        match self.offsets.get(&processor) {
            Some((measured, offset)) if now - measured < VALID_NS => Some(*offset),
            _ => {
                let offset = self.measure(processor)?;
                self.offsets.insert(processor, (now, offset));
                Some(offset)
            }
        }
    }

    fn measure(&self, processor: usize) -> Option<i128> {
        let allowed = rustix::thread::sched_getaffinity(None).ok()?;
        let mut one = CpuSet::new();
        one.set(processor);
        rustix::thread::sched_setaffinity(None, &one).ok()?;
        // The record is as old as the last time the scheduler looked.
        rustix::thread::sched_yield();
        let mut buffer = Vec::new();
        let own = read_record(&self.own, &mut buffer).ok().and_then(|()| parse(&buffer));
        let now = monotonic_ns();
        let back = rustix::thread::sched_setaffinity(None, &allowed);
        debug_assert!(back.is_ok(), "the set was ours a moment ago");
        Some(i128::from(now) - i128::from(own?))
    }
}

/// While it lives, the calling thread goes before every ordinary thread of the machine (`SCHED_FIFO`, lowest
/// priority): a box that stands still must not also wait for a processor. What the thread starts meanwhile is ordinary.
#[derive(Debug)]
pub struct Urgent {
    raised: bool,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Urgent {
    /// Raises the calling thread, unless it is raised already. Where the rights are missing (`CAP_SYS_NICE`, a real-time budget of its cgroup)
    /// everything works the same, only slower on a busy machine.
    pub fn raise() -> Self {
        // SAFETY: takes no pointer; 0 names the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        Self {
            raised: policy == libc::SCHED_OTHER && set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1),
            _not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.raised {
            let back = set_policy(libc::SCHED_OTHER, 0);
            debug_assert!(back, "giving up a priority needs no rights");
        }
    }
}

/// Puts the calling thread, and all that it starts from here on, before the programs in the boxes: an answer must not
/// wait for them. Without the rights nothing changes.
pub fn go_first() {
    const NICE: i32 = -10;
    // Only where `CAP_SYS_NICE` is missing; then everything works the same, only slower on a busy machine.
    rustix::process::setpriority_process(None, NICE).ok();
}

fn set_policy(policy: i32, priority: i32) -> bool {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameter` is a live sched_param, which the kernel only reads; 0 names the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) == 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_with_six_digits() {
        let text = b"cat (1, #threads: 1)\n----\nse.exec_start       :     123456.000789\nse.vruntime : 1.0\n";
        assert_eq!(parse(text), Some(123_456_000_789));
    }

    /// The clocks of two processors were 1.13 s apart: a wait of 1.8 s ended after 0.76 s or after 2.98 s, by where the
    /// waiting thread had last run.
    #[test]
    fn each_processor_has_a_clock_of_its_own() {
        let mut clock = SchedClock::of_this_thread().expect("a kernel with /proc/PID/sched");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let allowed = rustix::thread::sched_getaffinity(None).expect("our own set");
        for processor in (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)) {
            let (send, receive) = std::sync::mpsc::channel();
            let (_go, wait) = std::sync::mpsc::channel::<()>();
            let sleeper = std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(processor);
                rustix::thread::sched_setaffinity(None, &one).expect("an allowed processor");
                send.send(rustix::thread::gettid().as_raw_nonzero().get())
                    .expect("we listen");
                assert!(wait.recv().is_err(), "nothing is sent");
            });
            let tid = receive.recv().expect("it starts");
            let dir = TaskDir::thread(pid, tid).expect("it lives");
            let mut state = Vec::new();
            while dir.read("stat", &mut state).is_ok() && stat_fields(&state).is_some_and(|(_, f)| f[0] != "S") {
                std::thread::yield_now();
            }
            let slept = monotonic_ns();
            let ran = clock.last_ran_ns(&dir).expect("it sleeps");
            assert!(
                ran.abs_diff(slept) < 400_000_000,
                "processor {processor}: {ran} against {slept}"
            );
            drop(_go);
            sleeper.join().expect("it ends");
        }
    }
}
