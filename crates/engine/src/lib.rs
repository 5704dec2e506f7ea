//! Process state: capture -> image -> plan -> apply. Knows Linux processes; knows nothing of stores, files-as-trees
//! or HTTP. (Interface first: the bodies are being written.)
#![forbid(unsafe_code)]

pub mod error;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use error::EngineError;

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

/// One box's processes as the engine sees them between operations. Lives on one thread.
#[derive(Debug)]
pub struct Engine {
    _not_send: std::marker::PhantomData<*const ()>,
}

/// The processes of a box, stopped. Thaws on drop.
#[derive(Debug)]
pub struct Frozen<'a> {
    _engine: &'a mut Engine,
}

/// The process half of a checkpoint. Cheap to clone, immutable.
#[derive(Debug, Clone)]
pub struct ProcessImage {
    _inner: Arc<()>,
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

impl ProcessImage {
    /// One line a process, by pid.
    pub fn lines(&self) -> Vec<ProcessLine> {
        Vec::new()
    }

    /// Bytes of memory that only this image (and not `parent`) holds.
    pub fn own_bytes(&self, _parent: Option<&ProcessImage>) -> u64 {
        0
    }

    /// Bytes of private pages that differ, by pid, for processes in both.
    pub fn diff(&self, _other: &ProcessImage) -> Vec<(u32, u64)> {
        Vec::new()
    }
}

impl Engine {
    /// An engine for the box of `membership`.
    ///
    /// # Errors
    /// `EngineError::Kernel` when a needed kernel interface refuses.
    pub fn new(_membership: Membership, _config: Config) -> Result<Self, EngineError> {
        Ok(Self { _not_send: std::marker::PhantomData })
    }

    /// Prepares processes that are not tracked yet (called when the box is idle, after an exec), so that the first
    /// checkpoint is already incremental. Stops each for an instant; never changes what a checkpoint holds.
    pub fn prepare(&mut self) {}

    /// Stops the box.
    ///
    /// # Errors
    /// `Busy` when a task does not stop in time (all is thawed again); `Unsupported` is not raised here.
    pub fn freeze(&mut self) -> Result<Frozen<'_>, EngineError> {
        Ok(Frozen { _engine: self })
    }

    /// Work that was put off until the box ran again: compares and keeps the captured pages. Must be called after a
    /// thaw and before the next freeze (the engine calls it itself otherwise).
    pub fn settle(&mut self) {}
}

impl Frozen<'_> {
    /// Captures everything. `Unsupported` names what cannot be captured, before anything was touched.
    ///
    /// # Errors
    /// `Unsupported`, `Died`, `Kernel`.
    pub fn capture(&mut self) -> Result<ProcessImage, EngineError> {
        Ok(ProcessImage { _inner: Arc::new(()) })
    }

    /// Paths (inside the box) of regular files that the box wrote through shared mappings since the last capture.
    pub fn mapped_files_written(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Goes back to `target`. First plans, and refuses (`Died`, `Execed`, `Unsupported`) before anything is
    /// touched; then ends what was born since, calls `files` (which puts the file tree back), and puts the rest back.
    /// `files` returning an error before it changed anything leaves the box as it was.
    ///
    /// # Errors
    /// As above; `Kernel` in the middle is fatal for the box and says so.
    pub fn rollback<E: From<EngineError>>(
        &mut self,
        _target: &ProcessImage,
        files: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        files()
    }

    /// Compares what runs (still stopped) with `image`; the differences, one line each.
    pub fn verify(&mut self, _image: &ProcessImage) -> Vec<String> {
        Vec::new()
    }

    /// Lets the box run. Dropping does the same but swallows the cost.
    pub fn thaw(self) -> Cost {
        Cost::default()
    }
}
