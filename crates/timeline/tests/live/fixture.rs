//! One real sandbox with everything around it, for the tests of this directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use image::{ExecId, Principal, SandboxId, Tenant};
use timeline::command::{CheckpointLine, DiffLine, ExecSpec, Revision};
use timeline::events::Events;
use timeline::{
    Command, CreateSpec, ExecEvent, Follower, Handle, Outcome, Request, Surroundings, Timeline, TimelineError,
};

/// How long a program may take to say something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static COUNT: AtomicU32 = AtomicU32::new(0);
static RANDOM: AtomicU64 = AtomicU64::new(1);

/// A sandbox with its directory; both go with it.
pub(crate) struct Live {
    pub(crate) handle: Handle,
    pub(crate) directory: PathBuf,
    pub(crate) events: Arc<Events>,
}

impl Live {
    pub(crate) fn new(history_mem_bytes: u64) -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("timeline-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&directory).unwrap();
        let events = Arc::new(Events::open(&directory).unwrap());
        let mut spec = sandbox::Spec::new(&name);
        spec.id_range_index = (std::process::id() * 16 + count) % sandbox::ID_RANGE_COUNT;
        let spec = CreateSpec {
            id: SandboxId::from_bits(count.into()),
            name,
            tenant: Tenant::default(),
            sandbox: spec,
            engine: engine::Config {
                dirty: engine::DirtySource::Scan,
                faults: Vec::new(),
                stop_timeout: Duration::from_secs(2),
            },
            history_mem_bytes,
            verify: true,
        };
        // A mixing step of splitmix64: spread over all bits, and the same in every run.
        let random = || {
            let mut bits = RANDOM
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits ^ (bits >> 27)
        };
        let surroundings = Surroundings {
            directory: directory.clone(),
            events: Arc::clone(&events),
            clock: Arc::new(|| 1_000),
            random: Arc::new(random),
        };
        let handle = Timeline::create(spec, surroundings).unwrap();
        Self {
            handle,
            directory,
            events,
        }
    }

    pub(crate) fn ask(&self, command: Command) -> Result<Outcome, TimelineError> {
        let principal = Principal("uid:0".to_owned());
        self.handle.request(Request {
            tenant: Tenant::default(),
            principal,
            command,
        })
    }

    pub(crate) fn start(&self, script: &str) -> ExecId {
        match self.ask(Command::Exec(command(&["sh", "-c", script]))).unwrap() {
            Outcome::Started { exec, .. } => exec,
            other => panic!("{other:?}"),
        }
    }

    /// What a script prints, both streams, with its exit code at the end when it is not 0.
    pub(crate) fn sh(&self, script: &str) -> String {
        let exec = self.start(script);
        let mut follower = self.handle.follow(exec, 0).unwrap();
        let mut text = String::new();
        loop {
            match follower
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|| panic!("{script}: nothing after {text:?}"))
            {
                ExecEvent::Output { bytes, .. } => text += &String::from_utf8_lossy(&bytes),
                ExecEvent::Exited { code: 0 } => return text,
                ExecEvent::Exited { code } => return format!("{text}[{code}]"),
                other => panic!("{script}: {other:?}"),
            }
        }
    }

    pub(crate) fn checkpoint(&self, tag: Option<&str>) -> CheckpointLine {
        match self
            .ask(Command::Checkpoint {
                message: None,
                tag: tag.map(str::to_owned),
            })
            .unwrap()
        {
            Outcome::Checkpointed { line, .. } => line,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn rollback(&self, to: &str) -> Vec<ExecId> {
        self.go(to, true).unwrap()
    }

    pub(crate) fn go(&self, to: &str, keep_present: bool) -> Result<Vec<ExecId>, TimelineError> {
        match self.ask(Command::Rollback {
            to: Some(Revision(to.to_owned())),
            keep_present,
        })? {
            Outcome::RolledBack { cut, .. } => Ok(cut),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn log(&self) -> Vec<CheckpointLine> {
        match self.ask(Command::Log).unwrap() {
            Outcome::Log(lines) => lines,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn diff(&self, from: &str, to: Option<&str>) -> Vec<String> {
        let to = to.map(|to| Revision(to.to_owned()));
        match self
            .ask(Command::Diff {
                from: Revision(from.to_owned()),
                to,
            })
            .unwrap()
        {
            Outcome::Diff(lines) => lines
                .into_iter()
                .filter_map(|line| match line {
                    DiffLine::File { change, path } => Some(format!("{change} {path}")),
                    DiffLine::Process { .. } => None,
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A test that removed its sandbox itself is answered `Died`.
        drop(self.ask(Command::Remove));
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

pub(crate) fn command(argv: &[&str]) -> ExecSpec {
    ExecSpec {
        argv: argv.iter().map(|&part| part.to_owned()).collect(),
        env: Vec::new(),
        workdir: None,
        user: None,
        terminal: None,
        stdin: true,
    }
}

/// Reads output until it holds `enough` (a rollback on the way is said, not hidden).
pub(crate) fn read_until(follower: &mut Follower, enough: &str) -> String {
    let mut text = String::new();
    while !text.contains(enough) {
        match follower
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|| panic!("nothing after {text:?}"))
        {
            ExecEvent::Output { bytes, .. } => text += &String::from_utf8_lossy(&bytes),
            ExecEvent::RolledBack { cut_at, gone, .. } => text += &format!("<back to {cut_at} {gone}>"),
            other => panic!("{other:?} after {text:?}"),
        }
    }
    text
}
