//! What needs a real kernel: small programs of one behaviour each, run in every mode, natively and in boxes of the real
//! `deltabox` program. The product's crates are not linked here: everything goes through the command line.
#![forbid(unsafe_code)]

pub mod compile;
pub mod daemon;
pub mod modes;
pub mod program;
pub mod run;
pub mod sandbox;
pub mod screen;
