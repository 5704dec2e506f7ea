//! The engine alone, on a real program in namespaces of its own: checkpoint, go on, go back.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use engine::{Config, DirtySource, Engine, EngineError, Membership};

const PROGRAM: &str = r#"
import sys, threading, time, hashlib
heap = bytearray(b"x" * (8 << 20))
count = 0
def tick():
    global count
    while True:
        count += 1
        time.sleep(0.001)
for _ in range(3):
    threading.Thread(target=tick, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == "write":
        for i in range(0, len(heap), 4096 * 7):
            heap[i] = int(word[1])
        more = [bytes(100000) for _ in range(50)]
    elif word[0] == "thread":
        threading.Thread(target=tick, daemon=True).start()
    print(hashlib.sha256(heap).hexdigest()[:16], count, threading.active_count(), flush=True)
"#;

struct Program {
    outer: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(source: &str) -> Self {
        let mut outer = Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                "exec 3<&0; python3 -u -c \"$0\" <&3 & exec 3<&- 0</dev/null; wait",
                source,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = outer.stdin.take().unwrap();
        let mut output = BufReader::new(outer.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        Self { outer, input, output }
    }

    fn init(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.outer.id());
        std::fs::read_to_string(path)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    fn ask(&mut self, question: &str) -> Vec<String> {
        writeln!(self.input, "{question}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.outer.kill());
        drop(self.outer.wait());
    }
}

fn engine(program: &Program, dirty: DirtySource) -> Engine {
    let membership = Membership {
        init_host_pid: program.init(),
        cgroup: None,
    };
    let config = Config {
        dirty,
        faults: Vec::new(),
        stop_timeout: Duration::from_secs(2),
    };
    Engine::new(membership, config).unwrap()
}

fn there_and_back(dirty: DirtySource) {
    let mut program = Program::start(PROGRAM);
    let mut engine = engine(&program, dirty);
    let before = program.ask("hash");
    let mut frozen = engine.freeze().unwrap();
    let image = frozen.capture().unwrap();
    eprintln!("checkpoint: {:?}", frozen.thaw());
    engine.settle();
    for round in 1..4 {
        let changed = program.ask(&format!("write {round}"));
        assert_ne!(changed[0], before[0]);
        let mut frozen = engine.freeze().unwrap();
        frozen
            .rollback::<(), EngineError>(&image, || Ok(()), |()| Ok(()))
            .unwrap();
        assert_eq!(frozen.verify(&image), Vec::<String>::new());
        eprintln!("rollback: {:?}", frozen.thaw());
        let after = program.ask("hash");
        assert_eq!(after[0], before[0], "the heap is as it was");
        let (then, now): (u64, u64) = (before[1].parse().unwrap(), after[1].parse().unwrap());
        assert!(
            now >= then && now < then + 3000,
            "the counter goes on from where it was: {then} {now}"
        );
        assert_eq!(after[2], "4");
    }
}

#[test]
fn memory_and_threads_go_back_with_scan() {
    there_and_back(DirtySource::Scan);
}

#[test]
fn memory_and_threads_go_back_with_compare() {
    there_and_back(DirtySource::Compare);
}
