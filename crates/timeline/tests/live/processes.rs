//! Processes, their output and their input through checkpoints and rollbacks.

use image::ExecId;
use timeline::{Command, ExecEvent, ExecState, Follower, Kind, Outcome};

use crate::fixture::{Live, PATIENCE, command, read_until};

/// A program that holds its state in memory and answers every line.
const COUNTER: &str = "n=0; echo ready; while read line; do n=$((n+1)); echo \"$line $n\"; done; exit 4";

fn counter(live: &Live) -> (ExecId, Follower) {
    let exec = live.start(COUNTER);
    let mut follower = live.handle.follow(exec, 0).unwrap();
    read_until(&mut follower, "ready\n");
    (exec, follower)
}

/// Runs a Python program, where there is Python; else says that the test is skipped.
#[expect(clippy::print_stdout, reason = "a skip is printed")]
fn python(live: &Live, program: &str) -> Option<(ExecId, Follower)> {
    if live.sh("command -v python3").contains("[127]") {
        println!("skipped: the box has no python3");
        return None;
    }
    match live.ask(Command::Exec(command(&["python3", "-c", program]))) {
        Ok(Outcome::Started { exec, .. }) => Some((exec, live.handle.follow(exec, 0).unwrap())),
        other => panic!("{other:?}"),
    }
}

fn tell(live: &Live, exec: ExecId, line: &str) {
    live.ask(Command::Stdin {
        exec,
        bytes: format!("{line}\n").into_bytes(),
        close: false,
    })
    .unwrap();
}

#[test]
fn a_program_goes_back_with_its_output_and_goes_on() {
    let live = Live::new(1 << 30);
    let (exec, mut follower) = counter(&live);
    tell(&live, exec, "a");
    read_until(&mut follower, "a 1\n");
    live.checkpoint(None);
    tell(&live, exec, "undone");
    read_until(&mut follower, "undone 2\n");
    assert_eq!(live.rollback("HEAD"), [exec]);
    tell(&live, exec, "b");
    assert_eq!(read_until(&mut follower, "b 2\n"), "<back to 10 false>b 2\n");
    // And forward again, to the present that was kept: with the text that was undone.
    live.rollback("@{-1}");
    tell(&live, exec, "c");
    assert_eq!(read_until(&mut follower, "c 3\n"), "<back to 10 false>undone 2\nc 3\n");
    let mut whole = live.handle.follow(exec, 0).unwrap();
    assert_eq!(read_until(&mut whole, "c 3\n"), "ready\na 1\nundone 2\nc 3\n");
}

#[test]
fn going_back_twenty_times_is_going_back_once() {
    let live = Live::new(1 << 30);
    let (exec, mut follower) = counter(&live);
    live.checkpoint(Some("start"));
    for round in 0..20 {
        tell(&live, exec, "x");
        read_until(&mut follower, "x 1\n");
        if round % 3 == 0 {
            live.checkpoint(None);
        }
        live.go("start", round % 2 == 0).unwrap();
        assert_eq!(read_until(&mut follower, ">"), "<back to 6 false>");
    }
    assert_eq!(live.handle.execs().len(), 1);
}

// The program waits at a gate of its own. (Stopped by SIGSTOP instead, it does not go on after the rollback in about one
// run of three: job-control stops are not put back yet, see docs/rollback-semantics.md.)
#[test]
fn input_that_was_not_read_at_the_checkpoint_is_there_again() {
    let live = Live::new(1 << 30);
    let exec =
        live.start("mkfifo /tmp/gate; echo ready; read x </tmp/gate; while read line; do echo \"got $line\"; done");
    let mut follower = live.handle.follow(exec, 0).unwrap();
    read_until(&mut follower, "ready\n");
    tell(&live, exec, "early");
    live.checkpoint(None);
    live.ask(Command::Stdin {
        exec,
        bytes: b"undone\n".to_vec(),
        close: false,
    })
    .unwrap();
    live.rollback("HEAD");
    tell(&live, exec, "late");
    live.start("echo > /tmp/gate");
    assert_eq!(
        read_until(&mut follower, "late\n"),
        "<back to 6 false>got early\ngot late\n"
    );
}

#[test]
fn what_is_still_in_the_pipe_belongs_to_the_cut() {
    let live = Live::new(1 << 30);
    // A program that prints without end: whatever the moment, no byte may be lost or come twice.
    let exec = live.start("i=0; while :; do echo $i; i=$((i+1)); done");
    let mut follower = live.handle.follow(exec, 0).unwrap();
    read_until(&mut follower, "\n1000\n");
    live.checkpoint(None);
    let mut later = live.handle.follow(exec, live.handle.execs()[0].output_bytes).unwrap();
    assert!(matches!(later.recv_timeout(PATIENCE), Some(ExecEvent::Output { .. })));
    live.go("HEAD", false).unwrap();
    let from = live.handle.execs()[0].output_bytes.saturating_sub(20_000);
    let mut follower = live.handle.follow(exec, from).unwrap();
    let mut text = String::new();
    while text.len() < 60_000 {
        match follower.recv_timeout(PATIENCE).unwrap() {
            ExecEvent::Output { bytes, .. } => text += &String::from_utf8_lossy(&bytes),
            other => panic!("{other:?}"),
        }
    }
    let whole = &text[text.find('\n').unwrap() + 1..=text.rfind('\n').unwrap()];
    let numbers: Vec<u64> = whole.lines().map(|line| line.parse().unwrap()).collect();
    let wrong = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(wrong, None);
}

#[test]
fn a_terminal_with_a_shell_goes_back() {
    let live = Live::new(1 << 30);
    let env = [("PS1", "@@ "), ("TERM", "dumb")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let terminal = Some((24, 80));
    let spec = timeline::command::ExecSpec {
        terminal,
        env,
        ..command(&["bash", "--norc", "-i"])
    };
    let Ok(Outcome::Started { exec, .. }) = live.ask(Command::Exec(spec)) else {
        panic!("it starts")
    };
    let mut follower = live.handle.follow(exec, 0).unwrap();
    tell(&live, exec, "x=before; cd /tmp; echo set-$x");
    read_until(&mut follower, "set-before\r\n@@ ");
    live.checkpoint(None);
    tell(&live, exec, "x=after; cd /; echo now-$x");
    read_until(&mut follower, "now-after\r\n@@ ");
    live.rollback("HEAD");
    tell(&live, exec, "echo is-$x-$PWD");
    read_until(&mut follower, "is-before-/tmp\r\n");
}

#[test]
fn a_command_that_ended_since_cannot_come_back_yet_and_nothing_is_touched() {
    let live = Live::new(1 << 30);
    let (exec, mut follower) = counter(&live);
    live.checkpoint(None);
    live.ask(Command::Stdin {
        exec,
        bytes: b"x\n".to_vec(),
        close: true,
    })
    .unwrap();
    read_until(&mut follower, "x 1\n");
    assert_eq!(follower.recv_timeout(PATIENCE), Some(ExecEvent::Exited { code: 4 }));
    live.sh("echo here >/srv/here");
    let error = live.go("HEAD", true).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused, "{error}");
    assert!(error.to_string().contains("died"), "{error}");
    assert_eq!(live.sh("cat /srv/here"), "here\n");
    assert_eq!(live.handle.execs()[0].state, ExecState::Exited(4));
    assert_eq!(live.log().len(), 1, "a rollback that was refused leaves no checkpoint");
}

#[test]
fn memory_and_files_are_one_cut() {
    let live = Live::new(1 << 30);
    // Writes a number to a file and keeps it in memory; says so when the two differ.
    let exec = live.start(
        "n=0; while :; do n=$((n+1)); echo $n >/srv/n; read m </srv/n; [ $m = $n ] || echo \"differ $m $n\"; \
         [ $((n % 100)) = 0 ] && echo $n; done",
    );
    let mut follower = live.handle.follow(exec, 0).unwrap();
    read_until(&mut follower, "100\n");
    live.checkpoint(None);
    for _ in 0..10 {
        assert!(matches!(
            follower.recv_timeout(PATIENCE),
            Some(ExecEvent::Output { .. })
        ));
        live.go("HEAD", false).unwrap();
        assert!(!read_until(&mut follower, ">").contains("differ"));
    }
    assert!(!read_until(&mut follower, "00\n").contains("differ"));
}

#[test]
fn a_thread_that_ended_since_runs_again() {
    const PROGRAM: &str = "
import queue, sys, threading
box = queue.Queue()
worker = threading.Thread(target=box.get)
worker.start()
print('ready', flush=True)
for line in sys.stdin:
    if line == 'end\\n':
        box.put(None)
        worker.join()
    print(line.strip(), worker.is_alive(), flush=True)
";
    let live = Live::new(1 << 30);
    let Some((exec, mut follower)) = python(&live, PROGRAM) else {
        return;
    };
    read_until(&mut follower, "ready\n");
    live.checkpoint(None);
    for _ in 0..3 {
        tell(&live, exec, "end");
        assert!(read_until(&mut follower, "end False\n").ends_with("end False\n"));
        live.rollback("HEAD");
        tell(&live, exec, "asked");
        read_until(&mut follower, "asked True\n");
        live.go("HEAD", false).unwrap();
    }
}

// A checkpoint that is refused has looked at processes already, and what it saw of their pages counts as unwritten to the
// kernel: the next one must not believe that. (It did: after a rollback to it, memory was older than it.)
#[test]
fn a_refused_checkpoint_is_as_if_it_had_never_been() {
    const REFUSED: &str = "
import socket, sys
kept = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
print('open', flush=True)
sys.stdin.read()
";
    let live = Live::new(1 << 30);
    let (exec, mut follower) = counter(&live);
    tell(&live, exec, "a");
    read_until(&mut follower, "a 1\n");
    live.checkpoint(None);
    tell(&live, exec, "b");
    read_until(&mut follower, "b 2\n");
    let Some((other, mut its)) = python(&live, REFUSED) else {
        return;
    };
    read_until(&mut its, "open\n");
    let checkpoint = Command::Checkpoint {
        message: None,
        tag: None,
    };
    let error = live.ask(checkpoint).unwrap_err();
    assert!(error.to_string().contains("netlink socket"), "{error}");
    live.ask(Command::Stdin {
        exec: other,
        bytes: Vec::new(),
        close: true,
    })
    .unwrap();
    assert_eq!(its.recv_timeout(PATIENCE), Some(ExecEvent::Exited { code: 0 }));
    live.checkpoint(None);
    tell(&live, exec, "undone");
    read_until(&mut follower, "undone 3\n");
    live.rollback("HEAD");
    tell(&live, exec, "c");
    read_until(&mut follower, "c 3\n");
}

// Those that had been asked to stop when the refusal came stood still for ever.
#[test]
fn a_box_in_which_something_is_traced_is_refused_and_goes_on() {
    const TRACER: &str = "
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
print('traced', flush=True)
sys.stdin.read()
";
    let live = Live::new(1 << 30);
    let (exec, mut follower) = counter(&live);
    let Some((_, mut its)) = python(&live, TRACER) else {
        return;
    };
    read_until(&mut its, "traced\n");
    let checkpoint = Command::Checkpoint {
        message: None,
        tag: None,
    };
    let error = live.ask(checkpoint).unwrap_err();
    assert!(error.to_string().contains("traced by another program"), "{error}");
    tell(&live, exec, "a");
    read_until(&mut follower, "a 1\n");
}
