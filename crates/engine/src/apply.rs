//! Carries a plan out on a stopped box. The order is [`Stage`]: first what must be gone, then the files, then memory,
//! then what memory's owner holds, and registers last. After the first stage there is no way back but forward: an
//! error then is fatal for the box.

pub(crate) mod fds;
pub(crate) mod memory;
pub(crate) mod nameless;
pub(crate) mod processes;
pub(crate) mod signals;
pub(crate) mod stops;
pub(crate) mod threads;

/// Why this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// What was born since holds files open for writing and text busy.
    EndNewborns,
    /// The tree must be right before a descriptor or mapping is opened again from it.
    Files,
    /// Ranges before pages.
    Memory,
    /// New threads need their stacks and thread-local memory; their registration writes into it.
    Threads,
    /// Descriptors may need new ones passed in, which needs memory of the annex only.
    Descriptors,
    /// Dispositions, queues, timers: nothing is delivered, since all signals are blocked while code is injected.
    Signals,
}

impl Stage {
    /// Its name in the list of what an operation cost.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::EndNewborns => "end_newborns",
            Stage::Files => "files",
            Stage::Memory => "memory",
            Stage::Threads => "threads",
            Stage::Descriptors => "descriptors",
            Stage::Signals => "signals",
        }
    }
}
