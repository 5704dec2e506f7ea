//! `demo`: a private daemon, a box from this machine's own root, programs in it; checkpoint, destroy everything, roll
//! back, and prove it by asking the programs. Leaves nothing behind. What fails is said, and the exit code says it too.

mod asking;
mod private;
pub(crate) mod program;
mod proofs;
mod scripts;
mod timing;

use api::{CheckpointRequest, Checkpointed, CreateRequest, RollbackRequest, RolledBack, Sandbox};
use serde::Serialize;

use super::{doctor, path};
use crate::args::Demo;
use crate::attach::Signals;
use crate::client::Client;
use crate::error::Result;
use crate::output::Output;
use asking::Program;
use private::Private;
use proofs::Proofs;
use scripts::Script;
use timing::{Clocks, Row, Rows};

/// Where the program lies in the box.
const PROGRAM: &str = "/srv/deltabox-demo";

/// Where it writes.
const FILE: &str = "/srv/demo.log";

/// How many threads of it count.
const THREAD_COUNT: u32 = 4;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    suite: &'static str,
    kernel: String,
    rounds: u32,
    heap_mb: u32,
    parts: Vec<String>,
    proofs: Vec<proofs::Proof>,
    results: Vec<Row>,
}

/// Shows it all; 1 when a proof failed.
pub(crate) fn demo(args: &Demo, output: &Output) -> Result<u8> {
    let kernel = doctor::memory_line(&doctor::features(&std::env::temp_dir())?);
    let private = Private::start()?;
    let signals = Signals::hold()?;
    private.end_on(&signals)?;
    let mut show = Show::begin(&private, args, output)?;
    let ran = show
        .destroy_and_return(args, output)
        .and_then(|()| show.many_rounds(args, output));
    if let Err(error) = ran {
        show.proofs.that("the demo ran to its end", false, || error.to_string());
    }
    let report = show.report(args, kernel);
    let failed = report.proofs.iter().any(|proof| !proof.holds);
    output.value(&report, text)?;
    private.end()?;
    Ok(u8::from(failed))
}

struct Show {
    client: Client,
    sandbox: String,
    program: Program,
    scripts: Vec<Script>,
    proofs: Proofs,
    rows: Rows,
}

impl Show {
    /// A box with everything running in it.
    fn begin(private: &Private, args: &Demo, output: &Output) -> Result<Self> {
        let mut client = private.connect()?;
        let request = CreateRequest {
            name: Some("demo".to_owned()),
            ..CreateRequest::default()
        };
        let sandbox: Sandbox = client.post("/v1/sandboxes", &request)?;
        let sandbox = sandbox.id;
        output.note(format_args!("a box from this machine's root: {sandbox}"));
        super::cp::own_program_into(&mut client, &sandbox, PROGRAM)?;
        let (heap, threads) = (args.heap_mb.to_string(), THREAD_COUNT.to_string());
        let argv = [PROGRAM, "demo-program", "--heap-mb", &heap, "--threads", &threads, FILE];
        let mut program = Program::start(private, &sandbox, &argv)?;
        let hello = program.ask("state")?;
        output.note(format_args!("our own program runs: {hello}"));
        let (scripts, absent) = scripts::start_all(private, &sandbox)?;
        for script in &scripts {
            output.note(format_args!("{} runs", script.name));
        }
        for reason in absent {
            output.note(reason);
        }
        Ok(Self {
            client,
            sandbox,
            program,
            scripts,
            proofs: Proofs::default(),
            rows: Rows::default(),
        })
    }

    /// One checkpoint, everything destroyed, one rollback, every proof.
    fn destroy_and_return(&mut self, args: &Demo, output: &Output) -> Result<()> {
        let first = timing::timed(
            &mut self.client,
            &mut self.program,
            |client, sandbox| {
                let request = CheckpointRequest {
                    message: Some("before the risky step".to_owned()),
                    tag: None,
                };
                client.post::<Checkpointed>(&path(sandbox, "/checkpoints"), &request)
            },
            &self.sandbox,
        )?;
        let kept = &first.0.checkpoint;
        output.note(format_args!(
            "checkpoint {} of {} processes",
            kept.id, kept.process_count
        ));
        self.rows.add(
            "first_checkpoint",
            Clocks::of(&first.0.timing, first.1, first.0.page_count),
        );
        let before = self.program.state()?;
        let scripts_before = scripts::ask_all(&mut self.scripts, "state")?;
        let tree_before = self.files()?;

        let damage = self.damage()?;
        output.note(format_args!("destroyed: {damage}"));
        let broken = self.program.state()?;
        self.proofs
            .that("the destruction was real", broken.heap != before.heap, || {
                "the heap has the same hash".into()
            });
        let tree_broken = self.files()?;
        self.proofs.differ("the files are gone", &tree_before, &tree_broken);
        for (script, then) in self.scripts.iter_mut().zip(&scripts_before) {
            let now = script.program.ask("state")?;
            self.proofs.differ(&format!("{} was changed", script.name), then, &now);
        }

        let back = timing::timed(
            &mut self.client,
            &mut self.program,
            |client, sandbox| {
                client.post::<RolledBack>(
                    &path(sandbox, "/rollback"),
                    &RollbackRequest {
                        to: None,
                        keep_present: true,
                    },
                )
            },
            &self.sandbox,
        )?;
        self.rows.add(
            "rollback_of_everything",
            Clocks::of(&back.0.timing, back.1, back.0.page_count),
        );
        let after = self.program.state()?;
        let heap_mb = args.heap_mb;
        self.proofs
            .equal(&format!("heap of {heap_mb} MB, by hash"), &before.heap, &after.heap);
        self.proofs.equal("counter", &before.counter, &after.counter);
        self.proofs.equal("lines in its file", &before.lines, &after.lines);
        self.proofs
            .equal("position in its file", &before.position, &after.position);
        let rewound = after.ticks.iter().all(|ticks| *ticks < program::TICKS_WHEN_DESTROYED);
        self.proofs.that("threads were rewound", rewound, || {
            format!("they count {:?}", after.ticks)
        });
        let again = self.program.ask("tick")?;
        self.proofs.equal("threads run on", &"ticking".to_owned(), &again);
        let tree_after = self.files()?;
        self.proofs.equal("files of the box", &tree_before, &tree_after);
        for (script, then) in self.scripts.iter_mut().zip(&scripts_before) {
            let now = script.program.ask("state")?;
            self.proofs
                .equal(&format!("{}: {}", script.name, script.what), then, &now);
        }
        for script in &mut self.scripts {
            if let Some((name, expected, found)) = script.drive_on()? {
                self.proofs.equal(&name, &expected, &found);
            }
        }
        Ok(())
    }

    /// Overwrites memory, variables and files, and removes what the programs run from.
    fn damage(&mut self) -> Result<String> {
        self.program.ask("destroy")?;
        scripts::ask_all(&mut self.scripts, "destroy")?;
        let line = "rm -rf /usr/lib/python3 /srv; echo gone > /etc/motd; mkdir -p /srv; echo other > /srv/demo.log";
        asking::run(&mut self.client, &self.sandbox, &["/bin/sh", "-c", line])?;
        Ok("the heap, the variables, the open transaction, /srv and /usr/lib/python3".to_owned())
    }

    /// What the box's files say of themselves.
    fn files(&mut self) -> Result<String> {
        let line = "ls -ln /srv | tail -n +2; cksum /srv/* 2>&1; ls /usr/lib/python3 2>&1 | cksum; cat /etc/motd 2>&1";
        let (_, text) = asking::run(&mut self.client, &self.sandbox, &["/bin/sh", "-c", line])?;
        Ok(text)
    }

    /// The three clocks, many times over, each with its proof.
    fn many_rounds(&mut self, args: &Demo, output: &Output) -> Result<()> {
        output.note(format_args!(
            "{} rounds with 4 MB of memory and 20 files changed in each",
            args.rounds
        ));
        let mut wrong = Vec::new();
        for round in 0..args.rounds {
            self.program.ask("step")?;
            let taken = timing::timed(
                &mut self.client,
                &mut self.program,
                |client, sandbox| {
                    client.post::<Checkpointed>(&path(sandbox, "/checkpoints"), &CheckpointRequest::default())
                },
                &self.sandbox,
            )?;
            self.rows
                .add("checkpoint", Clocks::of(&taken.0.timing, taken.1, taken.0.page_count));
            let before = self.program.state()?;
            self.program.ask("step")?;
            let back = timing::timed(
                &mut self.client,
                &mut self.program,
                |client, sandbox| {
                    client.post::<RolledBack>(
                        &path(sandbox, "/rollback"),
                        &RollbackRequest {
                            to: None,
                            keep_present: false,
                        },
                    )
                },
                &self.sandbox,
            )?;
            self.rows
                .add("rollback", Clocks::of(&back.0.timing, back.1, back.0.page_count));
            let after = self.program.state()?;
            if !before.same_but_ticks(&after) {
                wrong.push(round);
            }
        }
        let right = args.rounds as usize - wrong.len();
        self.proofs.that(
            &format!("{right} of {} rounds exact", args.rounds),
            wrong.is_empty(),
            || format!("wrong after rounds {wrong:?}"),
        );
        Ok(())
    }

    fn report(self, args: &Demo, kernel: String) -> Report {
        Report {
            suite: "demo",
            kernel,
            rounds: args.rounds,
            heap_mb: args.heap_mb,
            parts: self.scripts.iter().map(|script| script.name.to_owned()).collect(),
            proofs: self.proofs.into_list(),
            results: self.rows.into_rows(),
        }
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for proof in &report.proofs {
        let mark = if proof.holds { "ok  " } else { "FAIL" };
        text += &format!("{mark}  {}\n", proof.name);
        if !proof.holds {
            text += &format!("      {}\n", proof.detail);
        }
    }
    text.push('\n');
    text += &timing::text(&report.results);
    text += &format!("\n{}\n", report.kernel);
    let failed = report.proofs.iter().filter(|proof| !proof.holds).count();
    text += &match failed {
        0 => format!("all {} proofs hold\n", report.proofs.len()),
        _ => format!("{failed} of {} proofs FAILED\n", report.proofs.len()),
    };
    text
}
