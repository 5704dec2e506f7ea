//! Starts a command in a running box. The daemon owns the outer ends of its pipes or its terminal; the inner ends are
//! closed here and in PID 1 as soon as the command has them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use linux::SysError;
use linux::openat::openat2;
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, fchown};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::{SandboxError, Step as _};
use crate::spawn::{host_pid_of, stage_name};
use crate::spec::check_env;
use crate::users::{Identity, resolve};
use crate::{Sandbox, protocol};

/// What a command reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// Pipes.
    Pipes {
        /// A pipe to its stdin, too; else `/dev/null`.
        stdin: bool,
    },
    /// A terminal from the box's own devpts, as its controlling one.
    Terminal {
        /// Height in characters.
        rows: u16,
        /// Width in characters.
        columns: u16,
    },
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments; a program without a slash is searched along `PATH`.
    pub argv: Vec<String>,
    /// Environment besides the box's own; wins over it.
    pub env: Vec<(String, String)>,
    /// Working directory; `None`: the box's.
    pub workdir: Option<String>,
    /// `user[:group]`; `None`: the box's.
    pub user: Option<String>,
    /// Its streams.
    pub stdio: Stdio,
}

impl ExecRequest {
    /// A command with pipes, no stdin, and everything else the box's.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            workdir: None,
            user: None,
            stdio: Stdio::Pipes { stdin: false },
        }
    }
}

/// The daemon's ends.
#[derive(Debug)]
pub enum Streams {
    /// Pipes.
    Pipes {
        /// Its stdin, when asked for.
        stdin: Option<OwnedFd>,
        /// Its stdout.
        stdout: OwnedFd,
        /// Its stderr.
        stderr: OwnedFd,
    },
    /// The controlling side of its terminal.
    Terminal(OwnedFd),
}

impl Streams {
    /// Tells a terminal its size; the programs on it get SIGWINCH.
    ///
    /// # Errors
    /// `Invalid` when the streams are pipes.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<(), SandboxError> {
        match self {
            Streams::Terminal(terminal) => {
                linux::pty::resize(terminal.as_fd(), rows, columns).step("resize the terminal")
            }
            Streams::Pipes { .. } => Err(SandboxError::Invalid("only a terminal has a size".to_owned())),
        }
    }
}

/// A command that runs.
#[derive(Debug)]
pub struct Started {
    /// Its pid inside.
    pub pid_inside: u32,
    /// Its pid outside; 0 when it has ended already.
    pub host_pid: u32,
    /// A handle on this very process: signals through it can hit no other. It says nothing about the command that a
    /// rollback makes again.
    pub pidfd: OwnedFd,
    /// The daemon's ends of its streams.
    pub streams: Streams,
}

/// Capabilities of root inside: those that docker gives. They count in the box's user namespace only.
const CAPABILITIES: [u32; 14] = [
    0,  // chown
    1,  // dac_override
    3,  // fowner
    4,  // fsetid
    5,  // kill
    6,  // setgid
    7,  // setuid
    8,  // setpcap
    10, // net_bind_service
    13, // net_raw
    18, // sys_chroot
    27, // mknod
    29, // audit_write
    31, // setfcap
];
/// Where programs are found unless the environment says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The kernel's own bound on arguments and environment together is near this.
const PAYLOAD_BYTES_MAX: usize = 8 << 20;

impl Sandbox {
    /// Starts a command and returns when its program runs.
    ///
    /// # Errors
    /// `Start` says at which step and why (`ENOENT` at `exec`: no such program); `UnknownUser`, `Invalid`, `Died`.
    pub fn exec(&self, request: &ExecRequest) -> Result<Started, SandboxError> {
        self.exec_while_alive(request).map_err(|error| {
            // A dying box loses its mounts before its sockets, which gives errors of all kinds; PID 1's answer decides.
            match self.ask(protocol::LINGER, u32::from(self.lingers), "reach PID 1") {
                Err(_) => SandboxError::Died,
                Ok(()) => error,
            }
        })
    }

    fn exec_while_alive(&self, request: &ExecRequest) -> Result<Started, SandboxError> {
        let Some(program) = request.argv.first() else {
            return Err(SandboxError::Invalid("an empty command".to_owned()));
        };
        let user = request.user.as_deref().unwrap_or(&self.spec.user);
        let identity = resolve(self.root.as_fd(), user)?;
        let payload = self.payload(request, &identity)?;
        let bytes = u32::try_from(payload.len()).expect("bounded by PAYLOAD_BYTES_MAX");
        let payload = linux::clone::sealed_memory_file("deltabox-start", &payload).step("lay out the command")?;
        let (report, their_report) = pipe()?;
        let (streams, [stdin, stdout, stderr]) = self.open_streams(request.stdio, &identity)?;
        let answer = {
            let control = self.control.lock().expect("no panic while held");
            let fds = [&payload, &their_report, &stdin, &stdout, &stderr].map(AsFd::as_fd);
            control.send(&[protocol::START, bytes], &[], &fds)?;
            control.receive()?
        };
        drop((their_report, stdin, stdout, stderr));
        assert_eq!(answer.word(0), protocol::STARTED, "PID 1 answers in order");
        let failed = |stage, errno| SandboxError::Start {
            program: program.clone(),
            stage,
            errno,
        };
        let pid_inside = answer.word(2);
        let errno = i32::try_from(answer.word(1)).unwrap_or(i32::MAX);
        let (0, Some(pidfd)) = (errno, answer.fds.into_iter().next()) else {
            return Err(failed("fork", errno));
        };
        let host_pid = host_pid_of(&pidfd)?;
        if let Some((stage, errno)) = read_report(report) {
            self.stillborn.lock().expect("no panic while held").insert(pid_inside);
            return Err(failed(stage_name(stage), errno));
        }
        Ok(Started {
            pid_inside,
            host_pid,
            pidfd,
            streams,
        })
    }

    /// The daemon's ends, and the command's stdin, stdout and stderr, which belong to the command's user: it may open
    /// them again by name (`/dev/stdout`).
    fn open_streams(&self, stdio: Stdio, identity: &Identity) -> Result<(Streams, [OwnedFd; 3]), SandboxError> {
        let range = self.spec.id_range();
        let (owner, group) = (
            range.first + identity.uid.min(range.count - 1),
            range.first + identity.gid.min(range.count - 1),
        );
        let own = |end: &OwnedFd| {
            fchown(end, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)))
                .map_err(|e| SysError::rustix("fchown", "a pipe", e))
                .step("open the streams")
        };
        match stdio {
            Stdio::Terminal { rows, columns } => {
                const TTY_GROUP: u32 = 5;
                let pty = linux::pty::open(self.dev_pts.as_fd(), owner, range.first + TTY_GROUP, rows, columns)
                    .step("open a terminal")?;
                let copy = || {
                    rustix::io::fcntl_dupfd_cloexec(&pty.terminal, 3)
                        .map_err(|e| SysError::rustix("fcntl", "terminal", e))
                        .step("open a terminal")
                };
                let inner = [copy()?, copy()?, copy()?];
                Ok((Streams::Terminal(pty.controller), inner))
            }
            Stdio::Pipes { stdin } => {
                let (stdin, their_stdin) = match stdin {
                    true => {
                        let (read, write) = pipe()?;
                        own(&read)?;
                        (Some(write), read)
                    }
                    false => (None, self.open_null()?),
                };
                let ((stdout, their_stdout), (stderr, their_stderr)) = (pipe()?, pipe()?);
                own(&their_stdout)?;
                own(&their_stderr)?;
                Ok((
                    Streams::Pipes { stdin, stdout, stderr },
                    [their_stdin, their_stdout, their_stderr],
                ))
            }
        }
    }

    /// The box's own `/dev/null`, so that what a capture sees is a path of the box.
    fn open_null(&self) -> Result<OwnedFd, SandboxError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat2(&self.root, "/dev/null", flags, Mode::empty(), ResolveFlags::IN_ROOT)
            .map_err(|e| SysError::rustix("openat2", "/dev/null of the box", e))
            .step("open the streams")?;
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())
            .map_err(|e| SysError::rustix("fcntl", "/dev/null of the box", e))
            .step("open the streams")?;
        Ok(fd)
    }

    /// Later entries win: defaults, the box's, the request's.
    fn environment(&self, request: &ExecRequest, identity: &Identity) -> Result<Vec<(String, String)>, SandboxError> {
        let terminal = matches!(request.stdio, Stdio::Terminal { .. });
        let mut env: Vec<(String, String)> = [
            ("PATH", PATH),
            ("HOME", &identity.home),
            ("USER", &identity.name),
            ("TERM", if terminal { "xterm-256color" } else { "dumb" }),
            ("LANG", "C.UTF-8"),
            ("HOSTNAME", &self.spec.hostname),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        for (name, value) in self.spec.env.iter().chain(&request.env) {
            check_env(name, value)?;
            match env.iter_mut().find(|(known, _)| known == name) {
                Some(entry) => entry.1.clone_from(value),
                None => env.push((name.clone(), value.clone())),
            }
        }
        Ok(env)
    }

    /// Lays out everything that the command's side needs (see `protocol`, `HEAD_*`).
    fn payload(&self, request: &ExecRequest, identity: &Identity) -> Result<Vec<u8>, SandboxError> {
        if request.argv.iter().any(|argument| argument.contains('\0')) {
            return Err(SandboxError::Invalid("an argument with a zero byte".to_owned()));
        }
        let env = self.environment(request, identity)?;
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map_or(PATH, |(_, value)| value.as_str());
        let workdir = request.workdir.as_deref().unwrap_or(&self.spec.workdir);
        if !workdir.starts_with('/') || workdir.contains('\0') {
            return Err(SandboxError::Invalid(format!(
                "working directory {workdir:?} is not absolute"
            )));
        }
        let mut layout = Layout {
            bytes: vec![0; protocol::HEAD_WORDS * 4],
        };
        let mut flags = 0;
        if matches!(request.stdio, Stdio::Terminal { .. }) {
            flags |= protocol::START_TERMINAL;
        }
        if !self.spec.privileged {
            flags |= protocol::START_NO_NEW_PRIVS | protocol::START_DROP_CAPS;
        }
        let kept = CAPABILITIES.iter().fold(0u64, |set, capability| set | 1 << capability);
        layout.head(protocol::HEAD_FLAGS, flags);
        layout.head(protocol::HEAD_UID, identity.uid);
        layout.head(protocol::HEAD_GID, identity.gid);
        layout.head(
            protocol::HEAD_CAPS_LOW,
            u32::try_from(kept & u64::from(u32::MAX)).expect("32 bits"),
        );
        layout.head(protocol::HEAD_CAPS_HIGH, u32::try_from(kept >> 32).expect("32 bits"));
        let filter = layout.block(&self.filter);
        layout.head(protocol::HEAD_FILTER_AT, filter);
        layout.head(protocol::HEAD_FILTER_COUNT, word(self.filter.len() / 8));
        let groups = layout.words(&identity.groups);
        layout.head(protocol::HEAD_GROUPS_AT, groups);
        layout.head(protocol::HEAD_GROUP_COUNT, word(identity.groups.len()));
        let cwd = layout.string(workdir);
        layout.head(protocol::HEAD_CWD_AT, cwd);
        let path = layout.string(path);
        layout.head(protocol::HEAD_PATH_AT, path);
        let args: Vec<u32> = request.argv.iter().map(|argument| layout.string(argument)).collect();
        let args_at = layout.words(&args);
        layout.head(protocol::HEAD_ARGS_AT, args_at);
        layout.head(protocol::HEAD_ARG_COUNT, word(args.len()));
        let entries: Vec<u32> = env
            .iter()
            .map(|(name, value)| layout.string(&format!("{name}={value}")))
            .collect();
        let env_at = layout.words(&entries);
        layout.head(protocol::HEAD_ENV_AT, env_at);
        layout.head(protocol::HEAD_ENV_COUNT, word(entries.len()));
        if layout.bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(SandboxError::Invalid(
                "arguments and environment are too long".to_owned(),
            ));
        }
        Ok(layout.bytes)
    }
}

struct Layout {
    bytes: Vec<u8>,
}

impl Layout {
    fn head(&mut self, index: usize, value: u32) {
        self.bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Bytes at a multiple of 8.
    fn block(&mut self, bytes: &[u8]) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = word(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        at
    }

    fn words(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.block(&bytes)
    }

    fn string(&mut self, text: &str) -> u32 {
        let at = word(self.bytes.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        at
    }
}

/// A length as the payload carries it.
fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Reading end, writing end.
fn pipe() -> Result<(OwnedFd, OwnedFd), SandboxError> {
    pipe_with(PipeFlags::CLOEXEC)
        .map_err(|e| SysError::rustix("pipe2", "a stream", e))
        .step("open the streams")
}

/// `None` when the pipe was closed by `exec`; else the step and errno that the command's side wrote.
fn read_report(report: OwnedFd) -> Option<(u32, i32)> {
    let mut bytes = Vec::new();
    // An unreadable pipe of ours cannot happen; if it does, the command's fate is told by its exit.
    File::from(report).read_to_end(&mut bytes).ok()?;
    let (words, _) = bytes.as_chunks::<4>();
    let [stage, errno] = *words else { return None };
    Some((u32::from_le_bytes(stage), i32::from_le_bytes(errno)))
}
