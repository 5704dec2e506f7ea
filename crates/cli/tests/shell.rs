//! `deltabox shell` on a real terminal: raw mode, sizes, job control, and the terminal as it was afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::missing_panics_doc,
    dead_code,
    reason = "a test: a failure is a panic, a skip is said"
)]

mod daemon;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use daemon::Daemon;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

struct Screen {
    master: File,
    seen: String,
}

impl Screen {
    fn new() -> (Self, OwnedFd) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        (
            Self {
                master: File::from(master),
                seen: String::new(),
            },
            slave,
        )
    }

    fn size(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).unwrap();
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    fn prompt(&mut self) {
        self.until("work:/# ");
    }

    /// Reads until `text` is on the screen, and forgets what came before.
    fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(
                poll(&mut ready, Some(&limit)),
                Ok(1),
                "no {text:?} for 20 s; seen: {:?}",
                self.seen
            );
            let got = self
                .master
                .read(&mut buffer)
                .unwrap_or_else(|error| panic!("{error}; seen: {}", self.seen));
            self.seen += &String::from_utf8_lossy(&buffer[..got]);
        }
    }
}

#[test]
fn an_interactive_shell() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.ok(&["create", "--name", "work"]);
    let (mut screen, slave) = Screen::new();
    screen.size(40, 100);
    let before = tcgetattr(&slave).unwrap();
    let mut command = daemon.program();
    let end = || slave.try_clone().unwrap();
    command
        .args(["shell", "work"])
        .env("TERM", "dumb")
        .stdin(end())
        .stdout(end())
        .stderr(end());
    let mut child = command.spawn().unwrap();

    // The answers differ from what is typed, so that an echo is not taken for one; and each line waits for the prompt,
    // since a shell that takes the terminal back forgets what was typed before.
    screen.prompt();
    screen.types("stty size; echo term=$TERM\n");
    screen.until("40 100");
    screen.until("term=dumb");
    screen.prompt();
    screen.size(50, 120);
    kill_process(Pid::from_child(&child), Signal::WINCH).unwrap();
    // The size travels on a connection of its own: the shell waits for it.
    screen.types("until [ \"$(stty size)\" = '50 120' ]; do sleep 0.01; done; echo resized $((1 + 1))\n");
    screen.until("resized 2");
    screen.prompt();
    screen.types("sh -c 'echo runs $((1 + 1)); exec sleep 1000'\n");
    screen.until("runs 2");
    screen.types("\x03");
    screen.prompt();
    screen.types("echo code=$?\n");
    screen.until("code=130");
    screen.prompt();
    screen.types("sleep 1000 &\n");
    screen.prompt();
    screen.types("kill %1; wait %1; echo job=$?\n");
    screen.until("job=143");
    screen.prompt();
    screen.types("exit 3\n");
    assert_eq!(child.wait().unwrap().code(), Some(3));

    let after = tcgetattr(&slave).unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}
