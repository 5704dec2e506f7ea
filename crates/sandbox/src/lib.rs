//! Isolation: give birth to a process tree inside namespaces, cgroup, root and filters; take it down again.
//! (Interface first: the bodies are being written.)
#![forbid(unsafe_code)]
