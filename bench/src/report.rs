//! What a suite found, as the JSON that is published: three clocks for every row, percentiles, and ratios of the clock
//! that a caller waits for.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use crate::target::{Cost, Sample};

/// The result of one suite.
#[derive(Debug, Serialize)]
pub struct Report<R = Row> {
    /// Its name.
    pub suite: &'static str,
    /// What it was asked for.
    pub params: serde_json::Value,
    /// Where it ran.
    pub host: Host,
    /// One row for each thing measured.
    pub results: Vec<R>,
    /// What one is to another, `a/b`: of rows with an API clock, the medians of that.
    pub ratios: BTreeMap<String, f64>,
    /// Rows that could not be measured here, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, String>,
}

/// The machine.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Processors this process may use.
    pub cpus: usize,
    /// Processor model.
    pub cpu: String,
}

/// One operation.
#[derive(Debug, Serialize)]
pub struct Row {
    /// `who.what`.
    pub name: String,
    /// Measurements behind it.
    pub samples: usize,
    /// The program stood still; absent where nobody can see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_ms: Option<Percentiles>,
    /// What the caller waited.
    pub api_ms: Percentiles,
    /// From the start of the call to the program's answer to a request; absent where none runs that could be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_reply_ms: Option<Percentiles>,
    /// Median of each part, as the operation itself says.
    pub phases_ms: BTreeMap<String, f64>,
    /// Median of the pages copied.
    pub page_count: u64,
    /// What a reader must know to compare it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
}

/// Nearest-rank percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
}

/// Samples by row, in the order in which rows first appeared.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    rows: Vec<(String, &'static str, Vec<Sample>)>,
}

impl Samples {
    pub(crate) fn add(&mut self, name: &str, note: &'static str, sample: Sample) {
        match self.rows.iter_mut().find(|(row, ..)| row == name) {
            Some((.., samples)) => samples.push(sample),
            None => self.rows.push((name.to_owned(), note, vec![sample])),
        }
    }

    pub(crate) fn report(&self, suite: &'static str, params: serde_json::Value, ratios: &[(&str, &str)]) -> Report {
        let results: Vec<Row> = self
            .rows
            .iter()
            .map(|(name, note, samples)| row(name, note, samples))
            .collect();
        let api = |name: &str| results.iter().find(|row| row.name == name).map(|row| row.api_ms.p50);
        let ratios = ratios.iter().filter_map(|(above, below)| {
            let ratio = api(above)? / api(below)?;
            Some((format!("{above}/{below}"), round(ratio)))
        });
        let ratios = ratios.collect();
        Report {
            suite,
            params,
            host: Host::this(),
            results,
            ratios,
            skipped: BTreeMap::new(),
        }
    }
}

fn row(name: &str, note: &'static str, samples: &[Sample]) -> Row {
    let column = |value: fn(&Sample) -> Option<f64>| {
        let values: Vec<f64> = samples.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| percentiles(values))
    };
    let mut pages: Vec<u64> = samples.iter().map(|sample| sample.cost.page_count).collect();
    pages.sort_unstable();
    Row {
        name: name.to_owned(),
        samples: samples.len(),
        stop_ms: column(|sample| sample.cost.stop_ms),
        api_ms: percentiles(samples.iter().map(|sample| sample.api_ms).collect()),
        first_reply_ms: column(|sample| sample.first_reply_ms),
        phases_ms: phases(samples.iter().map(|sample| &sample.cost)),
        page_count: pages[pages.len() / 2],
        note,
    }
}

/// The median of each part.
pub(crate) fn phases<'a>(costs: impl Iterator<Item = &'a Cost>) -> BTreeMap<String, f64> {
    let mut phases: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (phase, ms) in costs.flat_map(|cost| &cost.phases) {
        phases.entry(phase.clone()).or_default().push(*ms);
    }
    phases
        .into_iter()
        .map(|(phase, values)| (phase, percentiles(values).p50))
        .collect()
}

pub(crate) fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| round(values[(values.len() * percent).div_ceil(100).max(1) - 1]);
    Percentiles {
        p50: at(50),
        p95: at(95),
        p99: at(99),
    }
}

/// To the microsecond: more digits would be noise.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Host {
    pub(crate) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or_default();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        }
    }
}

impl Report {
    /// The rows as a table for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<32} {:>8} {:>22} {:>22} {:>22}\n",
            "p50 / p95 / p99 in ms", "samples", "stop", "API", "first reply"
        );
        let cell = |p: Option<Percentiles>| {
            p.map_or_else(
                || "-".to_owned(),
                |p| format!("{:.2} / {:.2} / {:.2}", p.p50, p.p95, p.p99),
            )
        };
        for row in &self.results {
            let (api, reply) = (cell(Some(row.api_ms)), cell(row.first_reply_ms));
            let stop = cell(row.stop_ms);
            text += &format!("{:<32} {:>8} {stop:>22} {api:>22} {reply:>22}\n", row.name, row.samples);
        }
        for (name, ratio) in &self.ratios {
            text += &format!("{name}: {ratio:.2}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred = percentiles((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            hundred,
            Percentiles {
                p50: 50.0,
                p95: 95.0,
                p99: 99.0
            }
        );
        assert_eq!(
            percentiles(vec![7.0]),
            Percentiles {
                p50: 7.0,
                p95: 7.0,
                p99: 7.0
            }
        );
    }

    #[test]
    fn rows_and_ratios() {
        let mut samples = Samples::default();
        let sample = |api_ms: f64, stop_ms| Sample {
            cost: Cost {
                stop_ms,
                phases: vec![("scan".to_owned(), api_ms / 2.0)],
                page_count: 3,
            },
            api_ms,
            first_reply_ms: stop_ms.map(|_| api_ms + 1.0),
        };
        samples.add("a.checkpoint", "", sample(2.0, Some(1.0)));
        samples.add("b.checkpoint", "", sample(4.0, None));
        let report = samples.report(
            "s",
            serde_json::json!({}),
            &[("b.checkpoint", "a.checkpoint"), ("a", "c")],
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["results"][0]["stop_ms"]["p50"], 1.0);
        assert_eq!(json["results"][0]["phases_ms"]["scan"], 1.0);
        assert!(json["results"][1].get("stop_ms").is_none());
        assert!(json["results"][1].get("first_reply_ms").is_none());
        assert_eq!(json["ratios"], serde_json::json!({"b.checkpoint/a.checkpoint": 2.0}));
        assert!(report.text().contains("b.checkpoint"));
    }
}
