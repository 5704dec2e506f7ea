//! What `bench steady` says of one program: three columns of times, what they are to each other, and the checkpoints
//! that were taken meanwhile. Runs nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::BenchError;
use crate::report::{Percentiles, Report, percentiles, phases, round};
use crate::target::Cost;

/// One program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Turns behind it.
    pub pairs: usize,
    /// On the host.
    pub host_ms: Times,
    /// In a sandbox that was never checkpointed.
    pub box_ms: Times,
    /// In one that was checkpointed every second.
    pub checkpointed_ms: Times,
    /// `box/host` and `checkpointed/host`: the median of what the turns say each for itself, because machines drift.
    pub ratios: BTreeMap<&'static str, f64>,
    /// Those of all turns.
    pub checkpoints: CheckpointsMeasured,
    /// What it does.
    pub note: &'static str,
}

/// The times of one column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// The median.
    pub p50: f64,
    /// The least.
    pub min: f64,
}

/// Checkpoints taken while a program ran.
#[derive(Debug, Serialize)]
pub struct CheckpointsMeasured {
    /// How many.
    pub taken: usize,
    /// How long the sandbox stood still; absent when none was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_ms: Option<Percentiles>,
    /// Median of each part, as the operation itself says.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phases_ms: BTreeMap<String, f64>,
    /// How many were refused, by reason; numbers in it are `N`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, usize>,
}

/// One run in each place.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) host_ms: f64,
    pub(crate) box_ms: f64,
    pub(crate) checkpointed_ms: f64,
    pub(crate) checkpoints: Checkpoints,
}

/// What became of the checkpoints of one run.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    costs: Vec<Cost>,
    refused: Vec<String>,
}

impl Checkpoints {
    pub(crate) fn add(&mut self, outcome: Result<Cost, BenchError>) {
        match outcome {
            Ok(cost) => self.costs.push(cost),
            Err(BenchError::Refused { problem, .. }) => {
                let reason = format!("{}: {}", problem.code.name(), problem.detail);
                self.refused.push(without_numbers(&reason));
            }
            Err(other) => self.refused.push(without_numbers(&other.to_string())),
        }
    }
}

/// The same reason about another process is the same reason.
fn without_numbers(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if short.ends_with('N') => {}
            '0'..='9' => short.push('N'),
            _ => short.push(c),
        }
    }
    short
}

impl Row {
    pub(crate) fn new(name: &str, note: &'static str, turns: &[Turn]) -> Self {
        let times = |ms: fn(&Turn) -> f64| {
            let all: Vec<f64> = turns.iter().map(ms).collect();
            Times {
                min: round(all.iter().copied().fold(f64::INFINITY, f64::min)),
                p50: percentiles(all).p50,
            }
        };
        let ratio = |of: fn(&Turn) -> f64| percentiles(turns.iter().map(of).collect()).p50;
        Self {
            name: name.to_owned(),
            pairs: turns.len(),
            host_ms: times(|turn| turn.host_ms),
            box_ms: times(|turn| turn.box_ms),
            checkpointed_ms: times(|turn| turn.checkpointed_ms),
            ratios: BTreeMap::from([
                ("box/host", ratio(|turn| turn.box_ms / turn.host_ms)),
                ("checkpointed/host", ratio(|turn| turn.checkpointed_ms / turn.host_ms)),
            ]),
            checkpoints: CheckpointsMeasured::new(turns),
            note,
        }
    }

    /// The ratios as the report names them: `files.box/files.host`.
    pub(crate) fn ratios_of_report(&self) -> impl Iterator<Item = (String, f64)> {
        self.ratios.iter().map(|(ratio, value)| {
            let (above, below) = ratio.split_once('/').expect("both ratios have two sides");
            (format!("{0}.{above}/{0}.{below}", self.name), *value)
        })
    }
}

impl CheckpointsMeasured {
    fn new(turns: &[Turn]) -> Self {
        let costs = || turns.iter().flat_map(|turn| &turn.checkpoints.costs);
        let column = |values: Vec<f64>| (!values.is_empty()).then(|| percentiles(values));
        let mut refused = BTreeMap::new();
        for reason in turns.iter().flat_map(|turn| &turn.checkpoints.refused) {
            *refused.entry(reason.clone()).or_default() += 1;
        }
        Self {
            taken: costs().count(),
            stop_ms: column(costs().filter_map(|cost| cost.stop_ms).collect()),
            phases_ms: phases(costs()),
            refused,
        }
    }
}

impl Report<Row> {
    /// The rows as a table for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<12} {:>20} {:>20} {:>20} {:>9} {:>9} {:>12} {:>9}\n",
            "p50 / min, ms", "host", "box", "checkpointed", "box/host", "ckpt/host", "checkpoints", "stop p50"
        );
        for row in &self.results {
            let [host, sandbox, checkpointed] =
                [row.host_ms, row.box_ms, row.checkpointed_ms].map(|t| format!("{:.1} / {:.1}", t.p50, t.min));
            let stop = row
                .checkpoints
                .stop_ms
                .map_or_else(|| "-".to_owned(), |p| format!("{:.2}", p.p50));
            text += &format!(
                "{:<12}  {host:>20} {sandbox:>20} {checkpointed:>20} {:>9.3} {:>9.3} {:>12} {stop:>9}\n",
                row.name, row.ratios["box/host"], row.ratios["checkpointed/host"], row.checkpoints.taken
            );
        }
        for row in &self.results {
            for (reason, count) in &row.checkpoints.refused {
                text += &format!("{}: {count} checkpoints refused: {reason}\n", row.name);
            }
        }
        for (name, why) in &self.skipped {
            text += &format!("{name}: skipped: {why}\n");
        }
        text + "Ratios are medians of the turns' own ratios.\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Host;

    fn turn(host_ms: f64, box_ms: f64, checkpointed_ms: f64) -> Turn {
        Turn {
            host_ms,
            box_ms,
            checkpointed_ms,
            checkpoints: Checkpoints::default(),
        }
    }

    fn cost(stop_ms: f64) -> Cost {
        Cost {
            stop_ms: Some(stop_ms),
            phases: vec![("freeze".to_owned(), stop_ms / 2.0)],
            page_count: 5,
        }
    }

    fn refusal(detail: &str) -> BenchError {
        BenchError::Refused {
            request: "POST /x".to_owned(),
            problem: Box::new(api::Problem::new(api::Code::Busy, detail)),
        }
    }

    /// A machine that slows down by half between two turns changes the medians, not the ratios.
    #[test]
    fn ratios_are_of_turns() {
        let turns = [turn(10.0, 11.0, 12.0), turn(20.0, 22.0, 24.0), turn(30.0, 33.0, 60.0)];
        let row = Row::new("work", "", &turns);
        assert_eq!(row.host_ms, Times { p50: 20.0, min: 10.0 });
        assert_eq!(row.checkpointed_ms, Times { p50: 24.0, min: 12.0 });
        assert_eq!(
            row.ratios,
            BTreeMap::from([("box/host", 1.1), ("checkpointed/host", 1.2)])
        );
        let names: Vec<String> = row.ratios_of_report().map(|(name, _)| name).collect();
        assert_eq!(names, ["work.box/work.host", "work.checkpointed/work.host"]);
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let mut turns = [turn(1.0, 1.0, 1.0), turn(1.0, 1.0, 1.0)];
        turns[0].checkpoints.add(Ok(cost(3.0)));
        turns[0]
            .checkpoints
            .add(Err(refusal("pid 17 (gcc) waits for its child")));
        turns[1]
            .checkpoints
            .add(Err(refusal("pid 2345 (gcc) waits for its child")));
        let row = Row::new("work", "", &turns);
        assert_eq!(row.checkpoints.taken, 1);
        assert_eq!(row.checkpoints.stop_ms.unwrap().p50, 3.0);
        assert_eq!(row.checkpoints.phases_ms["freeze"], 1.5);
        let reason = "busy: pid N (gcc) waits for its child".to_owned();
        assert_eq!(row.checkpoints.refused, BTreeMap::from([(reason, 2)]));
    }

    #[test]
    fn the_report_is_of_the_family() {
        let row = Row::new("work", "", &[turn(2.0, 3.0, 4.0)]);
        let report = Report {
            suite: "steady",
            params: serde_json::json!({"pairs": 1}),
            host: Host::this(),
            ratios: row.ratios_of_report().collect(),
            results: vec![row],
            skipped: BTreeMap::from([("c_build".to_owned(), "no gcc".to_owned())]),
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["results"][0]["box_ms"]["p50"], 3.0);
        assert_eq!(json["ratios"]["work.box/work.host"], 1.5);
        assert_eq!(json["results"][0]["checkpoints"], serde_json::json!({"taken": 0}));
        assert!(report.text().contains("c_build: skipped: no gcc"));
    }
}
