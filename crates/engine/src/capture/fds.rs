//! Descriptors: which slots refer to one open file description, and what each description is. What cannot be put back
//! is refused here by name, before anything is touched. Duplicates are taken only while the box stands still.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use image::fd::{Inode, Kind, Object, ObjectIndex, Pipe, Slot, Socket, Terminal, Watch};
use image::process::Ghost;
use image::timer::Armed;
use linux::SysError;
use linux::procfs::{self, TaskDir};
use linux::ptrace;
use linux::unix_diag::{self, UnixDiag, UnixSocket};

use crate::content::Cache;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::remote::{Batch, Results};
use crate::tracee::LiveProcess;
use crate::unsupported::{Subject, refuse};

/// What `stat` and the link say of a slot, before the process itself is asked.
#[derive(Debug)]
pub(crate) struct Seen {
    number: u32,
    inode: Inode,
    rdev: u64,
    link: Vec<u8>,
    class: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    File,
    Directory,
    Memory,
    Device,
    Terminal,
    Pipe,
    Socket,
    Event,
    Timer,
    Signal,
    Epoll,
}

/// Device numbers of devices without state: null, zero, full, random, urandom, tty.
const PLAIN_DEVICES: [(u32, u32); 5] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)];

/// Looks at each slot of a process.
pub(crate) fn look(dir: &TaskDir, numbers: &[u32], subject: &Subject) -> Result<Vec<Seen>, EngineError> {
    let mut all = Vec::with_capacity(numbers.len());
    for number in numbers.iter().copied() {
        let name = format!("fd/{number}");
        let stat = dir.stat(&name)?;
        let link = dir.link(&name)?;
        let inode = Inode {
            device: stat.st_dev,
            number: stat.st_ino,
        };
        let class = classify(stat.st_mode, stat.st_rdev, &link).ok_or_else(|| {
            refuse(
                subject,
                format!("fd {number}: {}", describe(stat.st_mode, stat.st_rdev, &link)),
            )
        })?;
        all.push(Seen {
            number,
            inode,
            rdev: stat.st_rdev,
            link,
            class,
        });
    }
    Ok(all)
}

fn classify(mode: u32, rdev: u64, link: &[u8]) -> Option<Class> {
    use rustix::fs::FileType;
    let device = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile if super::memory::is_memory_object(link) => Some(Class::Memory),
        FileType::RegularFile if link.starts_with(b"/proc/") || link.starts_with(b"/sys/") => Some(Class::File),
        FileType::RegularFile => Some(Class::File),
        FileType::Directory => Some(Class::Directory),
        FileType::CharacterDevice if PLAIN_DEVICES.contains(&device) => Some(Class::Device),
        FileType::CharacterDevice if (136..=143).contains(&device.0) || device == (5, 0) => Some(Class::Terminal),
        FileType::Fifo => Some(Class::Pipe),
        FileType::Socket => Some(Class::Socket),
        FileType::Unknown => match link {
            b"anon_inode:[eventfd]" => Some(Class::Event),
            b"anon_inode:[timerfd]" => Some(Class::Timer),
            b"anon_inode:[signalfd]" => Some(Class::Signal),
            b"anon_inode:[eventpoll]" => Some(Class::Epoll),
            _ => None,
        },
        _ => None,
    }
}

fn describe(mode: u32, rdev: u64, link: &[u8]) -> String {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(mode) {
        FileType::CharacterDevice if rustix::fs::major(rdev) == 5 && rustix::fs::minor(rdev) == 2 => {
            "master of a terminal".to_owned()
        }
        FileType::CharacterDevice => format!("device {}", String::from_utf8_lossy(link)),
        _ => String::from_utf8_lossy(link)
            .trim_start_matches("anon_inode:")
            .trim_matches(['[', ']'])
            .to_owned(),
    }
}

/// Adds the questions about slots, three each; the index of the first.
pub(crate) fn ask(batch: &mut Batch, numbers: &[u32]) -> usize {
    let mut first = None;
    for number in numbers {
        let fd = u64::from(*number);
        let call = batch.call(libc::SYS_fcntl, [fd, libc::F_GETFD as u64, 0, 0, 0, 0]);
        first.get_or_insert(call);
        batch.call(libc::SYS_fcntl, [fd, libc::F_GETFL as u64, 0, 0, 0, 0]);
        batch.call(libc::SYS_lseek, [fd, 0, libc::SEEK_CUR as u64, 0, 0, 0]);
    }
    first.unwrap_or(0)
}

/// Close-on-exec, status flags and offset of each slot.
#[derive(Debug)]
pub(crate) struct Answered(Vec<(bool, u32, i64)>);

impl Answered {
    /// From the process's own answers to [`ask`].
    pub(crate) fn from_batch(results: &Results, first: usize, numbers: &[u32]) -> Result<Self, EngineError> {
        let mut all = Vec::with_capacity(numbers.len());
        for (at, number) in numbers.iter().enumerate() {
            let call = first + at * 3;
            let cloexec = results.expect(call, "F_GETFD", number)? & i64::from(libc::FD_CLOEXEC) != 0;
            let flags = u32::try_from(results.expect(call + 1, "F_GETFL", number)?).expect("status flags");
            all.push((cloexec, flags & !LARGEFILE, results.get(call + 2).unwrap_or(-1)));
        }
        Ok(Self(all))
    }

    /// From `fdinfo`, for a process that is left asleep.
    pub(crate) fn from_fdinfo(process: &LiveProcess, seen: &[Seen]) -> Result<Self, EngineError> {
        const CLOEXEC: u64 = libc::O_CLOEXEC as u64;
        let mut all = Vec::with_capacity(seen.len());
        let mut text = Vec::new();
        for number in seen.iter().map(|seen| seen.number) {
            process.dir.read(&format!("fdinfo/{number}"), &mut text)?;
            let flags = self::number(&text, "flags", 8).unwrap_or(0);
            let offset = procfs::field(&text, "pos").and_then(|v| v.parse().ok()).unwrap_or(-1);
            let status = u32::try_from(flags & !CLOEXEC).expect("status flags");
            all.push((flags & CLOEXEC != 0, status & !LARGEFILE, offset));
        }
        Ok(Self(all))
    }
}

/// Says nothing on 64 bit, and one of the two ways to ask hides it.
const LARGEFILE: u32 = 0o100_000;

/// Everything that descriptors of the whole box refer to, being put together.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Open file descriptions.
    pub(crate) objects: Vec<Object>,
    /// Host pid and slot through which each can be reached.
    pub(crate) holders: Vec<(i32, u32)>,
    by_inode: BTreeMap<(Class, Inode), Vec<ObjectIndex>>,
    pub(crate) pipes: Vec<Pipe>,
    pipe_ends: Vec<PipeEnds>,
    pub(crate) sockets: Vec<Socket>,
    socket_numbers: Vec<u64>,
    pub(crate) terminals: Vec<Terminal>,
    terminal_devices: Vec<u64>,
    pub(crate) ghosts: Vec<Ghost>,
    pub(crate) shared: Vec<image::process::SharedMemory>,
}

#[derive(Debug, Default)]
struct PipeEnds {
    reader: Option<(i32, u32)>,
    writer: Option<(i32, u32)>,
    packets: bool,
}

/// Where a new description is met.
struct Meeting<'a> {
    cache: &'a mut Cache,
    faults: &'a Faults,
    process: &'a LiveProcess,
    slot: &'a Seen,
    flags: u32,
    offset: i64,
    subject: &'a Subject,
    pids: &'a BTreeMap<i32, u32>,
}

impl Objects {
    /// Adds the slots of one process.
    #[expect(clippy::too_many_arguments, reason = "what differs by box, by process and by slot")]
    pub(crate) fn add(
        &mut self,
        cache: &mut Cache,
        faults: &Faults,
        process: &LiveProcess,
        seen: &[Seen],
        answered: &Answered,
        subject: &Subject,
        pids: &BTreeMap<i32, u32>,
    ) -> Result<Vec<Slot>, EngineError> {
        let mut slots = Vec::with_capacity(seen.len());
        for (slot, (cloexec, flags, offset)) in seen.iter().zip(answered.0.iter().copied()) {
            let object = match self.find(process, slot)? {
                Some(object) => object,
                None => {
                    let mut meeting = Meeting {
                        cache,
                        faults,
                        process,
                        slot,
                        flags,
                        offset,
                        subject,
                        pids,
                    };
                    let kind = self.kind(&mut meeting)?;
                    let index = ObjectIndex::try_from(self.objects.len()).expect("fewer than 4 billion");
                    self.objects.push(Object { flags, kind });
                    self.holders.push((process.host_pid, slot.number));
                    self.by_inode.entry((slot.class, slot.inode)).or_default().push(index);
                    index
                }
            };
            slots.push(Slot {
                number: slot.number,
                cloexec,
                object,
            });
        }
        Ok(slots)
    }

    /// The description that `slot` shares, if it was met already.
    fn find(&self, process: &LiveProcess, slot: &Seen) -> Result<Option<ObjectIndex>, EngineError> {
        let Some(candidates) = self.by_inode.get(&(slot.class, slot.inode)) else {
            return Ok(None);
        };
        for candidate in candidates {
            let (pid, fd) = self.holders[*candidate as usize];
            if ptrace::same_file(process.host_pid, slot.number, pid, fd)? {
                return Ok(Some(*candidate));
            }
        }
        Ok(None)
    }

    fn kind(&mut self, at: &mut Meeting<'_>) -> Result<Kind, EngineError> {
        let (slot, process) = (at.slot, at.process);
        Ok(match slot.class {
            Class::File => self.file(at)?,
            Class::Directory => Kind::File {
                path: slot.link.clone(),
                inode: slot.inode,
                offset: at.offset,
                directory: true,
                ghost: None,
            },
            Class::Memory => {
                let file = process.dir.file(&format!("fd/{}", slot.number), false)?;
                let object = self.memory(at.cache, &file, &slot.link, &[])?;
                Kind::Memory {
                    object,
                    offset: at.offset,
                }
            }
            Class::Device => Kind::Device {
                path: slot.link.clone(),
                rdev: slot.rdev,
            },
            Class::Terminal => self.terminal(at)?,
            Class::Pipe => Kind::Pipe {
                pipe: self.pipe(process, slot, at.flags),
            },
            Class::Socket => self.socket(process, slot, at.subject)?,
            Class::Event | Class::Timer | Class::Signal | Class::Epoll => {
                let mut text = Vec::new();
                process.dir.read(&format!("fdinfo/{}", slot.number), &mut text)?;
                if is_overdue(&text) {
                    // A periodic timer whose tick was not read stands still; asking it makes it go on in its rhythm.
                    linux::descriptor::ask_timer(process.pidfd.duplicate(slot.number)?.as_fd())?;
                    process.dir.read(&format!("fdinfo/{}", slot.number), &mut text)?;
                }
                from_fdinfo(slot.class, &text).ok_or_else(|| {
                    refuse(
                        at.subject,
                        format!("fd {}: {}", slot.number, describe(0, 0, &slot.link)),
                    )
                })?
            }
        })
    }

    fn file(&mut self, at: &mut Meeting<'_>) -> Result<Kind, EngineError> {
        const DELETED: &[u8] = b" (deleted)";
        let slot = at.slot;
        let (path, deleted) = match slot.link.strip_suffix(DELETED) {
            Some(path) => (path.to_vec(), true),
            None => (slot.link.clone(), false),
        };
        let ghost = if deleted && !at.faults.skips("ghosts") {
            let file = at.process.dir.file(&format!("fd/{}", slot.number), false)?;
            let (inode, content) = at.cache.capture(&file, &[])?;
            let metadata = file
                .metadata()
                .map_err(|e| SysError::io("fstat", "a file without a name", &e))?;
            let at = self
                .ghosts
                .iter()
                .position(|known| known.inode == inode)
                .unwrap_or_else(|| {
                    self.ghosts.push(Ghost {
                        inode,
                        content,
                        mode: metadata.mode() & 0o7777,
                        owner: (metadata.uid(), metadata.gid()),
                        modified: (metadata.mtime(), metadata.mtime_nsec()),
                    });
                    self.ghosts.len() - 1
                });
            Some(u32::try_from(at).expect("fewer than 4 billion"))
        } else {
            None
        };
        Ok(Kind::File {
            path,
            inode: slot.inode,
            offset: at.offset,
            directory: false,
            ghost,
        })
    }

    /// The shared memory object behind an open file; captured at the first time it is met.
    pub(crate) fn memory(
        &mut self,
        cache: &mut Cache,
        file: &std::fs::File,
        name: &[u8],
        written: &[u64],
    ) -> Result<u32, EngineError> {
        let inode = crate::content::inode_of(file)?;
        if let Some(at) = self.shared.iter().position(|known| known.inode == inode) {
            if !written.is_empty() {
                self.shared[at].content = cache.capture(file, written)?.1;
            }
            return Ok(u32::try_from(at).expect("fewer than 4 billion"));
        }
        let (inode, content) = cache.capture(file, written)?;
        let metadata = file
            .metadata()
            .map_err(|e| SysError::io("fstat", "a memory file", &e))?;
        self.shared.push(image::process::SharedMemory {
            inode,
            name: name.to_vec(),
            seals: linux::memfd::seals(file.as_fd()),
            mode: metadata.mode() & 0o7777,
            content,
        });
        Ok(u32::try_from(self.shared.len() - 1).expect("fewer than 4 billion"))
    }

    fn terminal(&mut self, at: &Meeting<'_>) -> Result<Kind, EngineError> {
        let slot = at.slot;
        let known = self.terminal_devices.iter().position(|known| *known == slot.rdev);
        let index = match known {
            Some(index) => index,
            None => {
                let fd = at.process.pidfd.duplicate(slot.number)?;
                let (settings, size) = linux::descriptor::terminal(fd.as_fd())?;
                self.terminals.push(Terminal {
                    settings,
                    size,
                    foreground: foreground(at)?,
                });
                self.terminal_devices.push(slot.rdev);
                self.terminals.len() - 1
            }
        };
        let terminal = u32::try_from(index).expect("fewer than 4 billion");
        Ok(Kind::Terminal {
            path: slot.link.clone(),
            rdev: slot.rdev,
            terminal,
        })
    }

    fn pipe(&mut self, process: &LiveProcess, slot: &Seen, flags: u32) -> u32 {
        let at = self
            .pipes
            .iter()
            .position(|known| known.inode == slot.inode)
            .unwrap_or_else(|| {
                let path = if slot.link.starts_with(b"pipe:") {
                    Vec::new()
                } else {
                    slot.link.clone()
                };
                self.pipes.push(Pipe {
                    inode: slot.inode,
                    path,
                    capacity: 0,
                    content: None,
                });
                self.pipe_ends.push(PipeEnds::default());
                self.pipes.len() - 1
            });
        let end = Some((process.host_pid, slot.number));
        let ends = &mut self.pipe_ends[at];
        let access = i32::try_from(flags).unwrap_or(0) & libc::O_ACCMODE;
        if access != libc::O_WRONLY {
            ends.reader = end;
        }
        if access != libc::O_RDONLY {
            ends.writer = end;
            ends.packets |= flags & libc::O_DIRECT as u32 != 0;
        }
        u32::try_from(at).expect("fewer than 4 billion")
    }

    fn socket(&mut self, process: &LiveProcess, slot: &Seen, subject: &Subject) -> Result<Kind, EngineError> {
        let duplicate = process.pidfd.duplicate(slot.number)?;
        let (domain, kind) = unix_diag::domain_and_type(duplicate.as_fd())?;
        if domain != libc::AF_UNIX {
            let name = match domain {
                libc::AF_INET => "IPv4",
                libc::AF_INET6 => "IPv6",
                libc::AF_NETLINK => "netlink",
                libc::AF_PACKET => "packet",
                libc::AF_VSOCK => "vsock",
                _ => "unknown",
            };
            return Err(refuse(subject, format!("fd {}: {name} socket", slot.number)));
        }
        self.sockets.push(Socket {
            kind,
            peer: 0,
            queue: Vec::new(),
            shutdown: 0,
            outside: false,
            reset: false,
        });
        self.socket_numbers.push(slot.inode.number);
        let socket = u32::try_from(self.sockets.len() - 1).expect("fewer than 4 billion");
        Ok(Kind::Socket {
            number: slot.inode.number,
            socket,
        })
    }

    /// Once all processes are in: what waits in pipes and sockets whose both ends are inside.
    pub(crate) fn fill(
        &mut self,
        live: &BTreeMap<i32, LiveProcess>,
        diag: &mut Option<UnixDiag>,
        init: i32,
        faults: &Faults,
    ) -> Result<(), EngineError> {
        for (pipe, ends) in self.pipes.iter_mut().zip(&self.pipe_ends) {
            fill_pipe(live, pipe, ends)?;
            if faults.skips("pipes") {
                pipe.content = None;
            }
        }
        if self.sockets.is_empty() {
            return Ok(());
        }
        if diag.is_none() {
            *diag = Some(UnixDiag::of_process(init)?);
        }
        let known = diag.as_ref().expect("just made").sockets()?;
        for index in 0..self.objects.len() {
            let Kind::Socket { number, socket } = self.objects[index].kind else {
                continue;
            };
            let state = known.get(&number).copied().unwrap_or_default();
            let holder = self.holders[index];
            self.fill_socket(live, holder, number, socket as usize, state)?;
            if faults.skips("sockets") {
                self.sockets[socket as usize].queue.clear();
                self.sockets[socket as usize].outside = true;
            }
        }
        Ok(())
    }

    fn fill_socket(
        &mut self,
        live: &BTreeMap<i32, LiveProcess>,
        (pid, fd): (i32, u32),
        number: u64,
        at: usize,
        state: UnixSocket,
    ) -> Result<(), EngineError> {
        let process = &live[&pid];
        if state.listening || state.named {
            let subject = Subject::of(process);
            let what = if state.listening {
                "listening unix socket"
            } else {
                "named unix socket"
            };
            return Err(refuse(&subject, format!("fd {fd}: {what}")));
        }
        let inside = self.socket_numbers.contains(&state.peer);
        let socket = &mut self.sockets[at];
        socket.peer = state.peer;
        socket.shutdown = state.shutdown;
        socket.outside = state.peer != 0 && !inside;
        if state.peer == 0 && number != 0 {
            socket.peer = 0;
        }
        if !socket.outside {
            let duplicate = process.pidfd.duplicate(fd)?;
            socket.reset = has_error(&duplicate);
            if linux::pipe::unread(duplicate.as_fd())? == 0 {
                // Looking at an empty queue would take an unread error away from the program.
                return Ok(());
            }
            socket.queue = unix_diag::peek(duplicate.as_fd(), socket.kind == libc::SOCK_STREAM)?.ok_or_else(|| {
                refuse(
                    &Subject::of(process),
                    format!("fd {fd}: descriptors on their way through a unix socket"),
                )
            })?;
        }
        Ok(())
    }
}

/// Foreground process group of the terminal that a process is controlled by; 0 where it has none.
fn foreground(at: &Meeting<'_>) -> Result<u32, EngineError> {
    let mut text = Vec::new();
    at.process.dir.read("stat", &mut text)?;
    let group: i32 = procfs::stat_fields(&text)
        .and_then(|(_, fields)| fields.get(5)?.parse().ok())
        .unwrap_or(-1);
    Ok(at.pids.get(&group).copied().unwrap_or(0))
}

fn duplicate(live: &BTreeMap<i32, LiveProcess>, (pid, fd): (i32, u32)) -> Result<OwnedFd, EngineError> {
    Ok(live[&pid].pidfd.duplicate(fd)?)
}

fn fill_pipe(live: &BTreeMap<i32, LiveProcess>, pipe: &mut Pipe, ends: &PipeEnds) -> Result<(), EngineError> {
    let Some(end) = ends.reader.or(ends.writer) else {
        return Ok(());
    };
    let fd = duplicate(live, end)?;
    pipe.capacity = linux::pipe::capacity(fd.as_fd())?;
    if ends.reader.is_some() && (ends.writer.is_some() || !has_other_end(&fd)) {
        pipe.content = Some(linux::pipe::content(fd.as_fd(), ends.packets)?);
    }
    Ok(())
}

/// Whether an error waits at a socket to be read.
fn has_error(fd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok_and(|count| count > 0) && fds[0].revents().contains(PollFlags::ERR)
}

/// Whether somebody outside the box holds the other end of a pipe.
fn has_other_end(fd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let _count = poll(&mut fds, Some(&zero));
    !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

fn number(text: &[u8], key: &str, radix: u32) -> Option<u64> {
    u64::from_str_radix(procfs::field(text, key)?, radix).ok()
}

fn timespec(text: &[u8], key: &str) -> Option<u64> {
    let value = procfs::field(text, key)?;
    let (seconds, nanoseconds) = value.trim_matches(['(', ')']).split_once(',')?;
    Some(seconds.trim().parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.trim().parse::<u64>().ok()?)
}

fn is_overdue(text: &[u8]) -> bool {
    timespec(text, "it_value") == Some(0) && timespec(text, "it_interval").is_some_and(|interval| interval > 0)
}

fn from_fdinfo(class: Class, text: &[u8]) -> Option<Kind> {
    Some(match class {
        Class::Event => Kind::Event {
            count: number(text, "eventfd-count", 16)?,
            semaphore: procfs::field(text, "eventfd-semaphore") == Some("1"),
        },
        Class::Timer => Kind::Timer {
            clock: procfs::field(text, "clockid")?.parse().ok()?,
            ticks: number(text, "ticks", 10)?,
            settime_flags: u32::try_from(number(text, "settime flags", 8)?).ok()?,
            armed: Armed {
                value_ns: timespec(text, "it_value")?,
                interval_ns: timespec(text, "it_interval")?,
            },
        },
        Class::Signal => Kind::Signal {
            mask: number(text, "sigmask", 16)?,
        },
        Class::Epoll => {
            let mut watches: Vec<Watch> = text
                .split(|b| *b == b'\n')
                .filter(|line| line.starts_with(b"tfd:"))
                .filter_map(watch)
                .collect();
            watches.sort_unstable();
            Kind::Epoll { watches }
        }
        _ => return None,
    })
}

/// `tfd:        5 events:       19 data:  7f0000000005  pos:0 ino:1 sdev:d`
fn watch(line: &[u8]) -> Option<Watch> {
    let text = std::str::from_utf8(line).ok()?;
    let after = |key: &str| text.split_once(key)?.1.split_ascii_whitespace().next();
    Some(Watch {
        fd: after("tfd:")?.parse().ok()?,
        events: u32::from_str_radix(after("events:")?, 16).ok()?,
        data: u64::from_str_radix(after("data:")?, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoll_set_with_a_fired_one_shot() {
        let text = b"pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\ntfd:        7 events: c0000000 data:         7b  pos:0 ino:421 sdev:f\n";
        let kind = from_fdinfo(Class::Epoll, text);
        assert_eq!(
            kind,
            Some(Kind::Epoll {
                watches: vec![Watch {
                    fd: 7,
                    events: 0xc000_0000,
                    data: 0x7b
                }]
            })
        );
    }

    #[test]
    fn a_timer() {
        let text = b"clockid: 1\nticks: 2\nsettime flags: 01\nit_value: (0, 49406829)\nit_interval: (1, 0)\n";
        let Some(Kind::Timer {
            ticks,
            armed,
            settime_flags,
            ..
        }) = from_fdinfo(Class::Timer, text)
        else {
            panic!()
        };
        assert_eq!((ticks, settime_flags), (2, 1));
        assert_eq!(
            armed,
            Armed {
                value_ns: 49_406_829,
                interval_ns: 1_000_000_000
            }
        );
    }
}
