//! Where the parts are joined: the sandbox that holds the processes, the engine that reads and writes them, the
//! tracker of the files. What one part calls by another name than the next is translated here and nowhere else.

use std::fs::DirBuilder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use engine::{Engine, Membership};
use files::{Roots, Tracker};
use linux::SysError;
use rustix::fs::{Mode, OFlags};
use sandbox::{Dirs, ExecRequest, ExitStatus, ROOT_PREFIX, Sandbox, SandboxError, Spec, Stdio};

use crate::command::ExecSpec;
use crate::copy::Ids;
use crate::error::TimelineError;
use crate::execs::{Execs, Process};
use crate::streams::Ends;

/// The directory of a box that becomes its root; what it is outside is the sandbox's business.
const ROOT: &str = "root";
/// Where the tracker keeps large contents.
const BLOBS: &str = "blobs";

/// The parts of one box.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) sandbox: Rc<Sandbox>,
    pub(crate) engine: Engine,
    pub(crate) tracker: Tracker,
    directory: PathBuf,
}

impl Halves {
    /// Makes a box in `directory` and begins to track it. Must be called on the thread that will drive it.
    pub(crate) fn make(spec: &Spec, config: engine::Config, directory: &Path) -> Result<Self, TimelineError> {
        let dirs = Dirs::new(directory.join(ROOT));
        let blobs = directory.join(BLOBS);
        for made in [&dirs.base, &blobs] {
            let builder = DirBuilder::new().recursive(true).mode(0o700).create(made);
            builder.map_err(|error| SysError::io("mkdir", made.display(), &error))?;
        }
        let sandbox = Rc::new(Sandbox::spawn(spec, &dirs)?);
        let roots = Roots {
            upper: open_directory(&dirs.tree())?,
            merged: copy_of(sandbox.overlay())?,
            lowers: sandbox
                .lowers()
                .iter()
                .map(|lower| copy_of(lower.as_fd()))
                .collect::<Result<_, _>>()?,
            blobs: open_directory(&blobs)?,
            shm: Some(copy_of(sandbox.dev_shm())?),
            faults: config.faults.clone(),
        };
        let mut tracker = Tracker::new(roots)?;
        // The first look walks what is there: now there is next to nothing.
        tracker.capture(&[])?;
        tracker.settle()?;
        let membership = Membership {
            init_host_pid: sandbox.init_host_pid(),
            cgroup: sandbox.cgroup().map(Path::to_owned),
        };
        let mut engine = Engine::new(membership, config)?;
        let chooser = Rc::clone(&sandbox);
        engine.set_last_pid_with(Box::new(move |last| chooser.set_last_pid(last).map_err(kernel_error)));
        Ok(Self {
            sandbox,
            engine,
            tracker,
            directory: directory.to_owned(),
        })
    }

    /// Where the kernel lists the box's processes.
    pub(crate) fn cgroup(&self) -> Option<PathBuf> {
        self.sandbox.cgroup().map(Path::to_owned)
    }

    /// Where the box's ids lie on the host.
    pub(crate) fn ids(&self) -> Ids {
        let range = self.sandbox.spec().id_range();
        Ids {
            first: range.first,
            count: range.count,
        }
    }

    /// Starts a command.
    pub(crate) fn exec(&self, spec: &ExecSpec) -> Result<Process, TimelineError> {
        let stdio = match spec.terminal {
            Some((rows, columns)) => Stdio::Terminal { rows, columns },
            None => Stdio::Pipes { stdin: spec.stdin },
        };
        let started = self.sandbox.exec(&ExecRequest {
            argv: spec.argv.clone(),
            env: spec.env.clone(),
            workdir: spec.workdir.clone(),
            user: spec.user.clone(),
            stdio,
        })?;
        let ends = match started.streams {
            sandbox::Streams::Pipes { stdin, stdout, stderr } => Ends {
                stdin,
                stdout: Some(stdout),
                stderr: Some(stderr),
                master: None,
            },
            sandbox::Streams::Terminal(master) => Ends {
                master: Some(master),
                ..Ends::default()
            },
        };
        Ok(Process {
            pid: started.pid_inside,
            host_pid: started.host_pid,
            pidfd: started.pidfd,
            ends,
        })
    }

    /// Ends the box and removes everything of it.
    pub(crate) fn take_down(self) -> Result<(), TimelineError> {
        let Self {
            sandbox,
            mut engine,
            tracker,
            directory,
        } = self;
        // It fails only when PID 1 is gone, and then so is everything.
        sandbox.kill_all().ok();
        engine.reap();
        drop((engine, tracker));
        let mut sandbox = Rc::into_inner(sandbox).expect("only the engine had another");
        sandbox.teardown()?;
        drop(sandbox);
        for part in [ROOT, BLOBS] {
            let path = directory.join(part);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(SysError::io("rmdir", path.display(), &error).into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Takes what the box said about commands that ended. False when its PID 1 is gone.
pub(crate) fn take_exits(sandbox: &Sandbox, execs: &Execs) -> bool {
    loop {
        match sandbox.next_event() {
            Ok(Some(exited)) => {
                let code = match exited.status {
                    ExitStatus::Code(code) => i32::from(code),
                    ExitStatus::Signal(signal) => 128 + i32::from(signal),
                };
                execs.exited(exited.pid_inside, code);
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// What the engine hears when PID 1 cannot choose the next number.
fn kernel_error(error: SandboxError) -> SysError {
    match error {
        SandboxError::Kernel { source, .. } => source,
        _ => SysError::new("ns_last_pid", "the box", rustix::io::Errno::SRCH.raw_os_error()),
    }
}

/// What lies outside the history of a box.
pub(crate) fn outside(spec: &Spec) -> Vec<String> {
    let mark = |read_only| if read_only { ":ro" } else { "" };
    let line =
        |volume: &sandbox::Volume| format!("{}:{}{}", volume.host.display(), volume.inside, mark(volume.read_only));
    spec.volumes.iter().map(line).collect()
}

/// A path of the box as the tracker knows it: the box's root is a directory of the overlay.
pub(crate) fn tracked(path: &Path) -> PathBuf {
    let plain = path.strip_prefix("/").unwrap_or(path);
    if plain.starts_with("dev/shm") {
        path.to_owned()
    } else {
        Path::new("/").join(ROOT_PREFIX).join(plain)
    }
}

/// The same the other way round.
pub(crate) fn untracked(path: Vec<u8>) -> PathBuf {
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    let plain = path.strip_prefix("/").unwrap_or(&path);
    Path::new("/").join(plain.strip_prefix(ROOT_PREFIX).unwrap_or(plain))
}

fn open_directory(path: &Path) -> Result<OwnedFd, SysError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| SysError::rustix("open", path.display(), errno))
}

fn copy_of(fd: BorrowedFd<'_>) -> Result<OwnedFd, SysError> {
    fd.try_clone_to_owned()
        .map_err(|error| SysError::io("dup", "a directory of the box", &error))
}
