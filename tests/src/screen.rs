//! A program on a terminal, driven by key presses. It knows nothing of escape sequences: it waits for words in the bytes
//! that come, and forgets what came before each key press.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use crate::program::ANSWER_WITHIN;

/// A running program.
#[derive(Debug)]
pub struct Screen {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    shown: Vec<u8>,
}

impl Screen {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let keys = child.stdin.take().expect("asked for");
        let mut stdout = child.stdout.take().expect("asked for");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(got @ 1..) = stdout.read(&mut bytes) {
                if sender.send(bytes[..got].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            keys,
            output,
            shown: Vec::new(),
        })
    }

    /// Presses keys.
    ///
    /// # Errors
    /// When nobody takes them.
    pub fn press(&mut self, keys: &str) -> Result<(), String> {
        self.shown.clear();
        while self.output.try_recv().is_ok() {}
        self.keys
            .write_all(keys.as_bytes())
            .map_err(|error| format!("keys: {error}"))
    }

    /// Waits until these bytes have come since the last key press.
    ///
    /// # Errors
    /// What came instead.
    pub fn shows(&mut self, text: &str) -> Result<(), String> {
        let until = Instant::now() + ANSWER_WITHIN;
        while !self.shown.windows(text.len()).any(|window| window == text.as_bytes()) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(more) = self.output.recv_timeout(left) else {
                return Err(format!(
                    "wanted {text:?}, got {:?}",
                    String::from_utf8_lossy(&self.shown)
                ));
            };
            self.shown.extend(more);
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Killing an ended child does nothing.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
