//! The wire contract as text: every type of this crate as JSON, compared with `contract.txt`. A difference there is a
//! difference for every client: fields are only ever added. Says nothing of which endpoint takes what; the router does.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test: a failure is a panic"
)]

use std::fmt::Debug;
use std::path::Path;

use api::{
    Base64, Change, Checkpoint, CheckpointRequest, Checkpointed, Code, CreateRequest, Diff, Difference, Event,
    ExecRequest, ExecStarted, ExecState, FilesQuery, Frame, Health, Log, Network, Phase, Position, Problem,
    ResizeRequest, RollbackRequest, RolledBack, Sandbox, SandboxList, SandboxState, SignalRequest, StdinQuery,
    TagRequest, Timing, Version, Volume,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What is read of an unknown field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// A request that says something we would not do is refused.
    Refused,
    /// An answer of a newer daemon is still an answer.
    Skipped,
}

/// The text, and the names of the types in it.
#[derive(Default)]
struct Contract {
    text: String,
    names: Vec<String>,
}

impl Contract {
    /// Adds values of one type, after checking that they come back from their JSON, and what becomes of unknown fields.
    fn add<T: Serialize + DeserializeOwned + PartialEq + Debug>(&mut self, unknown: Option<Unknown>, values: &[T]) {
        let name = std::any::type_name::<T>().rsplit("::").next().unwrap();
        let said = match unknown {
            Some(Unknown::Refused) => ", unknown fields are refused",
            Some(Unknown::Skipped) => ", unknown fields are skipped",
            None => "",
        };
        self.text += &format!("{name}{said}\n");
        self.names.push(name.to_owned());
        for value in values {
            let mut json = serde_json::to_value(value).unwrap();
            assert_eq!(serde_json::from_value::<T>(json.clone()).unwrap(), *value, "{name}");
            self.text += &(serde_json::to_string_pretty(value).unwrap() + "\n");
            if let (Some(unknown), Value::Object(fields)) = (unknown, &mut json) {
                fields.insert("of_a_later_version".to_owned(), json!(1));
                let read = serde_json::from_value::<T>(json);
                assert_eq!(read.is_err(), unknown == Unknown::Refused, "{name}: {read:?}");
            }
        }
        self.text.push('\n');
    }

    /// What an empty object means.
    fn add_defaults<T: Serialize + DeserializeOwned>(&mut self) {
        let name = std::any::type_name::<T>().rsplit("::").next().unwrap();
        let empty: T = serde_json::from_value(json!({})).unwrap();
        self.text += &format!("{name} of {{}}\n{}\n\n", serde_json::to_string_pretty(&empty).unwrap());
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn volume() -> Volume {
    Volume {
        host: text("/data"),
        inside: text("/mnt"),
        read_only: true,
    }
}

fn requests(contract: &mut Contract) {
    let refused = Some(Unknown::Refused);
    contract.add(
        refused,
        &[CreateRequest {
            name: Some(text("work")),
            image: Some(text("host")),
            memory_bytes: Some(1 << 30),
            cpu_millis: Some(1500),
            pids: Some(100),
            env: vec![(text("A"), text("b"))],
            workdir: Some(text("/srv")),
            user: Some(text("1000:1000")),
            volumes: vec![volume()],
            privileged: true,
            network: Network::None,
            history_bytes: Some(4 << 30),
        }],
    );
    contract.add_defaults::<CreateRequest>();
    contract.add(refused, &[volume()]);
    contract.add(None, &[Network::None]);
    contract.add(
        refused,
        &[ExecRequest {
            argv: vec![text("cat"), text("/etc/motd")],
            env: vec![(text("A"), text("b"))],
            workdir: Some(text("/srv")),
            user: Some(text("root")),
            terminal: Some((24, 80)),
            stdin: true,
        }],
    );
    contract.add_defaults::<ExecRequest>();
    contract.add(
        refused,
        &[CheckpointRequest {
            message: Some(text("before the risky step")),
            tag: Some(text("v1")),
        }],
    );
    contract.add_defaults::<CheckpointRequest>();
    contract.add(
        refused,
        &[RollbackRequest {
            to: Some(text("HEAD~2")),
            keep_present: false,
        }],
    );
    contract.add_defaults::<RollbackRequest>();
    contract.add(
        refused,
        &[TagRequest {
            at: Some(text("HEAD")),
            name: text("v1"),
        }],
    );
    contract.add(refused, &[ResizeRequest { rows: 24, columns: 80 }]);
    contract.add(refused, &[SignalRequest { signal: 15 }]);
    contract.add(refused, &[StdinQuery { close: true }]);
    contract.add_defaults::<StdinQuery>();
    contract.add(refused, &[FilesQuery { path: text("/srv") }]);
}

fn sandboxes(contract: &mut Contract) {
    let skipped = Some(Unknown::Skipped);
    let states = [SandboxState::Running, SandboxState::Latched, SandboxState::Dead];
    for state in states {
        match state {
            SandboxState::Running | SandboxState::Latched | SandboxState::Dead => {}
        }
    }
    contract.add(None, &states);
    let sandbox = Sandbox {
        id: text("sbx_0123456789abcdef"),
        name: text("work"),
        tenant: text("local"),
        state: SandboxState::Running,
        image: text("host"),
        created_ms: 1_700_000_000_000,
        head: Some(text("ckp_0123456789abcdef")),
        checkpoint_count: 2,
        process_count: 3,
        history_bytes: 4096,
    };
    contract.add(skipped, std::slice::from_ref(&sandbox));
    contract.add(
        skipped,
        &[SandboxList {
            sandboxes: vec![Sandbox { head: None, ..sandbox }],
        }],
    );
}

fn execs(contract: &mut Contract) {
    let skipped = Some(Unknown::Skipped);
    contract.add(
        skipped,
        &[ExecStarted {
            id: text("exe_0123456789abcdef"),
            pid: 12,
        }],
    );
    contract.add(
        skipped,
        &[ExecState {
            id: text("exe_0123456789abcdef"),
            code: 137,
        }],
    );
    let next = Position {
        generation: Some(1),
        offset: 12,
    };
    let anywhere = Position {
        generation: None,
        offset: 12,
    };
    contract.add(skipped, &[next, anywhere]);
    let bytes = Base64(b"text\xff\n".to_vec());
    contract.add(None, std::slice::from_ref(&bytes));
    let frames = [
        Frame::Stdout {
            bytes: bytes.clone(),
            next,
        },
        Frame::Stderr { bytes, next },
        Frame::Skipped { bytes: 4096, next },
        Frame::RolledBack {
            to: text("ckp_0123456789abcdef"),
            cut_at: 6,
            gone: false,
            next,
        },
        Frame::Exited { code: 0 },
        Frame::Ended,
    ];
    for frame in &frames {
        match frame {
            Frame::Stdout { .. }
            | Frame::Stderr { .. }
            | Frame::Skipped { .. }
            | Frame::RolledBack { .. }
            | Frame::Exited { .. }
            | Frame::Ended => {}
        }
    }
    contract.add(skipped, &frames);
}

fn checkpoints(contract: &mut Contract) {
    let skipped = Some(Unknown::Skipped);
    let phase = Phase {
        name: text("freeze"),
        ms: 0.25,
    };
    contract.add(skipped, std::slice::from_ref(&phase));
    let timing = Timing {
        stop_ms: 0.5,
        total_ms: 0.75,
        phases: vec![phase],
    };
    contract.add(skipped, std::slice::from_ref(&timing));
    let checkpoint = Checkpoint {
        id: text("ckp_0123456789abcdef"),
        parent: Some(text("ckp_fedcba9876543210")),
        message: Some(text("before the risky step")),
        tags: vec![text("v1")],
        created_ms: 1_700_000_000_000,
        head: true,
        process_count: 3,
        memory_bytes: 4096,
        file_bytes: 100,
        changed_files: 2,
        dropped: false,
        automatic: false,
        outside: vec![text("/mnt")],
    };
    contract.add(skipped, std::slice::from_ref(&checkpoint));
    let first = Checkpoint {
        parent: None,
        message: None,
        tags: Vec::new(),
        outside: Vec::new(),
        ..checkpoint.clone()
    };
    contract.add(
        skipped,
        &[Log {
            checkpoints: vec![first],
        }],
    );
    contract.add(
        skipped,
        &[Checkpointed {
            checkpoint,
            timing: timing.clone(),
            page_count: 12,
        }],
    );
    contract.add(
        skipped,
        &[RolledBack {
            to: text("ckp_0123456789abcdef"),
            kept: Some(text("ckp_00000000000000aa")),
            timing,
            page_count: 12,
            changed_files: 2,
            cut: vec![text("exe_0123456789abcdef")],
        }],
    );
    let changes = [Change::Added, Change::Changed, Change::Removed];
    for change in changes {
        match change {
            Change::Added | Change::Changed | Change::Removed => {}
        }
    }
    contract.add(None, &changes);
    let differences = vec![
        Difference::File {
            change: Change::Changed,
            path: text("/etc/motd"),
        },
        Difference::Process {
            change: Change::Added,
            pid: 12,
            comm: text("python3"),
            bytes: 4096,
        },
    ];
    for difference in &differences {
        match difference {
            Difference::File { .. } | Difference::Process { .. } => {}
        }
    }
    contract.add(skipped, &differences);
    contract.add(skipped, &[Diff { differences }]);
}

fn daemon(contract: &mut Contract) {
    let skipped = Some(Unknown::Skipped);
    contract.add(
        skipped,
        &[Version {
            version: text("0.1.0"),
            build: text("0123456789abcdef0123456789abcdef01234567"),
            pid: 1234,
            state: text("/var/lib/deltabox"),
        }],
    );
    contract.add(
        skipped,
        &[Health {
            status: text("ok"),
            sandbox_count: 1,
        }],
    );
    contract.add(
        skipped,
        &[Event {
            id: 7,
            at_ms: 1_700_000_000_000,
            tenant: text("local"),
            principal: text("uid:0"),
            sandbox: text("sbx_0123456789abcdef"),
            command: text("rollback ckp_0123456789abcdef"),
            outcome: text("done"),
            ms: 0.75,
            bytes: 49152,
        }],
    );
    contract.add(None, &Code::ALL);
    let mut full = Problem::new(Code::NotFound, "no sandbox \"wrok\"")
        .hint("did you mean work?")
        .candidates(vec![text("work")]);
    full.request_id = text("req_0123456789abcdef");
    contract.add(
        skipped,
        &[full, Problem::new(Code::Busy, "another operation is under way")],
    );
}

fn contract() -> Contract {
    let mut contract = Contract::default();
    for (name, value) in [
        ("version header", api::VERSION_HEADER),
        ("build header", api::BUILD_HEADER),
        ("request id header", api::REQUEST_ID_HEADER),
        ("problem", api::PROBLEM_TYPE),
        ("lines of JSON", api::NDJSON_TYPE),
        ("tar stream", api::TAR_TYPE),
    ] {
        contract.text += &format!("{name}: {value}\n");
    }
    contract.text.push('\n');
    requests(&mut contract);
    sandboxes(&mut contract);
    execs(&mut contract);
    checkpoints(&mut contract);
    daemon(&mut contract);
    contract
}

#[test]
fn the_contract_is_as_it_was_accepted() {
    let now = contract().text;
    let accepted = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract.txt");
    let before = std::fs::read_to_string(&accepted).unwrap_or_default();
    if now == before {
        return;
    }
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract.txt");
    std::fs::write(&written, &now).unwrap();
    let at = now
        .lines()
        .zip(before.lines())
        .take_while(|(now, before)| now == before)
        .count();
    panic!(
        "the contract differs from line {} on: {:?} instead of {:?}.\nread: diff {} {}\naccept: cp {} {}",
        at + 1,
        now.lines().nth(at),
        before.lines().nth(at),
        accepted.display(),
        written.display(),
        written.display(),
        accepted.display()
    );
}

/// A type that is in the source and not in the text would change unseen.
#[test]
fn every_type_is_in_it() {
    let names = contract().names;
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in source.lines() {
            let declared = line
                .strip_prefix("pub struct ")
                .or_else(|| line.strip_prefix("pub enum "));
            let name = declared.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
            missing.extend(
                name.filter(|name| !names.iter().any(|known| known == name))
                    .map(str::to_owned),
            );
        }
    }
    assert!(missing.is_empty(), "not in the contract's text: {missing:?}");
}
