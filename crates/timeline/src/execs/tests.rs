//! Commands that are plain child processes of the test: everything but going back in memory is real here.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::output::{ExecEvent, Stream};
use crate::streams::INPUT_PENDING_MAX_BYTES;

const TO: CheckpointId = CheckpointId::from_bits(7);
const PATIENCE: Duration = Duration::from_secs(20);

struct Started {
    child: Child,
    id: ExecId,
}

impl Drop for Started {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn start(execs: &Execs, id: u64, script: &str) -> Started {
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let spec = ExecSpec {
        argv: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: Vec::new(),
        workdir: None,
        user: None,
        terminal: None,
        stdin: true,
    };
    let ends = Ends {
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
        master: None,
    };
    let id = ExecId::from_bits(id);
    execs
        .started(
            id,
            &spec,
            Process {
                pid: child.id(),
                host_pid: child.id(),
                ends,
            },
            1,
        )
        .unwrap();
    Started { child, id }
}

/// Reads until `enough` says so; all bytes of `stream`.
fn read_until(follower: &mut Follower, stream: Stream, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !enough(&text) {
        match follower.recv_timeout(PATIENCE).expect("it says something in time") {
            ExecEvent::Output {
                stream: from, bytes, ..
            } if from == stream => text += &String::from_utf8_lossy(&bytes),
            ExecEvent::Output { .. } => {}
            other => panic!("{other:?} after {text:?}"),
        }
    }
    text
}

#[test]
fn streams_are_told_apart_and_the_end_comes_last() {
    let execs = Execs::new().unwrap();
    let mut started = start(&execs, 1, "read line; echo \"out $line\"; echo err >&2; exit 3");
    let mut follower = execs.follow(started.id, 0.into()).unwrap();
    execs.send(started.id, b"hello\n", true).unwrap();
    let code = started.child.wait().unwrap().code().unwrap();
    execs.exited(started.child.id(), code);
    let mut lines = Vec::new();
    loop {
        match follower.recv_timeout(PATIENCE).unwrap() {
            ExecEvent::Output { stream, bytes, .. } => {
                lines.push(format!("{stream:?} {}", String::from_utf8_lossy(&bytes)))
            }
            ExecEvent::Exited { code } => break lines.push(format!("exited {code}")),
            other => panic!("{other:?}"),
        }
    }
    lines[..2].sort();
    assert_eq!(lines, ["Stderr err\n", "Stdout out hello\n", "exited 3"]);
    assert!(matches!(
        execs.send(started.id, b"x", false),
        Err(TimelineError::ExecRefused { .. })
    ));
    assert!(matches!(
        execs.signal(started.id, 15),
        Err(TimelineError::ExecRefused { .. })
    ));
}

#[test]
fn a_mark_holds_what_was_printed_and_a_rewind_cuts_the_rest() {
    let execs = Execs::new().unwrap();
    let kept = start(&execs, 1, "echo one; read x; echo two; read x");
    let mut follower = execs.follow(kept.id, 0.into()).unwrap();
    read_until(&mut follower, Stream::Stdout, |text| text == "one\n");
    let marks = execs.mark();
    let later = start(&execs, 2, "echo later; read x");
    let mut of_later = execs.follow(later.id, 0.into()).unwrap();
    read_until(&mut of_later, Stream::Stdout, |text| text == "later\n");
    execs.send(kept.id, b"go\n", false).unwrap();
    read_until(&mut follower, Stream::Stdout, |text| text == "two\n");

    assert_eq!(execs.rewind(&marks, TO, |_| true), [later.id, kept.id]);
    let cut = follower.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(
            cut,
            ExecEvent::RolledBack {
                to: TO,
                cut_at: 4,
                gone: false,
                ..
            }
        ),
        "{cut:?}"
    );
    let gone = of_later.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(gone, ExecEvent::RolledBack { to: TO, gone: true, .. }),
        "{gone:?}"
    );
    assert!(matches!(
        execs.follow(later.id, 0.into()),
        Err(TimelineError::UnknownExec(_))
    ));
    assert_eq!(execs.lines().len(), 1);
    // The end of the undone command is nobody's, also when its number is taken again.
    execs.exited(later.child.id(), 9);
    assert_eq!(execs.lines()[0].state, ExecState::Running);
}

#[test]
fn an_end_that_was_on_its_way_stays() {
    let execs = Execs::new().unwrap();
    let mut started = start(&execs, 1, "exit 0");
    let marks = execs.mark();
    started.child.wait().unwrap();
    execs.exited(started.child.id(), 0);
    execs.rewind(&marks, TO, |_| false);
    assert_eq!(execs.lines()[0].state, ExecState::Exited(0));
    execs.rewind(&marks, TO, |_| true);
    assert_eq!(execs.lines()[0].state, ExecState::Running);
}

#[test]
fn input_that_nobody_reads_waits_up_to_the_bound() {
    let execs = Execs::new().unwrap();
    let started = start(&execs, 1, "exec sleep 600");
    let mut follower = execs.follow(started.id, 0.into()).unwrap();
    let block = vec![b'x'; 1 << 20];
    let mut sent = 0;
    let full = loop {
        match execs.send(started.id, &block, false) {
            Ok(()) => sent += block.len(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, TimelineError::InputFull { .. }), "{full}");
    assert!(sent >= INPUT_PENDING_MAX_BYTES - block.len());
    drop(started);
    execs.end();
    assert!(matches!(follower.recv_timeout(PATIENCE), Some(ExecEvent::Ended)));
}

#[test]
fn waiting_input_arrives_whole() {
    let execs = Execs::new().unwrap();
    let started = start(&execs, 1, "wc -c");
    let mut follower = execs.follow(started.id, 0.into()).unwrap();
    execs.send(started.id, &vec![b'x'; 3_000_000], true).unwrap();
    read_until(&mut follower, Stream::Stdout, |text| text.trim() == "3000000");
}

#[test]
fn the_oldest_ended_are_forgotten_beyond_the_bound() {
    let execs = Execs::new().unwrap();
    let running = start(&execs, 0, "read x");
    for n in 1..=EXECS_MAX as u64 {
        let mut started = start(&execs, n, ":");
        started.child.wait().unwrap();
        execs.exited(started.child.id(), 0);
    }
    let lines = execs.lines();
    assert_eq!(
        (lines.len(), lines[0].id, lines[1].id),
        (EXECS_MAX, running.id, ExecId::from_bits(2))
    );
}

#[test]
fn what_was_not_read_yet_is_put_back_and_a_closed_input_is_opened_again() {
    let execs = Execs::new().unwrap();
    let started = start(&execs, 1, "kill -STOP $$; while read line; do echo \"got $line\"; done");
    let pid = rustix::process::Pid::from_child(&started.child);
    rustix::process::waitid(
        rustix::process::WaitId::Pid(pid),
        rustix::process::WaitIdOptions::STOPPED,
    )
    .unwrap();
    execs.send(started.id, b"one\n", false).unwrap();
    let marks = execs.mark();
    execs.send(started.id, b"undone\n", true).unwrap();
    execs.rewind(&marks, TO, |_| true);
    execs.send(started.id, b"two\n", true).unwrap();
    execs.signal(started.id, 18).unwrap();
    let mut follower = execs.follow(started.id, 0.into()).unwrap();
    let text = read_until(&mut follower, Stream::Stdout, |text| text.contains("two"));
    assert_eq!(text, "got one\ngot two\n");
}
