//! The program that `demo` runs in its box: this same binary. It holds a heap with known content, threads that count, a
//! file it appends to, and answers questions on standard input, one line each. It knows nothing of checkpoints.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::args::DemoProgram;
use crate::error::{CliError, Result};

/// What `destroy` sets the threads' counters to.
pub(crate) const TICKS_WHEN_DESTROYED: u64 = 1 << 40;

/// How often a thread counts.
const TICK: Duration = Duration::from_millis(5);

/// Bytes that a step changes, scattered.
const STEP_BYTES: usize = 4 << 20;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Files that a step rewrites.
const STEP_FILES: u32 = 20;

/// Bytes of each.
const STEP_FILE_BYTES: usize = 16 << 10;

struct World {
    heap: Vec<u8>,
    counter: u64,
    random: u64,
    ticks: Vec<Arc<AtomicU64>>,
    path: PathBuf,
    file: File,
}

/// Answers until standard input ends.
pub(crate) fn program(args: &DemoProgram) -> Result<u8> {
    let fail = |error: std::io::Error| CliError::io(args.file.display(), &error);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .open(&args.file)
        .map_err(fail)?;
    let mut world = World {
        heap: vec![0; args.heap_mb as usize * (1 << 20)],
        counter: 0,
        random: 0x9e37_79b9_7f4a_7c15,
        ticks: (0..args.threads).map(|_| Arc::default()).collect(),
        path: args.file.clone(),
        file,
    };
    fill(&mut world.heap, &mut world.random);
    for ticks in &world.ticks {
        let ticks = Arc::clone(ticks);
        std::thread::spawn(move || {
            loop {
                // The point of these threads is to sleep and count while the box is stopped and put back.
                std::thread::sleep(TICK);
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for question in std::io::stdin().lock().lines() {
        let question = question.map_err(fail)?;
        let answer = world.answer(question.trim()).map_err(fail)?;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{answer}")
            .and_then(|()| stdout.flush())
            .map_err(fail)?;
    }
    Ok(0)
}

impl World {
    fn answer(&mut self, question: &str) -> std::io::Result<String> {
        match question {
            "ping" => Ok("pong".to_owned()),
            "state" => self.state(),
            "step" => self.step().map(|()| "stepped".to_owned()),
            "destroy" => self.destroy().map(|()| "destroyed".to_owned()),
            "tick" => Ok(self.tick()),
            other => Ok(format!("what is {other:?}?")),
        }
    }

    fn state(&mut self) -> std::io::Result<String> {
        let mut said = serde_json::Map::new();
        said.insert("heap".to_owned(), blake3::hash(&self.heap).to_hex().to_string().into());
        said.insert("counter".to_owned(), self.counter.into());
        said.insert("lines".to_owned(), line_count(&self.path)?.into());
        said.insert("position".to_owned(), self.file.stream_position()?.into());
        let ticks: Vec<u64> = self.ticks.iter().map(|ticks| ticks.load(Ordering::Relaxed)).collect();
        said.insert("ticks".to_owned(), ticks.into());
        Ok(serde_json::Value::Object(said).to_string())
    }

    /// What an agent's step does: some memory, some files, a line in the log.
    fn step(&mut self) -> std::io::Result<()> {
        self.counter += 1;
        let page_count = self.heap.len() / PAGE;
        for _ in 0..STEP_BYTES / PAGE {
            let page = usize::try_from(next(&mut self.random)).unwrap_or(0) % page_count;
            fill(&mut self.heap[page * PAGE..][..PAGE], &mut self.random);
        }
        let mut bytes = vec![0; STEP_FILE_BYTES];
        for number in 0..STEP_FILES {
            fill(&mut bytes, &mut self.random);
            std::fs::write(self.path.with_extension(format!("{number}")), &bytes)?;
        }
        writeln!(self.file, "step {}", self.counter)
    }

    fn destroy(&mut self) -> std::io::Result<()> {
        self.heap.fill(0xff);
        self.counter = 0;
        self.random = 0;
        for ticks in &self.ticks {
            ticks.store(TICKS_WHEN_DESTROYED, Ordering::Relaxed);
        }
        self.file.set_len(0)?;
        writeln!(self.file, "destroyed")
    }

    /// Waits until every thread has counted once more.
    fn tick(&self) -> String {
        let before: Vec<u64> = self.ticks.iter().map(|ticks| ticks.load(Ordering::Relaxed)).collect();
        for _ in 0..1000 {
            std::thread::sleep(TICK);
            if self
                .ticks
                .iter()
                .zip(&before)
                .all(|(ticks, before)| ticks.load(Ordering::Relaxed) > *before)
            {
                return "ticking".to_owned();
            }
        }
        "some thread stands still".to_owned()
    }
}

fn line_count(path: &Path) -> std::io::Result<usize> {
    match File::open(path) {
        Ok(file) => Ok(BufReader::new(file).split(b'\n').count()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// xorshift64*: known content without a table of it.
fn next(random: &mut u64) -> u64 {
    *random |= u64::from(*random == 0);
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    random.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn fill(bytes: &mut [u8], random: &mut u64) {
    for chunk in bytes.chunks_mut(8) {
        let word = next(random).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}
