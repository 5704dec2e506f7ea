//! The wire contract: request and response types and the table of endpoints; no server inside.
#![forbid(unsafe_code)]
