//! Real sandboxes driven through their handles. Root only, like the product.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "live/fixture.rs"]
mod fixture;
#[path = "live/processes.rs"]
mod processes;

use std::time::{Duration, Instant};

use image::{Principal, Tenant};
use timeline::command::{ExecSpec, Revision};
use timeline::{BoxState, Command, ExecEvent, Kind, Outcome, Request, TimelineError};

use crate::fixture::{Live, PATIENCE, command};

#[test]
fn commands_print_end_and_leave_an_event() {
    let live = Live::new(1 << 30);
    assert_eq!(live.sh("echo hello; id -u"), "hello\n0\n");
    assert_eq!(live.sh("echo error >&2; exit 7"), "error\n[7]");
    assert_eq!(live.sh("kill -9 $$"), "[137]");
    let exec = live.start("read line; echo \"got $line\"");
    live.ask(Command::Stdin {
        exec,
        bytes: b"it\n".to_vec(),
        close: true,
    })
    .unwrap();
    let mut follower = live.handle.follow(exec, 0).unwrap();
    let said = follower.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(said, ExecEvent::Output { ref bytes, .. } if bytes == b"got it\n"),
        "{said:?}"
    );
    let events: Vec<String> = live
        .events
        .since(0)
        .iter()
        .map(|event| format!("{} {}", event.command, event.outcome))
        .collect();
    assert_eq!(events.len(), 5);
    assert!(
        events[0].starts_with("exec exe_") && events[4] == "stdin done",
        "{events:?}"
    );
    let text = std::fs::read_to_string(live.directory.join("events.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 5);
}

#[test]
fn a_terminal_is_one_stream_with_a_size() {
    let live = Live::new(1 << 30);
    let spec = ExecSpec {
        terminal: Some((24, 80)),
        ..command(&["sh"])
    };
    let Ok(Outcome::Started { exec, .. }) = live.ask(Command::Exec(spec)) else {
        panic!("it starts")
    };
    live.ask(Command::Resize {
        exec,
        rows: 50,
        columns: 132,
    })
    .unwrap();
    live.ask(Command::Stdin {
        exec,
        bytes: b"tty; stty size; exit 5\n".to_vec(),
        close: false,
    })
    .unwrap();
    let mut follower = live.handle.follow(exec, 0).unwrap();
    let mut text = String::new();
    let code = loop {
        match follower
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|| panic!("nothing after {text:?}"))
        {
            ExecEvent::Output { bytes, .. } => text += &String::from_utf8_lossy(&bytes),
            ExecEvent::Exited { code } => break code,
            other => panic!("{other:?}"),
        }
    };
    assert!(text.contains("/dev/pts/") && text.contains("50 132"), "{text}");
    assert_eq!(code, 5);
}

#[test]
fn files_go_back_and_forth_through_the_history() {
    let live = Live::new(1 << 30);
    let library = live.sh("ls /usr/lib/python3");
    live.sh("mkdir -p /srv/data; echo one >/srv/data/a; echo keep >/etc/made");
    live.checkpoint(Some("one"));
    live.sh("echo two >/srv/data/a; echo b >/srv/data/b; echo x >>/etc/debian_version");
    live.checkpoint(Some("two"));
    assert_eq!(
        live.diff("one", Some("two")),
        ["~ /etc/debian_version", "~ /srv/data/a", "+ /srv/data/b"]
    );
    live.sh("rm -rf /srv /usr/lib/python3 /etc/made; echo gone >/tmp/gone");
    assert_eq!(live.sh("ls /srv /etc/made 2>/dev/null"), "[2]");
    let cut = live.rollback("HEAD");
    assert!(!cut.is_empty(), "the commands since the checkpoint are unknown again");
    assert_eq!(
        live.sh("cat /srv/data/a /srv/data/b /etc/made; ls /tmp"),
        "two\nb\nkeep\n"
    );
    assert_eq!(live.sh("ls /usr/lib/python3"), library);
    live.rollback("HEAD~1");
    assert_eq!(
        live.sh("cat /srv/data/a; grep -c x /etc/debian_version; ls /srv/data"),
        "one\n0\na\n"
    );
    live.rollback("@{-1}~1");
    assert_eq!(live.sh("cat /srv/data/a"), "two\n");
    let shape: Vec<(bool, bool, usize)> = live
        .log()
        .iter()
        .map(|line| (line.automatic, line.head, line.tags.len()))
        .collect();
    assert_eq!(shape.iter().filter(|line| line.0).count(), 3);
    assert_eq!(shape[..2], [(false, false, 1), (false, true, 1)]);
}

#[test]
fn what_was_started_later_is_unknown_again_and_told_so() {
    let live = Live::new(1 << 30);
    let head = live.checkpoint(None);
    let exec = live.start("echo up; exec sleep 1000");
    let mut follower = live.handle.follow(exec, 0).unwrap();
    assert!(matches!(
        follower.recv_timeout(PATIENCE),
        Some(ExecEvent::Output { .. })
    ));
    assert_eq!(live.rollback("HEAD"), [exec]);
    let told = follower.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(told, ExecEvent::RolledBack { to, gone: true, .. } if to == head.id),
        "{told:?}"
    );
    assert!(matches!(
        live.handle.follow(exec, 0),
        Err(TimelineError::UnknownExec(_))
    ));
    let error = live.ask(Command::Signal { exec, signal: 15 }).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

#[test]
fn names_and_errors() {
    let live = Live::new(1 << 30);
    let refused = |command| {
        let error = live.ask(command).unwrap_err();
        (error.kind(), error.to_string())
    };
    let nothing = refused(Command::Rollback {
        to: None,
        keep_present: true,
    });
    assert_eq!(
        nothing,
        (Kind::NotFound, "this sandbox has no checkpoint yet".to_owned())
    );
    live.checkpoint(Some("baseline"));
    let unknown = refused(Command::Rollback {
        to: Some(Revision("baselnie".to_owned())),
        keep_present: true,
    });
    assert_eq!(unknown.1, "no checkpoint \"baselnie\" (did you mean baseline?)");
    let taken = refused(Command::Checkpoint {
        message: None,
        tag: Some("baseline".to_owned()),
    });
    assert_eq!(taken.0, Kind::Refused);
    assert_eq!(live.log().len(), 1, "a checkpoint whose tag is refused is not taken");
    assert_eq!(refused(Command::Exec(command(&["no-such-program"]))).0, Kind::Refused);
    let other = Request {
        tenant: Tenant("other".to_owned()),
        principal: Principal("uid:1".to_owned()),
        command: Command::Log,
    };
    assert_eq!(live.handle.request(other).unwrap_err().kind(), Kind::NotFound);
    live.ask(Command::Untag {
        name: "baseline".to_owned(),
    })
    .unwrap();
    assert_eq!(live.log()[0].tags.len(), 0);
}

#[test]
fn files_in_and_out_belong_to_the_box_and_to_its_history() {
    let live = Live::new(1 << 30);
    live.checkpoint(None);
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o640);
    header.set_uid(33);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, "deep/file", &b"hello"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    live.ask(Command::WriteFiles {
        path: b"/srv/in".to_vec(),
        tar,
    })
    .unwrap();
    assert_eq!(
        live.sh("stat -c '%u %a' /srv/in/deep/file /srv/in; cat /srv/in/deep/file"),
        "33 640\n0 755\nhello"
    );
    live.sh("echo more >>/srv/in/deep/file");
    let Ok(Outcome::Files(tar)) = live.ask(Command::ReadFiles {
        path: b"/srv/in".to_vec(),
    }) else {
        panic!("read")
    };
    let mut archive = tar::Archive::new(&tar[..]);
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names, ["in", "in/deep", "in/deep/file"]);
    assert_eq!(
        live.diff("HEAD", None),
        ["+ /srv/in", "+ /srv/in/deep", "+ /srv/in/deep/file"]
    );
    live.rollback("HEAD");
    assert_eq!(live.sh("ls /srv"), "");
    let error = |path: &[u8]| live.ask(Command::ReadFiles { path: path.to_vec() }).unwrap_err();
    assert_eq!(error(b"/srv/in").kind(), Kind::NotFound);
    assert_eq!(error(b"/proc/1/status").kind(), Kind::Refused);
}

#[test]
fn many_at_once_are_one_after_the_other_or_busy() {
    let live = Live::new(1 << 30);
    let asked = 64;
    let outcomes: Vec<Result<Outcome, Kind>> = std::thread::scope(|scope| {
        let ask = || {
            live.ask(Command::Checkpoint {
                message: None,
                tag: None,
            })
            .map_err(|error| error.kind())
        };
        let threads: Vec<_> = (0..asked).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let taken = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(
        outcomes
            .iter()
            .all(|outcome| !matches!(outcome, Err(kind) if *kind != Kind::Busy)),
        "{outcomes:?}"
    );
    let lines = live.log();
    assert!(
        taken > timeline::QUEUE_MAX / 2 && lines.len() == taken,
        "{taken} taken, {} lines",
        lines.len()
    );
    // Each grew from the one before: nothing ran at the same time.
    assert!(lines.windows(2).all(|pair| pair[1].parent == Some(pair[0].id)));
}

#[test]
fn the_history_stays_within_its_bound_and_says_so() {
    let live = Live::new(3 << 20);
    for round in 0..6 {
        live.sh("head -c 1048576 /dev/urandom >/srv/blob");
        live.checkpoint((round == 0).then_some("first"));
    }
    let lines = live.log();
    let marks: String = lines.iter().map(|line| if line.dropped { '-' } else { '+' }).collect();
    assert!(marks.starts_with("+-") && marks.ends_with('+'), "{marks}");
    let error = live.go("HEAD~4", false).unwrap_err();
    assert!(matches!(error, TimelineError::Dropped { .. }), "{error}");
    live.rollback("first");
}

#[test]
fn a_box_that_died_says_so_and_can_be_removed() {
    let live = Live::new(1 << 30);
    live.checkpoint(None);
    let exec = live.start("exec sleep 1000");
    let mut follower = live.handle.follow(exec, 0).unwrap();
    let init = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(|pid| is_init_of(&live.handle.summary().name, *pid))
        .expect("its init is there");
    let pid = rustix::process::Pid::from_raw(init).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(follower.recv_timeout(PATIENCE), Some(ExecEvent::Ended));
    assert_eq!(
        live.ask(Command::Checkpoint {
            message: None,
            tag: None
        })
        .unwrap_err()
        .kind(),
        Kind::Died
    );
    assert_eq!(live.log().len(), 1);
    assert_eq!(live.handle.summary().state, BoxState::Died);
    live.ask(Command::Remove).unwrap();
    assert_eq!(live.ask(Command::Log).unwrap_err().kind(), Kind::Died);
}

/// PID 1 of the box whose groups are named `name`.
fn is_init_of(name: &str, pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().nth(1));
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    inner == Some("1") && cgroup.contains(name)
}

#[test]
fn removal_leaves_nothing() {
    let live = Live::new(1 << 30);
    live.start("exec sleep 1000");
    live.checkpoint(None);
    let name = live.handle.summary().name;
    live.ask(Command::Remove).unwrap();
    assert_eq!(live.handle.summary().state, BoxState::Removed);
    let left: Vec<_> = std::fs::read_dir(&live.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["events.jsonl"]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name), "{mounts}");
}

#[test]
fn a_request_wakes_the_driver_at_once() {
    let live = Live::new(1 << 30);
    let mut times: Vec<Duration> = (0..2_000)
        .map(|_| {
            let begun = Instant::now();
            live.ask(Command::Untag {
                name: "none".to_owned(),
            })
            .unwrap_err();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("request and back: p50 {:?}, p95 {:?}", times[1_000], times[1_900]);
    // The promise is 50 µs on a quiet machine; a busy one gets an order of magnitude, and a lost wake-up never ends.
    assert!(times[1_000] < Duration::from_micros(500), "{:?}", times[1_000]);
}
