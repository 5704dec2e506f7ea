//! Signals as plain data: dispositions and queues. Never interprets a siginfo: it goes back as it came.

/// One of the 64 dispositions, as `rt_sigaction(2)` speaks it (handler, flags, restorer, mask).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Action {
    /// Handler address, `SIG_DFL` or `SIG_IGN`.
    pub handler: u64,
    /// `SA_*` flags.
    pub flags: u64,
    /// Address of the restorer.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: u64,
}

/// A queued signal: the kernel's 128-byte `siginfo_t`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Queued(pub [u8; 128]);

impl Queued {
    /// Signal number.
    pub fn number(&self) -> i32 {
        i32::from_ne_bytes(self.0[0..4].try_into().expect("four bytes"))
    }

    /// `si_code`.
    pub fn code(&self) -> i32 {
        i32::from_ne_bytes(self.0[8..12].try_into().expect("four bytes"))
    }
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queued(signal {}, code {})", self.number(), self.code())
    }
}

/// `sigaltstack(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AltStack {
    /// Lowest address.
    pub sp: u64,
    /// `SS_*` flags (low word).
    pub flags: u64,
    /// Bytes.
    pub size: u64,
}
