//! Which checkpoints lose their bytes so that a history stays within its memory bound: the oldest first that has no
//! name, is not the head and is not `@{-1}`. Nothing depends on a checkpoint's bytes but going there (every image is
//! complete by itself and shares what did not change), so an ancestor can go and its children stay.

use std::collections::HashSet;

use image::CheckpointId;

use crate::history::{History, LINES_MAX};

impl<S> History<S> {
    /// Drops until the sum is at most `bound_bytes`. `own_bytes(state, ancestor)` weighs what only `state` holds;
    /// bytes that two children share with a dropped parent are counted for both, so the bound errs on the safe side.
    /// The states are handed back, so that the caller can free them when it has time.
    pub fn keep_within(&mut self, bound_bytes: u64, own_bytes: impl Fn(&S, Option<&S>) -> u64) -> Vec<S> {
        let mut dropped = Vec::new();
        while self.bytes() > bound_bytes {
            let resident = |id: &CheckpointId| self.node(*id).is_some_and(|node| node.state.is_some());
            let Some(id) = self.ids().iter().copied().find(|id| resident(id) && !self.is_kept(*id)) else {
                break;
            };
            let heir = |heir: &CheckpointId| resident(heir) && self.resident_ancestor(*heir) == Some(id);
            let heirs: Vec<CheckpointId> = self.ids().iter().copied().filter(heir).collect();
            let node = self.nodes_mut().get_mut(&id).expect("found above");
            dropped.extend(node.state.take());
            let mut bytes =
                self.bytes() - std::mem::take(&mut self.nodes_mut().get_mut(&id).expect("found above").own_bytes);
            for heir in heirs {
                let ancestor = self
                    .resident_ancestor(heir)
                    .and_then(|ancestor| self.node(ancestor)?.state.as_ref());
                let Some(node) = self.node(heir) else { continue };
                let Some(state) = node.state.as_ref() else { continue };
                let (then, now) = (node.own_bytes, own_bytes(state, ancestor));
                bytes = bytes - then + now;
                self.nodes_mut().get_mut(&heir).expect("looked up above").own_bytes = now;
            }
            self.set_bytes(bytes);
        }
        self.keep_lines_within(LINES_MAX);
        dropped
    }

    /// Forgets the oldest dropped lines that nothing grew from and no name holds.
    fn keep_lines_within(&mut self, bound: usize) {
        while self.ids().len() > bound {
            let parents: HashSet<CheckpointId> =
                self.ids().iter().filter_map(|id| self.node(*id)?.line.parent).collect();
            let idle = |id: &CheckpointId| self.node(*id).is_some_and(|node| node.state.is_none());
            let free = |id: &&CheckpointId| idle(id) && !self.is_kept(**id);
            // A leaf first; where every dropped line has children, the oldest: `~n` ends there.
            let leaf = self.ids().iter().find(|id| free(id) && !parents.contains(id)).copied();
            let Some(id) = leaf.or_else(|| self.ids().iter().find(free).copied()) else {
                return;
            };
            self.remove_line(id);
        }
    }
}
