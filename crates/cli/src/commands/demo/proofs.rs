//! What was claimed, whether it holds, and what was found instead.

use std::fmt::Debug;

use serde::Serialize;

/// One claim.
#[derive(Debug, Serialize)]
pub(crate) struct Proof {
    /// What is claimed.
    pub(crate) name: String,
    /// Whether it holds.
    pub(crate) holds: bool,
    /// What was found instead.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// Claims in the order they were made.
#[derive(Debug, Default)]
pub(crate) struct Proofs(Vec<Proof>);

impl Proofs {
    /// Claims that something holds.
    pub(crate) fn that(&mut self, name: &str, holds: bool, otherwise: impl FnOnce() -> String) {
        let detail = if holds { String::new() } else { otherwise() };
        self.0.push(Proof {
            name: name.to_owned(),
            holds,
            detail,
        });
    }

    /// Claims that what was is again.
    pub(crate) fn equal<T: PartialEq + Debug>(&mut self, name: &str, before: &T, after: &T) {
        self.that(name, before == after, || format!("was {before:?}, is {after:?}"));
    }

    /// Claims that something changed: a rollback of nothing proves nothing.
    pub(crate) fn differ<T: PartialEq + Debug>(&mut self, name: &str, before: &T, after: &T) {
        self.that(name, before != after, || format!("it still is {after:?}"));
    }

    /// All of them.
    pub(crate) fn into_list(self) -> Vec<Proof> {
        self.0
    }
}
