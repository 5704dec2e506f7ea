//! Compares what `deltabox bench … --json` printed with the promises of `bench/targets.toml`. Measures nothing itself.

use serde::Deserialize;
use serde_json::Value;

/// The promises.
#[derive(Debug, Deserialize)]
struct Targets {
    target: Vec<Target>,
}

/// One promise: it holds for a report of this suite whose params are these (and any others).
#[derive(Debug, Deserialize)]
struct Target {
    suite: String,
    params: serde_json::Map<String, Value>,
    /// `row.clock` to the most its median may be, in milliseconds.
    #[serde(default)]
    bounds: serde_json::Map<String, Value>,
    /// `a/b` to the most that ratio may be.
    #[serde(default)]
    ratios: serde_json::Map<String, Value>,
}

/// What a comparison gives: a line for each promise, and how many were not kept.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) lines: Vec<String>,
    pub(crate) broken_count: usize,
}

/// Compares `report` (JSON) with `targets` (TOML).
///
/// # Errors
/// A text that does not parse, as a sentence.
pub(crate) fn compare(targets: &str, report: &str) -> Result<Comparison, String> {
    let targets: Targets = toml::from_str(targets).map_err(|error| format!("the targets: {error}"))?;
    let report: Value = serde_json::from_str(report).map_err(|error| format!("the report: {error}"))?;
    let mut comparison = Comparison::default();
    for target in targets.target.iter().filter(|target| target.fits(&report)) {
        for (name, bound) in &target.bounds {
            comparison.add(name, median(&report, name), bound);
        }
        for (name, bound) in &target.ratios {
            comparison.add(name, report["ratios"][name].as_f64(), bound);
        }
    }
    Ok(comparison)
}

impl Target {
    fn fits(&self, report: &Value) -> bool {
        report["suite"] == self.suite.as_str()
            && self
                .params
                .iter()
                .all(|(name, value)| report["params"][name].as_f64() == value.as_f64())
    }
}

/// The median of `row.clock`.
fn median(report: &Value, name: &str) -> Option<f64> {
    let (row, clock) = name.rsplit_once('.')?;
    let rows = report["results"].as_array()?;
    rows.iter().find(|found| found["name"] == row)?[clock]["p50"].as_f64()
}

impl Comparison {
    fn add(&mut self, name: &str, found: Option<f64>, bound: &Value) {
        let bound = bound.as_f64().unwrap_or_default();
        let kept = found.is_some_and(|found| found <= bound);
        self.broken_count += usize::from(!kept);
        let found = found.map_or_else(|| "not in the report".to_owned(), |found| format!("{found:.2}"));
        self.lines.push(format!(
            "{} {name}: {found}, at most {bound}",
            if kept { "kept  " } else { "BROKEN" }
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "[[target]]\nsuite = \"s\"\nparams = { n = 1 }\n\
                           bounds = { \"a.b.api_ms\" = 2.0 }\nratios = { \"a/c\" = 3 }\n";

    fn broken(report: &str) -> (usize, usize) {
        let comparison = compare(TARGETS, report).unwrap();
        (comparison.lines.len(), comparison.broken_count)
    }

    #[test]
    fn promises_are_kept_or_broken() {
        let report = |p50: &str, ratio: &str| {
            format!(
                r#"{{"suite":"s","params":{{"n":1,"m":2}},"results":[{{"name":"a.b","api_ms":{{"p50":{p50}}}}}],
                    "ratios":{{"a/c":{ratio}}}}}"#
            )
        };
        assert_eq!(broken(&report("1.9", "3.0")), (2, 0));
        assert_eq!(broken(&report("2.1", "3.1")), (2, 2));
        assert_eq!(
            broken(r#"{"suite":"s","params":{"n":1},"results":[],"ratios":{}}"#),
            (2, 2)
        );
        assert_eq!(
            broken(r#"{"suite":"s","params":{"n":2},"results":[],"ratios":{}}"#),
            (0, 0)
        );
    }

    #[test]
    fn the_real_targets_parse() {
        let comparison = compare(include_str!("../../bench/targets.toml"), "{}");
        assert_eq!(comparison, Ok(Comparison::default()));
    }
}
