//! Process state: capture -> image -> plan -> apply. Knows Linux processes; knows nothing of stores, files-as-trees
//! or HTTP. An [`Engine`] lives on one thread (ptrace is bound to it); a [`Frozen`] box goes on when it is dropped.
#![forbid(unsafe_code)]

mod apply;
mod capture;
mod content;
pub mod error;
pub mod fault;
mod freeze;
mod image_of;
mod onlooker;
mod pending;
mod plan;
mod remote;
mod rollback;
mod sleep;
mod tracee;
mod unsupported;
mod verify;
mod wait;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use image::memory::Backing;
use image::process::Processes;
use linux::SysError;
use linux::sched::{SchedClock, monotonic_ns};
use linux::unix_diag::UnixDiag;

use capture::Manner;
use capture::fds::Objects;
pub use error::EngineError;
use fault::Faults;
use freeze::{Live, Stopped};
pub use image_of::{ProcessImage, ProcessLine};
use pending::{MemoryFound, Pending};

/// Where a box's processes are found.
#[derive(Debug, Clone)]
pub struct Membership {
    /// PID 1 of the box, as the host numbers it. It is never stopped and not part of an image.
    pub init_host_pid: u32,
    /// Directory of the box's own cgroup-2 group (`cgroup.threads` lists its threads); `None`: walk `/proc`.
    pub cgroup: Option<PathBuf>,
}

/// How the engine finds the pages that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirtySource {
    /// PAGEMAP_SCAN with asynchronous write-protection (kernel 6.7 and later).
    Scan,
    /// Compare all present private pages: any kernel; slower; the oracle of the tests.
    Compare,
}

/// Settings of an [`Engine`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Which source of dirty pages to use.
    pub dirty: DirtySource,
    /// Names of fault points that are switched on (`skip:sigmask`); empty in production.
    pub faults: Vec<String>,
    /// How long a task may take to stop before the operation ends with `Busy`.
    pub stop_timeout: Duration,
}

/// Makes the kernel give the next task born in the box the number after this one.
pub type SetLastPid = Box<dyn FnMut(u32) -> Result<(), SysError>>;

/// One box's processes as the engine sees them between operations. Lives on one thread.
pub struct Engine {
    membership: Membership,
    config: Config,
    faults: Faults,
    live: Live,
    cache: content::Cache,
    diag: Option<UnixDiag>,
    clock: Option<SchedClock>,
    pending: Option<Pending>,
    set_last_pid: Option<SetLastPid>,
    onlooker: onlooker::Onlooker,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("membership", &self.membership)
            .field("live", &self.live.len())
            .finish_non_exhaustive()
    }
}

/// Times of the parts of one operation, added up by name.
#[derive(Debug)]
pub(crate) struct Laps {
    last: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Laps {
    fn new() -> Self {
        Self {
            last: Instant::now(),
            laps: Vec::new(),
        }
    }

    /// The time since the last lap belongs to `name`.
    pub(crate) fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        let time = now - self.last;
        self.last = now;
        match self.laps.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += time,
            None => self.laps.push((name, time)),
        }
    }
}

/// What a capture or an apply cost.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// Named phases in the order they ran.
    pub phases: Vec<(&'static str, Duration)>,
    /// From the first stop to the last resume.
    pub stop: Duration,
    /// Pages copied.
    pub page_count: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Processes and threads seen.
    pub process_count: u32,
    /// Threads seen.
    pub thread_count: u32,
}

/// The processes of a box, stopped. Thaws on drop.
#[derive(Debug)]
pub struct Frozen<'a> {
    engine: &'a mut Engine,
    stopped: Stopped,
    since: Instant,
    mark: Instant,
    cost: Cost,
    urgent: Option<linux::sched::Urgent>,
    /// Something was done from outside to a task that was left asleep.
    disturbed: bool,
}

impl Engine {
    /// An engine for the box of `membership`.
    ///
    /// # Errors
    /// `EngineError::Kernel` when a needed kernel interface refuses.
    pub fn new(membership: Membership, config: Config) -> Result<Self, EngineError> {
        let faults = Faults::new(&config.faults);
        // Without the scheduler's record a rolled back wait starts with its whole time-out.
        let clock = SchedClock::of_this_thread().ok();
        Ok(Self {
            membership,
            config,
            faults,
            live: Live::new(),
            cache: content::Cache::default(),
            diag: None,
            clock,
            pending: None,
            set_last_pid: None,
            onlooker: onlooker::Onlooker::start(),
            _not_send: std::marker::PhantomData,
        })
    }

    /// How the number of the next task is chosen; needed to make ended threads again.
    pub fn set_last_pid_with(&mut self, set: SetLastPid) {
        self.set_last_pid = Some(set);
    }

    /// Prepares processes that are not tracked yet (called when the box is idle, after an exec), so that the first
    /// checkpoint is already incremental. Stops each for an instant; never changes what a checkpoint holds.
    pub fn prepare(&mut self) {
        if self.config.dirty == DirtySource::Scan && self.try_prepare().is_err() {
            // A process that cannot be prepared (it is just being born or dying) is taken whole at the checkpoint.
        }
    }

    fn try_prepare(&mut self) -> Result<(), EngineError> {
        let known: Vec<i32> = self
            .live
            .values()
            .filter(|p| p.space.is_some())
            .map(|p| p.host_pid)
            .collect();
        let mut stopped = freeze::stop(
            &self.membership,
            &self.config,
            &mut self.clock,
            &mut self.live,
            |_, host_pid, _| known.contains(&host_pid),
        )?;
        let fresh: Vec<i32> = self.live.keys().copied().filter(|pid| !known.contains(pid)).collect();
        let manner = Manner {
            dirty: self.config.dirty,
            bytes: true,
            faults: &self.faults,
            now_ns: None,
        };
        let mut result = Ok(());
        for host_pid in &fresh {
            let process = self.live.get_mut(host_pid).expect("listed from it");
            result = capture::settle_in(process, &mut stopped, &manner).and_then(|()| {
                let space = process.space.as_ref().expect("settled in");
                capture::memory::protect(space, &self.onlooker)
            });
            if result.is_err() {
                break;
            }
        }
        capture::threads::go_on_unseen(&mut self.live, &mut stopped);
        drop(freeze::let_go(stopped));
        result?;
        for host_pid in fresh {
            let process = self.live.get_mut(&host_pid).expect("listed from it");
            if let Some(space) = &mut process.space {
                capture::pages::copy_in_background(host_pid, space)?;
            }
        }
        Ok(())
    }

    /// Once everything in the box was killed: waits for what this thread still traces, since until then neither the
    /// box's PID 1 nor its namespaces can end.
    pub fn reap(&mut self) {
        const LIMIT: Duration = Duration::from_secs(10);
        // What cannot be waited for is the kernel's to end when this thread ends.
        drop(freeze::reap_all(&self.membership, &self.live, LIMIT));
    }

    /// Stops the box.
    ///
    /// # Errors
    /// `Busy` when a task does not stop in time (all is thawed again); `Unsupported` is not raised here.
    pub fn freeze(&mut self) -> Result<Frozen<'_>, EngineError> {
        self.keep_pending();
        let urgent = linux::sched::Urgent::raise();
        let since = Instant::now();
        let mut buffer = Vec::new();
        let stopped = freeze::stop(
            &self.membership,
            &self.config,
            &mut self.clock,
            &mut self.live,
            |live, host_pid, tid| live[&host_pid].threads[&tid].still_asleep(&mut buffer),
        )?;
        let mut frozen = Frozen {
            engine: self,
            stopped,
            since,
            mark: since,
            cost: Cost::default(),
            urgent: Some(urgent),
            disturbed: false,
        };
        frozen.phase("freeze");
        Ok(frozen)
    }
}

impl Frozen<'_> {
    fn phase(&mut self, name: &'static str) {
        let now = Instant::now();
        self.cost.phases.push((name, now - self.mark));
        self.mark = now;
    }

    /// Captures everything. `Unsupported` names what cannot be captured, before anything was touched.
    ///
    /// # Errors
    /// `Unsupported`, `Lost`, `Kernel`.
    pub fn capture(&mut self) -> Result<ProcessImage, EngineError> {
        let (parts, memory) = loop {
            let (parts, memory) = match self.observe(true) {
                Ok(observed) => observed,
                Err(error) => {
                    for process in self.engine.live.values_mut() {
                        process.forget();
                    }
                    return Err(error);
                }
            };
            // Those that were left asleep must have slept through all of it; else they are stopped and looked at too.
            if self.all_left_still_asleep() {
                break (parts, memory);
            }
            for mut found in memory.into_values() {
                if let Some(space) = self.engine.live.get_mut(&found.host_pid).and_then(|p| p.space.as_mut()) {
                    while found.keep_some(&space.annex) {}
                    space.keep(found.pages);
                }
            }
            self.stop_rest(|_| true)?;
        };
        let copied: u64 = memory.values().map(|m| (m.staged.len() + m.copied.len()) as u64).sum();
        self.cost.page_count += copied;
        self.cost.bytes += copied * 4096;
        let image = ProcessImage::pending(&parts, copied * 4096);
        self.engine.pending = Some(Pending {
            image: image.clone(),
            parts,
            memory,
            undone: false,
        });
        self.phase("capture");
        Ok(image)
    }

    fn all_left_still_asleep(&mut self) -> bool {
        if std::mem::take(&mut self.disturbed) {
            return false;
        }
        let mut buffer = Vec::new();
        let threads = self.engine.live.values().flat_map(|process| &process.threads);
        threads
            .filter(|(tid, _)| !self.stopped.contains_key(tid))
            .all(|(_, thread)| thread.still_asleep(&mut buffer))
    }

    /// Stops what was left asleep in the processes (host pids) for which `which` holds.
    fn stop_rest(&mut self, which: impl Fn(i32) -> bool) -> Result<(), EngineError> {
        self.stop_threads(|host_pid, _| which(host_pid))
    }

    /// Stops what was left asleep and for which `which` holds (host pid, host tid).
    fn stop_threads(&mut self, which: impl Fn(i32, i32) -> bool) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        let mut asleep = engine.live.values().flat_map(|process| {
            let tids = process.threads.keys().filter(|tid| !self.stopped.contains_key(tid));
            tids.map(|tid| (process.host_pid, *tid))
        });
        if !asleep.any(|(host_pid, tid)| which(host_pid, tid)) {
            return Ok(());
        }
        freeze::stop_more(
            &engine.membership,
            &engine.config,
            &mut engine.clock,
            &mut engine.live,
            &mut self.stopped,
            |_, host_pid, tid| !which(host_pid, tid),
        )
    }

    /// Looks at all processes; with `bytes`, their changed pages are copied and count as unwritten from here on.
    fn observe(&mut self, bytes: bool) -> Result<(Processes, BTreeMap<u32, MemoryFound>), EngineError> {
        let now_ns = Some(monotonic_ns());
        let init = i32::try_from(self.engine.membership.init_host_pid).expect("a pid");
        let pids: Vec<i32> = self.engine.live.keys().copied().collect();
        self.cost.process_count = u32::try_from(pids.len()).unwrap_or(u32::MAX);
        self.cost.thread_count = u32::try_from(self.stopped.len()).unwrap_or(u32::MAX);
        let mut names: BTreeMap<i32, u32> = self.engine.live.values().map(|p| (p.host_pid, p.pid)).collect();
        names.insert(init, 1);
        let mut look = Look {
            bytes,
            now_ns,
            pids: &names,
            objects: Objects::default(),
            laps: Laps::new(),
        };
        let mut processes = BTreeMap::new();
        let mut memory = BTreeMap::new();
        for (host_pid, observed) in self.observe_all(&pids, &mut look)? {
            let capture::Observed {
                process,
                found,
                freed,
                staged,
                copied,
                disturbed,
            } = observed;
            self.disturbed |= disturbed;
            if bytes && !found.untracked.is_empty() {
                let space = self
                    .engine
                    .live
                    .get_mut(&host_pid)
                    .and_then(|p| p.space.as_mut())
                    .expect("observed");
                capture::memory::track(space, &found.untracked)?;
            }
            let mut dirty = found.dirty;
            if !bytes {
                // Nothing is captured: what was freed must be written back like what was changed.
                dirty.extend(freed.iter().map(|page| page * 4096));
                dirty.sort_unstable();
            }
            memory.insert(
                process.pid,
                MemoryFound {
                    host_pid,
                    dirty,
                    freed,
                    staged,
                    copied,
                    pages: process.memory.pages.clone(),
                },
            );
            processes.insert(process.pid, Arc::new(process));
        }
        let engine = &mut *self.engine;
        let Look {
            mut objects, mut laps, ..
        } = look;
        objects.fill(&engine.live, &mut engine.diag, init, &engine.faults)?;
        laps.lap("contents");
        self.cost.phases.extend(laps.laps);
        let Objects {
            objects,
            pipes,
            sockets,
            terminals,
            ghosts,
            shared,
            ..
        } = objects;
        Ok((
            Processes {
                processes,
                objects,
                pipes,
                sockets,
                terminals,
                shared,
                ghosts,
            },
            memory,
        ))
    }

    /// Looks at these processes.
    fn observe_all(&mut self, pids: &[i32], look: &mut Look<'_>) -> Result<Vec<(i32, capture::Observed)>, EngineError> {
        let mut ahead = self.look_ahead(look.bytes);
        // All are asked before the first is listened to: they answer while the others are looked at.
        let mut begun = Vec::with_capacity(pids.len());
        let mut failed = None;
        for host_pid in pids.iter().copied() {
            match self.on_one(host_pid, look, |process, scene| {
                capture::begin(process, ahead.remove(&host_pid), scene)
            }) {
                Ok(one) => begun.push((host_pid, one)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut all = Vec::with_capacity(begun.len());
        let mut disturbed = Vec::new();
        for (host_pid, one) in begun {
            if failed.is_some() {
                capture::abandon(&self.engine.live[&host_pid], one, &self.stopped);
                continue;
            }
            match self.on_one(host_pid, look, |process, scene| capture::finish(process, one, scene)) {
                Ok(Some(observed)) => all.push((host_pid, observed)),
                Ok(None) => disturbed.push(host_pid),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for host_pid in disturbed {
            self.stop_rest(|pid| pid == host_pid)?;
            let observed = self.on_one(host_pid, look, |process, scene| {
                let one = capture::begin(process, None, scene)?;
                capture::finish(process, one, scene)
            })?;
            all.push((host_pid, observed.expect("a process that stands still is observed")));
        }
        Ok(all)
    }

    /// Has the second thread look at processes from outside, beside all else: at those that were left asleep, and at
    /// those that stand still but for the first, with which we begin.
    fn look_ahead(
        &self,
        bytes: bool,
    ) -> BTreeMap<i32, onlooker::Promise<Result<capture::outside::Outside, EngineError>>> {
        let mut looks = BTreeMap::new();
        let mut first = true;
        for process in self.engine.live.values() {
            let stands_still = process.threads.keys().any(|tid| self.stopped.contains_key(tid));
            let known = process.space.as_ref().filter(|space| stands_still && space.lives());
            let known = known.and_then(|space| Some((space, space.layout.as_ref()?)));
            if stands_still && (std::mem::take(&mut first) || known.is_none()) {
                continue;
            }
            let look = capture::outside::Look::at(process, &self.stopped, known, bytes, true);
            looks.insert(process.host_pid, self.engine.onlooker.give(move || look.look()));
        }
        looks
    }

    /// Does a part of the look at one process.
    fn on_one<T>(
        &mut self,
        host_pid: i32,
        look: &mut Look<'_>,
        part: impl FnOnce(&mut tracee::LiveProcess, &mut capture::Scene<'_>) -> T,
    ) -> T {
        let engine = &mut *self.engine;
        let manner = Manner {
            dirty: engine.config.dirty,
            bytes: look.bytes,
            faults: &engine.faults,
            now_ns: look.now_ns,
        };
        let process = engine.live.get_mut(&host_pid).expect("a known process");
        let mut scene = capture::Scene {
            stopped: &mut self.stopped,
            objects: &mut look.objects,
            cache: &mut engine.cache,
            manner: &manner,
            onlooker: &engine.onlooker,
            pids: look.pids,
            laps: &mut look.laps,
        };
        part(process, &mut scene)
    }

    /// Paths (inside the box) of regular files that the box wrote through shared mappings since the last capture.
    /// Where writes cannot be told apart (see [`DirtySource::Compare`]) every file mapped writable and shared is named.
    pub fn mapped_files_written(&mut self) -> Vec<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let mut paths = Vec::new();
        for process in self.engine.live.values() {
            let own = process.space.as_ref().map_or(0..0, |space| space.annex.range());
            if process
                .space
                .as_ref()
                .is_some_and(|space| !maps_files(&space.maps, &own))
            {
                continue;
            }
            let mut text = Vec::new();
            if process.dir.read_list("maps", &mut text).is_err() {
                continue;
            }
            for mapping in capture::memory::mappings(&text, &own, &mut |_| 0) {
                if let Backing::File { path, .. } = mapping.backing
                    && mapping.shared
                    && mapping.prot & 2 != 0
                {
                    paths.push(PathBuf::from(std::ffi::OsString::from_vec(path)));
                }
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// Compares what runs (still stopped) with `image`; the differences, one line each.
    pub fn verify(&mut self, image: &ProcessImage) -> Vec<String> {
        let lines = match image.processes() {
            Some(target) => verify::compare(self, &target),
            None => vec!["the image is not settled".to_owned()],
        };
        self.phase("verify");
        lines
    }

    /// Lets the box run. Dropping does the same but swallows the cost.
    pub fn thaw(mut self) -> Cost {
        self.release();
        self.phase("thaw");
        self.cost.stop = self.since.elapsed();
        std::mem::take(&mut self.cost)
    }

    fn release(&mut self) {
        capture::threads::go_on_unseen(&mut self.engine.live, &mut self.stopped);
        sleep::let_idle_go_first(&mut self.engine.live, &mut self.stopped);
        // What is gone by now cannot be let go and need not be.
        drop(freeze::let_go(std::mem::take(&mut self.stopped)));
        self.urgent = None;
    }
}

/// A look at all processes: what is the same for each, and what adds up.
struct Look<'a> {
    bytes: bool,
    now_ns: Option<u64>,
    /// Pid inside the box by host pid.
    pids: &'a BTreeMap<i32, u32>,
    objects: Objects,
    laps: Laps,
}

/// True where files are mapped shared and writable, or where that cannot be told cheaply. `own` is not counted.
fn maps_files(maps: &std::fs::File, own: &std::ops::Range<u64>) -> bool {
    use linux::procmap::{Which, areas};
    let mut found = false;
    let asked = areas(maps, Which::SharedWritableFiles, |area| {
        found = !own.contains(&area.start);
        !found
    });
    found || asked.is_err()
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
