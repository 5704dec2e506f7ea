//! Compares a stopped box with an image: always in tests, sampled in production. Reads only.

use image::process::{Process, Processes};

use crate::Frozen;

/// The differences between what stands still and `target`, one line each.
pub(crate) fn compare(frozen: &mut Frozen<'_>, target: &Processes) -> Vec<String> {
    let mut lines = Vec::new();
    let (now, _found) = match frozen.observe(false) {
        Ok(observed) => observed,
        Err(error) => return vec![error.to_string()],
    };
    for (pid, wanted) in &target.processes {
        let Some(present) = now.processes.get(pid) else {
            lines.push(format!("pid {pid}: missing"));
            continue;
        };
        process(present, wanted, &mut lines);
        if let Some(process) = frozen.engine.live.values().find(|p| p.pid == *pid) {
            bytes(process, wanted, &mut lines);
        }
    }
    for pid in now.processes.keys().filter(|pid| !target.processes.contains_key(pid)) {
        lines.push(format!("pid {pid}: not in the checkpoint"));
    }
    lines
}

fn process(now: &Process, wanted: &Process, lines: &mut Vec<String>) {
    let pid = wanted.pid;
    let mut check = |same: bool, what: &str| {
        if !same {
            lines.push(format!("pid {pid}: {what} differs"));
        }
    };
    check(now.actions == wanted.actions, "a signal disposition");
    check(now.umask == wanted.umask, "umask");
    // A directory that was removed comes back as another inode: its path tells.
    check(
        crate::apply::nameless::is_same_directory(&now.cwd.0, &wanted.cwd.0),
        "working directory",
    );
    check(now.limits == wanted.limits, "a limit");
    check(now.memory.brk == wanted.memory.brk, "program break");
    let numbers = |p: &Process| p.slots.iter().map(|s| (s.number, s.cloexec)).collect::<Vec<_>>();
    check(numbers(now) == numbers(wanted), "the descriptor table");
    let tids = |p: &Process| p.threads.iter().map(|t| t.tid).collect::<Vec<_>>();
    check(tids(now) == tids(wanted), "the set of threads");
    for (present, wanted) in now.threads.iter().zip(&wanted.threads) {
        check(
            present.mask == wanted.mask,
            &format!("signal mask of thread {}", wanted.tid),
        );
        check(
            present.altstack == wanted.altstack,
            &format!("alternate stack of thread {}", wanted.tid),
        );
    }
}

/// Every page of the image against what is there.
fn bytes(process: &crate::tracee::LiveProcess, wanted: &Process, lines: &mut Vec<String>) {
    let Some(space) = &process.space else { return };
    let mut wrong = 0u64;
    let mut first = 0;
    for mapping in wanted.memory.mappings.iter().filter(|m| m.is_private()) {
        wanted
            .memory
            .pages
            .for_each_in(mapping.start / 4096, mapping.end / 4096, |page, slot| {
                let mut present = [0; 4096];
                let read = linux::process_vm::read_forced(&space.memory, page * 4096, &mut present);
                // The kernel itself writes to the areas of restartable sequences of stopped threads.
                let rseq = wanted.threads.iter().any(|t| t.rseq.address / 4096 == page);
                if (read.is_err() || slot.bytes() != Some(&present)) && !rseq {
                    wrong += 1;
                    first = if wrong == 1 { page * 4096 } else { first };
                }
            });
    }
    if wrong > 0 {
        lines.push(format!(
            "pid {}: {wrong} pages differ, the first at {first:x}",
            wanted.pid
        ));
    }
}
