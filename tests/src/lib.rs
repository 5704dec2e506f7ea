//! What needs a real kernel: workloads run in every mode.
#![forbid(unsafe_code)]
