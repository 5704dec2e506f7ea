//! What `create` and `run` can be told, end to end: volumes, rights, images, network, variables, directory, user.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::path::{Path, PathBuf};
use std::process::Command;

use daemon::Daemon;

fn sh(daemon: &Daemon, script: &str) -> String {
    daemon.ok(&["exec", "work", "--", "sh", "-c", script])
}

/// A directory beside the daemon's state.
fn directory(daemon: &Daemon, name: &str) -> PathBuf {
    let path = daemon.state.join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

#[test]
fn a_volume_is_outside_the_history_and_the_log_says_so() {
    let Some(daemon) = Daemon::start() else { return };
    let (data, frozen) = (directory(&daemon, "data"), directory(&daemon, "frozen"));
    std::fs::write(frozen.join("given"), "from the host").unwrap();
    let volumes = [
        format!("{}:/data", data.display()),
        format!("{}:/frozen:ro", frozen.display()),
    ];
    daemon.ok(&["create", "--name", "work", "-v", &volumes[0], "--volume", &volumes[1]]);
    let said = sh(
        &daemon,
        "cat /frozen/given; echo; echo one > /data/file; echo one > /srv/file; echo two > /frozen/given || echo refused",
    );
    assert_eq!(said, "from the host\nrefused\n");

    let taken = daemon.run(&["checkpoint", "work"]);
    let outside = format!("outside the history: {}", volumes[0]);
    assert!(taken.code == 0 && taken.err.contains(&outside), "{taken:?}");
    sh(&daemon, "echo two > /data/file; echo two > /srv/file");
    daemon.ok(&["rollback", "work", "--discard"]);
    assert_eq!(sh(&daemon, "cat /data/file /srv/file"), "two\none\n");
    assert_eq!(std::fs::read_to_string(data.join("file")).unwrap(), "two\n");

    let log = daemon.ok(&["log", "work"]);
    assert!(log.contains(&format!("outside: {}", volumes.join(", "))), "{log}");
    let log = daemon.json(&["log", "work"]);
    assert_eq!(log["checkpoints"][0]["outside"], serde_json::json!(volumes));
}

#[test]
fn a_privileged_box_is_real_root_without_a_filter() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.ok(&["create", "--name", "work", "--privileged"]);
    let script = "read -r inside outside count < /proc/self/uid_map; echo $inside $outside $count; grep Seccomp: /proc/self/status";
    assert_eq!(sh(&daemon, script), "0 0 4294967295\nSeccomp:\t0\n");
    daemon.ok(&["checkpoint", "work"]);
    sh(
        &daemon,
        "mount -t tmpfs none /mnt; umount /mnt; echo changed > /etc/motd",
    );
    daemon.ok(&["rollback", "work", "--discard"]);
    assert_eq!(
        daemon.run(&["exec", "work", "--", "grep", "changed", "/etc/motd"]).out,
        ""
    );
}

/// The least root that a shell runs in.
fn small_root(at: &Path) {
    let script = "set -e; mkdir -p $0/bin $0/srv; for p in sh cat; do cp -L $(command -v $p) $0/bin/; done
        ldd /bin/sh $(command -v cat) | grep -o '/[^ :]*' | sort -u | grep -v '^/usr/bin\\|^/bin' | while read -r library; do
        mkdir -p $0$(dirname $library); cp -Ln $library $0$library; done; echo marker > $0/srv/marker";
    let made = Command::new("sh").args(["-c", script]).arg(at).status().unwrap();
    assert!(made.success());
}

/// A box of `image`, named from the directory above it, goes back to its image's files and never changes them.
fn box_of_image(daemon: &Daemon, image: &str) {
    let mut create = daemon.program();
    create
        .current_dir(&daemon.state)
        .args(["create", "--name", "work", "--image", image]);
    let made = create.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listed = daemon.json(&["ls"]);
    let whole = daemon.state.canonicalize().unwrap().join(image);
    assert_eq!(listed["sandboxes"][0]["image"], *whole.to_string_lossy());
    daemon.ok(&["checkpoint", "work"]);
    assert_eq!(
        sh(daemon, "cat /srv/marker; echo changed > /srv/marker; cat /srv/marker"),
        "marker\nchanged\n"
    );
    assert_eq!(daemon.run(&["exec", "work", "--", "ls"]).code, 127);
    daemon.ok(&["rollback", "work", "--discard"]);
    assert_eq!(sh(daemon, "cat /srv/marker"), "marker\n");
}

#[test]
fn a_directory_is_an_image() {
    let Some(daemon) = Daemon::start() else { return };
    let root = directory(&daemon, "root");
    small_root(&root);
    box_of_image(&daemon, "root");
    sh(&daemon, "echo changed > /srv/marker");
    assert_eq!(std::fs::read_to_string(root.join("srv/marker")).unwrap(), "marker\n");
}

#[test]
fn a_tar_file_is_an_image() {
    let Some(daemon) = Daemon::start() else { return };
    let root = directory(&daemon, "root");
    small_root(&root);
    let tar = daemon.state.join("root.tar");
    let packed = Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status()
        .unwrap();
    assert!(packed.success());
    std::fs::remove_dir_all(root).unwrap();
    box_of_image(&daemon, "root.tar");
    // The box has its own copy.
    std::fs::remove_file(tar).unwrap();
    assert_eq!(sh(&daemon, "cat /srv/marker"), "marker\n");
}

#[test]
fn without_a_network_there_is_only_loopback() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.ok(&["create", "--name", "work", "--net", "none"]);
    let devices = sh(&daemon, "tail -n +3 /proc/net/dev | cut -d : -f 1");
    assert_eq!(devices.trim(), "lo");
    // Loopback is up, nobody listens; from there on there is no way.
    let connect = |address: &str| {
        let script = format!("exec 3<>/dev/tcp/{address}/9");
        daemon.run(&["exec", "work", "--", "bash", "-c", &script]).err
    };
    assert!(connect("127.0.0.1").contains("Connection refused"));
    assert!(connect("192.0.2.1").contains("Network is unreachable"));
}

#[test]
fn variables_directory_and_user_of_a_box_are_its_commands() {
    let Some(daemon) = Daemon::start() else { return };
    let of_box = ["-e", "A=box", "--env", "B=box", "-w", "/tmp", "-u", "1:1"];
    let say = ["sh", "-c", "echo $A $B $PWD $(id -u) $(id -g)"];
    daemon.ok(&[&["create", "--name", "work"][..], &of_box].concat());
    assert_eq!(
        daemon.ok(&[&["exec", "work", "--"][..], &say].concat()),
        "box box /tmp 1 1\n"
    );
    let of_command = ["exec", "-e", "A=command", "-w", "/", "-u", "root", "work", "--"];
    assert_eq!(daemon.ok(&[&of_command[..], &say].concat()), "command box / 0 0\n");
    let run = [&["run", "--rm"][..], &of_box, &["--"], &say].concat();
    assert_eq!(daemon.ok(&run), "box box /tmp 1 1\n");
}
