//! Named points where tests switch a kind of capture off, so that a test of it must fail. Empty in production. The
//! names are one list for all crates, and `timeline::fault` refuses one that none of them knows.

/// Every point of this crate, without `skip:`.
pub const POINTS: &[&str] = &[
    "pages",
    "absent",
    "vmas",
    "prot",
    "brk",
    "regs",
    "tls",
    "xstate",
    "sigmask",
    "sigactions",
    "altstack",
    "rseq",
    "stops",
    "pending",
    "itimers",
    "posix_timers",
    "threads",
    "born",
    "wait_remaining",
    "fds",
    "fd_offsets",
    "fd_flags",
    "pipes",
    "sockets",
    "eventfd",
    "timerfd",
    "signalfd",
    "epoll",
    "cwd",
    "umask",
    "rlimits",
    "shared_memory",
    "seals",
    "ghosts",
    "terminal",
];

/// The points that are on.
#[derive(Debug, Clone, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// From names like `skip:sigmask`; those of other crates are left to them.
    pub fn new(names: &[String]) -> Self {
        Self(
            names
                .iter()
                .filter_map(|name| name.strip_prefix("skip:"))
                .map(str::to_owned)
                .collect(),
        )
    }

    /// True where the kind `point` is switched off.
    pub fn skips(&self, point: &'static str) -> bool {
        debug_assert!(POINTS.contains(&point), "a point of the table");
        !self.0.is_empty() && self.0.iter().any(|name| name == point)
    }
}
