//! Rust source with its comments and literals blanked out, so that a rule sees code only. Not a parser: it knows just
//! enough to tell where a comment, a string or a character begins and ends.

/// `text` with every comment, string and character literal replaced by one space; lines keep their numbers.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let skipped = if after_word {
            string_length(rest)
        } else {
            literal_length(rest)
        };
        if skipped == 0 {
            code.push(first);
            after_word = first.is_alphanumeric() || first == '_';
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            after_word = false;
            rest = &rest[skipped..];
        }
    }
    code
}

/// Length of the comment or literal that `rest` begins with, 0 when it begins with code.
fn literal_length(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    let raw = rest
        .strip_prefix('b')
        .or_else(|| rest.strip_prefix('c'))
        .unwrap_or(rest);
    if let Some(after) = raw.strip_prefix('r') {
        let hashes = after.len() - after.trim_start_matches('#').len();
        if after[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = rest.len() - after.len() + hashes + 1;
            return rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len());
        }
    }
    if raw.len() < rest.len() && raw.starts_with('"') {
        return 1 + string_length(raw);
    }
    string_length(rest)
}

fn string_length(rest: &str) -> usize {
    match rest.as_bytes().first() {
        Some(b'"') => quoted_length(rest, '"'),
        Some(b'\'') => character_length(rest),
        _ => 0,
    }
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// A character literal, told apart from a lifetime by its closing quote.
fn character_length(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_length(rest, '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Whether `code` holds `word` as a whole word.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let code = code_only(text);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>().join(" "),
            expected,
            "{text}"
        );
        assert_eq!(
            code.matches('\n').count(),
            text.matches('\n').count(),
            "line numbers of {text}"
        );
    }

    #[test]
    fn comments_and_literals_go() {
        check("a // unsafe\nb", "a b");
        check("a /* x /* y */ \n z */ b", "a b");
        check(r#"a("un\"safe") b"#, "a( ) b");
        check("a(r#\"un\"safe\"#) b", "a( ) b");
        check("a(b\"x\", c\"y\", br\"z\") d", "a( , , ) d");
        check("a('\"', '\\'', 'x') b", "a( , , ) b");
    }

    #[test]
    fn code_stays() {
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("for r in b {}", "for r in b {}");
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(!has_word("forbid(unsafe_code)", "unsafe"));
    }
}
