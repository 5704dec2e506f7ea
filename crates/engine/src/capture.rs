//! Live state into plain data, while the box stands still. Refuses by name what cannot be captured before it has
//! changed anything; the bytes of pages are copied by the process itself into its staging window and kept after the
//! thaw.

pub(crate) mod fds;
pub(crate) mod memory;
pub(crate) mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use image::fd::Inode;
use image::memory::{AddressSpace, Backing, Mapping, PageIndex, Slot};
use image::process::{Lasting, Process};
use image::signal::{Action, Queued};
use image::thread::Thread;
use image::timer::{Armed, PosixTimer};
use linux::{SysError, procfs, ptrace};

use crate::DirtySource;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::freeze::Stopped;
use crate::remote::{self, Annex, Batch, Results, Room, STAGED_PAGE_COUNT};
use crate::tracee::{Layout, LiveProcess, Named, Space};
use crate::unsupported::Subject;
use fds::Objects;
use memory::Found;

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
}

/// What a process answers about itself.
#[derive(Debug)]
struct Asked {
    actions: Room,
    itimers: Room,
    limits: Room,
    brk: usize,
    timers: Vec<(PosixTimer, Room, usize)>,
    thread: threads::Asked,
    thread_first: usize,
}

const LIMIT_COUNT: usize = 16;

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
    let mut text = Vec::new();
    if let Some(space) = &process.space {
        procfs::read_from_start(&space.maps, &mut text)?;
        if !text.is_empty() {
            return Ok(());
        }
        process.space = None;
        for thread in process.threads.values_mut() {
            thread.trampoline = None;
        }
    }
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
        maps,
        memory,
        pagemap,
        annex,
        uffd,
        registered: Vec::new(),
        pages: PageIndex::default(),
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

/// The lines of `status` that a living process cannot take back.
fn rights(status: &[u8]) -> Vec<u8> {
    const KEYS: [&[u8]; 12] = [
        b"Uid:",
        b"Gid:",
        b"Groups:",
        b"CapInh:",
        b"CapPrm:",
        b"CapEff:",
        b"CapBnd:",
        b"CapAmb:",
        b"NoNewPrivs:",
        b"Seccomp:",
        b"Seccomp_filters:",
        b"Kthread:",
    ];
    let lines = status
        .split(|b| *b == b'\n')
        .filter(|line| KEYS.iter().any(|key| line.starts_with(key)));
    lines.collect::<Vec<_>>().join(&b'\n')
}

fn last_number(status: &[u8], key: &str) -> Option<u32> {
    procfs::field(status, key)?
        .split_ascii_whitespace()
        .last()?
        .parse()
        .ok()
}

/// What an observation works with.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) stopped: &'a mut Stopped,
    pub(crate) objects: &'a mut Objects,
    pub(crate) cache: &'a mut crate::content::Cache,
    pub(crate) manner: &'a Manner<'a>,
    /// Pid inside the box by host pid.
    pub(crate) pids: &'a BTreeMap<i32, u32>,
    /// Where the time went.
    pub(crate) laps: &'a mut crate::Laps,
}

/// Observes one process. `None`: it was left asleep, but something was done to it from outside (a signal): stop it
/// and look again.
pub(crate) fn observe(process: &mut LiveProcess, scene: &mut Scene<'_>) -> Result<Option<Observed>, EngineError> {
    let stands_still = process.threads.keys().any(|tid| scene.stopped.contains_key(tid));
    if !stands_still {
        return observe_asleep(process, scene);
    }
    settle_in(process, scene.stopped, scene.manner)?;
    let mut space = process.space.take().expect("settled in");
    let result = observe_stopped(process, &mut space, scene);
    process.space = Some(space);
    result.map(Some)
}

fn observe_stopped(
    process: &mut LiveProcess,
    space: &mut Space,
    scene: &mut Scene<'_>,
) -> Result<Observed, EngineError> {
    let subject = Subject::of(process);
    let manner = scene.manner;
    let layout = match space.layout.take() {
        Some(layout) => layout,
        None => memory::read_layout(space)?,
    };
    let regions = match manner.dirty {
        DirtySource::Scan => memory::scan(space, manner.bytes)?,
        DirtySource::Compare => memory::all_present(space, &layout.mappings)?,
    };
    let mut found = memory::find(&layout.mappings, &regions);
    scene.laps.lap("scan");
    // One batch: the process answers about itself and copies its pages, while we read what can be read from outside.
    let thread_tid = any_thread(process, scene.stopped)?.host_tid;
    let numbers = process.dir.numbers("fd")?;
    let mut batch = Batch::new(&space.annex);
    let asked = ask(&mut batch, read_timers(process)?);
    let fd_first = fds::ask(&mut batch, &numbers);
    let (staged, rest) = plan_copies(&found, &layout.mappings, manner);
    let addresses: Vec<u64> = staged.iter().map(|(page, _)| page * 4096).collect();
    if !addresses.is_empty() {
        batch.gather(&addresses, 0);
    }
    let thread = scene.stopped.get_mut(&thread_tid).expect("stands still");
    remote::start(&space.annex, thread, &batch)?;
    scene.laps.lap("start");
    let outside = look_from_outside(process, space, layout, &numbers, &subject);
    let thrown_away = outside.as_ref().map_or(Ok(memory::ThrownAway::default()), |o| {
        memory::look_thrown_away(space, &o.layout.mappings)
    });
    scene.laps.lap("outside");
    let results = remote::finish(&space.annex, thread, &batch)?;
    scene.laps.lap("copy");
    let Outside {
        layout,
        changed,
        status,
        seen,
    } = outside?;
    let answers = Answers::collect(&space.annex, &asked, &results)?;
    let host_pid = thread.host_pid;
    let mut copied = copy_rest(space, host_pid, &staged, &results.unreadable, &rest)?;
    if changed {
        found = memory::find(&layout.mappings, &regions);
        copied.extend(copy_missed(space, host_pid, &found, &staged, &rest, manner)?);
    }
    let mut freed = memory::find_freed(&space.pages, &layout.mappings, &regions, changed);
    let thrown_away = thrown_away?;
    freed.extend(
        thrown_away
            .gone
            .iter()
            .filter(|page| found.dirty.binary_search(&(*page * 4096)).is_err()),
    );
    if manner.bytes && !manner.faults.skips("pages") {
        copied.extend(copy_rest(space, host_pid, &[], &[], &thrown_away.doubtful)?);
    } else {
        found.dirty.extend(&thrown_away.doubtful);
        found.dirty.sort_unstable();
    }
    threads::answered(&results, asked.thread_first)?;
    let leader = threads::answers(&space.annex, asked.thread);
    let pending: Vec<Queued> = ptrace::peek_signals(thread_tid, true)?
        .into_iter()
        .map(Queued)
        .collect();
    let images = capture_threads(process, space, scene, thread_tid, leader, &pending)?;
    scene.laps.lap("threads");
    let mut mappings = layout.mappings.clone();
    adopt_shared(process, &mut mappings, &layout.names, &found, scene)?;
    let answered = fds::Answered::from_batch(&results, fd_first, &numbers)?;
    let slots = scene.objects.add(
        scene.cache,
        manner.faults,
        process,
        &seen,
        &answered,
        &subject,
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
        comm: procfs::field(&status, "Name").unwrap_or("?").to_owned(),
        zombies: zombies(process, scene.pids),
        stopped: group_stop,
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
        ..skeleton(process, program, &status, scene.pids)?
    };
    Ok(Observed {
        process: image,
        found,
        freed,
        staged,
        copied,
    })
}

/// What `status` and the links of a process tell, with the rest empty.
fn skeleton(
    process: &LiveProcess,
    program: Inode,
    status: &[u8],
    pids: &BTreeMap<i32, u32>,
) -> Result<Process, EngineError> {
    let parent: i32 = procfs::field(status, "PPid").and_then(|v| v.parse().ok()).unwrap_or(0);
    let cwd = process.dir.stat("cwd")?;
    Ok(Process {
        pid: process.pid,
        parent: pids.get(&parent).copied().unwrap_or(1),
        group: last_number(status, "NSpgid").unwrap_or(0),
        comm: String::new(),
        zombies: Vec::new(),
        lasting: Lasting {
            start_ticks: process.start_ticks,
            program,
            rights: rights(status),
            session: last_number(status, "NSsid").unwrap_or(0),
        },
        stopped: false,
        threads: Vec::new(),
        memory: AddressSpace {
            mappings: Arc::default(),
            pages: PageIndex::default(),
            brk: 0,
        },
        slots: Vec::new(),
        actions: Arc::default(),
        pending: Vec::new(),
        itimers: [Armed::default(); 3],
        timers: Vec::new(),
        umask: procfs::field(status, "Umask")
            .and_then(|v| u32::from_str_radix(v, 8).ok())
            .unwrap_or(0o22),
        cwd: (
            process.dir.link("cwd")?,
            Inode {
                device: cwd.st_dev,
                number: cwd.st_ino,
            },
        ),
        limits: Vec::new(),
    })
}

/// Pids inside the box of its children that have ended and were not waited for. `pids` knows the living.
fn zombies(process: &LiveProcess, pids: &BTreeMap<i32, u32>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut text = Vec::new();
    for tid in process.threads.keys() {
        if process.dir.read(&format!("task/{tid}/children"), &mut text).is_err() {
            continue;
        }
        let words = String::from_utf8_lossy(&text).into_owned();
        for child in words
            .split_ascii_whitespace()
            .filter_map(|word| word.parse::<i32>().ok())
        {
            if pids.contains_key(&child) {
                continue;
            }
            let read = linux::procfs::TaskDir::process(child).and_then(|dir| dir.read("status", &mut text));
            if read.is_ok() && procfs::field(&text, "State").is_some_and(|s| s.starts_with('Z')) {
                found.extend(last_number(&text, "NSpid"));
            }
        }
    }
    found.sort_unstable();
    found
}

/// What is read while the process is busy with its batch.
struct Outside {
    layout: Layout,
    changed: bool,
    status: Vec<u8>,
    seen: Vec<fds::Seen>,
}

fn look_from_outside(
    process: &LiveProcess,
    space: &Space,
    known: Layout,
    numbers: &[u32],
    subject: &Subject,
) -> Result<Outside, EngineError> {
    let mut text = Vec::with_capacity(known.text.len() + 4096);
    procfs::read_from_start(&space.maps, &mut text)?;
    let changed = text != known.text;
    let layout = if changed {
        memory::layout(text, &space.annex.range())
    } else {
        known
    };
    let mut status = Vec::new();
    process.dir.read("status", &mut status)?;
    let seen = fds::look(process, numbers, subject)?;
    Ok(Outside {
        layout,
        changed,
        status,
        seen,
    })
}

/// Pages that only the mappings as they are now make ours.
fn copy_missed(
    space: &Space,
    host_pid: i32,
    found: &Found,
    staged: &[(u64, usize)],
    rest: &[u64],
    manner: &Manner<'_>,
) -> Result<Vec<(u64, Slot)>, EngineError> {
    if !manner.bytes || manner.faults.skips("pages") {
        return Ok(Vec::new());
    }
    let missed: Vec<u64> = found
        .dirty
        .iter()
        .copied()
        .filter(|address| {
            staged
                .binary_search_by_key(&(address / 4096), |(page, _)| *page)
                .is_err()
        })
        .filter(|address| rest.binary_search(address).is_err())
        .collect();
    copy_rest(space, host_pid, &[], &[], &missed)
}

fn capture_threads(
    process: &mut LiveProcess,
    space: &mut Space,
    scene: &mut Scene<'_>,
    answered_tid: i32,
    answers: threads::Answers,
    pending: &[Queued],
) -> Result<Vec<Arc<Thread>>, EngineError> {
    let mut images = Vec::with_capacity(process.threads.len());
    let mut next = process.next_trampoline;
    for (tid, live) in &mut process.threads {
        let Some(thread) = scene.stopped.get_mut(tid) else {
            images.push(threads::asleep(live, scene.manner.now_ns));
            continue;
        };
        let answers = if *tid == answered_tid {
            answers
        } else {
            let mut batch = Batch::new(&space.annex);
            let own = threads::ask(&mut batch);
            let results = remote::run(&space.annex, thread, &batch)?;
            threads::answered(&results, 0)?;
            threads::answers(&space.annex, own)
        };
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
    images.sort_by_key(|thread| (thread.tid != process.pid, thread.tid));
    Ok(images)
}

/// A process that has done nothing since its last capture: what others may have changed is read from outside.
fn observe_asleep(process: &mut LiveProcess, scene: &mut Scene<'_>) -> Result<Option<Observed>, EngineError> {
    let subject = Subject::of(process);
    let Some(image) = process.image.clone() else {
        return Ok(None);
    };
    // Only the process itself can tell what is left of its timers.
    if image.itimers.iter().any(|timer| timer.value_ns != 0) || !image.timers.is_empty() {
        return Ok(None);
    }
    let mut status = Vec::new();
    process.dir.read("status", &mut status)?;
    let bits = |queue: &[Queued]| {
        queue
            .iter()
            .filter_map(|q| u32::try_from(q.number() - 1).ok())
            .fold(0u64, |bits, bit| bits | 1 << (bit & 63))
    };
    let shared = procfs::field(&status, "ShdPnd").and_then(|v| u64::from_str_radix(v, 16).ok());
    if shared != Some(bits(&image.pending)) {
        return Ok(None);
    }
    let now_ns = scene.manner.now_ns;
    let mut threads = Vec::with_capacity(process.threads.len());
    let mut text = Vec::new();
    for live in process.threads.values_mut() {
        live.dir.read("status", &mut text)?;
        let own = procfs::field(&text, "SigPnd").and_then(|v| u64::from_str_radix(v, 16).ok());
        if own != live.image.as_ref().map(|thread| bits(&thread.pending)) {
            return Ok(None);
        }
        threads.push(threads::asleep(live, now_ns));
    }
    threads.sort_by_key(|thread| (thread.tid != process.pid, thread.tid));
    let Some(space) = process.space.as_ref() else {
        return Ok(None);
    };
    let (layout, pages, program) = (space.layout.clone(), space.pages.clone(), space.program);
    let Some(layout) = layout else { return Ok(None) };
    let mut mappings = layout.mappings.clone();
    let found = Found::default();
    adopt_shared(process, &mut mappings, &layout.names, &found, scene)?;
    let numbers = process.dir.numbers("fd")?;
    let seen = fds::look(process, &numbers, &subject)?;
    let answered = fds::Answered::from_fdinfo(process, &numbers)?;
    let slots = scene.objects.add(
        scene.cache,
        scene.manner.faults,
        process,
        &seen,
        &answered,
        &subject,
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
        comm: image.comm.clone(),
        zombies: zombies(process, scene.pids),
        stopped: image.stopped,
        actions: image.actions.clone(),
        pending: image.pending.clone(),
        itimers: image.itimers,
        timers: image.timers.clone(),
        limits: image.limits.clone(),
        ..skeleton(process, program, &status, scene.pids)?
    };
    Ok(Some(Observed {
        process,
        found,
        freed: Vec::new(),
        staged: Vec::new(),
        copied: Vec::new(),
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

fn read_timers(process: &LiveProcess) -> Result<Vec<PosixTimer>, EngineError> {
    let mut text = Vec::new();
    process.dir.read("timers", &mut text)?;
    Ok(parse_timers(&text))
}

/// Parses `/proc/PID/timers` (proc(5)): four lines a timer.
fn parse_timers(text: &[u8]) -> Vec<PosixTimer> {
    let mut timers: Vec<PosixTimer> = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if key == "ID" {
            let id = value.parse().unwrap_or(-1);
            timers.push(PosixTimer {
                id,
                clock: 0,
                signal: 0,
                notify: 0,
                tid: 0,
                value: 0,
                armed: Armed::default(),
            });
            continue;
        }
        let Some(timer) = timers.last_mut() else { continue };
        match key {
            "signal" => {
                let (signal, word) = value.split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
            }
            "notify" => {
                let (how, whom) = value.split_once('/').unwrap_or((value, ""));
                let by_thread = whom.starts_with("tid.");
                timer.notify = match how {
                    "signal" => libc::SIGEV_SIGNAL,
                    "none" => libc::SIGEV_NONE,
                    _ => libc::SIGEV_THREAD,
                } | if by_thread { 4 } else { 0 };
                timer.tid = whom.split_once('.').and_then(|(_, tid)| tid.parse().ok()).unwrap_or(0);
            }
            "ClockID" => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    timers
}

fn ask(batch: &mut Batch, timers: Vec<PosixTimer>) -> Asked {
    let thread_first = 0;
    let thread = threads::ask(batch);
    let (actions, itimers, limits) = (batch.room(64 * 32), batch.room(3 * 32), batch.room(LIMIT_COUNT * 16));
    let brk = batch.call(libc::SYS_brk, [0; 6]);
    for signal in 1..=64u64 {
        batch.call(
            libc::SYS_rt_sigaction,
            [signal, 0, actions.address + (signal - 1) * 32, 8, 0, 0],
        );
    }
    for which in 0..3u64 {
        batch.call(libc::SYS_getitimer, [which, itimers.address + which * 32, 0, 0, 0, 0]);
    }
    for resource in 0..LIMIT_COUNT as u64 {
        batch.call(
            libc::SYS_prlimit64,
            [0, resource, 0, limits.address + resource * 16, 0, 0],
        );
    }
    let timers = timers
        .into_iter()
        .map(|timer| {
            let room = batch.room(32);
            let id = u64::from(timer.id.cast_unsigned());
            let call = batch.call(libc::SYS_timer_gettime, [id, room.address, 0, 0, 0, 0]);
            (timer, room, call)
        })
        .collect();
    Asked {
        actions,
        itimers,
        limits,
        brk,
        timers,
        thread,
        thread_first,
    }
}

struct Answers {
    actions: Vec<Action>,
    itimers: [Armed; 3],
    limits: Vec<(u64, u64)>,
    timers: Vec<PosixTimer>,
    brk: u64,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

impl Answers {
    fn collect(annex: &Annex, asked: &Asked, results: &Results) -> Result<Self, EngineError> {
        let actions = words(&remote::answer(annex, asked.actions))
            .chunks_exact(4)
            .map(|w| Action {
                handler: w[0],
                flags: w[1],
                restorer: w[2],
                mask: w[3],
            })
            .collect();
        let itimers = words(&remote::answer(annex, asked.itimers));
        let itimer = |at: usize| Armed {
            interval_ns: itimers[at * 4] * 1_000_000_000 + itimers[at * 4 + 1] * 1000,
            value_ns: itimers[at * 4 + 2] * 1_000_000_000 + itimers[at * 4 + 3] * 1000,
        };
        let limits = words(&remote::answer(annex, asked.limits))
            .chunks_exact(2)
            .map(|w| (w[0], w[1]))
            .collect();
        let mut timers = Vec::with_capacity(asked.timers.len());
        for (timer, room, call) in &asked.timers {
            results.expect(*call, "timer_gettime", timer.id)?;
            let w = words(&remote::answer(annex, *room));
            let armed = Armed {
                interval_ns: w[0] * 1_000_000_000 + w[1],
                value_ns: w[2] * 1_000_000_000 + w[3],
            };
            timers.push(PosixTimer { armed, ..timer.clone() });
        }
        let brk = results.expect(asked.brk, "brk", "a process")?;
        Ok(Self {
            actions,
            itimers: [itimer(0), itimer(1), itimer(2)],
            limits,
            timers,
            brk: u64::from_ne_bytes(brk.to_ne_bytes()),
        })
    }
}

/// Which pages the process copies itself (page number, staged index), and which are left to us.
fn plan_copies(found: &Found, mappings: &[Mapping], manner: &Manner<'_>) -> (Vec<(u64, usize)>, Vec<u64>) {
    if !manner.bytes || manner.faults.skips("pages") {
        return (Vec::new(), Vec::new());
    }
    let mut staged = Vec::with_capacity(found.dirty.len().min(STAGED_PAGE_COUNT));
    let mut rest = Vec::new();
    let mut at = 0;
    for address in &found.dirty {
        while at < mappings.len() && mappings[at].end <= *address {
            at += 1;
        }
        let readable = mappings.get(at).is_some_and(|m| m.start <= *address && m.prot & 1 != 0);
        if readable && staged.len() < STAGED_PAGE_COUNT {
            staged.push((address / 4096, staged.len()));
        } else {
            rest.push(*address);
        }
    }
    (staged, rest)
}

/// Copies what the process could not, or what did not fit.
fn copy_rest(
    space: &Space,
    host_pid: i32,
    staged: &[(u64, usize)],
    unreadable: &[usize],
    rest: &[u64],
) -> Result<Vec<(u64, Slot)>, EngineError> {
    let mut copied = Vec::with_capacity(rest.len());
    let unreadable = unreadable
        .iter()
        .filter_map(|index| staged.get(*index))
        .map(|(page, _)| page * 4096);
    let mut forced: Vec<u64> = unreadable.collect();
    // Small stretches: one page that cannot be read makes its whole stretch take the slow way.
    let mut buffer = vec![0u8; 64 * 4096];
    for chunk in rest.chunks(64) {
        let bytes = &mut buffer[..chunk.len() * 4096];
        if linux::process_vm::read_pages(host_pid, chunk, bytes).is_ok() {
            for (address, page) in chunk.iter().zip(bytes.chunks_exact(4096)) {
                copied.push((address / 4096, crate::slot(page.try_into().expect("a page"))));
            }
        } else {
            forced.extend_from_slice(chunk);
        }
    }
    for address in forced {
        let mut page = [0; 4096];
        // A guard page or a hole past the end of a file: there is nothing to keep.
        if linux::process_vm::read_forced(&space.memory, address, &mut page).is_ok() {
            copied.push((address / 4096, crate::slot(&page)));
        }
    }
    Ok(copied)
}

/// Fills the index of a process that runs again, so that its first checkpoint copies only what it has written since
/// it was protected. What is read while being written is read again then.
pub(crate) fn copy_in_background(host_pid: i32, space: &mut Space) -> Result<(), EngineError> {
    let layout = memory::read_layout(space)?;
    let present = memory::present(space, &layout.mappings)?;
    space.layout = Some(layout);
    for chunk in present.chunks(256) {
        let mut bytes = vec![0u8; chunk.len() * 4096];
        if linux::process_vm::read_pages(host_pid, chunk, &mut bytes).is_ok() {
            for (address, page) in chunk.iter().zip(bytes.chunks_exact(4096)) {
                crate::keep(&mut space.pages, address / 4096, page.try_into().expect("a page"));
            }
            continue;
        }
        for address in chunk {
            let mut page = [0; 4096];
            if linux::process_vm::read_forced(&space.memory, *address, &mut page).is_ok() {
                crate::keep(&mut space.pages, address / 4096, &page);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_timers_of_proc() {
        let text = b"ID: 3\nsignal: 34/0000000000abcdef\nnotify: signal/tid.12\nClockID: 1\n";
        let timers = parse_timers(text);
        assert_eq!(timers.len(), 1);
        let timer = &timers[0];
        assert_eq!(
            (
                timer.id,
                timer.signal,
                timer.value,
                timer.notify,
                timer.tid,
                timer.clock
            ),
            (3, 34, 0xab_cdef, 4, 12, 1)
        );
    }
}
