//! What every competitor can do, so that one loop measures them all: answer a request, take a checkpoint, go back.

use std::time::Instant;

use crate::error::BenchError;

/// How large the program is and how much of it changes between two operations. Totals over the tree, but `threads`,
/// which is per process.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Heap in MiB.
    pub heap_mb: u32,
    /// Scattered pages that get new bytes, in MiB.
    pub dirty_mb: u32,
    /// Files that are rewritten.
    pub files: u32,
    /// Size of each file in KiB.
    pub file_kb: u32,
    /// Processes.
    pub processes: u32,
    /// Threads in each process.
    pub threads: u32,
}

impl Sizes {
    pub(crate) fn arguments(&self) -> [String; 6] {
        [
            self.heap_mb,
            self.dirty_mb,
            self.files,
            self.file_kb,
            self.processes,
            self.threads,
        ]
        .map(|n| n.to_string())
    }
}

/// What one operation cost, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cost {
    /// The program stood still; `None` where it cannot be seen.
    pub(crate) stop_ms: Option<f64>,
    /// Named parts, in order.
    pub(crate) phases: Vec<(String, f64)>,
    pub(crate) page_count: u64,
}

/// One measured operation: [`Cost`] as the operation says it, the rest as the client saw it.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) cost: Cost,
    pub(crate) api_ms: f64,
    /// `None` where no program of the box is there to be asked.
    pub(crate) first_reply_ms: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Checkpoint,
    /// The present is given up.
    Rollback,
    /// The present is kept first.
    RollbackKeep,
}

pub(crate) trait Target {
    /// A request to the program; its answer without the line's end.
    fn ask(&mut self, request: &str) -> Result<String, BenchError>;

    fn operate(&mut self, operation: Operation) -> Result<Cost, BenchError>;

    /// The operation with the client's two clocks; the reply is that of the cheapest request there is.
    fn measure(&mut self, operation: Operation) -> Result<Sample, BenchError> {
        let start = Instant::now();
        let cost = self.operate(operation)?;
        let api_ms = milliseconds(start);
        let answer = self.ask("ping")?;
        let first_reply_ms = Some(milliseconds(start));
        if answer != "pong" {
            return Err(BenchError::program(
                "the measured program",
                format!("answered {answer:?} to a ping"),
            ));
        }
        Ok(Sample {
            cost,
            api_ms,
            first_reply_ms,
        })
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
