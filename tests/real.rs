//! Real programs, driven by the scripts in `real/`: set up, checkpoint, driven on, rolled back twice, right each time.
//! A script is named for its program and speaks the workload protocol; `// needs: PROGRAM` in its first lines names what it
//! wants to find. vim, which wants a terminal, is driven from here by key presses. Where the program is missing the test says so.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use deltabox_tests::program::{Program, Ready, Verdict};
use deltabox_tests::run::{self, Daemons};
use deltabox_tests::sandbox::{LOWER, PLACE, Sandbox, Streams};
use libtest_mimic::{Arguments, Failed, Trial};

#[derive(Debug, Clone)]
struct Script {
    name: String,
    file: PathBuf,
    needs: Vec<String>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test program's main: settings are read once here"
)]
fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the tmp directory lies in the target directory");
    let daemons = run::boxes(std::env::var("DELTABOX_BIN").ok().map(Into::into), target);
    let scripts = match list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("real")) {
        Ok(scripts) => scripts,
        Err(error) => {
            say(&error);
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for script in &scripts {
        let script = script.clone();
        trials.push(Trial::test(format!("{}::native", script.name), move || {
            native(&script).map_err(Failed::from)
        }));
    }
    match daemons {
        Err(reason) => say(&format!("only native runs: {reason}")),
        Ok(daemons) => {
            let daemons = std::sync::Arc::new(daemons);
            let for_vim = std::sync::Arc::clone(&daemons);
            trials.push(Trial::test("vim_on_a_terminal::rolled_back_twice", move || {
                vim_on_a_terminal(&for_vim).map_err(Failed::from)
            }));
            for script in scripts {
                let daemons = std::sync::Arc::clone(&daemons);
                trials.push(Trial::test(format!("{}::rolled_back_twice", script.name), move || {
                    rolled_back_twice(&script, &daemons).map_err(Failed::from)
                }));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test program speaks to whoever runs it")]
fn say(line: &str) {
    eprintln!("{line}");
}

fn list(directory: &Path) -> Result<Vec<Script>, String> {
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))? {
        let file = entry.map_err(|error| error.to_string())?.path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if file.extension().is_none_or(|ending| ending != "py") || name == "driver" {
            continue;
        }
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let needs = text.lines().take(5).find_map(|line| line.strip_prefix("# // needs: "));
        let needs = needs.ok_or_else(|| format!("{}: no `# // needs: PROGRAM`", file.display()))?;
        scripts.push(Script {
            name,
            needs: needs.split_whitespace().map(str::to_owned).collect(),
            file,
        });
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

/// Where boxes see programs, too: what lies elsewhere on the host is not in a box.
fn missing(script: &Script) -> Option<&str> {
    let there = |name: &str| {
        ["/usr/bin", "/bin"]
            .iter()
            .any(|place| Path::new(place).join(name).exists())
    };
    script.needs.iter().map(String::as_str).find(|name| !there(name))
}

fn native(script: &Script) -> Result<(), String> {
    if let Some(missing) = missing(script) {
        say(&format!("skipped {}: no /usr/bin/{missing} here", script.name));
        return Ok(());
    }
    for rounds in [&[][..], &[1], &[2]] {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg("-B")
            .arg(&script.file)
            .arg(directory.path().join("own"))
            .arg(directory.path());
        let shared = script.file.with_file_name("../workloads");
        command.env("PYTHONPATH", shared).env("HOME", directory.path());
        let mut program = Program::start(&mut command)?;
        if let Ready::Skip(reason) = program.ready()? {
            say(&format!("skipped {}: {reason}", script.name));
            return Ok(());
        }
        for round in rounds {
            program.disturb(*round)?;
        }
        match (program.check((0, 0)), rounds.is_empty()) {
            (Verdict::Ok, true) | (Verdict::Fail(_), false) => {}
            (verdict, _) => return Err(format!("after {rounds:?}: {verdict:?}: {}", program.last_words())),
        }
    }
    Ok(())
}

fn rolled_back_twice(script: &Script, daemons: &Daemons) -> Result<(), String> {
    if let Some(missing) = missing(script) {
        say(&format!("skipped {}: no /usr/bin/{missing} here", script.name));
        return Ok(());
    }
    let daemon = daemons.get("")?;
    let folder = script.file.parent().expect("a script lies in a directory");
    let shared = folder.with_file_name("workloads").join("workload.py");
    let driver = folder.join("driver.py");
    let name = format!("real-{}", script.name.replace('_', "-"));
    let mut sandbox = Sandbox::create(&daemon, &name, &[], &[&script.file, &shared, &driver])?;
    let program = format!("{PLACE}/{}.py", script.name);
    let own = format!("{PLACE}/own");
    if let Ready::Skip(reason) = sandbox.start(&["/usr/bin/python3", "-B", &program, &own, LOWER], Streams::Pipes)? {
        say(&format!("skipped {}: {reason}", script.name));
        return Ok(());
    }
    let cut = sandbox.checkpoint()?;
    for round in 1..=2 {
        sandbox.disturb(round)?;
        sandbox.rollback(&cut)?;
        sandbox.check_ok(&format!("after rollback {round}"))?;
    }
    Ok(())
}

/// An unsaved buffer, an undo history, a mode and a terminal: all in the memory of vim.
fn vim_on_a_terminal(daemons: &Daemons) -> Result<(), String> {
    // The link leads through /etc/alternatives, which a box may not have.
    let Ok(vim) = std::fs::canonicalize("/usr/bin/vim") else {
        say("skipped vim_on_a_terminal: no /usr/bin/vim here");
        return Ok(());
    };
    let vim = vim.to_str().ok_or("the path of vim is not UTF-8")?;
    let daemon = daemons.get("")?;
    let mut sandbox = Sandbox::create(&daemon, "real-vim", &[], &[])?;
    let mut screen = sandbox.start_raw(&[vim, "-u", "NONE", "-n", "-N", "/srv/text"])?;
    // Its empty lines show that it has the terminal: before that the kernel would echo what is typed ahead.
    screen.shows("~")?;
    screen.press("ifirst line\rsecond alpha")?;
    screen.shows("alpha")?;
    let cut = sandbox.checkpoint()?;
    for round in 1..=2 {
        // Still in insert mode, nothing written yet.
        screen.press(&format!("\rnoise {round}\x1bggdG:w\rinothing left omega"))?;
        screen.shows("omega")?;
        sandbox.rollback(&cut)?;
        if sandbox.read("/srv/text")?.is_some() {
            return Err(format!(
                "after rollback {round}: a file that was not written yet is there"
            ));
        }
        screen.press(" beta\x1b:w\r")?;
        screen.shows("written")?;
        let text = sandbox.read("/srv/text")?.unwrap_or_default();
        if text != "first line\nsecond alpha beta\n" {
            return Err(format!("after rollback {round}: vim wrote {text:?}"));
        }
        // One undo takes back what was typed in this insert, and no more.
        screen.press("u:w! /srv/undone\r")?;
        screen.shows("undone")?;
    }
    Ok(())
}
