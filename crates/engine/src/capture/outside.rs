//! What can be read of a process without stopping it and without its help: `status`, its children, its descriptors as
//! links, its mappings. Needs no tracer, so that a second thread can do it; changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use image::fd::Inode;
use image::memory::{AddressSpace, PageIndex};
use image::process::{Lasting, Process};
use image::signal::Queued;
use image::timer::Armed;
use linux::procfs::{self, TaskDir};

use super::{fds, memory, thrown_away};
use crate::error::EngineError;
use crate::freeze::Stopped;
use crate::tracee::{Layout, LiveProcess, Space};
use crate::unsupported::Subject;

/// What to look at. Holds what it needs, so that any thread can look.
#[derive(Debug)]
pub(crate) struct Look {
    pid: u32,
    dir: Arc<TaskDir>,
    tids: Vec<i32>,
    memory: Option<Memory>,
    /// Threads that were left asleep, with the signals that were queued for each at its capture.
    asleep: Vec<(i32, u64)>,
}

/// What to look at in an address space.
#[derive(Debug)]
struct Memory {
    maps: Arc<File>,
    pagemap: Option<Arc<File>>,
    own: std::ops::Range<u64>,
    known: Layout,
    /// Whether names matter, or numbers alone.
    names: bool,
    pages: PageIndex,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) subject: Subject,
    pub(crate) status: Vec<u8>,
    pub(crate) seen: Vec<fds::Seen>,
    /// The mappings where they are not those that were known.
    pub(crate) layout: Option<Layout>,
    /// Where it was to be looked for.
    pub(crate) thrown_away: Option<thrown_away::ThrownAway>,
    /// A thread that was left asleep has other signals queued than at its capture.
    pub(crate) disturbed: bool,
    cwd: (Vec<u8>, Inode),
    children: Vec<i32>,
}

impl Look {
    /// With `space`, its mappings are looked at too, and compared with those that are known; `names` says whether
    /// their names matter: to a checkpoint, which may have to open a file again by its name. `thrown_away` says whether
    /// to look for such pages too.
    pub(crate) fn at(
        process: &LiveProcess,
        stopped: &Stopped,
        space: Option<(&Space, &Layout)>,
        names: bool,
        thrown_away: bool,
    ) -> Self {
        let asleep = process.threads.iter().filter(|(tid, _)| !stopped.contains_key(tid));
        Self {
            pid: process.pid,
            dir: process.dir.clone(),
            tids: process.threads.keys().copied().collect(),
            memory: space.map(|(space, known)| Memory {
                maps: space.maps.clone(),
                pagemap: (space.uffd.is_some() && thrown_away).then(|| space.pagemap.clone()),
                own: space.annex.range(),
                known: known.clone(),
                names,
                pages: space.pages.clone(),
            }),
            asleep: asleep
                .filter_map(|(tid, thread)| Some((*tid, bits(&thread.image.as_ref()?.pending))))
                .collect(),
        }
    }

    /// Looks.
    ///
    /// # Errors
    /// `Unsupported` for a descriptor that cannot be captured; `Kernel` where the process is gone.
    pub(crate) fn look(self) -> Result<Outside, EngineError> {
        let mut layout = None;
        let mut thrown = None;
        if let Some(memory) = self.memory {
            if !memory::same_areas(&memory.maps, &memory.known, memory.names) {
                let mut text = Vec::with_capacity(memory.known.text.len() + 4096);
                procfs::read_from_start(&memory.maps, &mut text)?;
                if text != memory.known.text {
                    layout = Some(memory::layout(text, &memory.own));
                }
            }
            if let Some(pagemap) = &memory.pagemap {
                let mappings = &layout.as_ref().unwrap_or(&memory.known).mappings;
                thrown = Some(thrown_away::look(pagemap, &memory.pages, mappings)?);
            }
        }
        let mut text = Vec::new();
        let mut disturbed = false;
        for (tid, known) in self.asleep {
            self.dir.read(&format!("task/{tid}/status"), &mut text)?;
            let queued = procfs::field(&text, "SigPnd").and_then(|v| u64::from_str_radix(v, 16).ok());
            disturbed |= queued != Some(known);
        }
        let mut status = Vec::new();
        self.dir.read("status", &mut status)?;
        let subject = Subject::new(self.pid, procfs::field(&status, "Name").unwrap_or("?"));
        let seen = fds::look(&self.dir, &self.dir.numbers("fd")?, &subject)?;
        let cwd = self.dir.stat("cwd")?;
        let inode = Inode {
            device: cwd.st_dev,
            number: cwd.st_ino,
        };
        let cwd = (self.dir.link("cwd")?, inode);
        let mut children = Vec::new();
        for tid in self.tids {
            if self.dir.read_list(&format!("task/{tid}/children"), &mut text).is_ok() {
                let words = String::from_utf8_lossy(&text);
                children.extend(words.split_ascii_whitespace().filter_map(|w| w.parse::<i32>().ok()));
            }
        }
        Ok(Outside {
            subject,
            status,
            seen,
            layout,
            thrown_away: thrown,
            disturbed,
            cwd,
            children,
        })
    }
}

/// The numbers of queued signals as `status` shows them.
pub(crate) fn bits(queue: &[Queued]) -> u64 {
    let numbers = queue.iter().filter_map(|q| u32::try_from(q.number() - 1).ok());
    numbers.fold(0, |bits, bit| bits | 1 << (bit & 63))
}

impl Outside {
    /// Pids inside the box of children that have ended and were not waited for. `pids` knows the living.
    fn zombies(&self, pids: &BTreeMap<i32, u32>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut text = Vec::new();
        for child in self.children.iter().filter(|child| !pids.contains_key(child)) {
            let read = TaskDir::process(*child).and_then(|dir| dir.read("status", &mut text));
            if read.is_ok() && procfs::field(&text, "State").is_some_and(|s| s.starts_with('Z')) {
                found.extend(last_number(&text, "NSpid"));
            }
        }
        found.sort_unstable();
        found
    }

    /// The image with what was seen in it, the rest empty.
    pub(crate) fn skeleton(&self, process: &LiveProcess, program: Inode, pids: &BTreeMap<i32, u32>) -> Process {
        let status = &self.status;
        let parent: i32 = procfs::field(status, "PPid").and_then(|v| v.parse().ok()).unwrap_or(0);
        Process {
            pid: process.pid,
            parent: pids.get(&parent).copied().unwrap_or(1),
            group: last_number(status, "NSpgid").unwrap_or(0),
            comm: procfs::field(status, "Name").unwrap_or("?").to_owned(),
            zombies: self.zombies(pids),
            lasting: Lasting {
                start_ticks: process.start_ticks,
                program,
                rights: rights(status),
                session: last_number(status, "NSsid").unwrap_or(0),
            },
            stopped: false,
            stop_untold: false,
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
            cwd: self.cwd.clone(),
            limits: Vec::new(),
        }
    }
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
