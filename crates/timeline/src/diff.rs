//! What differs between two states of a box, as lines for people and programs. Only reads.

use std::collections::BTreeMap;

use engine::ProcessLine;
use files::Tree;

use crate::checkpoint::State;
use crate::command::DiffLine;
use crate::halves::untracked;

/// Files by path, then processes by pid.
pub(crate) fn diff(from: &State, to: &State) -> Vec<DiffLine> {
    let mut lines: Vec<DiffLine> = Tree::diff(&from.tree, &to.tree)
        .into_iter()
        .map(|(change, path)| DiffLine::File {
            change: match change {
                'A' => '+',
                'D' => '-',
                _ => '~',
            },
            path: untracked(path).to_string_lossy().into_owned(),
        })
        .collect();
    let changed: BTreeMap<u32, u64> = from.process.diff(&to.process).into_iter().collect();
    lines.extend(processes(&from.process.lines(), &to.process.lines(), &changed));
    lines
}

fn processes(from: &[ProcessLine], to: &[ProcessLine], changed: &BTreeMap<u32, u64>) -> Vec<DiffLine> {
    let line = |change, process: &ProcessLine, bytes| DiffLine::Process {
        change,
        pid: process.pid,
        comm: process.comm.clone(),
        bytes,
    };
    let mut lines = BTreeMap::new();
    for process in from {
        if !to.iter().any(|other| other.pid == process.pid) {
            lines.insert((process.pid, 0), line('-', process, process.memory_bytes));
        }
    }
    for process in to {
        match from.iter().find(|other| other.pid == process.pid) {
            None => {
                lines.insert((process.pid, 1), line('+', process, process.memory_bytes));
            }
            Some(before) => {
                let bytes = changed.get(&process.pid).copied().unwrap_or(0);
                if bytes > 0 || before != process {
                    lines.insert((process.pid, 1), line('~', process, bytes));
                }
            }
        }
    }
    lines.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, comm: &str, thread_count: u32) -> ProcessLine {
        ProcessLine {
            pid,
            parent: 1,
            comm: comm.to_owned(),
            thread_count,
            fd_count: 3,
            memory_bytes: 8192,
        }
    }

    #[test]
    fn born_gone_changed_and_the_same() {
        let from = [
            process(2, "bash", 1),
            process(3, "python3", 1),
            process(4, "sleep", 1),
            process(5, "idle", 1),
        ];
        let to = [
            process(2, "bash", 1),
            process(3, "python3", 4),
            process(5, "idle", 1),
            process(9, "node", 7),
        ];
        let shown: Vec<String> = processes(&from, &to, &BTreeMap::from([(2, 4096)]))
            .into_iter()
            .map(|line| match line {
                DiffLine::Process {
                    change,
                    pid,
                    comm,
                    bytes,
                } => format!("{change} {pid} {comm} {bytes}"),
                DiffLine::File { .. } => unreachable!("only processes were given"),
            })
            .collect();
        assert_eq!(
            shown,
            ["~ 2 bash 4096", "~ 3 python3 0", "- 4 sleep 8192", "+ 9 node 8192"]
        );
    }
}
