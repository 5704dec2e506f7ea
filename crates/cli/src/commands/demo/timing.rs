//! The three clocks: the box stood still, the caller waited, the program answered. Measured here, at the client.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::asking::Program;
use crate::client::Client;
use crate::error::Result;
use crate::output::{size, table};

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    stop_ms: f64,
    api_ms: f64,
    first_reply_ms: f64,
    bytes: u64,
}

/// What the client saw of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    api: Duration,
    first_reply: Duration,
}

impl Clocks {
    /// From the daemon's stop time and what the client saw.
    pub(crate) fn of(timing: &api::Timing, seen: Seen, page_count: u64) -> Self {
        Self {
            stop_ms: timing.stop_ms,
            api_ms: seen.api.as_secs_f64() * 1e3,
            first_reply_ms: seen.first_reply.as_secs_f64() * 1e3,
            bytes: page_count * 4096,
        }
    }
}

/// Makes a call, then asks the program something small.
pub(crate) fn timed<T>(
    client: &mut Client,
    program: &mut Program,
    call: impl FnOnce(&mut Client, &str) -> Result<T>,
    sandbox: &str,
) -> Result<(T, Seen)> {
    let begun = Instant::now();
    let answer = call(client, sandbox)?;
    let api = begun.elapsed();
    program.ask("ping")?;
    Ok((
        answer,
        Seen {
            api,
            first_reply: begun.elapsed(),
        },
    ))
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    p50: f64,
    p95: f64,
    p99: f64,
}

/// One operation, over its rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: String,
    count: usize,
    stop_ms: Percentiles,
    api_ms: Percentiles,
    first_reply_ms: Percentiles,
    bytes_p50: u64,
}

/// All measurements, by operation, in the order of their first.
#[derive(Debug, Default)]
pub(crate) struct Rows(Vec<(String, Vec<Clocks>)>);

impl Rows {
    /// Adds one.
    pub(crate) fn add(&mut self, name: &str, clocks: Clocks) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, list)) => list.push(clocks),
            None => self.0.push((name.to_owned(), vec![clocks])),
        }
    }

    /// Their percentiles.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.0.into_iter().map(|(name, list)| row(name, &list)).collect()
    }
}

fn row(name: String, list: &[Clocks]) -> Row {
    let of = |pick: fn(&Clocks) -> f64| percentiles(list.iter().map(pick).collect());
    let mut bytes: Vec<u64> = list.iter().map(|clocks| clocks.bytes).collect();
    bytes.sort_unstable();
    Row {
        name,
        count: list.len(),
        stop_ms: of(|clocks| clocks.stop_ms),
        api_ms: of(|clocks| clocks.api_ms),
        first_reply_ms: of(|clocks| clocks.first_reply_ms),
        bytes_p50: bytes[(bytes.len() - 1) / 2],
    }
}

/// Nearest rank. The list is never empty.
fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values[(values.len() * percent).div_ceil(100).saturating_sub(1)];
    Percentiles {
        p50: at(50),
        p95: at(95),
        p99: at(99),
    }
}

/// The table for people.
pub(crate) fn text(rows: &[Row]) -> String {
    let pair = |percentiles: &Percentiles| format!("{:.2} / {:.2}", percentiles.p50, percentiles.p95);
    let lines = rows.iter().map(|row| {
        vec![
            row.name.replace('_', " "),
            row.count.to_string(),
            pair(&row.stop_ms),
            pair(&row.api_ms),
            pair(&row.first_reply_ms),
            size(row.bytes_p50),
        ]
    });
    let titles = [
        "p50 / p95 in ms",
        ">ROUNDS",
        ">BOX STOOD STILL",
        ">CALLER WAITED",
        ">FIRST REPLY",
        ">MEMORY COPIED",
    ];
    table(&titles, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks() {
        let p = percentiles((1..=100).map(f64::from).rev().collect());
        assert_eq!((p.p50, p.p95, p.p99), (50.0, 95.0, 99.0));
        let one = percentiles(vec![7.0]);
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
    }
}
