//! Tables for people, JSON for programs. Data goes to standard output, everything else to standard error.

use std::fmt::Display;
use std::io::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::error::{CliError, Result};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// JSON instead of text.
    pub(crate) json: bool,
}

impl Output {
    /// Prints `value` as JSON, or what `text` makes of it.
    pub(crate) fn value<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        if self.json {
            let json = serde_json::to_string(value).expect("wire types have only text keys");
            return self.data(json + "\n");
        }
        self.data(text(value))
    }

    /// Prints text to standard output as it is.
    pub(crate) fn data(&self, text: impl AsRef<[u8]>) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(text.as_ref()).and_then(|()| stdout.flush());
        written.map_err(|error| CliError::io("standard output", &error))
    }

    /// Says something to the person, on standard error; never with `--json`.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.json {
            say(&format!("deltabox: {text}\n"));
        }
    }

    /// Says what makes an answer worth less than it looks, on one line of standard error; with `--json` too, as JSON.
    pub(crate) fn warning(&self, text: &str, hint: &str) {
        if self.json {
            return say(&format!("{}\n", serde_json::json!({ "warning": text, "hint": hint })));
        }
        say(&format!("deltabox: warning: {text}: {hint}\n"));
    }

    /// Says why the program fails.
    pub(crate) fn error(&self, error: &CliError) {
        let Some(problem) = &error.problem else { return };
        if self.json {
            let json = serde_json::to_string(problem).expect("wire types have only text keys");
            return say(&(json + "\n"));
        }
        let mut text = format!("deltabox: {}\n", problem.detail);
        if let Some(hint) = &problem.hint {
            text += &format!("hint: {hint}\n");
        }
        if problem.hint.is_none() && !problem.candidates.is_empty() {
            text += &format!("did you mean: {}\n", problem.candidates.join(", "));
        }
        say(&text);
    }
}

/// Writes to standard error; when that is closed there is nobody left to tell.
pub(crate) fn say(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

/// A table without borders; columns whose title starts with `>` are aligned to the right.
pub(crate) fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if titles[index].starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        table.add_row(row);
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// How long ago, for people.
pub(crate) fn age(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86400),
    }
}

/// Unix time in milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line's clock is read here: to say how old something is"
)]
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 40), "5.0 TiB");
        assert_eq!(age(5_000, 6_999), "1 s ago");
        assert_eq!(age(9_000, 6_999), "0 s ago");
        assert_eq!(age(0, 90_000_000), "1 d ago");
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "22".to_owned()],
        ];
        assert_eq!(table(&["NAME", ">N"], rows), "NAME   N\na      1\nlong  22\n");
    }
}
