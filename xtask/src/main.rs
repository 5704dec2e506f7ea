//! Repository chores in Rust.
#![forbid(unsafe_code)]
fn main() {}
