//! `deltabox cp`: into a box, out of it, from one to another; where things land is the table in its help.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::path::Path;

use daemon::Daemon;

/// What is below a directory of the box: `path=content`, sorted.
fn inside(daemon: &Daemon, directory: &str) -> String {
    let script = "find . -type f | sort | while read -r f; do printf '%s=%s ' \"$f\" \"$(cat \"$f\")\"; done";
    let said = daemon.ok(&["exec", "-w", directory, "work", "--", "sh", "-c", script]);
    said.trim_end().replace("./", "")
}

/// The same of a directory of ours.
fn here(directory: &Path) -> String {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                found.push(format!("{name}={}", std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found.join(" ")
}

/// `tree/sub/file` and `one`, beside the daemon's state.
fn start() -> Option<Daemon> {
    let daemon = Daemon::start()?;
    daemon.ok(&["create", "--name", "work"]);
    let files = daemon.state.join("files");
    std::fs::create_dir_all(files.join("tree/sub")).unwrap();
    std::fs::write(files.join("tree/sub/file"), "text").unwrap();
    std::fs::write(files.join("one"), "1").unwrap();
    Some(daemon)
}

#[test]
fn into_a_box() {
    let Some(daemon) = start() else { return };
    let path = |name: &str| daemon.state.join("files").join(name).to_string_lossy().into_owned();
    let copied = |source: &str, target: &str| {
        daemon.ok(&[
            "exec",
            "work",
            "--",
            "sh",
            "-c",
            "rm -rf /srv/* && mkdir /srv/d && echo old > /srv/d/old",
        ]);
        let said = daemon.run(&["cp", &path(source), &format!("work:{target}")]);
        match said.code {
            0 => inside(&daemon, "/srv"),
            code => format!("{code}: {}", said.err.lines().next().unwrap()),
        }
    };
    assert_eq!(copied("one", "/srv/new"), "d/old=old new=1");
    assert_eq!(
        copied("one", "/srv/new/"),
        "3: deltabox: there is no directory /srv/new/"
    );
    assert_eq!(
        copied("one", "/srv/no/new"),
        "3: deltabox: no directory \"/srv/no\" in work"
    );
    assert_eq!(copied("one", "/srv/d/old"), "d/old=1");
    assert_eq!(
        copied("one", "/srv/d/old/"),
        "4: deltabox: /srv/d/old/ is not a directory"
    );
    assert_eq!(copied("one", "/srv/d"), "d/old=old d/one=1");
    assert_eq!(copied("one", "/srv/d/"), "d/old=old d/one=1");
    assert_eq!(copied("one", "/srv"), "d/old=old one=1");
    assert_eq!(copied("tree", "/srv/new"), "d/old=old new/sub/file=text");
    assert_eq!(copied("tree/.", "/srv/new/"), "d/old=old new/sub/file=text");
    assert!(copied("tree", "/srv/d/old").starts_with("4: deltabox: "));
    // It used to land as /srv/d/sub/file.
    assert_eq!(copied("tree", "/srv/d"), "d/old=old d/tree/sub/file=text");
    assert_eq!(copied("tree/", "/srv/d/"), "d/old=old d/tree/sub/file=text");
    assert_eq!(copied("tree/.", "/srv/d"), "d/old=old d/sub/file=text");
    assert_eq!(copied("tree/.", "/srv"), "d/old=old sub/file=text");
    assert!(copied("nothing", "/srv").starts_with("3: deltabox: "));
    assert!(copied("one", "/proc/1/status").starts_with("4: deltabox: "));
    let said = daemon.run(&["cp", &path("one"), "nobox:/srv"]);
    assert_eq!((said.code, said.err.contains("no sandbox")), (3, true), "{said:?}");
}

#[test]
fn out_of_a_box() {
    let Some(daemon) = start() else { return };
    daemon.ok(&["exec", "work", "--", "sh", "-c", "mkdir -p /srv/tree/sub; echo -n text > /srv/tree/sub/file; echo -n 1 > /srv/one; ln /srv/one /srv/tree/link; ln /srv/one /srv/tree/name"]);
    let to = daemon.state.join("to");
    let copied = |source: &str, target: &str| {
        drop(std::fs::remove_dir_all(&to));
        std::fs::create_dir_all(to.join("d")).unwrap();
        std::fs::write(to.join("d/old"), "old").unwrap();
        let said = daemon.run(&["cp", &format!("work:{source}"), &format!("{}{target}", to.display())]);
        match said.code {
            0 => here(&to),
            code => format!("{code}"),
        }
    };
    let tree = |top: &str| format!("{top}link=1 {top}name=1 {top}sub/file=text");
    assert_eq!(copied("/srv/one", "/new"), "d/old=old new=1");
    assert_eq!(copied("/srv/one", "/new/"), "3");
    assert_eq!(copied("/srv/one", "/no/new"), "3");
    assert_eq!(copied("/srv/one", "/d/old"), "d/old=1");
    assert_eq!(copied("/srv/one", "/d/old/"), "4");
    assert_eq!(copied("/srv/one", "/d"), "d/old=old d/one=1");
    assert_eq!(copied("/srv/tree", "/new"), format!("d/old=old {}", tree("new/")));
    assert_eq!(copied("/srv/tree", "/d/old"), "4");
    assert_eq!(copied("/srv/tree", "/d"), format!("d/old=old {}", tree("d/tree/")));
    assert_eq!(copied("/srv/tree/", "/d/"), format!("d/old=old {}", tree("d/tree/")));
    assert_eq!(
        copied("/srv/tree/.", "/d"),
        format!("{} {}", "d/link=1 d/name=1 d/old=old", "d/sub/file=text")
    );
    assert_eq!(copied("/srv/tree/.", ""), format!("d/old=old {}", tree("")));
    assert_eq!(copied("/srv/nothing", "/d"), "3");
    std::fs::remove_dir_all(to).unwrap();
}

#[test]
fn between_boxes_and_as_a_stream() {
    let Some(daemon) = start() else { return };
    let files = daemon.state.join("files");
    daemon.ok(&["create", "--name", "from"]);
    daemon.ok(&["cp", &files.join("tree").to_string_lossy(), "from:/srv"]);
    daemon.ok(&["cp", "from:/srv/tree", "work:/srv"]);
    daemon.ok(&["cp", "from:/srv/tree", "work:/srv/new"]);
    daemon.ok(&["cp", "from:/srv/tree/.", "work:/srv/tree/sub"]);
    assert_eq!(
        inside(&daemon, "/srv"),
        "new/sub/file=text tree/sub/file=text tree/sub/sub/file=text"
    );
    let tar = daemon.program().args(["cp", "work:/srv/new", "-"]).output().unwrap();
    assert!(tar.status.success());
    assert_eq!(daemon.feed(&["cp", "-", "work:/tmp/made/"], &tar.stdout).code, 0);
    assert_eq!(inside(&daemon, "/tmp/made"), "new/sub/file=text");
}
