//! `doctor`: what this kernel and these rights allow, and what to do about what is missing. Each answer is from a call
//! that was made. It starts no daemon and leaves nothing behind.

use std::path::Path;

use api::{Code, Problem};
use linux::probe::{Features, Finding};
use serde::Serialize;

use crate::daemon;
use crate::error::{CliError, Result};
use crate::output::Output;

/// Exit code when something is missing without which there is no box.
const MISSING: u8 = 5;

#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    memory: String,
    usable: bool,
    findings: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    works: bool,
    needed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Prints one line per feature; 5 when a needed one is missing.
pub(crate) fn doctor(output: &Output) -> Result<u8> {
    let features = features(nearest_directory(&daemon::place()?.state))?;
    let mut findings: Vec<Line> = features.findings().into_iter().map(line).collect();
    findings.push(programs());
    let usable = findings.iter().all(|line| line.works || !line.needed);
    let report = Report {
        kernel: features.kernel_release.clone(),
        memory: memory_line(&features),
        usable,
        findings,
    };
    output.value(&report, text)?;
    Ok(if usable { 0 } else { MISSING })
}

/// One line on how changed memory is found here.
pub(crate) fn memory_line(features: &Features) -> String {
    let kernel = &features.kernel_release;
    if scans(features) {
        format!("kernel {kernel}: changed memory is found by scan (PAGEMAP_SCAN); cost follows what changed")
    } else {
        format!("kernel {kernel}: changed memory is found by comparing all of it; from 6.7 on it would be a scan")
    }
}

/// Whether this kernel says which pages were written.
pub(crate) fn scans(features: &Features) -> bool {
    features.pagemap_scan && features.uffd_wp_async
}

/// What the kernel answers, where boxes would live in `directory`.
pub(crate) fn features(directory: &Path) -> Result<Features> {
    Features::probe(directory).map_err(|error| {
        let problem = Problem::new(Code::Unsupported, format!("this kernel cannot be asked: {error}"));
        CliError::from(problem.hint("doctor needs /proc and the right to start processes"))
    })
}

/// The state directory may not be there yet: then what it will be made in.
fn nearest_directory(state: &Path) -> &Path {
    state.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

fn line(finding: Finding) -> Line {
    let hint = (!finding.works).then(|| finding.hint.to_owned());
    Line {
        name: finding.name.to_owned(),
        works: finding.works,
        needed: finding.needed,
        hint,
    }
}

/// The daemon makes its volume with these.
fn programs() -> Line {
    let there = |name: &str| {
        ["/sbin", "/usr/sbin", "/bin", "/usr/bin"]
            .iter()
            .any(|place| Path::new(place).join(name).exists())
    };
    let works = there("mkfs.xfs") && there("mount");
    let hint = "apt install xfsprogs mount: without them large files are copied, unless the state lies on XFS or btrfs";
    Line {
        name: "mkfs.xfs and mount".to_owned(),
        works,
        needed: false,
        hint: (!works).then(|| hint.to_owned()),
    }
}

fn text(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.memory);
    for line in &report.findings {
        let mark = match (line.works, line.needed) {
            (true, _) => "ok     ",
            (false, true) => "MISSING",
            (false, false) => "without",
        };
        text += &format!("{mark}  {}\n", line.name);
        if let Some(hint) = &line.hint {
            text += &format!("         {hint}\n");
        }
    }
    text += if report.usable {
        "\nDeltaBox can run here.\n"
    } else {
        "\nDeltaBox cannot run here: see MISSING.\n"
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_what_to_do() {
        let missing = line(Finding {
            name: "a",
            works: false,
            needed: true,
            hint: "do b",
        });
        let there = line(Finding {
            name: "c",
            works: true,
            needed: true,
            hint: "do d",
        });
        let report = Report {
            kernel: String::new(),
            memory: "m".to_owned(),
            usable: false,
            findings: vec![missing, there],
        };
        let expected = "m\n\nMISSING  a\n         do b\nok       c\n\nDeltaBox cannot run here: see MISSING.\n";
        assert_eq!(text(&report), expected);
    }
}
