//! What a command printed, kept so that it can be followed, cut by a rollback, and brought back by another.
//!
//! The text of a command is an immutable [`Content`]: cheap to clone, so a checkpoint keeps the whole of it by keeping
//! one. Every rollback that changes it starts a new *generation*, and a [`Position`] is a generation with an offset:
//! with the little tree of generations a reader who was on an undone branch can be told exactly where the branch left
//! the text that is true now. Followers pull: a slow one never makes the daemon hold more than the bound; it is told
//! what it missed ([`ExecEvent::Skipped`]).
//!
//! This file never reads a descriptor and knows nothing of processes.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use image::CheckpointId;
use imbl::Vector;

/// Bytes kept from the start of a command's output, whatever comes later.
pub const LOG_HEAD_MAX_BYTES: u64 = 64 << 10;
/// Bytes kept from the end of a command's output; what lies between the two is forgotten.
pub const LOG_TAIL_MAX_BYTES: u64 = 1 << 20;
/// Small pieces are joined up to this size.
const CHUNK_JOIN_MAX_BYTES: usize = 4 << 10;
/// The longest piece that one event carries.
const EVENT_MAX_BYTES: usize = 64 << 10;

/// Which stream of a command; a terminal has only the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A place in a command's output that stays meaningful after a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Changes with every rollback that changed this output; `None` means "of whatever is true now".
    pub generation: Option<u32>,
    /// Bytes of both streams before it.
    pub offset: u64,
}

impl From<u64> for Position {
    fn from(offset: u64) -> Self {
        Self {
            generation: None,
            offset,
        }
    }
}

/// What happens to a command, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It printed something.
    Output {
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
        /// The place after these bytes: what to ask for to go on from here.
        next: Position,
    },
    /// So many bytes were forgotten before this reader came to them.
    Skipped {
        /// How many.
        bytes: u64,
        /// The place after them.
        next: Position,
    },
    /// It ended. Output of children that it left behind may still follow.
    Exited {
        /// Its code; 128 + n for signal n.
        code: i32,
    },
    /// The box went back: what this reader saw from `cut_at` on did not happen.
    RolledBack {
        /// Where the box is now.
        to: CheckpointId,
        /// Bytes of what was seen that still hold.
        cut_at: u64,
        /// The command had not been started then: nothing follows.
        gone: bool,
        /// The place to go on from.
        next: Position,
    },
    /// The box died or was removed: nothing follows.
    Ended,
}

/// Whether a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecState {
    /// It runs.
    Running,
    /// It ended with this code; 128 + n for signal n.
    Exited(i32),
}

#[derive(Debug, Clone)]
struct Chunk {
    start: u64,
    stream: Stream,
    bytes: Arc<[u8]>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// All that is kept of an output. Immutable where it matters: a clone shares every byte.
#[derive(Clone, Default)]
pub struct Content {
    generation: u32,
    end: u64,
    head: Vector<Chunk>,
    tail: Vector<Chunk>,
    tail_bytes: u64,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({}:{})", self.generation, self.end)
    }
}

impl Content {
    /// Bytes that were printed (also those that are not kept).
    pub fn end(&self) -> u64 {
        self.end
    }

    /// An upper bound of the bytes that only `self` holds beside `earlier`.
    pub fn own_bytes(&self, earlier: Option<&Content>) -> u64 {
        let kept = self.end.min(LOG_HEAD_MAX_BYTES + LOG_TAIL_MAX_BYTES);
        match earlier {
            Some(earlier) if earlier.generation == self.generation => kept.min(self.end.saturating_sub(earlier.end)),
            _ => kept,
        }
    }

    fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        if self.tail.is_empty() && self.end < LOG_HEAD_MAX_BYTES && self.head.last().map_or(0, Chunk::end) == self.end {
            let room = usize::try_from(LOG_HEAD_MAX_BYTES - self.end).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            push(&mut self.head, self.end, stream, now);
            self.end += now.len() as u64;
            rest = later;
        }
        if rest.is_empty() {
            return;
        }
        push(&mut self.tail, self.end, stream, rest);
        self.end += rest.len() as u64;
        self.tail_bytes += rest.len() as u64;
        while self.tail_bytes > LOG_TAIL_MAX_BYTES && self.tail.len() > 1 {
            let gone = self.tail.pop_front().expect("more than one piece is there");
            self.tail_bytes -= gone.bytes.len() as u64;
        }
    }

    /// The piece at `offset`, or the next place where there is one.
    fn at(&self, offset: u64) -> Piece {
        let first_tail = self.tail.front().map_or(self.end, |chunk| chunk.start);
        let part = if offset >= first_tail { &self.tail } else { &self.head };
        match find(part, offset) {
            Some(chunk) => {
                let from = usize::try_from(offset - chunk.start).unwrap_or(usize::MAX);
                let to = chunk.bytes.len().min(from + EVENT_MAX_BYTES);
                Piece::Bytes(chunk.stream, chunk.bytes[from..to].to_vec())
            }
            None if offset < first_tail => Piece::Gap(first_tail - offset),
            None => Piece::Nothing,
        }
    }
}

enum Piece {
    Bytes(Stream, Vec<u8>),
    Gap(u64),
    Nothing,
}

fn push(part: &mut Vector<Chunk>, start: u64, stream: Stream, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    match part.last() {
        Some(last)
            if last.stream == stream
                && last.end() == start
                && last.bytes.len() + bytes.len() <= CHUNK_JOIN_MAX_BYTES =>
        {
            let joined = Chunk {
                start: last.start,
                stream,
                bytes: [&last.bytes[..], bytes].concat().into(),
            };
            part.set(part.len() - 1, joined);
        }
        _ => part.push_back(Chunk {
            start,
            stream,
            bytes: bytes.into(),
        }),
    }
}

fn find(part: &Vector<Chunk>, offset: u64) -> Option<&Chunk> {
    let index = match part.binary_search_by(|chunk| chunk.start.cmp(&offset)) {
        Ok(index) => index,
        Err(0) => return None,
        Err(index) => index - 1,
    };
    part.get(index).filter(|chunk| offset < chunk.end())
}

/// Which generation grew from which, and where it left it.
#[derive(Debug, Default)]
struct Lineage(Vec<(u32, u64)>);

impl Lineage {
    /// How much of the text up to `a` is also the text up to `b`.
    fn shared(&self, a: (u32, u64), b: (u32, u64)) -> u64 {
        let (mut a, mut b) = (a, b);
        while a.0 != b.0 {
            // A generation is always younger (greater) than the one it grew from.
            let younger = if a.0 > b.0 { &mut a } else { &mut b };
            let (parent, from) = self.0.get(younger.0 as usize).copied().unwrap_or((0, 0));
            *younger = (parent, younger.1.min(from));
        }
        a.1.min(b.1)
    }
}

struct State {
    content: Content,
    lineage: Lineage,
    exec: ExecState,
    rolled_back: u64,
    last_to: Option<CheckpointId>,
    gone: bool,
    ended: bool,
    watchers: Vec<Weak<Watcher>>,
}

/// Called when there may be something new for a follower; must not block.
type Watcher = dyn Fn() + Send + Sync;

/// The output of one command and whether it runs. Shared by the reader thread, the driver and followers.
pub struct Output {
    state: Mutex<State>,
    ready: Condvar,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({:?})", self.lock().content)
    }
}

impl Default for Output {
    fn default() -> Self {
        let state = State {
            content: Content::default(),
            lineage: Lineage(vec![(0, 0)]),
            exec: ExecState::Running,
            rolled_back: 0,
            last_to: None,
            gone: false,
            ended: false,
            watchers: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            ready: Condvar::new(),
        }
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.watchers.retain(|watcher| watcher.strong_count() > 0);
        let watchers: Vec<_> = state.watchers.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        self.ready.notify_all();
        watchers.iter().for_each(|watcher| watcher());
    }

    /// More was printed.
    pub fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.lock();
        state.content.append(stream, bytes);
        self.tell(state);
    }

    /// The command ended.
    pub fn exited(&self, code: i32) {
        let mut state = self.lock();
        state.exec = ExecState::Exited(code);
        self.tell(state);
    }

    /// The box is no more.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.tell(state);
    }

    /// Whether the command runs.
    pub fn exec_state(&self) -> ExecState {
        self.lock().exec
    }

    /// What a checkpoint keeps.
    pub fn mark(&self) -> (Content, ExecState) {
        let state = self.lock();
        (state.content.clone(), state.exec)
    }

    /// Goes to what a checkpoint kept. True when that changed the text.
    pub fn rewind(&self, content: &Content, exec: ExecState, to: CheckpointId) -> bool {
        let mut state = self.lock();
        let (now, then) = (&state.content, content);
        let changed = (now.generation, now.end) != (then.generation, then.end);
        if changed {
            let generation = u32::try_from(state.lineage.0.len()).unwrap_or(u32::MAX);
            state.lineage.0.push((content.generation, content.end));
            state.content = Content {
                generation,
                ..content.clone()
            };
        }
        state.exec = exec;
        state.gone = false;
        state.rolled_back += 1;
        state.last_to = Some(to);
        self.tell(state);
        changed
    }

    /// The box went back to before the command was started.
    pub fn forget(&self, to: CheckpointId) {
        let mut state = self.lock();
        state.gone = true;
        state.rolled_back += 1;
        state.last_to = Some(to);
        self.tell(state);
    }

    /// A reader from `from` on.
    pub fn follow(self: &Arc<Self>, from: Position) -> Follower {
        let state = self.lock();
        let generation = from
            .generation
            .filter(|generation| (*generation as usize) < state.lineage.0.len());
        let generation = generation.unwrap_or(state.content.generation);
        let stale = state
            .lineage
            .shared((generation, from.offset), (state.content.generation, u64::MAX))
            < from.offset;
        let rolled_back = if stale {
            state.rolled_back.wrapping_sub(1)
        } else {
            state.rolled_back
        };
        drop(state);
        Follower {
            output: Arc::clone(self),
            generation,
            offset: from.offset,
            rolled_back,
            exit_said: false,
            over: false,
            watcher: None,
        }
    }
}

/// Reads the events of one command, from a place on. Dropping it costs nothing.
pub struct Follower {
    output: Arc<Output>,
    generation: u32,
    offset: u64,
    rolled_back: u64,
    exit_said: bool,
    over: bool,
    watcher: Option<Arc<Watcher>>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({}:{})", self.generation, self.offset)
    }
}

impl Follower {
    /// The next event; waits for it. `None` after `Ended` or a `RolledBack` with `gone`. After `Exited` it goes on
    /// waiting (children may print, a rollback may come): a reader who only wants the command stops there.
    pub fn recv(&mut self) -> Option<ExecEvent> {
        let output = Arc::clone(&self.output);
        let mut state = output.lock();
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.step(&state) {
                return Some(event);
            }
            state = output.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`recv`](Self::recv), for at most `timeout`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<ExecEvent> {
        let output = Arc::clone(&self.output);
        let deadline = Instant::now() + timeout;
        let mut state = output.lock();
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.step(&state) {
                return Some(event);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = output
                .ready
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The next event if there is one already.
    pub fn try_recv(&mut self) -> Option<ExecEvent> {
        let output = Arc::clone(&self.output);
        let state = output.lock();
        if self.over { None } else { self.step(&state) }
    }

    /// True when nothing can follow any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Calls `wake` whenever [`try_recv`](Self::try_recv) may find something new: how an async server waits without a
    /// thread. It is called from the driver and reader threads and must not block.
    pub fn on_ready(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        let watcher: Arc<Watcher> = Arc::new(wake);
        self.output.lock().watchers.push(Arc::downgrade(&watcher));
        self.watcher = Some(watcher);
    }

    fn step(&mut self, state: &State) -> Option<ExecEvent> {
        if self.rolled_back != state.rolled_back {
            return Some(self.step_back(state));
        }
        match state.content.at(self.offset) {
            Piece::Bytes(stream, bytes) => {
                self.offset += bytes.len() as u64;
                return Some(ExecEvent::Output {
                    stream,
                    bytes,
                    next: self.place(),
                });
            }
            Piece::Gap(bytes) => {
                self.offset += bytes;
                return Some(ExecEvent::Skipped {
                    bytes,
                    next: self.place(),
                });
            }
            Piece::Nothing => {}
        }
        match state.exec {
            ExecState::Exited(code) if !self.exit_said => {
                self.exit_said = true;
                Some(ExecEvent::Exited { code })
            }
            _ if state.ended => {
                self.over = true;
                Some(ExecEvent::Ended)
            }
            _ => None,
        }
    }

    fn step_back(&mut self, state: &State) -> ExecEvent {
        let now = (state.content.generation, state.content.end);
        let gone = state.gone;
        let cut_at = if gone {
            0
        } else {
            state.lineage.shared((self.generation, self.offset), now)
        };
        self.rolled_back = state.rolled_back;
        self.generation = now.0;
        self.offset = cut_at;
        self.over = gone;
        // Said again only if the command ran at the checkpoint: an end that still holds was told.
        self.exit_said &= matches!(state.exec, ExecState::Exited(_));
        let to = state.last_to.expect("set with the count");
        ExecEvent::RolledBack {
            to,
            cut_at,
            gone,
            next: self.place(),
        }
    }

    fn place(&self) -> Position {
        Position {
            generation: Some(self.generation),
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests;
