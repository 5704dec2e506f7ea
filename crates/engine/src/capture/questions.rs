//! What a process is asked about itself, from inside, in one batch: dispositions, timers, limits, the break. Only asks;
//! parsing the answers is all it does with them.

use image::signal::Action;
use image::timer::{Armed, PosixTimer};

use crate::error::EngineError;
use crate::remote::{self, Annex, Batch, Results, Room};
use crate::tracee::LiveProcess;

/// What a process answers about itself.
#[derive(Debug)]
pub(crate) struct Asked {
    actions: Room,
    itimers: Room,
    limits: Room,
    brk: usize,
    timers: Vec<(PosixTimer, Room, usize)>,
}

const LIMIT_COUNT: usize = 16;

/// The timers that `/proc/PID/timers` lists, without their times.
pub(crate) fn read_timers(process: &LiveProcess) -> Result<Vec<PosixTimer>, EngineError> {
    let mut text = Vec::new();
    process.dir.read_list("timers", &mut text)?;
    Ok(parse_timers(&text))
}

/// Parses `/proc/PID/timers` (proc(5)): four lines a timer.
fn parse_timers(text: &[u8]) -> Vec<PosixTimer> {
    let mut timers: Vec<PosixTimer> = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if key == "ID" {
            let id = value.parse().unwrap_or(-1);
            timers.push(PosixTimer {
                id,
                clock: 0,
                signal: 0,
                notify: 0,
                tid: 0,
                value: 0,
                armed: Armed::default(),
            });
            continue;
        }
        let Some(timer) = timers.last_mut() else { continue };
        match key {
            "signal" => {
                let (signal, word) = value.split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
            }
            "notify" => {
                let (how, whom) = value.split_once('/').unwrap_or((value, ""));
                let by_thread = whom.starts_with("tid.");
                timer.notify = match how {
                    "signal" => libc::SIGEV_SIGNAL,
                    "none" => libc::SIGEV_NONE,
                    _ => libc::SIGEV_THREAD,
                } | if by_thread { 4 } else { 0 };
                timer.tid = whom.split_once('.').and_then(|(_, tid)| tid.parse().ok()).unwrap_or(0);
            }
            "ClockID" => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    timers
}

/// Adds the questions.
pub(crate) fn ask(batch: &mut Batch, timers: Vec<PosixTimer>) -> Asked {
    let (actions, itimers, limits) = (batch.room(64 * 32), batch.room(3 * 32), batch.room(LIMIT_COUNT * 16));
    let brk = batch.call(libc::SYS_brk, [0; 6]);
    for signal in 1..=64u64 {
        batch.call(
            libc::SYS_rt_sigaction,
            [signal, 0, actions.address + (signal - 1) * 32, 8, 0, 0],
        );
    }
    for which in 0..3u64 {
        batch.call(libc::SYS_getitimer, [which, itimers.address + which * 32, 0, 0, 0, 0]);
    }
    for resource in 0..LIMIT_COUNT as u64 {
        batch.call(
            libc::SYS_prlimit64,
            [0, resource, 0, limits.address + resource * 16, 0, 0],
        );
    }
    let timers = timers
        .into_iter()
        .map(|timer| {
            let room = batch.room(32);
            let id = u64::from(timer.id.cast_unsigned());
            let call = batch.call(libc::SYS_timer_gettime, [id, room.address, 0, 0, 0, 0]);
            (timer, room, call)
        })
        .collect();
    Asked {
        actions,
        itimers,
        limits,
        brk,
        timers,
    }
}

/// The answers.
pub(crate) struct Answers {
    pub(crate) actions: Vec<Action>,
    pub(crate) itimers: [Armed; 3],
    pub(crate) limits: Vec<(u64, u64)>,
    pub(crate) timers: Vec<PosixTimer>,
    pub(crate) brk: u64,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

impl Answers {
    /// Reads them, once the batch has ended.
    pub(crate) fn collect(annex: &Annex, asked: &Asked, results: &Results) -> Result<Self, EngineError> {
        let actions = words(&remote::answer(annex, asked.actions))
            .chunks_exact(4)
            .map(|w| Action {
                handler: w[0],
                flags: w[1],
                restorer: w[2],
                mask: w[3],
            })
            .collect();
        let itimers = words(&remote::answer(annex, asked.itimers));
        let itimer = |at: usize| Armed {
            interval_ns: itimers[at * 4] * 1_000_000_000 + itimers[at * 4 + 1] * 1000,
            value_ns: itimers[at * 4 + 2] * 1_000_000_000 + itimers[at * 4 + 3] * 1000,
        };
        let limits = words(&remote::answer(annex, asked.limits))
            .chunks_exact(2)
            .map(|w| (w[0], w[1]))
            .collect();
        let mut timers = Vec::with_capacity(asked.timers.len());
        for (timer, room, call) in &asked.timers {
            results.expect(*call, "timer_gettime", timer.id)?;
            let w = words(&remote::answer(annex, *room));
            let armed = Armed {
                interval_ns: w[0] * 1_000_000_000 + w[1],
                value_ns: w[2] * 1_000_000_000 + w[3],
            };
            timers.push(PosixTimer { armed, ..timer.clone() });
        }
        let brk = results.expect(asked.brk, "brk", "a process")?;
        Ok(Self {
            actions,
            itimers: [itimer(0), itimer(1), itimer(2)],
            limits,
            timers,
            brk: u64::from_ne_bytes(brk.to_ne_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_timers_of_proc() {
        let text = b"ID: 3\nsignal: 34/0000000000abcdef\nnotify: signal/tid.12\nClockID: 1\n";
        let timers = parse_timers(text);
        assert_eq!(timers.len(), 1);
        let timer = &timers[0];
        assert_eq!(
            (
                timer.id,
                timer.signal,
                timer.value,
                timer.notify,
                timer.tid,
                timer.clock
            ),
            (3, 34, 0xab_cdef, 4, 12, 1)
        );
    }
}
