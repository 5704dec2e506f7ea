//! `plan(now, target) -> Plan`: a pure function from two images to what must be done. No descriptor, no host pid; a
//! plan can be printed and compared.

pub(crate) mod fds;
pub(crate) mod memory;

use std::collections::BTreeSet;
use std::sync::Arc;

use image::memory::{AddressSpace, Backing};
use image::process::{Process, Processes, SharedMemory};
use image::thread::Thread;
use rustix::fs::SealFlags;

use crate::error::EngineError;
use crate::unsupported::{Subject, refuse};
use fds::{FdPlan, Origin, TablePlan};
use image::fd::Kind;
pub(crate) use memory::MemoryPlan;

/// What must be done to processes.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Born since: pid and parent, children before parents.
    pub(crate) end: Vec<(u32, u32)>,
    /// To be put back in place.
    pub(crate) patch: Vec<ProcessPlan>,
}

/// What must be done to one process.
#[derive(Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) pid: u32,
    pub(crate) memory: MemoryPlan,
    /// Children that ended since and must be waited for, as if they had never been.
    pub(crate) reap: Vec<u32>,
    /// It was stopped or continued by job control since.
    pub(crate) stop: Option<StopChange>,
    /// Threads that were born since (tids).
    pub(crate) end_threads: Vec<u32>,
    /// Threads that ended since.
    pub(crate) make_threads: Vec<Arc<Thread>>,
}

/// What job control must do to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopChange {
    /// It ran at the checkpoint.
    GoOn,
    /// It was stopped; whether its parent knew.
    Stop {
        /// The parent had asked.
        told: bool,
    },
}

fn stop_change(present: &Process, wanted: &Process) -> Option<StopChange> {
    match (present.stopped, wanted.stopped) {
        (true, false) => Some(StopChange::GoOn),
        (false, true) => Some(StopChange::Stop {
            told: !wanted.stop_untold,
        }),
        _ => None,
    }
}

/// Pages of a process that may differ from the index in its `now` image.
pub(crate) type Dirty<'a> = &'a dyn Fn(u32) -> &'a [u64];

/// Plans the way from `now` to `target`.
///
/// # Errors
/// `Lost` where a process of the target is gone or another program, `Unsupported` where it crossed a line that cannot
/// be crossed back.
pub(crate) fn plan<'a>(now: &'a Processes, target: &Processes, dirty: Dirty<'a>) -> Result<Plan, EngineError> {
    for wanted in &target.shared {
        if let Some(present) = now.shared.iter().find(|present| present.inode == wanted.inode) {
            refuse_sealed(present, wanted)?;
        }
    }
    let mut patch = Vec::with_capacity(target.processes.len());
    for (pid, wanted) in &target.processes {
        let lost = |why| EngineError::Lost {
            pid: *pid,
            comm: wanted.comm.clone(),
            why,
        };
        let present = now.processes.get(pid).ok_or_else(|| lost("died"))?;
        if present.lasting.start_ticks != wanted.lasting.start_ticks {
            return Err(lost("died"));
        }
        refuse_irreversible(present, wanted)?;
        if let Some(zombie) = wanted.zombies.iter().find(|zombie| !present.zombies.contains(zombie)) {
            let comm = format!("a dead child of {}", wanted.comm);
            return Err(EngineError::Lost {
                pid: *zombie,
                comm,
                why: "was waited for",
            });
        }
        patch.push(ProcessPlan {
            pid: *pid,
            stop: stop_change(present, wanted),
            reap: present
                .zombies
                .iter()
                .copied()
                .filter(|zombie| !wanted.zombies.contains(zombie))
                .collect(),
            memory: memory::plan(
                &in_terms_of(now, target, &present.memory),
                &wanted.memory,
                dirty(*pid),
                &Subject::new(*pid, wanted.comm.clone()),
            )?,
            end_threads: missing_in(&present.threads, &wanted.threads).map(|t| t.tid).collect(),
            make_threads: missing_in(&wanted.threads, &present.threads).cloned().collect(),
        });
    }
    Ok(Plan {
        end: newborns(now, target),
        patch,
    })
}

/// The present with its shared memory objects numbered as the target numbers them; what the target does not know gets
/// a number that nothing has.
fn in_terms_of(now: &Processes, target: &Processes, memory: &AddressSpace) -> AddressSpace {
    let mut memory = memory.clone();
    if memory
        .mappings
        .iter()
        .all(|m| !matches!(m.backing, Backing::Shared { .. }))
    {
        return memory;
    }
    for mapping in Arc::make_mut(&mut memory.mappings) {
        if let Backing::Shared { object, .. } = &mut mapping.backing {
            let inode = now.shared[*object as usize].inode;
            let known = target.shared.iter().position(|shared| shared.inode == inode);
            *object = known.map_or(u32::MAX, |at| u32::try_from(at).expect("fewer than 4 billion"));
        }
    }
    memory
}

/// True where putting a process back cannot be felt by a thread of it that sleeps through it: only pages, registers of
/// other threads and positions of files change.
pub(crate) fn leaves_sleepers_alone(
    plan: &Plan,
    step: &ProcessPlan,
    now: &Processes,
    target: &Processes,
    fds: &FdPlan,
) -> bool {
    let memory = &step.memory;
    let same_ranges =
        memory.brk.is_none() && memory.unmap.is_empty() && memory.map.is_empty() && memory.protect.is_empty();
    let same_stops = step.stop.is_none() && !stops_a_child(plan, step.pid, target);
    let same_tasks = same_stops && step.reap.is_empty() && step.end_threads.is_empty() && step.make_threads.is_empty();
    let same_table = fds
        .tables
        .get(&step.pid)
        .is_none_or(|table| *table == TablePlan::default());
    let (present, wanted) = (&now.processes[&step.pid], &target.processes[&step.pid]);
    let same_signals = present.pending == wanted.pending;
    let same_streams = now.pipes == target.pipes && now.sockets == target.sockets;
    let waited_for = |kind: &Kind| matches!(kind, Kind::Event { .. } | Kind::Timer { .. } | Kind::Signal { .. });
    let same_objects = target
        .objects
        .iter()
        .zip(&fds.origins)
        .all(|(object, origin)| match origin {
            Origin::Kept(kept) => !waited_for(&object.kind) || now.objects[*kept as usize].kind == object.kind,
            Origin::Made => !waited_for(&object.kind),
        });
    same_ranges && same_tasks && same_table && same_signals && same_streams && same_objects
}

/// True where job control acts on a child of process `pid`, of which it will hear.
pub(crate) fn stops_a_child(plan: &Plan, pid: u32, target: &Processes) -> bool {
    let mut steps = plan.patch.iter().filter(|step| step.stop.is_some());
    steps.any(|step| target.processes[&step.pid].parent == pid)
}

fn missing_in<'a>(these: &'a [Arc<Thread>], others: &[Arc<Thread>]) -> impl Iterator<Item = &'a Arc<Thread>> {
    let known: BTreeSet<u32> = others.iter().map(|t| t.tid).collect();
    these.iter().filter(move |t| !known.contains(&t.tid))
}

/// A seal cannot be broken, not even by us: neither may there be new ones, nor may old ones forbid what must be put back.
fn refuse_sealed(present: &SharedMemory, wanted: &SharedMemory) -> Result<(), EngineError> {
    let refused = |why| {
        let name = String::from_utf8_lossy(&wanted.name).into_owned();
        Err(EngineError::Unsupported(format!("{name}: {why} since the checkpoint")))
    };
    if present.seals != wanted.seals {
        return refused("was sealed");
    }
    let (size, sized) = (present.content.size, wanted.content.size);
    let is_sealed = |seals: SealFlags| wanted.seals & seals.bits() != 0;
    if (size < sized && is_sealed(SealFlags::GROW)) || (size > sized && is_sealed(SealFlags::SHRINK)) {
        return refused("changed its size under a seal");
    }
    if is_sealed(SealFlags::WRITE | SealFlags::FUTURE_WRITE) && !present.content.same(&wanted.content) {
        return refused("was written under a seal");
    }
    Ok(())
}

fn refuse_irreversible(now: &Process, wanted: &Process) -> Result<(), EngineError> {
    let subject = Subject::new(wanted.pid, wanted.comm.clone());
    if now.lasting.program != wanted.lasting.program || now.memory.is_other_program(&wanted.memory) {
        let comm = wanted.comm.clone();
        return Err(EngineError::Lost {
            pid: wanted.pid,
            comm,
            why: "ran another program",
        });
    }
    if now.lasting.session != wanted.lasting.session {
        return Err(refuse(&subject, "left its session since the checkpoint"));
    }
    if now.lasting.rights != wanted.lasting.rights {
        return Err(refuse(
            &subject,
            "changed its user, capabilities or filters since the checkpoint",
        ));
    }
    if now.parent != wanted.parent {
        return Err(refuse(
            &subject,
            format!("lost its parent {} since the checkpoint", wanted.parent),
        ));
    }
    if wanted
        .threads
        .first()
        .is_some_and(|leader| now.threads.first().is_none_or(|t| t.tid != leader.tid))
    {
        return Err(refuse(&subject, "its main thread ended since the checkpoint"));
    }
    Ok(())
}

/// Where an `exec` of the same program shows.
trait OtherProgram {
    fn is_other_program(&self, other: &Self) -> bool;
}

impl OtherProgram for image::memory::AddressSpace {
    fn is_other_program(&self, other: &Self) -> bool {
        let vdso = |space: &Self| {
            space
                .mappings
                .iter()
                .find(|m| m.backing == image::memory::Backing::Special && m.prot & 4 != 0)
                .map(|m| m.start)
        };
        vdso(self) != vdso(other)
    }
}

fn newborns(now: &Processes, target: &Processes) -> Vec<(u32, u32)> {
    let mut born: Vec<&Process> = now
        .processes
        .values()
        .filter(|p| !target.processes.contains_key(&p.pid))
        .map(|p| &**p)
        .collect();
    let mut ordered = Vec::with_capacity(born.len());
    while !born.is_empty() {
        let parents: BTreeSet<u32> = born.iter().map(|p| p.parent).collect();
        let (leaves, rest): (Vec<&Process>, Vec<&Process>) = born.into_iter().partition(|p| !parents.contains(&p.pid));
        assert!(!leaves.is_empty(), "parents do not form a ring");
        ordered.extend(leaves.iter().map(|p| (p.pid, p.parent)));
        born = rest;
    }
    ordered
}
