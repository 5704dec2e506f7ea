//! `doctor`: what this kernel and these rights allow, what a missing thing costs, and what to do about it. It never
//! starts a daemon and changes nothing.

use crate::error::Result;
use crate::output::Output;

/// Prints one line per feature; 5 when a required one is missing.
pub(crate) fn doctor(_output: &Output) -> Result<u8> {
    Ok(0)
}

/// One line on how changed memory is found here.
pub(crate) fn dirty_line() -> String {
    String::new()
}
