//! Our own terminal: raw while a command of a box uses it, and always put back.

use std::os::fd::AsFd;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::error::{CliError, Result};

/// True when standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    isatty(std::io::stdin())
}

/// Rows and columns, of whichever of our streams is a terminal.
pub(crate) fn window_size() -> Option<(u16, u16)> {
    let stdin = std::io::stdin();
    let stdout = std::io::stdout();
    let size = tcgetwinsize(stdout.as_fd())
        .or_else(|_| tcgetwinsize(stdin.as_fd()))
        .ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// A raw terminal; dropping it puts it back.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// Makes standard input raw.
    pub(crate) fn new() -> Result<Self> {
        let stdin = std::io::stdin();
        let fail = |errno: rustix::io::Errno| CliError::io("the terminal", &errno.into());
        let before = tcgetattr(&stdin).map_err(fail)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Drain, &raw).map_err(fail)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // At once: a terminal that nobody reads would never drain. One that is gone needs nothing put back.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
