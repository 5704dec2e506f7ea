//! How a user names a place in a history, as a parsed value. Only syntax: what it means, [`History`](crate::history)
//! knows. `BASE` then any number of `~N` (or `~`, or `^`): `HEAD`, `@`, `@{-1}`, a tag, `ckp_0123…`, `0123`.

use crate::error::TimelineError;

/// The longest tag.
pub const TAG_MAX_BYTES: usize = 128;

/// Where a revision starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The head.
    Head,
    /// Where the head was before the last n-th rollback; 1 is the last.
    Jump(usize),
    /// A tag, an id or the start of one.
    Name(String),
}

/// A parsed revision: a start and a number of steps to the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Where to start.
    pub base: Base,
    /// How many parents to go back.
    pub back: usize,
}

/// Reads a revision.
///
/// # Errors
/// `BadRevision` says what is wrong with the text.
pub fn parse(text: &str) -> Result<Parsed, TimelineError> {
    let bad = |why| TimelineError::BadRevision {
        text: text.to_owned(),
        why,
    };
    let (base, steps) = text.split_at(text.find(['~', '^']).unwrap_or(text.len()));
    let base = match base {
        "" => return Err(bad("it is empty")),
        "HEAD" | "@" => Base::Head,
        _ => match base.strip_prefix("@{") {
            Some(rest) => {
                let count = rest.strip_suffix('}').and_then(|rest| rest.strip_prefix('-'));
                let count = count.and_then(|digits| digits.parse().ok()).filter(|count| *count > 0);
                Base::Jump(count.ok_or_else(|| bad("after @ comes {-1}, {-2} and so on"))?)
            }
            None => Base::Name(base.to_owned()),
        },
    };
    let mut back = 0_usize;
    let mut rest = steps;
    while let Some(mark) = rest.chars().next() {
        rest = &rest[mark.len_utf8()..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, later) = rest.split_at(digits);
        let count = match (mark, count) {
            ('~', "") | ('^', "" | "1") => 1,
            ('~', count) => count.parse().map_err(|_| bad("that is too far back"))?,
            ('^', "0") => 0,
            ('^', _) => return Err(bad("a checkpoint has one parent")),
            _ => return Err(bad("after the name comes only ~N or ^")),
        };
        back = back.saturating_add(count);
        rest = later;
    }
    Ok(Parsed { base, back })
}

/// Checks a new tag.
///
/// # Errors
/// `BadTag` when it could be read as something else.
pub fn check_tag(name: &str) -> Result<(), TimelineError> {
    let bad = |why| {
        Err(TimelineError::BadTag {
            name: name.to_owned(),
            why,
        })
    };
    if name.is_empty() || name.len() > TAG_MAX_BYTES {
        return bad("it needs 1 to 128 bytes");
    }
    if name == "HEAD" || name == "@" || name.starts_with("ckp_") {
        return bad("it means something else");
    }
    if name.starts_with(['-', '.', '/']) {
        return bad("it starts with '-', '.' or '/'");
    }
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if !name.chars().all(plain) {
        return bad("it has a character that a revision uses or that cannot be typed");
    }
    Ok(())
}

/// The names that look most like `text`, best first, at most three.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let bound = text.chars().count() / 3 + 1;
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| (distance(text, name), name))
        .filter(|(far, _)| *far <= bound)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Edits (insert, delete, replace, swap of neighbours; case is free) from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).take(TAG_MAX_BYTES).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).take(TAG_MAX_BYTES).collect();
    let mut rows: [Vec<usize>; 3] = [Vec::new(), (0..=b.len()).collect(), Vec::new()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replace.min(rows[1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[0][j - 2] + 1);
            }
            row.push(least);
        }
        rows[2] = row;
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        match parse(text) {
            Ok(Parsed { base, back }) => format!("{base:?} {back}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_read() {
        let table = [
            ("HEAD", "Head 0"),
            ("@", "Head 0"),
            ("HEAD~", "Head 1"),
            ("HEAD~2", "Head 2"),
            ("HEAD^^", "Head 2"),
            ("HEAD~2^~", "Head 4"),
            ("HEAD~0", "Head 0"),
            ("@{-1}", "Jump(1) 0"),
            ("@{-12}~3", "Jump(12) 3"),
            ("ckp_00ff", "Name(\"ckp_00ff\") 0"),
            ("before/risky~1", "Name(\"before/risky\") 1"),
            ("", "\"\" is not a revision: it is empty"),
            ("~1", "\"~1\" is not a revision: it is empty"),
            ("@{1}", "\"@{1}\" is not a revision: after @ comes {-1}, {-2} and so on"),
            (
                "@{-0}",
                "\"@{-0}\" is not a revision: after @ comes {-1}, {-2} and so on",
            ),
            ("@{-1", "\"@{-1\" is not a revision: after @ comes {-1}, {-2} and so on"),
            (
                "HEAD~x",
                "\"HEAD~x\" is not a revision: after the name comes only ~N or ^",
            ),
            ("HEAD^2", "\"HEAD^2\" is not a revision: a checkpoint has one parent"),
            (
                "HEAD~99999999999999999999",
                "\"HEAD~99999999999999999999\" is not a revision: that is too far back",
            ),
            (
                "HEAD~é",
                "\"HEAD~é\" is not a revision: after the name comes only ~N or ^",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    #[test]
    fn what_may_be_a_tag() {
        for good in ["a", "before-risky", "v1.2/x_y", "Überblick", "abc123"] {
            assert!(check_tag(good).is_ok(), "{good}");
        }
        for bad in [
            "", "HEAD", "@", "@{-1}", "ckp_1", "a~1", "a^", "-x", ".x", "a b", "a:b", "a@b", "x\n",
        ] {
            assert!(check_tag(bad).is_err(), "{bad}");
        }
        assert!(check_tag(&"x".repeat(129)).is_err());
    }

    #[test]
    fn names_that_look_alike() {
        let names = ["before-risky", "baseline", "HEAD"];
        let table = [
            ("before-riksy", vec!["before-risky"]),
            ("base", vec![]),
            ("baselin", vec!["baseline"]),
            ("head", vec!["HEAD"]),
            ("zzz", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(nearest(text, names), expected, "{text}");
        }
    }
}
