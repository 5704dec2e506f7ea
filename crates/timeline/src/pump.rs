//! One thread a box that moves bytes between commands and their outputs, so that a command never waits for the driver
//! and a long operation never stops output. It waits in one `epoll_wait` and never decides anything.
//!
//! The driver reads the same streams while the box stands still (so that a checkpoint's place in the output is exact);
//! the lock of the streams keeps the two apart.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::thread::JoinHandle;

use linux::SysError;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use crate::execs::Exec;
use crate::streams::{Slot, Streams};

/// Events taken at once.
const EVENTS: usize = 64;
/// The key of our own wake-up.
const STOP: u64 = u64::MAX;

struct Shared {
    epoll: OwnedFd,
    stop: OwnedFd,
    table: Mutex<HashMap<u64, Weak<Exec>>>,
    /// Shut while a box stands still: nothing may go in between the capture of a pipe and the note of what waits.
    gate: RwLock<()>,
}

/// The reader thread of a box. Ends with its value.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pump")
    }
}

impl Pump {
    /// # Errors
    /// The kernel's, when it gives no epoll, eventfd or thread.
    pub(crate) fn start() -> Result<Self, SysError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| SysError::rustix("epoll_create1", "the output of commands", errno))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| SysError::rustix("eventfd", "the output of commands", errno))?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)
            .map_err(|errno| SysError::rustix("epoll_ctl", "the output of commands", errno))?;
        let shared = Arc::new(Shared {
            epoll,
            stop,
            table: Mutex::default(),
            gate: RwLock::new(()),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("deltabox-pump".to_owned())
            .spawn(move || of_thread.run());
        let thread = thread.map_err(|error| SysError::io("clone", "the output of commands", &error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Watches a command's streams. `key` is its own and below 2^61.
    pub(crate) fn watch(&self, key: u64, exec: &Arc<Exec>) {
        self.shared.table().insert(key, Arc::downgrade(exec));
        let streams = exec.streams();
        for slot in [Slot::Stdout, Slot::Stderr, Slot::Master] {
            self.shared.set(key, slot, &streams);
        }
    }

    /// Watches again what had no writer (a rollback may have brought it back) and what waits to go in.
    pub(crate) fn rewatch(&self, key: u64, streams: &Streams) {
        Slot::ALL.iter().for_each(|slot| self.shared.set(key, *slot, streams));
    }

    /// Lets no input through until the guard goes.
    pub(crate) fn hold_input(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a command whose streams are closed.
    pub(crate) fn forget(&self, key: u64) {
        self.shared.table().remove(&key);
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        let told = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            // A panic there was printed; there is nothing left to do about it.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, HashMap<u64, Weak<Exec>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a stream for what it waits for. Where it waits for nothing, it is not registered, so that a hang-up
    /// wakes nobody.
    fn set(&self, key: u64, slot: Slot, streams: &Streams) {
        let Some(end) = streams.end(slot) else { return };
        let mut flags = epoll::EventFlags::empty();
        if slot != Slot::Stdin {
            flags |= epoll::EventFlags::IN;
        }
        if streams.is_pending() && (slot == Slot::Stdin || slot == Slot::Master) {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(key << 2 | slot as u64);
        // Failures mean "was not registered" or "was already": both are what we want.
        if flags.is_empty() {
            epoll::delete(&self.epoll, end).ok();
        } else if epoll::modify(&self.epoll, end, data, flags).is_err() {
            epoll::add(&self.epoll, end, data, flags).ok();
        }
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            for event in &events {
                let data = { event.data }.u64();
                if data == STOP {
                    return;
                }
                let exec = self.table().get(&(data >> 2)).and_then(Weak::upgrade);
                if let Some(exec) = exec {
                    self.serve(data >> 2, Slot::ALL[(data & 3) as usize], &exec);
                }
            }
        }
    }

    fn serve(&self, key: u64, slot: Slot, exec: &Exec) {
        // Before the streams: the driver takes the two in this order.
        let feeds = slot == Slot::Stdin || slot == Slot::Master;
        let _open = feeds.then(|| self.gate.read().unwrap_or_else(PoisonError::into_inner));
        let mut streams = exec.streams();
        if slot == Slot::Stdin || (slot == Slot::Master && streams.is_pending()) {
            streams.flush();
            self.set(key, slot, &streams);
        }
        if slot == Slot::Stdin {
            return;
        }
        if !streams.read(slot, exec.output())
            && let Some(end) = streams.end(slot)
        {
            // Nobody can write to it now: without this the hang-up would wake us for ever.
            epoll::delete(&self.epoll, end).ok();
            if !exec.is_running() {
                streams.close(slot);
            }
        }
    }
}
