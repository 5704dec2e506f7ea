//! One end-to-end test per verb: the real program, the real daemon, real boxes. `cp`, `shell`, the options of `create`,
//! and `doctor`, `demo` and `bench` have files of their own; checkpoints of running programs are `tests/workloads`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use daemon::Daemon;

/// A daemon with a box called `work`.
fn with_box() -> Option<Daemon> {
    let daemon = Daemon::start()?;
    daemon.ok(&["create", "--name", "work"]);
    Some(daemon)
}

#[test]
fn create_ls_inspect_rm() {
    let Some(daemon) = Daemon::start() else { return };
    let id = daemon.ok(&[
        "create", "--name", "work", "--mem", "512M", "--pids", "100", "-e", "A=b", "-w", "/srv",
    ]);
    let id = id.trim();
    assert!(id.starts_with("sbx_"), "{id}");
    assert_eq!(
        daemon.ok(&["exec", "work", "--", "sh", "-c", "echo $A; pwd"]),
        "b\n/srv\n"
    );
    let list = daemon.json(&["ls"]);
    assert_eq!(list["sandboxes"][0]["name"], "work");
    assert_eq!(list["sandboxes"][0]["state"], "running");
    assert_eq!(daemon.ok(&["ps", "-q"]).trim(), id);
    assert!(daemon.ok(&["ls"]).contains("work"));
    for name in ["work", id, &id[..12], &id[4..12]] {
        assert_eq!(daemon.json(&["inspect", name])["name"], "work", "{name}");
    }
    let taken = daemon.run(&["create", "--name", "work"]);
    assert_eq!(taken.code, 4, "{taken:?}");
    daemon.ok(&["rm", "work"]);
    assert_eq!(daemon.json(&["ls"])["sandboxes"].as_array().unwrap().len(), 0);
    daemon.ok(&["rm", "-f", "work"]);
    assert_eq!(daemon.run(&["rm", "work"]).code, 3);
}

#[test]
fn what_cannot_be_is_said_with_a_hint() {
    let Some(daemon) = with_box() else { return };
    let typo = daemon.run(&["inspect", "wrok"]);
    assert_eq!(typo.code, 3);
    assert_eq!(typo.err, "deltabox: no sandbox \"wrok\"\nhint: did you mean work?\n");
    let json = daemon.run(&["--json", "rollback", "wrok"]);
    let problem: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(problem["code"], "not_found");
    assert_eq!(problem["candidates"][0], "work");
    assert!(problem["request_id"].as_str().unwrap().starts_with("req_"));
    assert_eq!(json.out, "");
    for (args, code) in [
        (&["create", "--name", "a b"][..], 2),
        (&["create", "--image", "/nowhere"], 3),
        (&["rollback", "work"], 3),
        (&["rollback", "work", "HEAD~9"], 3),
        (&["tag", "-d", "work", "nothing"], 3),
        (&["cp", "work:/nothing", "-"], 3),
        (&["logs", "work", "exe_0000000000000000"], 3),
        (&["exec", "nobox", "--", "true"], 125),
        (&["exec", "-u", "nouser", "work", "--", "true"], 125),
    ] {
        let said = daemon.run(args);
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        assert!(said.err.starts_with("deltabox: "), "{args:?}: {said:?}");
    }
}

#[test]
fn exec_ends_as_its_command_does() {
    let Some(daemon) = with_box() else { return };
    let said = daemon.run(&["exec", "work", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((said.out.as_str(), said.err.as_str(), said.code), ("out\n", "err\n", 3));
    assert_eq!(daemon.run(&["exec", "work", "--", "sh", "-c", "kill -9 $$"]).code, 137);
    assert_eq!(daemon.run(&["exec", "work", "--", "no-such-program"]).code, 127);
    assert_eq!(daemon.run(&["exec", "work", "--", "/etc/passwd"]).code, 126);
    let said = daemon.run(&[
        "exec",
        "-e",
        "A=1",
        "-w",
        "/tmp",
        "-u",
        "1:1",
        "work",
        "--",
        "sh",
        "-c",
        "echo $A $PWD; id -u",
    ]);
    assert_eq!(said.out, "1 /tmp\n1\n");
}

#[test]
fn exec_carries_every_byte_both_ways() {
    let Some(daemon) = with_box() else { return };
    assert_eq!(
        daemon.feed(&["exec", "-i", "work", "--", "cat"], b"hello\n").out,
        "hello\n"
    );
    // More than any buffer on the way holds.
    let mut much = Vec::new();
    for number in 0..400_000_u32 {
        much.extend_from_slice(format!("{number}\n").as_bytes());
    }
    let said = daemon.feed(&["exec", "-i", "work", "--", "cksum"], &much);
    assert_eq!(said.out, cksum_here(&much), "{}", said.err);
    // And when the reader is slow: it sets the pace, nothing is lost.
    let more = much.repeat(5);
    let said = daemon.feed(&["exec", "-i", "work", "--", "sh", "-c", "sleep 0.3; cksum"], &more);
    assert_eq!(said.out, cksum_here(&more), "{}", said.err);
    // Without -i it reads nothing.
    assert_eq!(daemon.run(&["exec", "work", "--", "cat"]).code, 0);
}

fn cksum_here(input: &[u8]) -> String {
    let mut command = Command::new("cksum");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn signals_go_to_the_command() {
    let Some(daemon) = with_box() else { return };
    let mut command = daemon.program();
    let script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    command
        .args(["exec", "work", "--", "sh", "-c", script])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "caught\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn detached_commands_have_logs_and_can_be_joined() {
    let Some(daemon) = with_box() else { return };
    let exec = daemon.ok(&["exec", "-d", "work", "--", "sh", "-c", "echo one; echo two >&2; exit 4"]);
    let exec = exec.trim();
    assert_eq!(daemon.run(&["attach", "work", exec]).code, 4);
    let logs = daemon.run(&["logs", "work", exec]);
    assert_eq!((logs.out.as_str(), logs.err.as_str(), logs.code), ("one\n", "two\n", 0));
    let frames = daemon.ok(&["--json", "logs", "work", exec]);
    let last: serde_json::Value = serde_json::from_str(frames.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "exited");
    assert_eq!(last["code"], 4);
}

#[test]
fn run_makes_a_box_for_one_command() {
    let Some(daemon) = Daemon::start() else { return };
    let said = daemon.run(&["run", "--rm", "--name", "once", "--", "sh", "-c", "echo hi; exit 5"]);
    assert_eq!((said.out.as_str(), said.code), ("hi\n", 5));
    assert_eq!(daemon.ok(&["ls", "-q"]), "");
    assert_eq!(daemon.run(&["run", "--name", "kept", "true"]).code, 0);
    assert_eq!(daemon.json(&["inspect"])["name"], "kept");
}

#[test]
fn checkpoint_log_tag_diff_rollback_of_files() {
    let Some(daemon) = with_box() else { return };
    let write = |text: &str| daemon.ok(&["exec", "work", "--", "sh", "-c", &format!("echo {text} >> /srv/file")]);
    write("one");
    let first = daemon.json(&["checkpoint", "work", "-m", "before the risky step", "--tag", "v1"]);
    let first = first["checkpoint"]["id"].as_str().unwrap().to_owned();
    write("two");
    let second = daemon.ok(&["commit", "work"]);
    assert!(second.starts_with("ckp_"), "{second}");
    daemon.ok(&["tag", "work", "v2"]);
    daemon.ok(&["tag", "work", "again", "HEAD~1"]);
    let log = daemon.ok(&["log", "work"]);
    assert!(log.contains("again, v1") || log.contains("v1, again"), "{log}");
    assert!(
        log.contains("before the risky step") && log.contains("(HEAD, v2)"),
        "{log}"
    );
    let diff = daemon.ok(&["diff", "work", "v1", "v2"]);
    assert!(diff.contains("~ /srv/file"), "{diff}");
    write("three");
    assert!(daemon.ok(&["diff", "work"]).contains("/srv/file"));
    let back = daemon.json(&["rollback", "work", "v1"]);
    assert_eq!(back["to"], first.as_str());
    assert!(back["kept"].as_str().unwrap().starts_with("ckp_"));
    assert_eq!(daemon.ok(&["exec", "work", "--", "cat", "/srv/file"]), "one\n");
    daemon.ok(&["rollback", "work@{-1}", "--discard"]);
    assert_eq!(
        daemon.ok(&["exec", "work", "--", "cat", "/srv/file"]),
        "one\ntwo\nthree\n"
    );
    daemon.ok(&["rollback", "HEAD~1", "--discard"]);
    assert_eq!(daemon.ok(&["exec", "work", "--", "cat", "/srv/file"]), "one\ntwo\n");
    daemon.ok(&["tag", "-d", "work", "v1"]);
    assert_eq!(daemon.run(&["rollback", "work", "v1"]).code, 3);
    assert_eq!(
        daemon.json(&["inspect", &format!("work@{first}")])["id"],
        first.as_str()
    );
}

#[test]
fn events_say_who_did_what() {
    let Some(daemon) = with_box() else { return };
    daemon.ok(&["checkpoint", "work"]);
    let text = daemon.ok(&["--json", "events"]);
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = events
        .iter()
        .find(|event| event["command"].as_str().unwrap().starts_with("checkpoint"))
        .unwrap();
    assert_eq!(event["principal"], "uid:0");
    assert_eq!(event["tenant"], "local");
    assert_eq!(event["outcome"], "done");
    assert!(daemon.ok(&["events"]).contains("checkpoint"));
}

#[test]
fn a_command_line_of_another_version_is_refused_before_anything_happens() {
    let Some(daemon) = Daemon::start() else { return };
    let ask = |path: &str| {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\ndeltabox-version: 0.0.0\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("/v1/sandboxes");
    assert!(answer.starts_with("HTTP/1.1 412"), "{answer}");
    assert!(
        answer.contains("\"code\":\"version_mismatch\"") && answer.contains("\"hint\""),
        "{answer}"
    );
    assert!(ask("/v1/version").starts_with("HTTP/1.1 200"));
    let unknown = ask("/v2");
    assert!(unknown.starts_with("HTTP/1.1 412"), "{unknown}");
}

#[test]
fn version_completion_help() {
    let Some(daemon) = Daemon::start() else { return };
    assert!(daemon.json(&["version"])["daemon"]["pid"].is_u64());
    assert!(daemon.ok(&["completion", "bash"]).contains("rollback"));
    let help = daemon.ok(&["--help"]);
    assert!(help.contains("Exit codes") && help.contains("DELTABOX_STATE"), "{help}");
}
