//! Descriptors: which descriptions that still live serve for which of the target, which must be made again, and what
//! each slot must become. Pure.

use std::collections::{BTreeMap, BTreeSet};

use image::fd::{Inode, Kind, Object, ObjectIndex};
use image::process::Processes;

use crate::error::EngineError;
use crate::unsupported::{Subject, refuse};

/// Where the description of a target object comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This object of the present serves.
    Kept(ObjectIndex),
    /// It must be made again.
    Made,
}

/// What must be done to one process's table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TablePlan {
    /// Slots to close.
    pub(crate) close: Vec<u32>,
    /// Slots that must refer to this target object: number, object, close-on-exec.
    pub(crate) place: Vec<(u32, ObjectIndex, bool)>,
    /// Slots whose close-on-exec flag alone differs.
    pub(crate) cloexec: Vec<(u32, bool)>,
}

/// What must be done to all tables.
#[derive(Debug, Default)]
pub(crate) struct FdPlan {
    /// By target object.
    pub(crate) origins: Vec<Origin>,
    /// By pid.
    pub(crate) tables: BTreeMap<u32, TablePlan>,
}

const ACCESS: u32 = 3;

/// True where the description `now` can be given the state of `target`.
fn serves(now_all: &Processes, now: &Object, target_all: &Processes, target: &Object) -> bool {
    if now.flags & ACCESS != target.flags & ACCESS {
        return false;
    }
    match (&now.kind, &target.kind) {
        (
            Kind::File {
                inode: a,
                directory: d,
                ghost: g,
                ..
            },
            Kind::File {
                inode: b,
                directory: e,
                ghost: h,
                ..
            },
        ) => a == b && d == e && g.is_some() == h.is_some(),
        (Kind::Memory { object: a, .. }, Kind::Memory { object: b, .. }) => {
            now_all.shared[*a as usize].inode == target_all.shared[*b as usize].inode
        }
        (Kind::Device { rdev: a, path: p }, Kind::Device { rdev: b, path: q }) => a == b && p == q,
        (Kind::Terminal { rdev: a, path: p, .. }, Kind::Terminal { rdev: b, path: q, .. }) => a == b && p == q,
        (Kind::Pipe { pipe: a }, Kind::Pipe { pipe: b }) => {
            now_all.pipes[*a as usize].inode == target_all.pipes[*b as usize].inode
        }
        (Kind::Socket { number: a, socket: s }, Kind::Socket { number: b, socket: t }) => {
            let (now, target) = (&now_all.sockets[*s as usize], &target_all.sockets[*t as usize]);
            // What was shut down stays so; what was closed at the other end cannot be filled again.
            let open = now.shutdown & !target.shutdown == 0;
            a == b && now.peer == target.peer && open && (now.peer != 0 || now == target)
        }
        (Kind::Event { semaphore: a, .. }, Kind::Event { semaphore: b, .. }) => a == b,
        (Kind::Timer { clock: a, .. }, Kind::Timer { clock: b, .. }) => a == b,
        (Kind::Signal { .. }, Kind::Signal { .. }) | (Kind::Epoll { .. }, Kind::Epoll { .. }) => true,
        _ => false,
    }
}

/// Plans the way from the tables of `now` to those of `target`. `held` says of a pipe whether we hold an end of it
/// ourselves (the output of a command).
///
/// # Errors
/// `Unsupported` where a description is gone that cannot be made again.
pub(crate) fn plan(now: &Processes, target: &Processes, held: &dyn Fn(Inode) -> bool) -> Result<FdPlan, EngineError> {
    let slots_now: BTreeMap<(u32, u32), ObjectIndex> = now
        .processes
        .iter()
        .flat_map(|(pid, p)| p.slots.iter().map(|s| ((*pid, s.number), s.object)))
        .collect();
    let mut origins = vec![Origin::Made; target.objects.len()];
    let mut taken: BTreeSet<ObjectIndex> = BTreeSet::new();
    for (pid, process) in &target.processes {
        for slot in &process.slots {
            let origin = &mut origins[slot.object as usize];
            if *origin != Origin::Made {
                continue;
            }
            if let Some(object) = slots_now.get(&(*pid, slot.number))
                && !taken.contains(object)
                && serves(
                    now,
                    &now.objects[*object as usize],
                    target,
                    &target.objects[slot.object as usize],
                )
            {
                *origin = Origin::Kept(*object);
                taken.insert(*object);
            }
        }
    }
    adopt_moved(now, target, &mut origins, &mut taken);
    make_pairs_whole(target, &mut origins);
    refuse_lost(now, target, &origins, held)?;
    Ok(FdPlan {
        tables: tables(now, target, &origins),
        origins,
    })
}

impl FdPlan {
    /// Once the files are put back: a kept description that was on another name in the meantime serves only when
    /// `is_named` says of its process, its path and its inode that the path leads to that inode. The file may be gone
    /// that the inode was at the checkpoint, and its number be another file's.
    pub(crate) fn correct(
        &mut self,
        now: &Processes,
        target: &Processes,
        is_named: &dyn Fn(u32, &[u8], Inode) -> bool,
    ) {
        let mut wrong = false;
        for (pid, process) in &target.processes {
            for slot in &process.slots {
                let origin = &mut self.origins[slot.object as usize];
                let Origin::Kept(kept) = *origin else { continue };
                let (wanted, present) = (
                    &target.objects[slot.object as usize].kind,
                    &now.objects[kept as usize].kind,
                );
                if let Kind::File {
                    path,
                    inode,
                    ghost: None,
                    ..
                } = wanted
                    && matches!(present, Kind::File { path: other, .. } if other != path)
                    && !is_named(*pid, path, *inode)
                {
                    *origin = Origin::Made;
                    wrong = true;
                }
            }
        }
        if wrong {
            self.tables = tables(now, target, &self.origins);
        }
    }
}

fn tables(now: &Processes, target: &Processes, origins: &[Origin]) -> BTreeMap<u32, TablePlan> {
    let mut tables = BTreeMap::new();
    for (pid, process) in &target.processes {
        let Some(present) = now.processes.get(pid) else {
            continue;
        };
        let mut table = TablePlan::default();
        let wanted: BTreeSet<u32> = process.slots.iter().map(|s| s.number).collect();
        table
            .close
            .extend(present.slots.iter().map(|s| s.number).filter(|n| !wanted.contains(n)));
        for slot in &process.slots {
            let old = present.slots.iter().find(|s| s.number == slot.number);
            match old {
                Some(old) if origins[slot.object as usize] == Origin::Kept(old.object) => {
                    if old.cloexec != slot.cloexec {
                        table.cloexec.push((slot.number, slot.cloexec));
                    }
                }
                _ => table.place.push((slot.number, slot.object, slot.cloexec)),
            }
        }
        tables.insert(*pid, table);
    }
    tables
}

/// Descriptions that are known by an inode of their own and were moved to another slot.
fn adopt_moved(now: &Processes, target: &Processes, origins: &mut [Origin], taken: &mut BTreeSet<ObjectIndex>) {
    for (wanted, origin) in target.objects.iter().zip(origins) {
        let unique = matches!(
            wanted.kind,
            Kind::Pipe { .. } | Kind::Socket { .. } | Kind::File { ghost: Some(_), .. } | Kind::Memory { .. }
        );
        if *origin != Origin::Made || !unique {
            continue;
        }
        let found = (0..)
            .zip(&now.objects)
            .find(|(at, object)| !taken.contains(at) && serves(now, object, target, wanted));
        if let Some((at, _)) = found {
            *origin = Origin::Kept(at);
            taken.insert(at);
        }
    }
}

/// Two ends that are connected are kept together or made together.
fn make_pairs_whole(target: &Processes, origins: &mut [Origin]) {
    let made: BTreeSet<u64> = target
        .objects
        .iter()
        .zip(origins.iter())
        .filter_map(|(object, origin)| match (&object.kind, origin) {
            (Kind::Socket { socket, .. }, Origin::Made) => Some(target.sockets[*socket as usize].peer),
            _ => None,
        })
        .collect();
    for (object, origin) in target.objects.iter().zip(origins) {
        if matches!(object.kind, Kind::Socket { number, .. } if made.contains(&number)) {
            *origin = Origin::Made;
        }
    }
}

fn refuse_lost(
    now: &Processes,
    target: &Processes,
    origins: &[Origin],
    held: &dyn Fn(Inode) -> bool,
) -> Result<(), EngineError> {
    for (pid, process) in &target.processes {
        for slot in &process.slots {
            if origins[slot.object as usize] != Origin::Made {
                continue;
            }
            let subject = Subject::new(*pid, process.comm.clone());
            let lost = |what: &str| {
                Err(refuse(
                    &subject,
                    format!("fd {}: {what}, closed since the checkpoint", slot.number),
                ))
            };
            match &target.objects[slot.object as usize].kind {
                Kind::Pipe { pipe } => {
                    let wanted = &target.pipes[*pipe as usize];
                    let alive = now.pipes.iter().any(|p| p.inode == wanted.inode);
                    if !alive && wanted.path.is_empty() && wanted.content.is_none() && !held(wanted.inode) {
                        return lost("a pipe to the outside");
                    }
                }
                Kind::Socket { socket, .. } => {
                    let wanted = &target.sockets[*socket as usize];
                    if wanted.outside {
                        return lost("a unix socket whose other end is not in the box");
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
