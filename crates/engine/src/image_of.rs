//! The process half of a checkpoint as others hold it: immutable, cheap to clone, complete once the engine has settled
//! the pages that were copied while the box stood still.

use std::sync::{Arc, OnceLock};

use image::memory::PageIndex;
use image::process::{Process, Processes};

/// The process half of a checkpoint. Cheap to clone, immutable.
#[derive(Debug, Clone)]
pub struct ProcessImage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    lines: Vec<ProcessLine>,
    /// Bytes copied: what it holds at most before comparing has told what is new.
    copied_bytes: u64,
    settled: OnceLock<Arc<Processes>>,
}

/// One line of `inspect` and `diff`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLine {
    /// Pid inside the box.
    pub pid: u32,
    /// Parent inside the box.
    pub parent: u32,
    /// The kernel's name of it.
    pub comm: String,
    /// Number of threads.
    pub thread_count: u32,
    /// Number of descriptors.
    pub fd_count: u32,
    /// Private pages held, in bytes.
    pub memory_bytes: u64,
}

fn line(process: &Process) -> ProcessLine {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    ProcessLine {
        pid: process.pid,
        parent: process.parent,
        comm: process.comm.clone(),
        thread_count: count(process.threads.len()),
        fd_count: count(process.slots.len()),
        memory_bytes: process.memory.pages.page_count() * 4096,
    }
}

impl ProcessImage {
    pub(crate) fn pending(parts: &Processes, copied_bytes: u64) -> Self {
        let lines = parts.processes.values().map(|p| line(p)).collect();
        Self {
            inner: Arc::new(Inner {
                lines,
                copied_bytes,
                settled: OnceLock::new(),
            }),
        }
    }

    pub(crate) fn settle(&self, processes: Processes) {
        self.inner
            .settled
            .set(Arc::new(processes))
            .expect("an image is settled once");
    }

    pub(crate) fn processes(&self) -> Option<Arc<Processes>> {
        self.inner.settled.get().cloned()
    }

    /// One line a process, by pid.
    pub fn lines(&self) -> Vec<ProcessLine> {
        match self.inner.settled.get() {
            Some(processes) => processes.processes.values().map(|p| line(p)).collect(),
            None => self.inner.lines.clone(),
        }
    }

    /// Bytes of memory that only this image (and not `parent`) holds. Before the engine has settled it: what was
    /// copied, which is never less.
    pub fn own_bytes(&self, parent: Option<&ProcessImage>) -> u64 {
        let Some(processes) = self.inner.settled.get() else {
            return self.inner.copied_bytes;
        };
        let parent = parent.and_then(|p| p.inner.settled.get());
        let empty = PageIndex::default();
        processes
            .processes
            .iter()
            .map(|(pid, process)| {
                let old = parent
                    .and_then(|p| p.processes.get(pid))
                    .map_or(&empty, |p| &p.memory.pages);
                let mut bytes = 0;
                process.memory.pages.differences(old, |_, new, _| {
                    bytes += if matches!(new, image::memory::Slot::Bytes(_)) {
                        4096
                    } else {
                        0
                    };
                });
                bytes
            })
            .sum()
    }

    /// Bytes of private pages that differ, by pid, for processes in both.
    pub fn diff(&self, other: &ProcessImage) -> Vec<(u32, u64)> {
        let (Some(a), Some(b)) = (self.inner.settled.get(), other.inner.settled.get()) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (pid, process) in &a.processes {
            let Some(theirs) = b.processes.get(pid) else { continue };
            let mut bytes = 0;
            process.memory.pages.differences(&theirs.memory.pages, |_, old, new| {
                bytes += if old.bytes() == new.bytes() { 0 } else { 4096 };
            });
            all.push((*pid, bytes));
        }
        all
    }
}
