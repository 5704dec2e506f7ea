//! Descriptor steps. What still lives is kept and only its state is put back; what is gone is made by us and handed to
//! the process over a socket pair that exists for that moment only. Duplicates are closed before anything runs again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use image::fd::{Kind, Object, ObjectIndex, Watch};
use image::process::Processes;
use linux::{SysError, descriptor, unix_diag};
use rustix::fs::{Mode, OFlags};

use crate::content::Cache;
use crate::error::EngineError;
use crate::fault::Faults;
use crate::freeze::{Live, Stopped};
use crate::plan::fds::{FdPlan, Origin, TablePlan};
use crate::remote::{self, Batch};
use crate::tracee::{LiveProcess, Space};

/// What a step needs.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) live: &'a Live,
    pub(crate) stopped: &'a mut Stopped,
    pub(crate) now: &'a Processes,
    pub(crate) target: &'a Processes,
    pub(crate) plan: &'a FdPlan,
    pub(crate) faults: &'a Faults,
    pub(crate) cache: &'a mut Cache,
    /// Shared memory objects of the target, by index.
    pub(crate) shared: &'a BTreeMap<u32, File>,
}

/// Puts all descriptor tables and what they refer to where the target has them.
pub(crate) fn apply(scene: &mut Scene<'_>) -> Result<(), EngineError> {
    if scene.faults.skips("fds") {
        return Ok(());
    }
    let by_pid: BTreeMap<u32, i32> = scene.live.values().map(|p| (p.pid, p.host_pid)).collect();
    forget_watches(scene, &by_pid)?;
    let made = make(scene, &by_pid)?;
    // Everything that must travel is duplicated before the first table changes.
    let mut parcels = Vec::new();
    for (pid, table) in &scene.plan.tables {
        let host_pid = by_pid[pid];
        parcels.push((host_pid, table, parcel(scene, &by_pid, *pid, table, &made)?));
    }
    drop(made);
    for (host_pid, table, parcel) in parcels {
        set_table(scene, host_pid, table, parcel)?;
    }
    states(scene, &by_pid)?;
    shutdowns(scene, &by_pid)?;
    watches(scene, &by_pid)
}

/// Corrects the plan once the files are back: descriptions whose file is not the one that the target's path names.
pub(crate) fn follow_names(live: &Live, now: &Processes, target: &Processes, plan: &mut FdPlan) {
    let by_pid: BTreeMap<u32, i32> = live.values().map(|p| (p.pid, p.host_pid)).collect();
    plan.correct(now, target, &|pid, path, inode| {
        let named = by_pid.get(&pid).and_then(|host_pid| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = open_inside(&live[host_pid], path, flags).ok()?;
            rustix::fs::fstat(file).ok()
        });
        named.is_some_and(|named| (named.st_dev, named.st_ino) == (inode.device, inode.number))
    });
}

/// The process of the present and slot that hold object `object` of `all`.
fn holder(all: &Processes, object: ObjectIndex) -> Option<(u32, u32)> {
    all.processes
        .iter()
        .find_map(|(pid, p)| p.slots.iter().find(|s| s.object == object).map(|s| (*pid, s.number)))
}

fn duplicate(live: &Live, by_pid: &BTreeMap<u32, i32>, (pid, fd): (u32, u32)) -> Result<OwnedFd, EngineError> {
    Ok(live[&by_pid[&pid]].pidfd.duplicate(fd)?)
}

/// Entries of kept epoll sets that the target does not have: while their descriptors still are what they were.
fn forget_watches(scene: &mut Scene<'_>, by_pid: &BTreeMap<u32, i32>) -> Result<(), EngineError> {
    if scene.faults.skips("epoll") {
        return Ok(());
    }
    for (wanted, origin) in scene.target.objects.iter().zip(&scene.plan.origins) {
        let (Kind::Epoll { watches: wanted }, Origin::Kept(kept)) = (&wanted.kind, origin) else {
            continue;
        };
        let Kind::Epoll { watches: present } = &scene.now.objects[*kept as usize].kind else {
            continue;
        };
        let gone: Vec<Watch> = present
            .iter()
            .filter(|p| !wanted.iter().any(|w| w.fd == p.fd))
            .copied()
            .collect();
        let Some((pid, fd)) = holder(scene.now, *kept).filter(|_| !gone.is_empty()) else {
            continue;
        };
        let process = &scene.live[&by_pid[&pid]];
        let space = process.space.as_ref().expect("observed before");
        let thread = crate::capture::any_thread(process, scene.stopped)?;
        let mut batch = Batch::new(&space.annex);
        for watch in gone {
            batch.call(
                libc::SYS_epoll_ctl,
                [fd.into(), libc::EPOLL_CTL_DEL as u64, watch.fd.into(), 0, 0, 0],
            );
        }
        remote::run(&space.annex, thread, &mut batch)?;
    }
    Ok(())
}

/// Makes again what is gone.
fn make(scene: &Scene<'_>, by_pid: &BTreeMap<u32, i32>) -> Result<BTreeMap<ObjectIndex, OwnedFd>, EngineError> {
    let mut made = BTreeMap::new();
    let mut pipes: BTreeMap<u32, (OwnedFd, OwnedFd)> = BTreeMap::new();
    let mut pairs: BTreeMap<u64, OwnedFd> = BTreeMap::new();
    let mut ghosts: BTreeMap<u32, OwnedFd> = BTreeMap::new();
    for (index, (object, origin)) in (0..).zip(scene.target.objects.iter().zip(&scene.plan.origins)) {
        if *origin != Origin::Made {
            continue;
        }
        let Some((pid, _)) = holder(scene.target, index) else {
            continue;
        };
        let process = &scene.live[&by_pid[&pid]];
        let fd = match &object.kind {
            Kind::Pipe { pipe } => pipe_end(scene, by_pid, process, *pipe, object.flags, &mut pipes)?,
            Kind::Socket { number, socket } => socket_end(scene, *number, *socket, &mut pairs)?,
            Kind::File {
                path,
                ghost: Some(ghost),
                ..
            } => super::nameless::file(process, path, *ghost, object.flags, &mut ghosts)?,
            _ => make_one(scene, process, object)?,
        };
        made.insert(index, fd);
    }
    Ok(made)
}

pub(super) fn open_flags(flags: u32) -> OFlags {
    let dropped = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
    (OFlags::from_bits_retain(flags) - dropped) | OFlags::NOCTTY | OFlags::CLOEXEC
}

/// Opens a path as the process sees it. The box may have planted links: nothing outside its root can be reached.
pub(super) fn open_inside(process: &LiveProcess, path: &[u8], flags: OFlags) -> Result<OwnedFd, EngineError> {
    let root = process.dir.file_as("root", OFlags::PATH | OFlags::DIRECTORY)?;
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let relative = if relative.is_empty() { b"." } else { relative };
    linux::openat::openat2(&root, relative, flags, Mode::empty(), rustix::fs::ResolveFlags::IN_ROOT)
        .map_err(|e| SysError::rustix("openat2", String::from_utf8_lossy(path), e).into())
}

fn made_error(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> EngineError {
    move |e| SysError::rustix(what, "a descriptor", e).into()
}

fn make_one(scene: &Scene<'_>, process: &LiveProcess, object: &Object) -> Result<OwnedFd, EngineError> {
    match &object.kind {
        Kind::File { path, .. } | Kind::Device { path, .. } | Kind::Terminal { path, .. } => {
            open_inside(process, path, open_flags(object.flags))
        }
        Kind::Memory { object: shared, .. } => {
            let file = &scene.shared[shared];
            descriptor::reopen(file.as_fd(), open_flags(object.flags)).map_err(Into::into)
        }
        Kind::Event { semaphore, .. } => {
            use rustix::event::{EventfdFlags, eventfd};
            let flags = if *semaphore {
                EventfdFlags::SEMAPHORE
            } else {
                EventfdFlags::empty()
            };
            eventfd(0, flags | EventfdFlags::CLOEXEC).map_err(made_error("eventfd2"))
        }
        Kind::Timer { clock, .. } => Ok(descriptor::timerfd(*clock)?),
        Kind::Signal { mask } => Ok(descriptor::signalfd(None, *mask)?.expect("a new descriptor where none was given")),
        Kind::Epoll { .. } => rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .map_err(made_error("epoll_create1")),
        Kind::Pipe { .. } | Kind::Socket { .. } => unreachable!("made by their own functions"),
    }
}

fn pipe_end(
    scene: &Scene<'_>,
    by_pid: &BTreeMap<u32, i32>,
    process: &LiveProcess,
    pipe: u32,
    flags: u32,
    pipes: &mut BTreeMap<u32, (OwnedFd, OwnedFd)>,
) -> Result<OwnedFd, EngineError> {
    let wanted = &scene.target.pipes[pipe as usize];
    let flags = open_flags(flags) | OFlags::NONBLOCK;
    let alive = scene.now.objects.iter().position(|o| match &o.kind {
        Kind::Pipe { pipe } => scene.now.pipes[*pipe as usize].inode == wanted.inode,
        _ => false,
    });
    if let Some(at) = alive.and_then(|at| holder(scene.now, u32::try_from(at).ok()?)) {
        let other = duplicate(scene.live, by_pid, at)?;
        return Ok(descriptor::reopen(other.as_fd(), flags - OFlags::DIRECT)?);
    }
    if let Some(path) = descriptor::own(wanted.inode.device, wanted.inode.number) {
        return rustix::fs::open(&path, flags - OFlags::DIRECT, Mode::empty())
            .map_err(|e| SysError::rustix("open", path, e).into());
    }
    if !wanted.path.is_empty() {
        // Both ways first, so that opening for writing finds a reader.
        let both = open_inside(process, &wanted.path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC)?;
        return Ok(descriptor::reopen(both.as_fd(), flags)?);
    }
    let (reader, writer) = match pipes.entry(pipe) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(made_error("pipe2"))?)
        }
    };
    let end = if flags.contains(OFlags::WRONLY) { writer } else { reader };
    end.try_clone().map_err(|e| SysError::io("dup", "a pipe", &e).into())
}

fn socket_end(
    scene: &Scene<'_>,
    number: u64,
    socket: u32,
    pairs: &mut BTreeMap<u64, OwnedFd>,
) -> Result<OwnedFd, EngineError> {
    if let Some(end) = pairs.remove(&number) {
        return Ok(end);
    }
    let wanted = &scene.target.sockets[socket as usize];
    let (ours, theirs) = descriptor::unix_pair(wanted.kind)?;
    if wanted.peer == 0 {
        for message in &wanted.queue {
            unix_diag::send(theirs.as_fd(), message, wanted.kind == libc::SOCK_STREAM)?;
        }
        if wanted.reset {
            unix_diag::send(ours.as_fd(), b"x", false)?;
        }
    } else {
        pairs.insert(wanted.peer, theirs);
    }
    Ok(ours)
}

/// What must travel to one process: objects of the target that none of its own slots holds now.
fn parcel(
    scene: &Scene<'_>,
    by_pid: &BTreeMap<u32, i32>,
    pid: u32,
    table: &TablePlan,
    made: &BTreeMap<ObjectIndex, OwnedFd>,
) -> Result<Vec<(ObjectIndex, OwnedFd)>, EngineError> {
    let mut parcel: Vec<(ObjectIndex, OwnedFd)> = Vec::new();
    for (_, object, _) in &table.place {
        if parcel.iter().any(|(known, _)| known == object) {
            continue;
        }
        let fd = match &scene.plan.origins[*object as usize] {
            Origin::Kept(kept) => {
                let own = scene.now.processes[&pid].slots.iter().find(|s| s.object == *kept);
                let at = own.map(|s| (pid, s.number)).or_else(|| holder(scene.now, *kept));
                duplicate(scene.live, by_pid, at.expect("an object of the present has a holder"))?
            }
            Origin::Made => made[object]
                .try_clone()
                .map_err(|e| SysError::io("dup", "a descriptor", &e))?,
        };
        parcel.push((*object, fd));
    }
    Ok(parcel)
}

/// Hands a parcel over and puts every slot where it belongs.
fn set_table(
    scene: &mut Scene<'_>,
    host_pid: i32,
    table: &TablePlan,
    parcel: Vec<(ObjectIndex, OwnedFd)>,
) -> Result<(), EngineError> {
    if table.place.is_empty() && table.close.is_empty() && table.cloexec.is_empty() {
        return Ok(());
    }
    let process = &scene.live[&host_pid];
    let space = process.space.as_ref().expect("observed before");
    let thread = crate::capture::any_thread(process, scene.stopped)?;
    let mut temporary: BTreeMap<ObjectIndex, u32> = BTreeMap::new();
    let slots = |all: &Processes| {
        all.processes
            .get(&process.pid)
            .and_then(|p| p.slots.last())
            .map_or(0, |s| s.number)
    };
    let base = slots(scene.now).max(slots(scene.target)) + 1;
    for chunk in parcel.chunks(128) {
        let fds: Vec<BorrowedFd<'_>> = chunk.iter().map(|(_, fd)| fd.as_fd()).collect();
        let received = hand_over(space, &process.pidfd, thread, &fds)?;
        let mut batch = Batch::new(&space.annex);
        let moved: Vec<usize> = received
            .iter()
            .map(|fd| {
                let moved = batch.call(
                    libc::SYS_fcntl,
                    [(*fd).into(), libc::F_DUPFD_CLOEXEC as u64, base.into(), 0, 0, 0],
                );
                batch.call(libc::SYS_close, [(*fd).into(), 0, 0, 0, 0, 0]);
                moved
            })
            .collect();
        let results = remote::run(&space.annex, thread, &mut batch)?;
        for ((object, _), call) in chunk.iter().zip(moved) {
            let fd = results.expect(call, "F_DUPFD_CLOEXEC", process.pid)?;
            temporary.insert(*object, u32::try_from(fd).expect("a descriptor"));
        }
    }
    let mut batch = Batch::new(&space.annex);
    let mut checks = Vec::new();
    for (number, object, cloexec) in &table.place {
        let flags = if *cloexec { libc::O_CLOEXEC as u64 } else { 0 };
        checks.push(batch.call(
            libc::SYS_dup3,
            [temporary[object].into(), (*number).into(), flags, 0, 0, 0],
        ));
    }
    for fd in temporary.values().chain(&table.close) {
        checks.push(batch.call(libc::SYS_close, [(*fd).into(), 0, 0, 0, 0, 0]));
    }
    if !scene.faults.skips("fd_flags") {
        for (number, cloexec) in &table.cloexec {
            let set = libc::F_SETFD as u64;
            checks.push(batch.call(libc::SYS_fcntl, [(*number).into(), set, u64::from(*cloexec), 0, 0, 0]));
        }
    }
    if !batch.is_empty() {
        let results = remote::run(&space.annex, thread, &mut batch)?;
        for check in checks {
            results.expect(check, "dup3 or close", process.pid)?;
        }
    }
    Ok(())
}

/// Sends descriptors into a stopped process; their numbers there.
pub(crate) fn hand_over(
    space: &Space,
    pidfd: &linux::pidfd::Pidfd,
    thread: &mut crate::tracee::StoppedThread,
    fds: &[BorrowedFd<'_>],
) -> Result<Vec<u32>, EngineError> {
    let pid = thread.host_pid;
    let mut batch = Batch::new(&space.annex);
    let room = batch.room(8);
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
    let pair = batch.call(
        libc::SYS_socketpair,
        [libc::AF_UNIX as u64, kind, 0, room.address, 0, 0],
    );
    remote::run(&space.annex, thread, &mut batch)?.expect(pair, "socketpair", pid)?;
    let numbers = remote::answer(&space.annex, room);
    let end = |at: usize| u32::from_ne_bytes(numbers[at..at + 4].try_into().expect("four bytes"));
    let (ours, theirs) = (end(0), end(4));
    let socket = pidfd.duplicate(ours)?;
    descriptor::send(socket.as_fd(), fds)?;
    drop(socket);
    let mut batch = Batch::new(&space.annex);
    let control_size = 16 + fds.len() * 4;
    let data = batch.room(8);
    let vector = batch.room(16);
    let control = batch.room(control_size.next_multiple_of(8));
    let header = batch.room(56);
    let words = [data.address, 1]
        .iter()
        .flat_map(|w: &u64| w.to_ne_bytes())
        .collect::<Vec<u8>>();
    remote::put(&space.annex, vector, &words);
    let words: Vec<u8> = [
        0,
        0,
        vector.address,
        1,
        control.address,
        control_size.next_multiple_of(8) as u64,
        0,
    ]
    .iter()
    .flat_map(|w: &u64| w.to_ne_bytes())
    .collect();
    remote::put(&space.annex, header, &words);
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
    let receive = batch.call(libc::SYS_recvmsg, [theirs.into(), header.address, flags, 0, 0, 0]);
    for fd in [ours, theirs] {
        batch.call(libc::SYS_close, [fd.into(), 0, 0, 0, 0, 0]);
    }
    remote::run(&space.annex, thread, &mut batch)?.expect(receive, "recvmsg", pid)?;
    let bytes = remote::answer(&space.annex, control);
    let received: Vec<u32> = bytes[16..control_size]
        .chunks_exact(4)
        .map(|n| u32::from_ne_bytes(n.try_into().expect("four bytes")))
        .collect();
    Ok(received)
}

/// Offsets, flags, counters, timers, masks, and what waits in pipes and sockets.
fn states(scene: &mut Scene<'_>, by_pid: &BTreeMap<u32, i32>) -> Result<(), EngineError> {
    for index in 0..scene.target.objects.len() {
        let wanted = &scene.target.objects[index];
        let present = match &scene.plan.origins[index] {
            Origin::Kept(kept) => Some(&scene.now.objects[*kept as usize]),
            Origin::Made => None,
        };
        if !state_differs(scene, present, wanted) {
            continue;
        }
        let Some(at) = holder(scene.target, u32::try_from(index).expect("an index")) else {
            continue;
        };
        let fd = duplicate(scene.live, by_pid, at)?;
        flags(scene.faults, fd.as_fd(), present, wanted)?;
        state(scene, by_pid, &fd, wanted, at)?;
    }
    Ok(())
}

/// Ways that were shut down, once every queue is filled.
fn shutdowns(scene: &Scene<'_>, by_pid: &BTreeMap<u32, i32>) -> Result<(), EngineError> {
    for (index, object) in (0..).zip(&scene.target.objects) {
        let Kind::Socket { socket, .. } = object.kind else {
            continue;
        };
        let wanted = &scene.target.sockets[socket as usize];
        if wanted.outside || wanted.shutdown == 0 || wanted.peer == 0 || scene.faults.skips("sockets") {
            continue;
        }
        if let Some(at) = holder(scene.target, index) {
            descriptor::shut_down(duplicate(scene.live, by_pid, at)?.as_fd(), wanted.shutdown)?;
        }
    }
    Ok(())
}

fn state_differs(scene: &Scene<'_>, present: Option<&Object>, wanted: &Object) -> bool {
    let Some(present) = present else { return true };
    if present.flags != wanted.flags {
        return true;
    }
    match (&present.kind, &wanted.kind) {
        (Kind::Pipe { pipe: a }, Kind::Pipe { pipe: b }) => {
            scene.now.pipes[*a as usize] != scene.target.pipes[*b as usize]
        }
        (Kind::Socket { socket: a, .. }, Kind::Socket { socket: b, .. }) => {
            scene.now.sockets[*a as usize] != scene.target.sockets[*b as usize]
        }
        (Kind::Terminal { terminal: a, .. }, Kind::Terminal { terminal: b, .. }) => {
            scene.now.terminals[*a as usize] != scene.target.terminals[*b as usize]
        }
        (
            Kind::File {
                offset: a, ghost: g, ..
            },
            Kind::File { offset: b, .. },
        ) => a != b || g.is_some(),
        (Kind::Memory { offset: a, .. }, Kind::Memory { offset: b, .. }) => a != b,
        (Kind::Epoll { .. }, Kind::Epoll { .. }) => false,
        (a, b) => a != b,
    }
}

fn flags(faults: &Faults, fd: BorrowedFd<'_>, present: Option<&Object>, wanted: &Object) -> Result<(), EngineError> {
    if present.is_some_and(|p| p.flags == wanted.flags) || faults.skips("fd_flags") {
        return Ok(());
    }
    rustix::fs::fcntl_setfl(fd, OFlags::from_bits_retain(wanted.flags))
        .map_err(|e| SysError::rustix("F_SETFL", "a descriptor", e).into())
}

fn state(
    scene: &mut Scene<'_>,
    by_pid: &BTreeMap<u32, i32>,
    fd: &OwnedFd,
    wanted: &Object,
    at: (u32, u32),
) -> Result<(), EngineError> {
    let faults = scene.faults;
    match &wanted.kind {
        Kind::File { offset, ghost, .. } => {
            if let Some(ghost) = ghost.filter(|_| !faults.skips("ghosts")) {
                let file = File::from(descriptor::reopen(fd.as_fd(), OFlags::RDWR | OFlags::CLOEXEC)?);
                let ghost = &scene.target.ghosts[ghost as usize];
                scene.cache.restore(&file, &ghost.content)?;
                super::nameless::put_attributes(&file, ghost)?;
            }
            seek(faults, fd, *offset)
        }
        Kind::Memory { offset, .. } => seek(faults, fd, *offset),
        Kind::Pipe { pipe } if !faults.skips("pipes") => {
            let wanted_pipe = &scene.target.pipes[*pipe as usize];
            fill_pipe(fd, wanted_pipe, wanted.flags)
        }
        Kind::Socket { socket, .. } if !faults.skips("sockets") => fill_socket(scene, by_pid, fd, *socket as usize),
        Kind::Terminal { terminal, .. } if !faults.skips("terminal") => {
            set_terminal(scene, by_pid, fd, *terminal as usize, at)
        }
        Kind::Event { count, semaphore } if !faults.skips("eventfd") => {
            Ok(descriptor::set_event(fd.as_fd(), *count, *semaphore)?)
        }
        Kind::Timer { ticks, armed, .. } if !faults.skips("timerfd") => Ok(descriptor::set_timer(
            fd.as_fd(),
            &super::signals::itimerspec(*armed),
            *ticks,
        )?),
        Kind::Signal { mask } if !faults.skips("signalfd") => {
            drop(descriptor::signalfd(Some(fd.as_fd()), *mask)?);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn seek(faults: &Faults, fd: &OwnedFd, offset: i64) -> Result<(), EngineError> {
    let Ok(offset) = u64::try_from(offset) else {
        return Ok(());
    };
    if faults.skips("fd_offsets") {
        return Ok(());
    }
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(offset)).map_err(|e| SysError::rustix("lseek", offset, e))?;
    Ok(())
}

fn fill_pipe(fd: &OwnedFd, wanted: &image::fd::Pipe, flags: u32) -> Result<(), EngineError> {
    let Some(content) = &wanted.content else { return Ok(()) };
    let reader = descriptor::reopen(fd.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?;
    let packets = content.len() > 1 || flags & OFlags::DIRECT.bits() != 0;
    let writer = descriptor::reopen(fd.as_fd(), OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?;
    if packets {
        // A pipe cannot be opened in packet mode, but be switched to it.
        rustix::fs::fcntl_setfl(&writer, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::DIRECT)
            .map_err(|e| SysError::rustix("F_SETFL", "a pipe", e))?;
    }
    if linux::pipe::capacity(fd.as_fd())? != wanted.capacity {
        rustix::pipe::fcntl_setpipe_size(fd, wanted.capacity as usize)
            .map_err(|e| SysError::rustix("F_SETPIPE_SZ", wanted.capacity, e))?;
    }
    if linux::pipe::content(reader.as_fd(), packets)? == *content {
        return Ok(());
    }
    linux::pipe::drain(reader.as_fd())?;
    for packet in content {
        linux::pipe::fill(writer.as_fd(), packet)?;
    }
    Ok(())
}

fn fill_socket(scene: &Scene<'_>, by_pid: &BTreeMap<u32, i32>, fd: &OwnedFd, index: usize) -> Result<(), EngineError> {
    let wanted = &scene.target.sockets[index];
    if wanted.outside || wanted.peer == 0 {
        return Ok(());
    }
    let stream = wanted.kind == libc::SOCK_STREAM;
    let present = unix_diag::peek(fd.as_fd(), stream)?.unwrap_or_default();
    if present == wanted.queue {
        return Ok(());
    }
    unix_diag::drain(fd.as_fd())?;
    if wanted.queue.is_empty() {
        return Ok(());
    }
    let peer = scene
        .target
        .objects
        .iter()
        .position(|o| matches!(o.kind, Kind::Socket { number, .. } if number == wanted.peer));
    let at = peer.and_then(|at| holder(scene.target, u32::try_from(at).ok()?));
    let at = at.ok_or_else(|| EngineError::Torn("the sender of a unix socket is gone".to_owned()))?;
    let peer = duplicate(scene.live, by_pid, at)?;
    for message in &wanted.queue {
        unix_diag::send(peer.as_fd(), message, stream)?;
    }
    Ok(())
}

fn set_terminal(
    scene: &mut Scene<'_>,
    by_pid: &BTreeMap<u32, i32>,
    fd: &OwnedFd,
    index: usize,
    (pid, number): (u32, u32),
) -> Result<(), EngineError> {
    const TIOCSPGRP: u64 = 0x5410;
    let wanted = &scene.target.terminals[index];
    if !wanted.settings.is_empty() {
        descriptor::set_terminal(fd.as_fd(), &wanted.settings, &wanted.size)?;
    }
    if wanted.foreground != 0 {
        let process = &scene.live[&by_pid[&pid]];
        let space = process.space.as_ref().expect("observed before");
        let thread = crate::capture::any_thread(process, scene.stopped)?;
        let mut batch = Batch::new(&space.annex);
        let group = batch.bytes(&wanted.foreground.to_ne_bytes());
        batch.call(libc::SYS_ioctl, [number.into(), TIOCSPGRP, group, 0, 0, 0]);
        remote::run(&space.annex, thread, &mut batch)?;
    }
    Ok(())
}

/// Interest lists. An edge-triggered entry is set again even where it is the same, so that an edge that was consumed
/// in the undone time is reported again.
fn watches(scene: &mut Scene<'_>, by_pid: &BTreeMap<u32, i32>) -> Result<(), EngineError> {
    const EDGE: u32 = 1 << 31;
    if scene.faults.skips("epoll") {
        return Ok(());
    }
    for index in 0..scene.target.objects.len() {
        let Kind::Epoll { watches: wanted } = &scene.target.objects[index].kind else {
            continue;
        };
        let present: &[Watch] = match &scene.plan.origins[index] {
            Origin::Kept(kept) => match &scene.now.objects[*kept as usize].kind {
                Kind::Epoll { watches } => watches,
                _ => &[],
            },
            Origin::Made => &[],
        };
        let Some((pid, fd)) = holder(scene.target, u32::try_from(index).expect("an index")) else {
            continue;
        };
        let process = &scene.live[&by_pid[&pid]];
        let space = process.space.as_ref().expect("observed before");
        let replaced: Vec<u32> = scene
            .plan
            .tables
            .get(&pid)
            .map(|t| t.place.iter().map(|p| p.0).collect())
            .unwrap_or_default();
        let mut batch = Batch::new(&space.annex);
        let mut checks = Vec::new();
        for watch in wanted {
            let known = present.iter().find(|p| p.fd == watch.fd);
            if known == Some(watch) && watch.events & EDGE == 0 && !replaced.contains(&watch.fd) {
                continue;
            }
            let mut event = [0; 16];
            event[0..4].copy_from_slice(&watch.events.to_ne_bytes());
            event[4..12].copy_from_slice(&watch.data.to_ne_bytes());
            let event = batch.bytes(&event);
            let ctl = |operation: libc::c_int| {
                let operation = u64::from(operation.cast_unsigned());
                [fd.into(), operation, watch.fd.into(), event, 0, 0]
            };
            let add = batch.call(libc::SYS_epoll_ctl, ctl(libc::EPOLL_CTL_ADD));
            let modify = batch.call(libc::SYS_epoll_ctl, ctl(libc::EPOLL_CTL_MOD));
            checks.push((add, modify, watch.fd));
        }
        if checks.is_empty() {
            continue;
        }
        let thread = crate::capture::any_thread(process, scene.stopped)?;
        let results = remote::run(&space.annex, thread, &mut batch)?;
        for (add, modify, watched) in checks {
            if results.get(add).is_err() {
                results.expect(modify, "EPOLL_CTL_MOD", format!("descriptor {watched}"))?;
            }
        }
    }
    Ok(())
}
