//! Going back: plan everything and refuse before anything is touched; then the stages of `apply`, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use image::process::Processes;
use linux::SysError;
use rustix::fs::Mode;

use crate::apply::{self, Stage};
use crate::error::EngineError;
use crate::plan::fds::{FdPlan, TablePlan};
use crate::plan::{self, Plan};
use crate::{Frozen, ProcessImage, capture};

impl Frozen<'_> {
    /// Goes back to `target`. First plans, and refuses (`Lost`, `Unsupported`) before anything is touched, as does
    /// `prepare`; then ends what was born since, calls `files` with what `prepare` gave (it puts the file tree back),
    /// and puts the rest back. `files` returning an error before it changed anything leaves the box as it was, but for
    /// what was born since.
    ///
    /// # Errors
    /// As above; `Torn` in the middle is fatal for the box and says so.
    pub fn rollback<P, E: From<EngineError>>(
        &mut self,
        target: &ProcessImage,
        prepare: impl FnOnce() -> Result<P, E>,
        files: impl FnOnce(P) -> Result<(), E>,
    ) -> Result<(), E> {
        let target = target
            .processes()
            .ok_or_else(|| EngineError::Torn("the image was never settled".to_owned()))?;
        let mut kept = self.captured_present();
        self.stop_what_changes(&target)?;
        let (now, plan, mut fds) = loop {
            let (now, changed) = match kept.take() {
                Some(present) => present,
                None => {
                    self.engine.keep_pending();
                    let (now, found) = self.observe(false)?;
                    let changed = found.into_iter().map(|(pid, found)| (pid, found.dirty));
                    (now, changed.collect())
                }
            };
            self.phase("observe");
            let none: Vec<u64> = Vec::new();
            let dirty = |pid: u32| -> &[u64] { changed.get(&pid).unwrap_or(&none) };
            let plan = plan::plan(&now, &target, &dirty)?;
            let fds = plan::fds::plan(&now, &target, &|inode| {
                linux::descriptor::own(inode.device, inode.number).is_some()
            })?;
            self.stop_whom_it_concerns(&now, &target, &plan, &fds)?;
            // Those that sleep on must have slept through all of it; else they are stopped and looked at too.
            if self.all_left_still_asleep() {
                break (now, plan, fds);
            }
            self.stop_rest(|_| true)?;
        };
        self.phase("plan");
        let prepared = prepare()?;
        self.phase("prepare");
        for (pid, _) in &plan.end {
            self.engine.keep_pending_of(*pid);
        }
        if let Some(pending) = &mut self.engine.pending {
            pending.undone = true;
        }
        let ended = if self.engine.faults.skips("born") {
            Vec::new()
        } else {
            plan.end.clone()
        };
        apply::processes::end(&mut self.engine.live, &mut self.stopped, &ended)?;
        self.reap(&plan)?;
        self.end_threads(&plan)?;
        self.phase(Stage::EndNewborns.name());
        files(prepared)?;
        apply::fds::follow_names(&self.engine.live, &now, &target, &mut fds);
        self.stop_whom_it_concerns(&now, &target, &plan, &fds).map_err(torn)?;
        self.phase(Stage::Files.name());
        self.apply(&now, &target, &plan, &fds)
            .map_err(|error| torn(error).into())
    }

    /// What sleeps in the very state of the target is left alone; all else is stopped.
    fn stop_what_changes(&mut self, target: &Processes) -> Result<(), EngineError> {
        let mut alone = BTreeSet::new();
        for process in self.engine.live.values() {
            let Some(wanted) = target.processes.get(&process.pid) else {
                continue;
            };
            let all_asleep = process.threads.keys().all(|tid| !self.stopped.contains_key(tid));
            let same_process = process.image.as_ref().is_some_and(|image| Arc::ptr_eq(image, wanted));
            if needs_itself(process, target) || (all_asleep && !same_process) {
                continue;
            }
            let asleep = process
                .threads
                .iter()
                .filter(|(tid, _)| !self.stopped.contains_key(tid));
            let unchanged = asleep.filter(|(_, thread)| {
                let image = thread.image.as_ref();
                image.is_some_and(|image| wanted.threads.iter().any(|w| Arc::ptr_eq(image, w)))
            });
            alone.extend(unchanged.map(|(tid, _)| *tid));
        }
        self.stop_threads(|_, tid| !alone.contains(&tid))
    }

    /// Stops those that sleep in a process in which more changes than what its own threads did to it.
    fn stop_whom_it_concerns(
        &mut self,
        now: &Processes,
        target: &Processes,
        plan: &Plan,
        fds: &FdPlan,
    ) -> Result<(), EngineError> {
        let mut concerned = BTreeSet::new();
        for process in self.engine.live.values() {
            let mut steps = plan.patch.iter();
            let step = steps.find(|step| step.pid == process.pid);
            // One that sleeps as a whole in the state of the target is concerned only by what its children do, and by
            // files that came back as others.
            let awake = process.threads.keys().any(|tid| self.stopped.contains_key(tid));
            let concerns = |step: &plan::ProcessPlan| {
                let changes = !plan::leaves_sleepers_alone(plan, step, now, target, fds);
                let table = fds
                    .tables
                    .get(&step.pid)
                    .is_some_and(|table| *table != TablePlan::default());
                changes && (awake || table || plan::stops_a_child(plan, step.pid, target))
            };
            if step.is_some_and(concerns) {
                concerned.insert(process.host_pid);
            }
        }
        self.stop_rest(|host_pid| concerned.contains(&host_pid))
    }

    /// The present as it was captured in this very freeze, if it was, and the addresses of pages that may differ from
    /// its index: what was copied of them still lies in the staging windows.
    fn captured_present(&self) -> Option<(Processes, BTreeMap<u32, Vec<u64>>)> {
        let pending = self.engine.pending.as_ref()?;
        let changed = pending.memory.iter().map(|(pid, found)| (*pid, found.changed()));
        Some((pending.parts.clone(), changed.collect()))
    }

    fn apply(&mut self, now: &Processes, target: &Processes, plan: &Plan, fds: &FdPlan) -> Result<(), EngineError> {
        let by_pid: BTreeMap<u32, i32> = self.engine.live.values().map(|p| (p.pid, p.host_pid)).collect();
        let shared = self.shared_memory(now, target)?;
        let awake = self.awake(plan, &by_pid);
        let mut pages = Vec::with_capacity(awake.len());
        for step in plan.patch.iter().filter(|step| awake.contains(&step.pid)) {
            let target = &target.processes[&step.pid].memory;
            let change = apply::memory::Change {
                plan: &step.memory,
                target,
                shared: &shared,
            };
            let host_pid = by_pid[&step.pid];
            let process = self.engine.live.get_mut(&host_pid).expect("planned from it");
            let mut space = process.space.take().expect("observed before");
            let thread = capture::any_thread(process, &mut self.stopped)?;
            let applied = apply::memory::apply(&mut space, &process.pidfd, thread, &change, &self.engine.faults);
            process.space = Some(space);
            applied?;
            pages.push(apply::memory::Pages {
                host_pid,
                numbers: step.memory.write.clone(),
                target: target.pages.clone(),
            });
        }
        if !self.engine.faults.skips("pages") {
            let count: usize = pages.iter().map(|pages| pages.numbers.len()).sum();
            self.cost.page_count += count as u64;
            self.cost.bytes += count as u64 * 4096;
            let engine = &*self.engine;
            let memory = |host_pid| &engine.live[&host_pid].space.as_ref().expect("observed before").memory;
            apply::memory::write_pages(&engine.onlooker, pages, memory)?;
        }
        self.phase(Stage::Memory.name());
        self.threads(plan, &by_pid)?;
        self.phase(Stage::Threads.name());
        apply::fds::apply(&mut apply::fds::Scene {
            live: &self.engine.live,
            stopped: &mut self.stopped,
            now,
            target,
            plan: fds,
            faults: &self.engine.faults,
            cache: &mut self.engine.cache,
            shared: &shared,
        })?;
        if !self.engine.faults.skips("seals") {
            seal(target, &shared)?;
        }
        self.phase(Stage::Descriptors.name());
        if !self.engine.faults.skips("stops") {
            for step in &plan.patch {
                if let Some(change) = step.stop {
                    let parent = by_pid.get(&target.processes[&step.pid].parent).copied();
                    apply::stops::apply(&self.engine.live, &mut self.stopped, by_pid[&step.pid], parent, change)?;
                }
            }
        }
        let mut protections = Vec::new();
        for step in plan.patch.iter().filter(|step| awake.contains(&step.pid)) {
            let process = self.engine.live.get_mut(&by_pid[&step.pid]).expect("planned from it");
            let (present, wanted) = (&now.processes[&step.pid], &target.processes[&step.pid]);
            apply::signals::apply(process, &mut self.stopped, present, wanted, &self.engine.faults)?;
            apply::threads::set(process, &mut self.stopped, present, wanted, &self.engine.faults)?;
            let space = process.space.as_mut().expect("observed before");
            if !step.memory.map.is_empty() {
                capture::memory::register(space, &wanted.memory.mappings, false)?;
            }
            // One process is done by both at once; of several, each does some.
            if awake.len() == 1 {
                capture::memory::protect(space, &self.engine.onlooker)?;
            } else {
                protections.push(capture::memory::protect_beside(space, &self.engine.onlooker));
            }
        }
        for protection in protections {
            protection.wait()?;
        }
        for step in &plan.patch {
            let process = self.engine.live.get_mut(&by_pid[&step.pid]).expect("planned from it");
            let wanted = &target.processes[&step.pid];
            let space = process.space.as_mut().expect("observed before");
            space.keep(wanted.memory.pages.clone());
            process.image = Some(wanted.clone());
        }
        self.phase(Stage::Signals.name());
        Ok(())
    }

    /// Pids of the planned processes that stand still.
    fn awake(&self, plan: &Plan, by_pid: &BTreeMap<u32, i32>) -> BTreeSet<u32> {
        let stands = |pid: &u32| {
            let process = &self.engine.live[&by_pid[pid]];
            process.threads.keys().any(|tid| self.stopped.contains_key(tid))
        };
        plan.patch.iter().map(|step| step.pid).filter(stands).collect()
    }

    /// Children that ended since.
    fn reap(&mut self, plan: &Plan) -> Result<(), EngineError> {
        if self.engine.faults.skips("born") {
            return Ok(());
        }
        for step in plan.patch.iter().filter(|step| !step.reap.is_empty()) {
            let process = self
                .engine
                .live
                .values()
                .find(|p| p.pid == step.pid)
                .expect("planned from it");
            let host_pid = process.host_pid;
            for zombie in &step.reap {
                apply::processes::reap(&self.engine.live, &mut self.stopped, host_pid, *zombie)?;
            }
        }
        Ok(())
    }

    /// Threads that were born since end while their own memory is still there: the kernel writes to a thread's area of
    /// restartable sequences whenever it runs.
    fn end_threads(&mut self, plan: &Plan) -> Result<(), EngineError> {
        if self.engine.faults.skips("threads") || self.engine.faults.skips("born") {
            return Ok(());
        }
        for step in plan.patch.iter().filter(|step| !step.end_threads.is_empty()) {
            let process = self
                .engine
                .live
                .values_mut()
                .find(|p| p.pid == step.pid)
                .expect("planned from it");
            apply::threads::end(process, &mut self.stopped, &step.end_threads)?;
        }
        Ok(())
    }

    fn threads(&mut self, plan: &Plan, by_pid: &BTreeMap<u32, i32>) -> Result<(), EngineError> {
        if self.engine.faults.skips("threads") {
            return Ok(());
        }
        for step in &plan.patch {
            let process = self.engine.live.get_mut(&by_pid[&step.pid]).expect("planned from it");
            for wanted in &step.make_threads {
                let set = self.engine.set_last_pid.as_mut().ok_or_else(|| {
                    EngineError::Unsupported(format!("thread {} ended and its number cannot be chosen", wanted.tid))
                })?;
                apply::threads::make(process, &mut self.stopped, wanted, set)?;
            }
        }
        Ok(())
    }

    /// Shared memory objects, each once, through whatever leads to them now; one that nothing leads to any more is made
    /// again. By the target's index.
    fn shared_memory(&mut self, now: &Processes, target: &Processes) -> Result<BTreeMap<u32, File>, EngineError> {
        let mut files = BTreeMap::new();
        for (index, wanted) in (0..).zip(&target.shared) {
            let present = now.shared.iter().find(|s| s.inode == wanted.inode);
            let file = match present {
                Some(_) => self.open_shared(now, wanted.inode)?,
                None => {
                    let name = wanted.name.strip_prefix(b"/memfd:").unwrap_or(b"shared");
                    let name = String::from_utf8_lossy(name).replace(" (deleted)", "");
                    File::from(linux::memfd::create(&name, wanted.content.size)?)
                }
            };
            let same = present.is_some_and(|present| present.content.same(&wanted.content));
            // A look without bytes still captured the object afresh, so `now` is what is there.
            if !same && !self.engine.faults.skips("shared_memory") {
                self.engine.cache.restore(&file, &wanted.content)?;
            }
            files.insert(index, file);
        }
        Ok(files)
    }

    fn open_shared(&self, now: &Processes, inode: image::fd::Inode) -> Result<File, EngineError> {
        use image::memory::Backing;
        for process in self.engine.live.values() {
            let Some(present) = now.processes.get(&process.pid) else {
                continue;
            };
            for mapping in present.memory.mappings.iter() {
                if let Backing::Shared { object, .. } = mapping.backing
                    && now.shared[object as usize].inode == inode
                {
                    let name = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
                    return Ok(process
                        .dir
                        .file(&name, true)
                        .or_else(|_| process.dir.file(&name, false))?);
                }
            }
            for slot in &present.slots {
                if let image::fd::Kind::Memory { object, .. } = now.objects[slot.object as usize].kind
                    && now.shared[object as usize].inode == inode
                {
                    let name = format!("fd/{}", slot.number);
                    return Ok(process
                        .dir
                        .file(&name, true)
                        .or_else(|_| process.dir.file(&name, false))?);
                }
            }
        }
        Err(EngineError::Torn("a shared memory object is gone".to_owned()))
    }
}

/// Gives shared memory the permissions and seals that it had. Last of all: what is sealed cannot be filled or mapped, and
/// what some seals mean depends on the permissions (`memfd_add_seals` in mm/memfd.c).
fn seal(target: &Processes, shared: &BTreeMap<u32, File>) -> Result<(), EngineError> {
    let failed = |call| move |errno| EngineError::from(SysError::rustix(call, "a memory file", errno));
    for (index, wanted) in (0..).zip(&target.shared) {
        let file = shared[&index].as_fd();
        let mode = rustix::fs::fstat(file).map_err(failed("fstat"))?.st_mode;
        if mode & 0o7777 != wanted.mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode)).map_err(failed("fchmod"))?;
        }
        if linux::memfd::seals(file) != wanted.seals {
            linux::memfd::seal(file, wanted.seals)?;
        }
    }
    Ok(())
}

/// True where something can only be put back from inside the process: what others may have changed, and the time that
/// has gone by in a relative wait.
fn needs_itself(process: &crate::tracee::LiveProcess, target: &Processes) -> bool {
    use image::fd::Kind;
    target.processes.get(&process.pid).is_some_and(|wanted| {
        if wanted
            .threads
            .iter()
            .any(|thread| thread.wait.is_some_and(|wait| wait.remaining_ns.is_some()))
        {
            return true;
        }
        let mut kinds = wanted
            .slots
            .iter()
            .map(|slot| &target.objects[slot.object as usize].kind);
        kinds.any(|kind| matches!(kind, Kind::Terminal { .. } | Kind::Epoll { .. }))
    })
}

fn torn(error: EngineError) -> EngineError {
    match error {
        EngineError::Torn(_) => error,
        other => EngineError::Torn(other.to_string()),
    }
}
