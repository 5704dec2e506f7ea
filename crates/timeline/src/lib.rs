//! The product: one sandbox's history: checkpoint, rollback, log, diff. The only crate that sees processes and files
//! together, so the only one that can say "checkpoint".
//!
//! [`Timeline::create`] makes a sandbox on a thread of its own and gives a [`Handle`]; everything else is a
//! [`Command`] sent to it. Reads no clock, randomness or environment: they come in as [`Surroundings`].
#![forbid(unsafe_code)]

mod beside;
mod checkpoint;
pub mod command;
pub mod copy;
mod diff;
mod driver;
pub mod error;
pub mod events;
pub mod execs;
pub mod fault;
mod halves;
pub mod handle;
pub mod history;
mod inspect;
mod laps;
pub mod output;
mod pump;
mod queue;
mod retention;
pub mod revision;
mod rollback;
mod streams;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

use image::{SandboxId, Tenant};

pub use command::{Command, Outcome, Request};
/// How processes are captured; part of a [`CreateSpec`].
pub use engine::{Config as EngineConfig, DirtySource};
pub use error::{Kind, TimelineError};
/// Where the directories of [`Surroundings`] can be.
pub use files::Volume;
pub use handle::{BoxState, Handle, Summary};
pub use output::{ExecEvent, ExecState, Follower, Position, Stream};
pub use queue::{QUEUE_MAX, Reply};

use crate::driver::Driver;
use crate::events::Events;
use crate::execs::Execs;
use crate::halves::Halves;
use crate::handle::Window;
use crate::history::History;
use crate::queue::Queue;

/// The bound of a history in memory where nothing else is said.
pub const HISTORY_MEM_BYTES: u64 = 4 << 30;

/// A sandbox to be.
#[derive(Debug, Clone)]
pub struct CreateSpec {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its isolation, root, limits.
    pub sandbox: sandbox::Spec,
    /// How its processes are captured.
    pub engine: engine::Config,
    /// Bytes that its history may hold in memory.
    pub history_mem_bytes: u64,
    /// Compare with the checkpoint after every rollback, before anything runs. Always on in tests.
    pub verify: bool,
}

/// What a timeline may not get by itself.
#[derive(Clone)]
pub struct Surroundings {
    /// A directory of the box's own that exists, on a file system that can be an overlay's upper. Emptied on removal.
    pub directory: PathBuf,
    /// Where every command leaves its line.
    pub events: Arc<Events>,
    /// Unix time in milliseconds.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// 64 random bits.
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Surroundings({})", self.directory.display())
    }
}

/// Makes sandboxes.
#[derive(Debug)]
pub struct Timeline;

impl Timeline {
    /// Makes a sandbox and waits until it takes commands.
    ///
    /// # Errors
    /// `Sandbox` when it cannot be made, `Engine` and `Files` when it cannot be tracked.
    pub fn create(spec: CreateSpec, surroundings: Surroundings) -> Result<Handle, TimelineError> {
        let queue = Arc::new(Queue::new()?);
        let (ready, is_ready) = mpsc::sync_channel(1);
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("deltabox-driver".to_owned());
        let spawned = thread.spawn(move || {
            // However this thread ends, nobody waits for it in vain.
            let _closing = Closing(Arc::clone(&of_thread));
            match driver(spec, surroundings, of_thread) {
                Ok(driver) => {
                    let shared = (Arc::clone(&driver.execs), Arc::clone(&driver.window));
                    // The other end waits; when it does not, the handle is dropped and with it the box.
                    drop(ready.send(Ok(shared)));
                    driver.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        spawned.map_err(|error| linux::SysError::io("clone", "a driver", &error))?;
        let (execs, window) = is_ready.recv().unwrap_or(Err(TimelineError::DriverLost))?;
        Ok(Handle::new(queue, execs, window))
    }
}

struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close("its driver ended");
    }
}

fn driver(spec: CreateSpec, surroundings: Surroundings, queue: Arc<Queue>) -> Result<Driver, TimelineError> {
    let execs = Arc::new(Execs::new()?);
    let halves = Halves::make(&spec.sandbox, spec.engine, &surroundings.directory)?;
    let outside = halves::outside(&spec.sandbox);
    let summary = Summary {
        id: spec.id,
        name: spec.name,
        tenant: spec.tenant,
        state: BoxState::Running,
        head: None,
        checkpoint_count: 0,
        resident_count: 0,
        history_bytes: 0,
        history_mem_bytes: spec.history_mem_bytes,
        process_count: 0,
        running_count: 0,
        created_ms: (surroundings.clock)(),
        outside: outside.clone(),
    };
    let window = Arc::new(Window {
        summary: Mutex::new(summary),
        cgroup: halves.cgroup(),
    });
    Ok(Driver {
        halves,
        history: History::default(),
        execs,
        window,
        queue,
        surroundings,
        outside,
        verify: spec.verify,
        history_mem_bytes: spec.history_mem_bytes,
        unweighed: Vec::new(),
        bytes: 0,
        unsettled: false,
        prepare_at: None,
        gather_at: None,
    })
}
