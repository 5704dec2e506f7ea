//! The workloads on disk: what their first lines say, and the C ones compiled. Compiles a program only when its source or
//! a header is newer; never writes beside the sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// One small program.
#[derive(Debug, Clone)]
pub struct Workload {
    /// File name without its ending.
    pub name: String,
    /// What must survive.
    pub about: String,
    /// The fault point of its negative control.
    pub fault: String,
    /// True where a state since the checkpoint has processes that the checkpoint has not, so that going forth to it again
    /// may be refused (`// recreates`).
    pub recreates: bool,
    /// The source.
    pub source: PathBuf,
    /// What to run: the compiled program, or the source itself for Python.
    pub program: PathBuf,
}

impl Workload {
    /// True for a Python program.
    pub fn is_python(&self) -> bool {
        self.source.extension().is_some_and(|ending| ending == "py")
    }

    /// True when it destroys the directory in the lower layer that it is given.
    pub fn wants_lower(&self) -> bool {
        self.name.starts_with("lower_")
    }
}

/// All workloads of a directory by name; compiled programs go to `output`.
///
/// # Errors
/// A file that cannot be read, or whose first lines do not say what they must.
pub fn list(directory: &Path, output: &Path) -> Result<Vec<Workload>, String> {
    let mut workloads = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))? {
        let source = entry.map_err(|error| error.to_string())?.path();
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ending = source.extension().unwrap_or_default().to_string_lossy().into_owned();
        if (ending == "c" || ending == "py") && name != "workload" {
            workloads.push(parse(source, name, ending == "c", output)?);
        }
    }
    workloads.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(workloads)
}

fn parse(source: PathBuf, name: String, compiled: bool, output: &Path) -> Result<Workload, String> {
    let text = std::fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let head: Vec<&str> = text
        .lines()
        .take(5)
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .collect();
    let about = head.first().and_then(|line| line.strip_prefix("//! "));
    let about = about.ok_or_else(|| format!("{}: the first line must be `//! what must survive`", source.display()))?;
    let fault = head.iter().find_map(|line| line.strip_prefix("// fault: "));
    let fault = fault.ok_or_else(|| format!("{}: no `// fault: NAME` among the first lines", source.display()))?;
    if !fault.starts_with("skip:") {
        return Err(format!("{}: fault {fault} is no skip:", source.display()));
    }
    Ok(Workload {
        about: about.to_owned(),
        fault: fault.to_owned(),
        recreates: head.contains(&"// recreates"),
        program: if compiled { output.join(&name) } else { source.clone() },
        name,
        source,
    })
}

/// Compiles what is not up to date, two at a time.
///
/// # Errors
/// What the compiler said, of all programs that failed.
pub fn build(workloads: &[Workload]) -> Result<(), String> {
    let Some(first) = workloads.iter().find(|workload| !workload.is_python()) else {
        return Ok(());
    };
    let output = first.program.parent().expect("programs lie in the output directory");
    std::fs::create_dir_all(output).map_err(|error| format!("{}: {error}", output.display()))?;
    let headers = newest_header(first.source.parent().expect("sources lie in a directory"))?;
    let waiting = Mutex::new(
        workloads
            .iter()
            .filter(|workload| !workload.is_python() && is_old(workload, headers)),
    );
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(workload) = waiting.lock().expect("no compile panics").next() else {
                        return;
                    };
                    if let Err(failure) = compile(workload) {
                        failures.lock().expect("no compile panics").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no compile panics");
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn newest_header(directory: &Path) -> Result<SystemTime, String> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(directory).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "h") {
            newest = newest.max(changed(&path).unwrap_or(newest));
        }
    }
    Ok(newest)
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn is_old(workload: &Workload, headers: SystemTime) -> bool {
    let needed = changed(&workload.source).unwrap_or(headers).max(headers);
    changed(&workload.program).is_none_or(|built| built < needed)
}

fn compile(workload: &Workload) -> Result<(), String> {
    // Written beside and renamed: another run of the tests may be starting the old one.
    let fresh = workload.program.with_extension(format!("new-{}", std::process::id()));
    let mut command = Command::new("cc");
    command.args([
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-pthread",
        "-o",
    ]);
    let output = command.arg(&fresh).arg(&workload.source).arg("-lrt").output();
    let output = output.map_err(|error| format!("cc: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            workload.name,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    std::fs::rename(&fresh, &workload.program).map_err(|error| format!("{}: {error}", fresh.display()))
}
