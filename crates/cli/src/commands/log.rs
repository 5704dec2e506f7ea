//! `log`: the history as a tree. The newest is last; what grew beside the way to the head is indented.

use std::collections::HashMap;

use api::{Checkpoint, Log};

use super::{connect, named_or_only, path};
use crate::args::OneBox;
use crate::error::Result;
use crate::output::{Output, age, now_ms, size};

/// Fewest digits of an id that are shown.
const DIGITS_MIN: usize = 6;

/// Prints the tree.
pub(crate) fn log(args: OneBox, output: &Output) -> Result<u8> {
    let mut client = connect(output)?;
    let sandbox = named_or_only(&mut client, args.sandbox)?;
    let log: Log = client.get(&path(&sandbox, "/checkpoints"))?;
    if log.checkpoints.is_empty() {
        output.note("no checkpoint yet: deltabox checkpoint");
    }
    output.value(&log, |log| draw(log, now_ms()))?;
    Ok(0)
}

/// The tree as text.
fn draw(log: &Log, now_ms: u64) -> String {
    let known: HashMap<&str, usize> = log
        .checkpoints
        .iter()
        .enumerate()
        .map(|(index, line)| (line.id.as_str(), index))
        .collect();
    let parent = |line: &Checkpoint| line.parent.as_deref().and_then(|id| known.get(id).copied());
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); log.checkpoints.len()];
    let mut roots = Vec::new();
    for (index, line) in log.checkpoints.iter().enumerate() {
        match parent(line) {
            Some(parent) => children[parent].push(index),
            None => roots.push(index),
        }
    }
    let mut on_way = vec![false; log.checkpoints.len()];
    let mut at = log.checkpoints.iter().position(|line| line.head);
    while let Some(index) = at {
        on_way[index] = true;
        at = parent(&log.checkpoints[index]);
    }
    // The way to the head goes straight on: it is the last child.
    for list in children.iter_mut().chain([&mut roots]) {
        list.sort_by_key(|index| on_way[*index]);
    }
    let digits = digits(log);
    let mut text = String::new();
    // Newest at the top of the stack; each with the columns left of it.
    let mut stack: Vec<(usize, String, bool)> =
        roots.iter().rev().map(|index| (*index, String::new(), false)).collect();
    while let Some((index, left, turns)) = stack.pop() {
        let lead = if turns { format!("{left}├─") } else { left.clone() };
        text += &format!("{lead}{}\n", describe(&log.checkpoints[index], digits, now_ms));
        let below = if turns { format!("{left}│ ") } else { left };
        let Some((last, beside)) = children[index].split_last() else {
            continue;
        };
        stack.push((*last, below.clone(), false));
        stack.extend(beside.iter().rev().map(|index| (*index, below.clone(), true)));
    }
    text
}

fn describe(line: &Checkpoint, digits: usize, now_ms: u64) -> String {
    let mut names = Vec::new();
    if line.head {
        names.push("HEAD".to_owned());
    }
    names.extend(line.tags.iter().cloned());
    let id = &line.id[..line.id.len().min("ckp_".len() + digits)];
    let mark = if line.head { '●' } else { '○' };
    let mut text = format!("{mark} {id}");
    if !names.is_empty() {
        text += &format!("  ({})", names.join(", "));
    }
    if let Some(message) = &line.message {
        text += &format!("  {}", message.lines().next().unwrap_or_default());
    } else if line.automatic {
        text += "  kept by a rollback";
    }
    text += &format!("  {}", age(line.created_ms, now_ms));
    if line.dropped {
        return text + "  dropped: the history's memory bound";
    }
    text += &format!(
        "  {} processes, {} memory, {} files",
        line.process_count,
        size(line.memory_bytes),
        line.changed_files
    );
    if !line.outside.is_empty() {
        text += &format!("  outside: {}", line.outside.join(", "));
    }
    text
}

/// How many digits tell all ids apart.
fn digits(log: &Log) -> usize {
    let start = "ckp_".len();
    let mut ids: Vec<&str> = log.checkpoints.iter().filter_map(|line| line.id.get(start..)).collect();
    ids.sort_unstable();
    let same = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let longest = ids.windows(2).map(|pair| same(pair[0], pair[1]) + 1).max().unwrap_or(0);
    longest.clamp(DIGITS_MIN, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, parent: Option<&str>) -> Checkpoint {
        Checkpoint {
            id: format!("ckp_{id:0<16}"),
            parent: parent.map(|id| format!("ckp_{id:0<16}")),
            message: Some(format!("m{id}")),
            tags: Vec::new(),
            created_ms: 0,
            head: false,
            process_count: 1,
            memory_bytes: 4096,
            file_bytes: 0,
            changed_files: 2,
            dropped: false,
            automatic: false,
            outside: Vec::new(),
        }
    }

    #[test]
    fn the_way_to_the_head_is_straight() {
        let mut checkpoints = vec![
            line("1", None),
            line("2", Some("1")),
            line("3", Some("2")),
            line("4", Some("3")),
            line("5", Some("2")),
            line("6", Some("2")),
        ];
        checkpoints[4].head = true;
        checkpoints[4].tags = vec!["good".to_owned()];
        checkpoints[5] = Checkpoint {
            message: None,
            automatic: true,
            ..checkpoints[5].clone()
        };
        checkpoints[0].dropped = true;
        checkpoints[1].outside = vec!["/data".to_owned()];
        let expected = "\
○ ckp_100000  m1  2 s ago  dropped: the history's memory bound
○ ckp_200000  m2  2 s ago  1 processes, 4.0 KiB memory, 2 files  outside: /data
├─○ ckp_300000  m3  2 s ago  1 processes, 4.0 KiB memory, 2 files
│ ○ ckp_400000  m4  2 s ago  1 processes, 4.0 KiB memory, 2 files
├─○ ckp_600000  kept by a rollback  2 s ago  1 processes, 4.0 KiB memory, 2 files
● ckp_500000  (HEAD, good)  m5  2 s ago  1 processes, 4.0 KiB memory, 2 files
";
        assert_eq!(draw(&Log { checkpoints }, 2000), expected);
        assert_eq!(
            draw(
                &Log {
                    checkpoints: Vec::new()
                },
                0
            ),
            ""
        );
    }

    #[test]
    fn ids_are_as_long_as_they_must_be() {
        let log = Log {
            checkpoints: vec![line("12345678", None), line("12345679", None)],
        };
        assert_eq!(digits(&log), 8);
    }
}
