//! How a plan is found for one tree. Pure; see `plan` for the idea and the order of the steps.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use image::tree::{Body, Content, Covered, Dentry, Difference, Entry, FileKey, Inode, Name, Node, Side, join};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::plan::{AsLower, Clear, Place, Restore, SidePlan, user_xattrs};

/// What has to be done to get from `now` to `target`.
pub(crate) fn plan_side(now: &Side, target: &Side) -> SidePlan {
    let mut planner = Planner::new(now, target);
    planner.adopt();
    planner.find_slots();
    planner.find_inside_doomed();
    planner.decide_names();
    planner.decide_content();
    planner.finish()
}

/// A name that means different things in the two trees.
#[derive(Debug, Clone)]
struct Slot {
    /// Path in `now`; `None` when its directory is not there.
    now_path: Option<Vec<u8>>,
    target_path: Vec<u8>,
    /// Path in the lower layers that shows there, if any can.
    lower: Option<Vec<u8>>,
    now_name: Option<(FileKey, Name)>,
    now: Option<Dentry>,
    target: Option<Dentry>,
    /// A born inode that came from the lower layers here and goes back.
    back: Option<FileKey>,
}

impl Slot {
    fn covers(&self) -> Option<Covered> {
        self.target.or(self.now).and_then(|dentry| dentry.covers)
    }

    /// What the lower layers hold shows in `now`.
    fn shows_lower(&self) -> Option<Covered> {
        if self.now.is_none() { self.covers() } else { None }
    }
}

/// A born inode that stays because the lower layers have the same thing there.
#[derive(Debug, Clone)]
struct Stay {
    path: Vec<u8>,
    lower: Vec<u8>,
}

struct Planner<'a> {
    now: &'a Side,
    target: &'a Side,
    born: BTreeMap<FileKey, &'a Inode>,
    lost: BTreeMap<FileKey, &'a Inode>,
    changed: Vec<(FileKey, &'a Inode, &'a Inode)>,
    /// Lost inode of the target to the born inode that stands in for it, and back.
    adopted: HashMap<FileKey, FileKey>,
    adopted_by: HashMap<FileKey, FileKey>,
    staying: BTreeMap<FileKey, Stay>,
    slots: Vec<Slot>,
    /// Directories of the target, and staying ones, in which names change.
    touched: HashSet<FileKey>,
    leaving: BTreeMap<FileKey, Vec<Vec<u8>>>,
    plan: SidePlan,
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|&&byte| byte == b'/').count() + usize::from(!path.is_empty())
}

impl<'a> Planner<'a> {
    fn new(now: &'a Side, target: &'a Side) -> Self {
        let (mut born, mut lost, mut changed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for difference in now.differences(target) {
            match difference {
                Difference::Added(key, inode) => drop(lost.insert(key, inode)),
                Difference::Removed(key, inode) => drop(born.insert(key, inode)),
                Difference::Changed(key, old, new) => changed.push((key, old, new)),
            }
        }
        Self {
            now,
            target,
            born,
            lost,
            changed,
            adopted: HashMap::new(),
            adopted_by: HashMap::new(),
            staying: BTreeMap::new(),
            slots: Vec::new(),
            touched: HashSet::new(),
            leaving: BTreeMap::new(),
            plan: SidePlan::default(),
        }
    }

    /// Lets born inodes stand in for lost ones: those that were copied up from the same lower file, wherever they are;
    /// then those at the same name, parents before children.
    fn adopt(&mut self) {
        let mut by_origin: HashMap<FileKey, FileKey> = self
            .born
            .iter()
            .filter_map(|(key, inode)| Some((inode.origin()?, *key)))
            .collect();
        for (key, inode) in &self.lost {
            let Some(origin) = inode.origin() else { continue };
            let Some(born) = by_origin.get(&origin).copied() else {
                continue;
            };
            if self
                .born
                .get(&born)
                .is_some_and(|candidate| can_stand_in(candidate, inode))
            {
                let _used = by_origin.remove(&origin);
                let _none = self.adopted.insert(*key, born);
                let _none = self.adopted_by.insert(born, *key);
            }
        }
        let mut lost: Vec<(usize, FileKey, &Inode)> = self
            .lost
            .iter()
            .map(|(key, inode)| (self.target.path(key).map_or(0, |path| depth(&path)), *key, *inode))
            .collect();
        lost.sort_by_key(|(depth, key, _)| (*depth, *key));
        for (_, key, inode) in lost.into_iter().filter(|(_, _, inode)| inode.origin().is_none()) {
            for (parent, name) in &inode.names {
                let Some(directory) = self.now_key(parent) else {
                    continue;
                };
                let children = self.now.get(&directory).and_then(Inode::children);
                let Some(Entry::Inode(born)) = children.and_then(|names| names.get(name)).map(|dentry| dentry.entry)
                else {
                    continue;
                };
                let Some(candidate) = self.born.get(&born) else {
                    continue;
                };
                if !self.adopted_by.contains_key(&born) && can_stand_in(candidate, inode) {
                    let _none = self.adopted.insert(key, born);
                    let _none = self.adopted_by.insert(born, key);
                    break;
                }
            }
        }
    }

    /// The inode of `now` that is or becomes the target's inode `key`.
    fn now_key(&self, key: &FileKey) -> Option<FileKey> {
        if self.now.get(key).is_some() {
            Some(*key)
        } else {
            self.adopted.get(key).copied()
        }
    }

    /// True for an inode of `now` that has a place in the target.
    fn is_wanted(&self, key: &FileKey) -> bool {
        self.target.get(key).is_some() || self.adopted_by.contains_key(key) || self.staying.contains_key(key)
    }

    fn find_slots(&mut self) {
        let changed = self.changed.iter().filter(|(_, old, _)| old.is_dir());
        let mut pairs: Vec<(Option<FileKey>, Option<FileKey>)> =
            changed.map(|(key, ..)| (Some(*key), Some(*key))).collect();
        let lost = self.lost.iter().filter(|(_, inode)| inode.is_dir());
        pairs.extend(lost.map(|(key, _)| (self.adopted.get(key).copied(), Some(*key))));
        loop {
            while let Some((now, target)) = pairs.pop() {
                self.compare_directories(now, target, &mut pairs);
            }
            if !self.send_back(&mut pairs) {
                break;
            }
        }
    }

    /// Compares the names of a directory of `now` with those of its counterpart; no counterpart: the lower layers.
    fn compare_directories(
        &mut self,
        now: Option<FileKey>,
        target: Option<FileKey>,
        pairs: &mut Vec<(Option<FileKey>, Option<FileKey>)>,
    ) {
        let none = OrdMap::new();
        let now_names = now
            .and_then(|key| self.now.get(&key))
            .and_then(Inode::children)
            .unwrap_or(&none);
        let target_names = target
            .and_then(|key| self.target.get(&key))
            .and_then(Inode::children)
            .unwrap_or(&none);
        let now_path = now.and_then(|key| self.now.path(&key));
        let stay = now
            .filter(|_| target.is_none())
            .and_then(|key| self.staying.get(&key).cloned());
        let (target_path, lower) = match (target, stay) {
            (Some(key), _) => (self.target.path(&key), self.target.lower_path(&key)),
            (None, Some(stay)) => (Some(stay.path), Some(stay.lower)),
            (None, None) => (None, None),
        };
        let Some(target_path) = target_path else { return };
        for item in now_names.diff(target_names) {
            let (name, before, after) = match item {
                DiffItem::Add(name, after) => (name, None, Some(*after)),
                DiffItem::Remove(name, before) => (name, Some(*before), None),
                DiffItem::Update { old, new } => (old.0, Some(*old.1), Some(*new.1)),
            };
            let slot = Slot {
                now_path: now_path.as_ref().map(|path| join(path, &name.0)),
                target_path: join(&target_path, &name.0),
                lower: lower.as_ref().map(|path| join(path, &name.0)),
                now_name: now.map(|directory| (directory, name.clone())),
                now: before,
                target: after,
                back: None,
            };
            if let Some(pair) = self.stays(&slot) {
                pairs.extend(pair);
                continue;
            }
            if self.is_stable(&slot) {
                continue;
            }
            let _new = self.touched.insert(target.or(now).expect("one of the two is there"));
            self.slots.push(slot);
        }
    }

    fn is_stable(&self, slot: &Slot) -> bool {
        match (
            slot.now.map(|dentry| dentry.entry),
            slot.target.map(|dentry| dentry.entry),
        ) {
            (Some(Entry::Inode(now)), Some(Entry::Inode(target))) => self.now_key(&target) == Some(now),
            (now, target) => now == target,
        }
    }

    /// A born copy of what the target shows from the lower layers stays where it is.
    fn stays(&mut self, slot: &Slot) -> Option<Option<(Option<FileKey>, Option<FileKey>)>> {
        let (
            Some(Dentry {
                entry: Entry::Inode(key),
                covers: Some(covers),
            }),
            None,
        ) = (slot.now, slot.target)
        else {
            return None;
        };
        let inode = *self.born.get(&key)?;
        if inode.origin() != Some(covers.key) || inode.is_dir() != covers.is_dir || self.adopted_by.contains_key(&key) {
            return None;
        }
        if inode.is_dir() && !inode.is_merged() {
            return None;
        }
        let stay = Stay {
            path: slot.target_path.clone(),
            lower: slot.lower.clone()?,
        };
        let _none = self.staying.insert(key, stay);
        Some(inode.is_dir().then_some((Some(key), None)))
    }

    /// Finds born inodes that were moved away from where the target shows the lower layers. True when there were.
    fn send_back(&mut self, pairs: &mut Vec<(Option<FileKey>, Option<FileKey>)>) -> bool {
        let mut homes: HashMap<FileKey, usize> = HashMap::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.target.is_none()
                && slot.back.is_none()
                && slot.lower.is_some()
                && let Some(covers) = slot.covers()
            {
                let _other = homes.insert(covers.key, index);
            }
        }
        let mut found = false;
        for (key, inode) in &self.born {
            if homes.is_empty() || self.adopted_by.contains_key(key) || self.staying.contains_key(key) {
                continue;
            }
            let Some(index) = inode.origin().and_then(|origin| homes.remove(&origin)) else {
                continue;
            };
            let slot = &mut self.slots[index];
            let covers_dir = slot.covers().is_some_and(|covers| covers.is_dir);
            if covers_dir != inode.is_dir() || (inode.is_dir() && !inode.is_merged()) {
                continue;
            }
            slot.back = Some(*key);
            let stay = Stay {
                path: slot.target_path.clone(),
                lower: slot.lower.clone().expect("checked above"),
            };
            let _none = self.staying.insert(*key, stay);
            if inode.is_dir() {
                pairs.push((Some(*key), None));
            }
            found = true;
        }
        found
    }

    /// Born directories that go take everything in them along, except what has a place in the target.
    fn find_inside_doomed(&mut self) {
        let mut leaving = Vec::new();
        for (key, inode) in &self.born {
            if self.is_wanted(key) {
                continue;
            }
            for (name, dentry) in inode.children().into_iter().flatten() {
                if let Entry::Inode(child) = dentry.entry
                    && self.is_wanted(&child)
                    && let Some(directory) = self.now.path(key)
                {
                    leaving.push((child, join(&directory, &name.0)));
                }
            }
        }
        for (child, path) in leaving {
            self.leaving.entry(child).or_default().push(path);
        }
    }

    fn decide_names(&mut self) {
        let mut arriving: BTreeMap<FileKey, Vec<Vec<u8>>> = BTreeMap::new();
        let mut made: BTreeMap<FileKey, Vec<Vec<u8>>> = BTreeMap::new();
        for slot in std::mem::take(&mut self.slots) {
            self.vacate(&slot);
            match slot.target {
                Some(Dentry {
                    entry: Entry::Inode(key),
                    ..
                }) => match self.now_key(&key) {
                    Some(now) => {
                        self.hide_lower(&slot);
                        arriving.entry(now).or_default().push(slot.target_path);
                    }
                    None => {
                        let is_first = !made.contains_key(&key);
                        made.entry(key).or_default().push(slot.target_path.clone());
                        if is_first {
                            self.make(&slot, key);
                        } else {
                            self.hide_lower(&slot);
                        }
                    }
                },
                Some(Dentry {
                    entry: Entry::Whiteout, ..
                }) => self.hide_lower(&slot),
                None => match slot.back {
                    Some(key) => arriving.entry(key).or_default().push(slot.target_path),
                    None => {
                        if let (Some(_), Some(lower)) = (slot.covers(), slot.lower) {
                            self.plan.place.push(Place::Reveal {
                                path: slot.target_path,
                                lower,
                            });
                        }
                    }
                },
            }
        }
        for paths in made.into_values() {
            self.plan
                .link
                .extend(paths[1..].iter().map(|path| (paths[0].clone(), path.clone())));
            self.plan.replaced.extend(paths);
        }
        self.move_wanted(arriving);
    }

    /// What stands in the way at `slot` goes, or is noted as having to move.
    fn vacate(&mut self, slot: &Slot) {
        let Some(Dentry {
            entry: Entry::Inode(key),
            ..
        }) = slot.now
        else {
            return;
        };
        let path = slot.now_path.clone().expect("a name of `now` has a path");
        debug_assert!(slot.now_name.is_some(), "a name of `now` has a directory");
        if self.is_wanted(&key) {
            self.leaving.entry(key).or_default().push(path);
        } else if self.now.get(&key).is_some_and(Inode::is_dir) {
            self.plan.clear.push(Clear::Discard { path });
        } else {
            self.plan.clear.push(Clear::Unlink { path });
        }
    }

    fn hide_lower(&mut self, slot: &Slot) {
        if let Some(covers) = slot.shows_lower() {
            self.plan.place.push(Place::Hide {
                path: slot.target_path.clone(),
                is_dir: covers.is_dir,
            });
        }
    }

    /// Steps that make the lost inode `key` of the target at `slot`.
    fn make(&mut self, slot: &Slot, key: FileKey) {
        let Some(node) = self.target.inodes.get(&key).cloned() else {
            return;
        };
        let path = slot.target_path.clone();
        let covers = slot.covers();
        let is_copy = covers.is_some_and(|covers| node.origin() == Some(covers.key) && covers.is_dir == node.is_dir());
        if is_copy && (!node.is_dir() || node.is_merged()) {
            if let (Some(_), Some(lower)) = (slot.now, slot.lower.clone()) {
                self.plan.place.push(Place::Reveal {
                    path: path.clone(),
                    lower,
                });
            }
            self.plan.place.push(Place::CopyUp { path, node });
            return;
        }
        self.hide_lower(slot);
        match self.target.lower_path(&key).filter(|_| node.is_merged()) {
            Some(lower) => self.plan.place.push(Place::CopyLower { path, lower }),
            None => self.plan.place.push(Place::Make { path, node }),
        }
    }

    /// Moves every wanted inode from the names it leaves to the names it gets.
    fn move_wanted(&mut self, mut arriving: BTreeMap<FileKey, Vec<Vec<u8>>>) {
        let leaving = std::mem::take(&mut self.leaving);
        let keys: BTreeSet<FileKey> = leaving.keys().chain(arriving.keys()).copied().collect();
        for (slot, key) in (0..).zip(keys) {
            let leaves = leaving.get(&key).cloned().unwrap_or_default();
            let mut arrives = arriving.remove(&key).unwrap_or_default();
            let name_count = self.now.get(&key).map_or(0, |inode| inode.names.len());
            let mut leaves = leaves.into_iter();
            let source = if leaves.len() >= name_count {
                // Its only way home leads over a name of ours.
                let (Some(from), false) = (leaves.next(), arrives.is_empty()) else {
                    debug_assert!(false, "a wanted inode has a name in the target");
                    continue;
                };
                let first = arrives.remove(0);
                // The move itself may change the times of a directory (XFS).
                let _new = self.touched.insert(*self.adopted_by.get(&key).unwrap_or(&key));
                self.plan.clear.push(Clear::Park { path: from, slot });
                self.plan.place.push(Place::Unpark {
                    slot,
                    path: first.clone(),
                });
                Some(first)
            } else {
                self.settled_path(&key, &arrives)
            };
            self.plan.clear.extend(leaves.map(|path| Clear::Unlink { path }));
            if let Some(source) = source {
                self.plan
                    .link
                    .extend(arrives.into_iter().map(|path| (source.clone(), path)));
            }
        }
    }

    /// A path that the inode `key` of `now` has in both trees.
    fn settled_path(&self, key: &FileKey, arrives: &[Vec<u8>]) -> Option<Vec<u8>> {
        if let Some(stay) = self.staying.get(key) {
            return Some(stay.path.clone());
        }
        let target = self.adopted_by.get(key).unwrap_or(key);
        let names = &self.target.get(target)?.names;
        names
            .iter()
            .filter_map(|(parent, name)| Some(join(&self.target.path(parent)?, &name.0)))
            .find(|path| !arrives.contains(path))
    }

    fn decide_content(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        for (key, old, new) in changed {
            if needs_restore(old, new, self.touched.contains(&key)) {
                self.push_restore(key, self.now.inodes.get(&key).map(|node| (key, node.clone())));
            }
        }
        let lost: Vec<FileKey> = self.lost.keys().copied().collect();
        for key in lost {
            let now = self
                .adopted
                .get(&key)
                .and_then(|born| Some((*born, self.now.inodes.get(born)?.clone())));
            let Some(target) = self.target.get(&key) else { continue };
            if now.is_some() {
                let paths = target
                    .names
                    .iter()
                    .filter_map(|(parent, name)| Some(join(&self.target.path(parent)?, &name.0)));
                self.plan.replaced.extend(paths);
            }
            let is_same = now
                .as_ref()
                .is_some_and(|(_, now)| !needs_restore(now, target, self.touched.contains(&key)));
            if !is_same {
                self.push_restore(key, now);
            }
        }
        for (key, stay) in &self.staying {
            let Some(node) = self.now.inodes.get(key) else { continue };
            if !node.as_lower || self.touched.contains(key) {
                let (path, lower) = (stay.path.clone(), stay.lower.clone());
                self.plan.as_lower.push(AsLower {
                    path,
                    key: *key,
                    node: node.clone(),
                    lower,
                });
            }
        }
    }

    fn push_restore(&mut self, key: FileKey, now: Option<(FileKey, Node)>) {
        let (Some(node), Some(path)) = (self.target.inodes.get(&key), self.target.path(&key)) else {
            return;
        };
        self.plan.restore.push(Restore {
            path,
            now,
            key,
            node: node.clone(),
        });
    }

    fn finish(mut self) -> SidePlan {
        self.plan
            .clear
            .sort_by_key(|clear| std::cmp::Reverse(depth(clear.path())));
        self.plan.place.sort_by_key(|place| depth(place.path()));
        self.plan.replaced.sort();
        self.plan.replaced.dedup();
        self.plan
    }
}

/// True when the born inode can be rewritten into the lost one so that a reader cannot tell.
fn can_stand_in(born: &Inode, lost: &Inode) -> bool {
    let same_layering = born.origin() == lost.origin() && born.is_merged() == lost.is_merged();
    match (&born.body, &lost.body) {
        (Body::Directory(_), Body::Directory(_)) => same_layering,
        (Body::Regular(_), Body::Regular(content)) => {
            same_layering && (born.overlay("metacopy").is_none() || matches!(content, Content::Lower(_)))
        }
        _ => false,
    }
}

/// True when `now` has to be written to be like `target`.
fn needs_restore(now: &Inode, target: &Inode, names_changed: bool) -> bool {
    let (a, b) = (&now.attributes, &target.attributes);
    if (a.mode, a.uid, a.gid) != (b.mode, b.uid, b.gid) || a.mtime != b.mtime || names_changed {
        return true;
    }
    if !Arc::ptr_eq(&now.xattrs, &target.xattrs) && !user_xattrs(now).eq(user_xattrs(target)) {
        return true;
    }
    match (&now.body, &target.body) {
        (Body::Regular(now), Body::Regular(target)) => !now.is_same(target) || a.atime != b.atime,
        _ => false,
    }
}
