//! Live state into plain data, while the box stands still. Refuses by name what cannot be captured before it has
//! changed anything; the bytes of pages are copied by the process itself into its staging window and kept after the
//! thaw.

pub(crate) mod fds;
pub(crate) mod memory;
pub(crate) mod outside;
pub(crate) mod pages;
mod questions;
pub(crate) mod threads;
mod thrown_away;

use std::collections::BTreeMap;
use std::sync::Arc;

use image::fd::Inode;
use image::memory::{AddressSpace, Backing, Mapping, PageIndex, Slot};
use image::process::Process;
use image::signal::Queued;
use image::thread::Thread;
use linux::{SysError, procfs, ptrace};

use crate::DirtySource;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::freeze::Stopped;
use crate::onlooker::{Onlooker, Promise};
use crate::remote::{self, Batch, Lane, Results};
use crate::tracee::{Layout, LiveProcess, Named, Space};
use fds::Objects;
use memory::Found;
use outside::{Look, Outside};
use pages::{Copies, copy_missed, copy_rest, plan_copies};
use questions::Answers;

/// One process as it was found, before the bytes of its pages are kept.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Everything but `memory.pages`, which still is the index of the last capture.
    pub(crate) process: Process,
    /// What changed in memory.
    pub(crate) found: Found,
    /// Pages of the index that are not there any more (page numbers).
    pub(crate) freed: Vec<u64>,
    /// Pages in the staging window: page number, staged index.
    pub(crate) staged: Vec<(u64, usize)>,
    /// Pages that were copied at once (unreadable to the process itself, or more than the window holds).
    pub(crate) copied: Vec<(u64, Slot)>,
    /// Something was done from outside to a thread that was left asleep.
    pub(crate) disturbed: bool,
}

/// How one observation is made.
#[derive(Debug)]
pub(crate) struct Manner<'a> {
    pub(crate) dirty: DirtySource,
    /// Copy the bytes of changed pages.
    pub(crate) bytes: bool,
    pub(crate) faults: &'a Faults,
    /// The scheduler's clock, for what is left of waits.
    pub(crate) now_ns: Option<u64>,
}

/// Makes sure that a process has an annex, and that it is the one of the program it runs now.
pub(crate) fn settle_in(
    process: &mut LiveProcess,
    stopped: &mut Stopped,
    manner: &Manner<'_>,
) -> Result<(), EngineError> {
    if process.space.as_ref().is_some_and(Space::lives) {
        return Ok(());
    }
    process.space = None;
    for thread in process.threads.values_mut() {
        thread.trampoline = None;
    }
    let mut text = Vec::new();
    let maps = process.dir.file("maps", false)?;
    let memory = process.dir.file("mem", true)?;
    let pagemap = process.dir.file("pagemap", false)?;
    procfs::read_from_start(&maps, &mut text)?;
    if text.is_empty() {
        return Err(SysError::new("read", format!("/proc/{}/maps", process.host_pid), libc::ESRCH).into());
    }
    let exe = process.dir.stat("exe")?;
    let program = Inode {
        device: exe.st_dev,
        number: exe.st_ino,
    };
    let thread = any_thread(process, stopped)?;
    let track = manner.dirty == DirtySource::Scan;
    let (annex, uffd) = remote::install(thread, &process.pidfd, &memory, &text, track)?;
    let mut space = Space {
        maps: Arc::new(maps),
        memory,
        pagemap: Arc::new(pagemap),
        annex,
        uffd,
        registered: Vec::new(),
        pages: PageIndex::default(),
        all_is_new: true,
        layout: None,
        program,
    };
    let mappings = memory::read_layout(&space)?.mappings;
    memory::register(&mut space, &mappings, true)?;
    process.space = Some(space);
    Ok(())
}

/// A stopped thread of `process`; its leader where that is one.
pub(crate) fn any_thread<'a>(
    process: &LiveProcess,
    stopped: &'a mut Stopped,
) -> Result<&'a mut crate::tracee::StoppedThread, EngineError> {
    let tid = process
        .threads
        .keys()
        .copied()
        .filter(|tid| stopped.contains_key(tid))
        .min_by_key(|tid| (*tid != process.host_pid, *tid))
        .ok_or_else(|| {
            SysError::new(
                "capture",
                format!("pid {}: no thread stands still", process.pid),
                libc::ESRCH,
            )
        })?;
    Ok(stopped.get_mut(&tid).expect("filtered for it"))
}

/// What an observation works with.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) stopped: &'a mut Stopped,
    pub(crate) objects: &'a mut Objects,
    pub(crate) cache: &'a mut crate::content::Cache,
    pub(crate) manner: &'a Manner<'a>,
    pub(crate) onlooker: &'a Onlooker,
    /// Pid inside the box by host pid.
    pub(crate) pids: &'a BTreeMap<i32, u32>,
    /// Where the time went.
    pub(crate) laps: &'a mut crate::Laps,
}

/// An observation that was begun.
pub(crate) enum Begun {
    /// Of a process that was left asleep.
    Asleep(Promise<Result<Outside, EngineError>>),
    /// Of one whose threads answer by now.
    Stands(Box<Standing>),
}

/// What goes on in a process that stands still.
pub(crate) struct Standing {
    known: Layout,
    regions: memory::Regions,
    found: Found,
    copies: Copies,
    batch: Batch,
    round: Round,
    outside: Promise<Result<Outside, EngineError>>,
}

/// Begins to observe one process; `outside` is what can be seen of it from outside, where somebody looks already. Until
/// [`finish`] or [`abandon`], its threads may be running our code.
pub(crate) fn begin(
    process: &mut LiveProcess,
    outside: Option<Promise<Result<Outside, EngineError>>>,
    scene: &mut Scene<'_>,
) -> Result<Begun, EngineError> {
    let stands_still = process.threads.keys().any(|tid| scene.stopped.contains_key(tid));
    if !stands_still {
        let outside = outside.expect("whoever sleeps is looked at from outside");
        return Ok(Begun::Asleep(outside));
    }
    settle_in(process, scene.stopped, scene.manner)?;
    scene.laps.lap("settle in");
    let space = process.space.take().expect("settled in");
    let result = begin_standing(process, &space, outside, scene);
    process.space = Some(space);
    Ok(Begun::Stands(Box::new(result?)))
}

/// The observation. `None`: the process was left asleep, but something was done to it from outside (a signal): stop it
/// and look again.
pub(crate) fn finish(
    process: &mut LiveProcess,
    begun: Begun,
    scene: &mut Scene<'_>,
) -> Result<Option<Observed>, EngineError> {
    let standing = match begun {
        Begun::Asleep(outside) => return observe_asleep(process, outside, scene),
        Begun::Stands(standing) => *standing,
    };
    let mut space = process.space.take().expect("settled in");
    let result = finish_standing(process, &mut space, standing, scene);
    process.space = Some(space);
    result.map(Some)
}

/// Waits until nothing runs any more of an observation that nobody wants.
pub(crate) fn abandon(process: &LiveProcess, begun: Begun, stopped: &Stopped) {
    if let (Begun::Stands(standing), Some(space)) = (begun, &process.space) {
        let (round, annex) = (&standing.round, &space.annex);
        // What does not end is dying, and is waited for when it is let go.
        drop(remote::end_all(annex, stopped, &round.others));
        drop(remote::end(annex, &stopped[&round.leader], round.lane));
    }
}

fn begin_standing(
    process: &LiveProcess,
    space: &Space,
    mut outside: Option<Promise<Result<Outside, EngineError>>>,
    scene: &mut Scene<'_>,
) -> Result<Standing, EngineError> {
    let manner = scene.manner;
    let known = match &space.layout {
        Some(layout) => layout.clone(),
        None => memory::read_layout(space)?,
    };
    // With two processors, the process needs the other one for its copies.
    let beside = !manner.bytes || scene.onlooker.has_room();
    let mut give = || {
        if outside.is_none() {
            let look = Look::at(process, scene.stopped, Some((space, &known)), manner.bytes, beside);
            outside = Some(if beside {
                scene.onlooker.give(move || look.look())
            } else {
                Onlooker::later(move || look.look())
            });
        }
    };
    // While no thread of it runs: page tables that change interrupt every processor that uses them.
    let regions = match manner.dirty {
        DirtySource::Scan => memory::scan(space, manner.bytes, scene.onlooker, give)?,
        DirtySource::Compare => {
            give();
            memory::all_present(space, &known.mappings)?
        }
    };
    let outside = outside.expect("given in both cases");
    scene.laps.lap("scan");
    let keeps_bytes = manner.bytes && !manner.faults.skips("pages");
    let found = memory::find(&known.mappings, &regions);
    let copies = if keeps_bytes {
        plan_copies(&found, &known.mappings)
    } else {
        Copies::default()
    };
    // The threads answer about themselves, and one of them copies the pages, while we look from outside.
    let mut batch = Batch::new(&space.annex);
    let round = Round::start(process, space, &mut batch, &copies, scene)?;
    scene.laps.lap("start");
    Ok(Standing {
        known,
        regions,
        found,
        copies,
        batch,
        round,
        outside,
    })
}

fn finish_standing(
    process: &mut LiveProcess,
    space: &mut Space,
    standing: Standing,
    scene: &mut Scene<'_>,
) -> Result<Observed, EngineError> {
    let Standing {
        known,
        regions,
        mut found,
        copies,
        batch,
        round,
        outside,
    } = standing;
    let manner = scene.manner;
    let keeps_bytes = manner.bytes && !manner.faults.skips("pages");
    let early = look_meanwhile(process, space, &batch, &round, outside, &known, scene);
    let unreadable = remote::end(&space.annex, &scene.stopped[&round.leader], round.lane)?;
    scene.laps.lap("copy");
    let Meanwhile {
        mut outside,
        mut images,
    } = early?;
    let results = remote::results(&space.annex, &batch, unreadable);
    let thrown_away = outside.thrown_away.take().unwrap_or_default();
    let (layout, changed) = match outside.layout.take() {
        Some(layout) => (layout, true),
        None => (known, false),
    };
    let answers = Answers::collect(&space.annex, &round.asked, &results)?;
    let host_pid = process.host_pid;
    let mut copied = copy_rest(space, host_pid, &copies.staged, &results.unreadable, &copies.rest)?;
    if changed {
        found = memory::find(&layout.mappings, &regions);
        copied.extend(copy_missed(space, host_pid, &found, &copies, manner)?);
    }
    let mut freed = memory::find_freed(&space.pages, &layout.mappings, &regions, changed);
    freed.extend(
        thrown_away
            .gone
            .iter()
            .filter(|page| found.dirty.binary_search(&(*page * 4096)).is_err()),
    );
    if keeps_bytes {
        copied.extend(copy_rest(space, host_pid, &[], &[], &thrown_away.doubtful)?);
    } else {
        found.dirty.extend(&thrown_away.doubtful);
        found.dirty.sort_unstable();
    }
    let pending = queued(round.leader)?;
    let leader = BTreeMap::from([(round.leader, round.threads[&round.leader])]);
    images.extend(capture_threads(process, space, scene, &leader, &results, &pending)?);
    images.extend(capture_late(process, space, scene, &round, &pending)?);
    images.sort_by_key(|thread| (thread.tid != process.pid, thread.tid));
    scene.laps.lap("threads");
    let mut mappings = layout.mappings.clone();
    adopt_shared(process, &mut mappings, &layout.names, &found, scene)?;
    let answered = fds::Answered::from_batch(&results, round.fd_first, &round.numbers)?;
    let slots = scene.objects.add(
        scene.cache,
        manner.faults,
        process,
        &outside.seen,
        &answered,
        &outside.subject,
        scene.pids,
    )?;
    space.layout = Some(layout);
    scene.laps.lap("fds");
    let group_stop = process
        .threads
        .keys()
        .any(|tid| scene.stopped.get(tid).is_some_and(|t| t.group_stop));
    let program = space.program;
    let image = Process {
        stopped: group_stop,
        stop_untold: group_stop && is_untold(process)?,
        threads: images,
        memory: AddressSpace {
            mappings,
            pages: space.pages.clone(),
            brk: answers.brk,
        },
        slots,
        actions: Arc::new(answers.actions),
        pending,
        itimers: answers.itimers,
        timers: answers.timers,
        limits: answers.limits,
        ..outside.skeleton(process, program, scene.pids)
    };
    Ok(Observed {
        process: image,
        found,
        freed,
        staged: copies.staged,
        copied,
        disturbed: outside.disturbed,
    })
}

/// True where the stop of a process waits for its parent to ask: the kernel keeps it where an exit code will be
/// (`do_task_stat` in fs/proc/array.c).
fn is_untold(process: &LiveProcess) -> Result<bool, EngineError> {
    const EXIT_CODE: usize = 49;
    let mut text = Vec::new();
    process.dir.read("stat", &mut text)?;
    let fields = procfs::stat_fields(&text).map(|(_, fields)| fields);
    Ok(fields.is_some_and(|fields| fields.get(EXIT_CODE).is_some_and(|code| *code != "0")))
}

/// What is learned while the process copies its pages.
struct Meanwhile {
    outside: Outside,
    /// All threads but the one that copies.
    images: Vec<Arc<Thread>>,
}

fn look_meanwhile(
    process: &mut LiveProcess,
    space: &mut Space,
    batch: &Batch,
    round: &Round,
    outside: Promise<Result<Outside, EngineError>>,
    known: &Layout,
    scene: &mut Scene<'_>,
) -> Result<Meanwhile, EngineError> {
    let outside = outside.wait();
    scene.laps.lap("outside");
    // Even after an error none may be left running.
    remote::end_all(&space.annex, scene.stopped, &round.others)?;
    scene.laps.lap("answers");
    let mut outside = outside?;
    let results = remote::results(&space.annex, batch, Vec::new());
    let others: BTreeMap<i32, threads::Asked> = round
        .threads
        .iter()
        .filter(|(tid, _)| **tid != round.leader)
        .map(|(tid, asked)| (*tid, *asked))
        .collect();
    let pending = match others.keys().next() {
        Some(tid) => queued(*tid)?,
        None => Vec::new(),
    };
    let mut images = capture_threads(process, space, scene, &others, &results, &pending)?;
    let stopped = &scene.stopped;
    for (_, live) in process.threads.iter_mut().filter(|(tid, _)| !stopped.contains_key(tid)) {
        images.push(threads::asleep(live, scene.manner.now_ns));
    }
    scene.laps.lap("threads");
    if outside.thrown_away.is_none() && space.uffd.is_some() {
        let mappings = &outside.layout.as_ref().unwrap_or(known).mappings;
        outside.thrown_away = Some(thrown_away::look(&space.pagemap, &space.pages, mappings)?);
    }
    scene.laps.lap("thrown away");
    Ok(Meanwhile { outside, images })
}

/// Signals queued for the whole process of a thread that stands still.
fn queued(tid: i32) -> Result<Vec<Queued>, EngineError> {
    Ok(ptrace::peek_signals(tid, true)?.into_iter().map(Queued).collect())
}

/// The round of questions to a process: each thread that stands still answers for itself; one of them answers for all
/// and copies the pages.
struct Round {
    leader: i32,
    lane: Lane,
    others: Vec<(i32, Lane)>,
    threads: BTreeMap<i32, threads::Asked>,
    asked: questions::Asked,
    /// Descriptor numbers, and the first call that asks about them.
    numbers: Vec<u32>,
    fd_first: usize,
}

impl Round {
    /// Asks, and returns while they answer.
    fn start(
        process: &LiveProcess,
        space: &Space,
        batch: &mut Batch,
        copies: &Copies,
        scene: &mut Scene<'_>,
    ) -> Result<Self, EngineError> {
        let timers = questions::read_timers(process)?;
        let numbers = process.dir.numbers("fd")?;
        let leader = any_thread(process, scene.stopped)?.host_tid;
        let mut threads = BTreeMap::from([(leader, threads::ask(batch))]);
        let asked = questions::ask(batch, timers);
        let fd_first = fds::ask(batch, &numbers);
        if !copies.staged.is_empty() {
            let addresses: Vec<u64> = copies.staged.iter().map(|(page, _)| page * 4096).collect();
            batch.gather(&addresses);
        }
        let lane = batch.close_lane(&scene.stopped[&leader]);
        let mut others = Vec::new();
        for tid in process.threads.keys().filter(|tid| **tid != leader) {
            let Some(thread) = scene.stopped.get(tid).filter(|_| batch.has_lane()) else {
                continue;
            };
            threads.insert(*tid, threads::ask(batch));
            others.push((*tid, batch.close_lane(thread)));
        }
        remote::publish(&space.annex, batch);
        remote::begin(
            &space.annex,
            scene.stopped.get_mut(&leader).expect("it stands still"),
            lane,
        )?;
        if let Err(error) = remote::begin_all(&space.annex, scene.stopped, &others) {
            remote::end(&space.annex, &scene.stopped[&leader], lane)?;
            return Err(error);
        }
        Ok(Self {
            leader,
            lane,
            others,
            threads,
            asked,
            numbers,
            fd_first,
        })
    }
}

/// Captures the threads that were `asked`, which stand at the end of their lanes.
fn capture_threads(
    process: &mut LiveProcess,
    space: &mut Space,
    scene: &mut Scene<'_>,
    asked: &BTreeMap<i32, threads::Asked>,
    results: &Results,
    pending: &[Queued],
) -> Result<Vec<Arc<Thread>>, EngineError> {
    let mut images = Vec::with_capacity(asked.len());
    let mut next = process.next_trampoline;
    for (tid, asked) in asked {
        let live = process.threads.get_mut(tid).expect("asked because it is known");
        let thread = scene.stopped.get_mut(tid).expect("asked because it stands still");
        let answers = threads::answers(&space.annex, *asked, results)?;
        let mut free = || {
            next = (next + 1) % remote::TRAMPOLINE_COUNT;
            next
        };
        images.push(threads::capture(
            space,
            live,
            thread,
            pending,
            answers,
            scene.manner.now_ns,
            &mut free,
        )?);
    }
    process.next_trampoline = next;
    Ok(images)
}

/// Captures, one by one, the threads for which the round had no lane.
fn capture_late(
    process: &mut LiveProcess,
    space: &mut Space,
    scene: &mut Scene<'_>,
    round: &Round,
    pending: &[Queued],
) -> Result<Vec<Arc<Thread>>, EngineError> {
    let tids = process.threads.keys().copied();
    let late: Vec<i32> = tids
        .filter(|tid| scene.stopped.contains_key(tid) && !round.threads.contains_key(tid))
        .collect();
    let mut images = Vec::with_capacity(late.len());
    for tid in late {
        let mut batch = Batch::new(&space.annex);
        let asked = BTreeMap::from([(tid, threads::ask(&mut batch))]);
        let thread = scene.stopped.get_mut(&tid).expect("filtered for it");
        let results = remote::run(&space.annex, thread, &mut batch)?;
        images.extend(capture_threads(process, space, scene, &asked, &results, pending)?);
    }
    Ok(images)
}

/// A process that has done nothing since its last capture: what others may have changed is read from outside.
fn observe_asleep(
    process: &mut LiveProcess,
    outside: Promise<Result<Outside, EngineError>>,
    scene: &mut Scene<'_>,
) -> Result<Option<Observed>, EngineError> {
    let Some(image) = process.image.clone() else {
        return Ok(None);
    };
    // Only the process itself can tell what is left of its timers.
    if image.itimers.iter().any(|timer| timer.value_ns != 0) || !image.timers.is_empty() {
        return Ok(None);
    }
    let outside = outside.wait()?;
    let shared = procfs::field(&outside.status, "ShdPnd").and_then(|v| u64::from_str_radix(v, 16).ok());
    if shared != Some(outside::bits(&image.pending)) {
        return Ok(None);
    }
    if outside.disturbed {
        return Ok(None);
    }
    let now_ns = scene.manner.now_ns;
    let mut threads: Vec<Arc<Thread>> = process
        .threads
        .values_mut()
        .map(|live| threads::asleep(live, now_ns))
        .collect();
    threads.sort_by_key(|thread| (thread.tid != process.pid, thread.tid));
    let Some(space) = process.space.as_ref() else {
        return Ok(None);
    };
    let (layout, pages, program) = (space.layout.clone(), space.pages.clone(), space.program);
    let Some(layout) = layout else { return Ok(None) };
    let mut mappings = layout.mappings.clone();
    let found = Found::default();
    adopt_shared(process, &mut mappings, &layout.names, &found, scene)?;
    let answered = fds::Answered::from_fdinfo(process, &outside.seen)?;
    let slots = scene.objects.add(
        scene.cache,
        scene.manner.faults,
        process,
        &outside.seen,
        &answered,
        &outside.subject,
        scene.pids,
    )?;
    let process = Process {
        threads,
        memory: AddressSpace {
            mappings,
            pages,
            brk: image.memory.brk,
        },
        slots,
        stopped: image.stopped,
        stop_untold: image.stop_untold,
        actions: image.actions.clone(),
        pending: image.pending.clone(),
        itimers: image.itimers,
        timers: image.timers.clone(),
        limits: image.limits.clone(),
        ..outside.skeleton(process, program, scene.pids)
    };
    Ok(Some(Observed {
        process,
        found,
        freed: Vec::new(),
        staged: Vec::new(),
        copied: Vec::new(),
        disturbed: false,
    }))
}

/// Gives mappings of shared memory their index in the whole image, and captures what they map.
fn adopt_shared(
    process: &LiveProcess,
    mappings: &mut Arc<Vec<Mapping>>,
    names: &[Named],
    found: &Found,
    scene: &mut Scene<'_>,
) -> Result<(), EngineError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut indexes = Vec::with_capacity(names.len());
    for (at, named) in names.iter().enumerate() {
        let (start, end) = named.mapping;
        let file = process.dir.file(&format!("map_files/{start:x}-{end:x}"), false)?;
        let mut written = Vec::new();
        for mapping in mappings.iter() {
            let Backing::Shared { object, offset } = mapping.backing else {
                continue;
            };
            if object as usize != at {
                continue;
            }
            for (from, to) in &found.shared_written {
                let (from, to) = ((*from).max(mapping.start), (*to).min(mapping.end));
                let pages = (from..to.max(from)).step_by(4096);
                written.extend(pages.map(|address| (address - mapping.start + offset) / 4096));
            }
        }
        indexes.push(scene.objects.memory(scene.cache, &file, &named.name, &written)?);
    }
    for mapping in Arc::make_mut(mappings) {
        if let Backing::Shared { object, .. } = &mut mapping.backing {
            *object = indexes[*object as usize];
        }
    }
    Ok(())
}
