//! Workload x mode -> a named test, `pipe_half_full::rollback_twice`. One daemon for all tests of a run, and one for each
//! fault point while a test needs it; one box for each test.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

use crate::compile::{self, Workload};
use crate::daemon::Daemon;
use crate::modes::{self, Done, Mode};

/// Tests at a time: most wait, few compute.
const THREADS: usize = 16;

/// The daemons of a run, by fault points.
#[derive(Debug)]
pub struct Daemons {
    program: PathBuf,
    running: Mutex<HashMap<String, Weak<Daemon>>>,
}

impl Daemons {
    /// None yet; they will be of this program.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            running: Mutex::new(HashMap::new()),
        }
    }

    /// The program they are of.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The daemon with this fault point on (`""`: none), started when there is none. It runs while somebody holds it.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn get(&self, fault: &str) -> Result<Arc<Daemon>, String> {
        let mut running = self
            .running
            .lock()
            .map_err(|_| "a test panicked while it started a daemon".to_owned())?;
        if let Some(daemon) = running.get(fault).and_then(Weak::upgrade) {
            return Ok(daemon);
        }
        let faults = if fault.is_empty() { vec![] } else { vec![fault] };
        let daemon = Arc::new(Daemon::start(&self.program, &faults)?);
        running.insert(fault.to_owned(), Arc::downgrade(&daemon));
        Ok(daemon)
    }
}

/// The `deltabox` program to test: the one that was named, or the newest built one.
///
/// # Errors
/// Why there is none; the named one must exist.
pub fn find_program(named: Option<PathBuf>, target: &Path) -> Result<PathBuf, String> {
    if let Some(program) = named {
        return if program.exists() {
            Ok(program)
        } else {
            Err(format!("DELTABOX_BIN: no {}", program.display()))
        };
    }
    let built = ["release", "debug"].map(|profile| target.join(profile).join("deltabox"));
    let age = |path: &PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let newest = built.into_iter().filter(|path| age(path).is_some()).max_by_key(age);
    newest.ok_or_else(|| "no deltabox is built: cargo build first, or set DELTABOX_BIN".to_owned())
}

/// Whether boxes can be tested here, and with what.
///
/// # Errors
/// Why not.
pub fn boxes(named: Option<PathBuf>, target: &Path) -> Result<Daemons, String> {
    let program = find_program(named, target)?;
    if !rustix::process::geteuid().is_root() {
        return Err("boxes need root".to_owned());
    }
    Ok(Daemons::new(program))
}

/// All tests of all workloads. `say` gets one line for each reason why something is not run.
pub fn workloads(
    arguments: &mut Arguments,
    list: Vec<Workload>,
    daemons: Result<Daemons, String>,
    say: fn(&str),
) -> Conclusion {
    arguments.test_threads.get_or_insert(THREADS);
    let (daemons, modes) = match daemons {
        Ok(daemons) => (Some(Arc::new(daemons)), &Mode::ALL[..]),
        Err(reason) => {
            say(&format!("only native modes are run: {reason}"));
            (None, &Mode::ALL[..1])
        }
    };
    // Held for the whole run, so that the tests share one; what it leaves behind is the last test's failure.
    let shared = Arc::new(Mutex::new(None));
    let mut trials = Vec::new();
    for workload in list {
        for &mode in modes {
            let (workload, daemons, shared) = (workload.clone(), daemons.clone(), Arc::clone(&shared));
            let name = format!("{}::{}", workload.name, mode.name());
            trials.push(Trial::test(name.clone(), move || {
                match one(mode, &workload, daemons.as_deref(), &shared).map_err(Failed::from)? {
                    Done::Passed => {}
                    Done::Skipped(reason) => say(&format!("skipped {name}: {reason}")),
                }
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(arguments, trials);
    match shared
        .lock()
        .ok()
        .and_then(|mut shared| shared.take())
        .map(Arc::try_unwrap)
    {
        Some(Ok(daemon)) => match daemon.stop() {
            Ok(()) => conclusion,
            Err(left) => {
                say(&format!("after the last test: {left}"));
                Conclusion {
                    num_failed: conclusion.num_failed + 1,
                    ..conclusion
                }
            }
        },
        _ => conclusion,
    }
}

fn one(
    mode: Mode,
    workload: &Workload,
    daemons: Option<&Daemons>,
    shared: &Mutex<Option<Arc<Daemon>>>,
) -> Result<Done, String> {
    let daemons = match daemons {
        Some(daemons) if mode != Mode::Native => daemons,
        _ => return modes::native(workload),
    };
    if mode == Mode::Negative {
        let daemon = daemons.get(&workload.fault)?;
        return modes::boxed(mode, workload, &daemon);
    }
    let daemon = daemons.get("")?;
    if let Ok(mut shared) = shared.lock() {
        shared.get_or_insert_with(|| Arc::clone(&daemon));
    }
    modes::boxed(mode, workload, &daemon)
}

/// Reads and compiles the workloads beside this package.
///
/// # Errors
/// What is wrong with them.
pub fn prepare(package: &Path, output: &Path) -> Result<Vec<Workload>, String> {
    let list = compile::list(&package.join("workloads"), output)?;
    compile::build(&list)?;
    Ok(list)
}
