//! Identifiers as newtypes. They are made once, from randomness that the caller passes in, and never change; a name
//! or a tag is not an id and can move.

use std::fmt;
use std::str::FromStr;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    /// The text.
    pub text: String,
    /// What it should start with (`sbx_`).
    pub prefix: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not an id: expected {} and 16 hexadecimal digits",
            self.text, self.prefix
        )
    }
}

impl std::error::Error for IdError {}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The prefix of the text form.
            pub const PREFIX: &'static str = $prefix;

            /// From 64 random bits that the caller made.
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The bits back.
            pub const fn bits(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:016x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let fail = || IdError { text: text.to_owned(), prefix: $prefix };
                let digits = text.strip_prefix($prefix).ok_or_else(fail)?;
                if digits.len() != 16 {
                    return Err(fail());
                }
                u64::from_str_radix(digits, 16).map(Self).map_err(|_| fail())
            }
        }
    };
}

id!(
    /// A sandbox. Made at `create`; survives stop, start and rollback; a fork has its own.
    SandboxId,
    "sbx_"
);
id!(
    /// A checkpoint. Never reused, not even after the checkpoint was dropped.
    CheckpointId,
    "ckp_"
);
id!(
    /// A command started in a box. Part of the box's state: a rollback to before its start makes it unknown again.
    ExecId,
    "exe_"
);

/// Whose data it is. In every id's row, path and key; `local` where nothing else is said.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tenant(pub String);

impl Default for Tenant {
    fn default() -> Self {
        Self("local".to_owned())
    }
}

/// Who asked: `uid:0` on the local socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = SandboxId::from_bits(0x1f);
        assert_eq!(id.to_string(), "sbx_000000000000001f");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("sbx_1f".parse::<SandboxId>().is_err());
        assert!("ckp_000000000000001f".parse::<SandboxId>().is_err());
    }
}
