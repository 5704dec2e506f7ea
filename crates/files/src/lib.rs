//! File state: the same four verbs as `engine`, for a directory tree: which paths changed (`dirty`), changed paths to
//! a [`Tree`] (`capture`), the pure difference of two trees (`plan`), and carrying it out in place (`apply`).
//!
//! The root of a box is one overlay. What changed is captured from its *upper* directory and from `/dev/shm`. Three
//! rules keep the mounted overlay true while its upper is rewritten below it:
//!
//! 1. Names change only through the merged mount, so that its cache of names never lies. (One exception: a whiteout
//!    is lifted in the upper after the merged mount has just dropped the name.)
//! 2. Bytes, times and extended attributes are written in the upper, into the same inodes, so that descriptors,
//!    mappings, locks and watches stay true and nobody in the box is told.
//! 3. Mode and owner go through the merged mount, which keeps a copy of them for its permission checks.
//!
//! Everything in a box is hostile: nothing is opened by a path that could hold a link.
#![forbid(unsafe_code)]

mod apply;
mod attributes;
mod blob;
mod capture;
mod content;
mod copy;
mod dirty;
pub mod error;
pub mod fault;
mod lower;
mod place;
pub mod plan;
mod planner;
mod refresh;
pub mod tracker;
pub mod volume;

pub use error::FilesError;
pub use image::tree::Tree;
pub use plan::{Plan, plan};
pub use tracker::{Applied, Cost, Roots, Tracker};
pub use volume::Volume;

/// What this crate returns.
pub type Result<T> = std::result::Result<T, FilesError>;
