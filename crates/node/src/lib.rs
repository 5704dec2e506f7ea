//! The daemon as a library: HTTP in, commands out.
#![forbid(unsafe_code)]
