//! The `deltabox` program. Every command is: parse, one call, print.
#![forbid(unsafe_code)]
fn main() {}
