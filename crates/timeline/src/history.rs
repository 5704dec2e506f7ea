//! The tree of a sandbox's checkpoints, where its head is and where it was. Generic over what a checkpoint holds, so
//! that everything here can be tested with numbers; it never touches a process or a file. Which checkpoints lose
//! their bytes to keep the memory bound: `retention`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use image::CheckpointId;

use crate::command::{CheckpointLine, Revision};
use crate::error::TimelineError;
use crate::revision::{self, Base};

/// How many places `@{-n}` can name.
pub const JUMPS_MAX: usize = 100;
/// How many lines are kept: beyond it the oldest dropped ones without a name and without children go.
pub const LINES_MAX: usize = 100_000;

/// What a checkpoint is to its history.
#[derive(Debug)]
pub struct Node<S> {
    /// Its line in the log, without the tags and the head mark.
    pub line: CheckpointLine,
    /// What it takes to go there; `None` when dropped.
    pub state: Option<S>,
    /// Bytes that only it holds, beside its nearest ancestor that still has its bytes.
    pub own_bytes: u64,
}

/// The checkpoints of one sandbox.
#[derive(Debug)]
pub struct History<S> {
    nodes: HashMap<CheckpointId, Node<S>>,
    /// Oldest first.
    order: Vec<CheckpointId>,
    tags: BTreeMap<String, CheckpointId>,
    head: Option<CheckpointId>,
    /// Last first.
    jumps: VecDeque<CheckpointId>,
    bytes: u64,
}

impl<S> Default for History<S> {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            order: Vec::new(),
            tags: BTreeMap::new(),
            head: None,
            jumps: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<S> History<S> {
    /// The checkpoint from which the running state grew.
    pub fn head(&self) -> Option<CheckpointId> {
        self.head
    }

    /// How many checkpoints have their bytes.
    pub fn resident_count(&self) -> usize {
        self.nodes.values().filter(|node| node.state.is_some()).count()
    }

    /// Bytes held by all checkpoints.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ids, oldest first.
    pub fn ids(&self) -> &[CheckpointId] {
        &self.order
    }

    /// One checkpoint.
    pub fn node(&self, id: CheckpointId) -> Option<&Node<S>> {
        self.nodes.get(&id)
    }

    /// Adds a child of the head. It becomes the head when `advance`.
    pub fn add(&mut self, line: CheckpointLine, state: S, own_bytes: u64, advance: bool) {
        let id = line.id;
        self.bytes += own_bytes;
        self.order.push(id);
        self.nodes.insert(
            id,
            Node {
                line,
                state: Some(state),
                own_bytes,
            },
        );
        if advance {
            self.head = Some(id);
        }
    }

    /// Puts right how many bytes a checkpoint holds, once they have been counted.
    pub fn weigh(&mut self, id: CheckpointId, own_bytes: u64, memory_bytes: u64, file_bytes: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            self.bytes = self.bytes - node.own_bytes + own_bytes;
            node.own_bytes = own_bytes;
            node.line.memory_bytes = memory_bytes;
            node.line.file_bytes = file_bytes;
        }
    }

    /// Moves the head, remembering where it was as `@{-1}`.
    pub fn jump(&mut self, from: Option<CheckpointId>, to: CheckpointId) {
        if let Some(from) = from {
            self.jumps.push_front(from);
            self.jumps.truncate(JUMPS_MAX);
        }
        self.head = Some(to);
    }

    /// Finds the place that `text` names.
    ///
    /// # Errors
    /// `UnknownRevision` with the nearest names, `AmbiguousRevision`, `BadRevision`, `NoCheckpoint`.
    pub fn resolve(&self, text: &Revision) -> Result<CheckpointId, TimelineError> {
        let text = text.0.as_str();
        let parsed = revision::parse(text)?;
        let unknown = || TimelineError::UnknownRevision {
            text: text.to_owned(),
            near: Vec::new(),
        };
        let mut at = match parsed.base {
            Base::Head => self.head.ok_or(TimelineError::NoCheckpoint)?,
            Base::Jump(count) => *self.jumps.get(count - 1).ok_or_else(unknown)?,
            Base::Name(name) => self.named(&name)?,
        };
        for _ in 0..parsed.back {
            at = self.nodes[&at]
                .line
                .parent
                .filter(|parent| self.nodes.contains_key(parent))
                .ok_or_else(unknown)?;
        }
        Ok(at)
    }

    fn named(&self, name: &str) -> Result<CheckpointId, TimelineError> {
        if let Some(id) = self.tags.get(name) {
            return Ok(*id);
        }
        let digits = name.strip_prefix(CheckpointId::PREFIX).unwrap_or(name);
        let digits = digits.to_ascii_lowercase();
        let hex = !digits.is_empty() && digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let candidates: Vec<CheckpointId> = if hex {
            self.order
                .iter()
                .filter(|id| format!("{:016x}", id.bits()).starts_with(&digits))
                .copied()
                .collect()
        } else {
            Vec::new()
        };
        match candidates.as_slice() {
            [id] => Ok(*id),
            [] if self.order.is_empty() => Err(TimelineError::NoCheckpoint),
            [] => Err(TimelineError::UnknownRevision {
                text: name.to_owned(),
                near: self.look_alikes(name),
            }),
            many => Err(TimelineError::AmbiguousRevision {
                text: name.to_owned(),
                candidates: many.iter().take(8).map(ToString::to_string).collect(),
            }),
        }
    }

    fn look_alikes(&self, name: &str) -> Vec<String> {
        let ids: Vec<String> = self.order.iter().map(ToString::to_string).collect();
        let names = self
            .tags
            .keys()
            .map(String::as_str)
            .chain(["HEAD"])
            .chain(ids.iter().map(String::as_str));
        revision::nearest(name, names)
    }

    /// What it takes to go to `id`.
    ///
    /// # Errors
    /// `Dropped` when only its line is left.
    pub fn state(&self, id: CheckpointId) -> Result<&S, TimelineError> {
        let state = self.nodes.get(&id).and_then(|node| node.state.as_ref());
        state.ok_or_else(|| TimelineError::Dropped { text: id.to_string() })
    }

    /// Checks that a name can be given.
    ///
    /// # Errors
    /// `BadTag`.
    pub fn check_tag(&self, name: &str) -> Result<(), TimelineError> {
        revision::check_tag(name)?;
        if self.tags.contains_key(name) {
            return Err(TimelineError::BadTag {
                name: name.to_owned(),
                why: "it is taken; untag it first",
            });
        }
        Ok(())
    }

    /// Names a checkpoint.
    ///
    /// # Errors
    /// `BadTag` when the name is taken or unfit.
    pub fn tag(&mut self, at: CheckpointId, name: &str) -> Result<(), TimelineError> {
        self.check_tag(name)?;
        self.tags.insert(name.to_owned(), at);
        Ok(())
    }

    /// Removes a name.
    ///
    /// # Errors
    /// `UnknownTag` with the nearest names.
    pub fn untag(&mut self, name: &str) -> Result<(), TimelineError> {
        match self.tags.remove(name) {
            Some(_) => Ok(()),
            None => {
                let near = revision::nearest(name, self.tags.keys().map(String::as_str));
                Err(TimelineError::UnknownTag {
                    name: name.to_owned(),
                    near,
                })
            }
        }
    }

    /// One line of the log, complete.
    pub fn line(&self, id: CheckpointId) -> Option<CheckpointLine> {
        let node = self.nodes.get(&id)?;
        let tags = self
            .tags
            .iter()
            .filter(|(_, at)| **at == id)
            .map(|(name, _)| name.clone())
            .collect();
        Some(CheckpointLine {
            tags,
            head: self.head == Some(id),
            dropped: node.state.is_none(),
            ..node.line.clone()
        })
    }

    /// The log, oldest first.
    pub fn lines(&self) -> Vec<CheckpointLine> {
        self.order.iter().filter_map(|id| self.line(*id)).collect()
    }

    /// The nearest ancestor that has its bytes.
    pub fn resident_ancestor(&self, id: CheckpointId) -> Option<CheckpointId> {
        let mut at = self.nodes.get(&id)?.line.parent;
        while let Some(node) = at.and_then(|at| self.nodes.get(&at)) {
            if node.state.is_some() {
                return at;
            }
            at = node.line.parent;
        }
        None
    }

    /// True when the checkpoint must keep its bytes: a name, the head, or the last place to go back to.
    pub(crate) fn is_kept(&self, id: CheckpointId) -> bool {
        self.head == Some(id) || self.jumps.front() == Some(&id) || self.tags.values().any(|at| *at == id)
    }

    pub(crate) fn nodes_mut(&mut self) -> &mut HashMap<CheckpointId, Node<S>> {
        &mut self.nodes
    }

    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Forgets the line of `id` for good.
    pub(crate) fn remove_line(&mut self, id: CheckpointId) {
        self.nodes.remove(&id);
        self.order.retain(|other| *other != id);
        self.jumps.retain(|other| *other != id);
    }
}

#[cfg(test)]
pub(crate) mod tests;
