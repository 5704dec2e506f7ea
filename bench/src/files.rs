//! The suite of large and many files: a database of 1 GiB of which eight pages change, thousands of files made, a tree of
//! the image deleted. Each is checkpointed, changed, and put back; the sandbox itself says whether it is as it was.

use std::path::PathBuf;

use crate::daemon::Boxed;
use crate::error::BenchError;
use crate::report::{Report, Samples};
use crate::target::{Operation, Sample};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Params {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Size of the database in MiB.
    pub database_mb: u32,
    /// Files to make.
    pub made_files: u32,
    /// Files that a tree of the image must have to be deleted.
    pub deleted_files: u32,
    /// Rounds of each case.
    pub rounds: u32,
}

/// One case: Python texts that make the scene, change it, and say what it is.
struct Case {
    name: &'static str,
    note: &'static str,
    prepare: String,
    change: String,
    describe: String,
}

/// Runs the suite.
///
/// # Errors
/// Anything that keeps a case from finishing, and a rollback after which the files are not what they were.
pub fn run(params: &Params, mut progress: impl FnMut(&str, u32)) -> Result<Report, BenchError> {
    let mut samples = Samples::default();
    for case in [
        sqlite(params.database_mb),
        made(params.made_files),
        deleted(params.deleted_files),
    ] {
        let mut sandbox = Boxed::create(&params.socket)?;
        sandbox.python(&params.socket, &case.prepare)?;
        samples.add(
            &format!("{}.first_checkpoint", case.name),
            case.note,
            measure(&mut sandbox, Operation::Checkpoint)?,
        );
        for round in 0..params.rounds {
            let before = sandbox.python(&params.socket, &case.describe)?;
            measure(&mut sandbox, Operation::Checkpoint)?;
            sandbox.python(&params.socket, &case.change)?;
            samples.add(
                &format!("{}.checkpoint", case.name),
                case.note,
                measure(&mut sandbox, Operation::Checkpoint)?,
            );
            if sandbox.python(&params.socket, &case.describe)? == before {
                return Err(BenchError::program(
                    case.name,
                    "nothing changed: nothing would be proved",
                ));
            }
            sandbox.rollback(Some("HEAD~1"), false)?;
            sandbox.python(&params.socket, &case.change)?;
            samples.add(
                &format!("{}.rollback", case.name),
                case.note,
                measure(&mut sandbox, Operation::Rollback)?,
            );
            let after = sandbox.python(&params.socket, &case.describe)?;
            if before != after {
                let name = format!("{}.rollback", case.name);
                return Err(BenchError::Differs {
                    name,
                    round,
                    expected: before,
                    found: after,
                });
            }
            progress(case.name, round + 1);
        }
    }
    let params = serde_json::json!({
        "database_mb": params.database_mb, "made_files": params.made_files,
        "deleted_files": params.deleted_files, "rounds": params.rounds,
    });
    Ok(samples.report("files", params, &[]))
}

/// No program runs in the box between operations: there is nobody to ask for a first reply.
fn measure(sandbox: &mut Boxed, operation: Operation) -> Result<Sample, BenchError> {
    let start = std::time::Instant::now();
    let cost = sandbox.operate(operation)?;
    let api_ms = start.elapsed().as_secs_f64() * 1e3;
    Ok(Sample {
        cost,
        api_ms,
        first_reply_ms: None,
    })
}

fn sqlite(database_mb: u32) -> Case {
    let rows = database_mb * 256;
    Case {
        name: "sqlite",
        note: "a database of which eight pages change; large files are cloned, so the cost is that of eight pages",
        prepare: format!(
            "import os, sqlite3\nos.makedirs('/srv', exist_ok=True)\nd = sqlite3.connect('/srv/d')\n\
             d.execute('pragma page_size = 4096')\nd.execute('create table t (i integer primary key, b blob)')\n\
             block = os.urandom(1 << 20)\n\
             d.executemany('insert into t values (?, ?)', ((i, block[i % 997:i % 997 + 3900]) for i in range({rows})))\n\
             d.commit()"
        ),
        change: format!(
            "import os, random, sqlite3\nd = sqlite3.connect('/srv/d')\n\
             for _ in range(8): d.execute('update t set b = ? where i = ?', (os.urandom(3900), random.randrange({rows})))\n\
             d.commit()"
        ),
        describe: "import hashlib\nh = hashlib.sha256()\nf = open('/srv/d', 'rb')\n\
                   while b := f.read(1 << 20): h.update(b)\nprint(h.hexdigest())"
            .to_owned(),
    }
}

fn made(count: u32) -> Case {
    Case {
        name: "made",
        note: "small files made since: a checkpoint copies each, a rollback removes each",
        prepare: "import os\nos.makedirs('/srv/made', exist_ok=True)".to_owned(),
        change: format!(
            "import os\nfor i in range({count}):\n    d = f'/srv/made/{{i // 100}}'\n    os.makedirs(d, exist_ok=True)\n    \
             open(f'{{d}}/{{i}}', 'wb').write(os.urandom(200))"
        ),
        describe: listing("'/srv/made'"),
    }
}

fn deleted(count: u32) -> Case {
    // The directory right below these that has the fewest files of those with enough, else the one with the most.
    let pick = format!(
        "import os, shutil\ndef n(d): return sum(len(f) for _, _, f in os.walk(d))\n\
         tops = [e.path for r in ('/usr', '/usr/share', '/usr/lib') for e in os.scandir(r) if e.is_dir(follow_symlinks=False)\n\
         \x20       and not any(k in e.path for k in ('python', '/bin', '/sbin', 'x86_64')) and e.path not in ('/usr/lib', '/usr/share')]\n\
         sized = sorted((n(d), d) for d in tops)\n\
         c, d = next((s for s in sized if s[0] >= {count}), sized[-1])\n\
         if c < {count}: raise SystemExit(f'no tree of {count} files to delete; the largest, {{d}}, has {{c}}')\n"
    );
    Case {
        name: "deleted",
        note: "a tree of the image deleted: a rollback reveals it again without copying a file",
        prepare: format!("{pick}open('/srv/which', 'w').write(d)"),
        change: "import shutil\nshutil.rmtree(open('/srv/which').read())".to_owned(),
        describe: listing("open('/srv/which').read()"),
    }
}

/// A text that prints a hash of every name, kind, size and content below `directory`.
fn listing(directory: &str) -> String {
    format!(
        "import hashlib, os\nh = hashlib.sha256()\ncount = 0\nfor d, ds, fs in os.walk({directory}):\n    ds.sort()\n    \
         for f in sorted(fs):\n        p = os.path.join(d, f); s = os.lstat(p); count += 1\n        \
         h.update(repr((p, s.st_mode, s.st_size, s.st_mtime_ns)).encode())\n        \
         if not os.path.islink(p): h.update(open(p, 'rb').read())\nprint(count, h.hexdigest())"
    )
}
