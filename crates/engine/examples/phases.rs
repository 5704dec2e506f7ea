//! Where the time of a checkpoint and a rollback goes: a Python program with a heap, scattered writes, and the median
//! of each phase. `cargo run --release -p deltabox-engine --example phases -- [heap MB] [dirty pages] [rounds]`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for those who work on the engine"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::{Config, Cost, DirtySource, Engine, EngineError, Membership};

const PROGRAM: &str = r#"
import sys, threading, mmap, random
size = int(sys.argv[1]) << 20
heap = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, size, 4096): heap[i] = 1
lock = threading.Lock(); lock.acquire()
for _ in range(3): threading.Thread(target=lock.acquire, daemon=True).start()
print("ready", flush=True)
rounds = 0
for line in sys.stdin:
    rounds += 1
    for i in random.sample(range(0, size // 4096), int(line)): heap[i * 4096 + 8] = rounds & 255
    print("done", flush=True)
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or(default.to_owned());
    let (heap, pages, rounds) = (get(0, "100"), get(1, "1063"), get(2, "100").parse::<usize>().unwrap());
    let shell = "exec 3<&0; /usr/bin/python3 -u -c \"$0\" \"$1\" <&3 & exec 3<&- 0</dev/null; wait";
    let mut outer = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            shell,
            PROGRAM,
            &heap,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = outer.stdin.take().unwrap();
    let mut output = BufReader::new(outer.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "ready");
    let path = format!("/proc/{0}/task/{0}/children", outer.id());
    let init = std::fs::read_to_string(path)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let membership = Membership {
        init_host_pid: init,
        cgroup: None,
    };
    let config = Config {
        dirty: DirtySource::Scan,
        faults: Vec::new(),
        stop_timeout: Duration::from_secs(2),
    };
    let mut engine = Engine::new(membership, config).unwrap();
    engine.prepare();
    let mut ask = |engine: &mut Engine| {
        writeln!(input, "{pages}").unwrap();
        output.next().unwrap().unwrap();
        let _engine = engine;
    };
    let (mut checkpoints, mut rollbacks, mut settles) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ask(&mut engine);
        let start = Instant::now();
        let mut frozen = engine.freeze().unwrap();
        let image = frozen.capture().unwrap();
        checkpoints.push((frozen.thaw(), start.elapsed()));
        let start = Instant::now();
        engine.settle();
        settles.push(start.elapsed());
        ask(&mut engine);
        let start = Instant::now();
        let mut frozen = engine.freeze().unwrap();
        frozen
            .rollback::<(), EngineError>(&image, || Ok(()), |()| Ok(()))
            .unwrap();
        rollbacks.push((frozen.thaw(), start.elapsed()));
        engine.settle();
    }
    print("checkpoint", &checkpoints);
    print("rollback", &rollbacks);
    settles.sort();
    println!("settle after a checkpoint: p50 {:.1?}", settles[settles.len() / 2]);
    drop(input);
    outer.wait().unwrap();
}

fn print(name: &str, costs: &[(Cost, Duration)]) {
    let mut phases: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for (cost, wall) in costs {
        for (phase, time) in &cost.phases {
            phases.entry(phase).or_default().push(*time);
        }
        phases.entry("~stop").or_default().push(cost.stop);
        phases.entry("~wall").or_default().push(*wall);
    }
    println!("{name}: {} pages", costs.last().map_or(0, |(c, _)| c.page_count));
    for (phase, mut times) in phases {
        times.sort();
        println!(
            "  {phase:14} p50 {:>9.1?} min {:>9.1?}",
            times[times.len() / 2],
            times[0]
        );
    }
}
