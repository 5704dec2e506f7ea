//! PID 1 of a box: a static program without libc. It builds the box's mounts from inside, then reaps orphans, starts
//! commands with descriptors that the daemon sends, and reports how they ended.
//!
//! It holds nothing that a rollback would have to rewind: no end of a command's pipe outlives the `START` message that
//! brought it. It never waits for one client: it sleeps in one `ppoll` over the daemon's socket and SIGCHLD, and what
//! cannot be sent now is sent when the socket has room. When the daemon's end closes it ends, and the kernel ends the
//! box with it, unless it was told to linger.
//!
//! ```text
//! stage 0 (daemon's namespaces) --BIRTH/clone3--> PID 1 --SETUP--> building --READY--> serving --EOF--> ends the box
//! ```
#![no_std]
#![no_main]
#![allow(
    unsafe_code,
    reason = "no library runs here: the file is its own boundary to the kernel"
)]

#[path = "init/protocol.rs"]
#[allow(dead_code, reason = "shared with the daemon, which uses the rest")]
mod protocol;
#[path = "init/setup.rs"]
mod setup;
#[path = "init/start.rs"]
mod start;
#[path = "init/sys.rs"]
mod sys;

use protocol::{BIRTH, BORN, COMMANDS_MAX, DONE, EXITED, LINGER, MESSAGE_BYTES_MAX, MESSAGE_FDS_MAX, SETUP};
use protocol::{READY, SET_LAST_PID, SIGNAL_ALL, START, STARTED};
use sys::sys;

core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {entry}",
    "ud2",
    entry = sym entry
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(126)
}

/// Precompiled `core` names the unwinder's personality; nothing unwinds here.
// SAFETY: the name is the one that `core` refers to, defined once, and never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The compiler asks for these by name; without libc they are ours.
mod memory {
    use core::arch::asm;

    // SAFETY: the C contract of memcpy: both ranges are valid for `n` bytes and do not overlap.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
        // SAFETY: by the contract above.
        unsafe {
            asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack));
        }
        to
    }

    // SAFETY: the C contract of memmove: both ranges are valid for `n` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
        if (to as usize).wrapping_sub(from as usize) >= n {
            // SAFETY: a forward copy is right when `to` is not inside `from..from + n`.
            return unsafe { memcpy(to, from, n) };
        }
        // SAFETY: copies backwards from the last byte (`n` is at least 1 here) and restores the direction flag.
        unsafe {
            asm!("std", "rep movsb", "cld", inout("rcx") n => _,
                inout("rdi") to.wrapping_add(n).wrapping_sub(1) => _,
                inout("rsi") from.wrapping_add(n).wrapping_sub(1) => _, options(nostack));
        }
        to
    }

    // SAFETY: the C contract of memset: the range is valid for `n` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
        // SAFETY: by the contract above.
        unsafe {
            asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") byte as u8, options(nostack));
        }
        to
    }

    // SAFETY: the C contract of memcmp: both ranges are valid for `n` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
        for index in 0..n {
            // SAFETY: `index < n`, inside the first range.
            let left = unsafe { a.add(index).read_volatile() };
            // SAFETY: `index < n`, inside the second range.
            let right = unsafe { b.add(index).read_volatile() };
            if left != right {
                return i32::from(left) - i32::from(right);
            }
        }
        0
    }

    // SAFETY: as memcmp.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { memcmp(a, b, n) }
    }
}

/// The daemon's socket is moved to here or above, away from the numbers of stdio.
const CONTROL_FD_MIN: usize = 10;
const F_DUPFD_CLOEXEC: usize = 1030;

extern "C" fn entry() -> ! {
    // What leaked into the daemon must not leak on into the box.
    sys!(sys::CLOSE_RANGE, 3, u32::MAX, 0);
    // The daemon goes before ordinary programs; what is in the box is ordinary.
    sys!(sys::SETPRIORITY);
    let control = sys!(sys::FCNTL, 0, F_DUPFD_CLOEXEC, CONTROL_FD_MIN);
    if control < 0 {
        sys::exit(1);
    }
    for fd in 0..3 {
        sys::close(fd);
    }
    let control = control as i32;
    let mut message = [0u8; MESSAGE_BYTES_MAX];
    let mut fds = [-1; MESSAGE_FDS_MAX];
    let (got, fd_count) = sys::receive(control, &mut message, &mut fds);
    if got < 16 || sys::word(&message, 0) != BIRTH {
        sys::exit(2);
    }
    let with_cgroup = sys::word(&message, 1) != 0 && fd_count == 1;
    let mut flags = u64::from(sys::word(&message, 2)) | u64::from(sys::word(&message, 3)) << 32 | sys::CLONE_PARENT;
    let mut cgroup = 0;
    if with_cgroup {
        flags |= sys::CLONE_INTO_CGROUP;
        cgroup = fds[0] as u64;
    }
    let mut pidfd = -1;
    let pid = sys::fork(flags, cgroup, &mut pidfd);
    if pid == 0 {
        if with_cgroup {
            sys::close(fds[0]);
        }
        serve(control, &mut message)
    }
    if pid < 0 {
        sys::send(control, &[BORN, -pid as u32, 0], &[]);
    } else {
        sys::send(control, &[BORN, 0, pid as u32], &[pidfd]);
    }
    sys::exit(0)
}

/// A command that the daemon waits for.
#[derive(Clone, Copy)]
struct Command {
    pid: i32,
    /// `None` while it runs; then its wait status, until the daemon has been told.
    ended: Option<i32>,
}

struct Init {
    control: i32,
    events: i32,
    last_pid: i32,
    lingers: bool,
    commands: [Command; COMMANDS_MAX],
    command_count: usize,
    /// Some exits could not be sent: wait for room on the events socket.
    backlog: bool,
}

fn serve(control: i32, message: &mut [u8]) -> ! {
    let mut fds = [-1; MESSAGE_FDS_MAX];
    let (got, fd_count) = sys::receive(control, message, &mut fds);
    if got <= 0 || sys::word(message, 0) != SETUP {
        sys::exit(3);
    }
    let request = message.get(..got as usize).unwrap_or(&[]);
    let made = match setup::build(request, fds.get(..fd_count).unwrap_or(&[])) {
        Ok(made) => made,
        Err((stage, errno)) => {
            sys::send(control, &[READY, errno as u32, stage], &[]);
            sys::exit(4);
        }
    };
    let signals = block_signals();
    sys::send(control, &[READY, 0, 0], &[made.root, made.dev_shm, made.dev_pts]);
    for fd in [made.root, made.dev_shm, made.dev_pts] {
        sys::close(fd);
    }
    let mut init = Init {
        control,
        events: made.events,
        last_pid: made.last_pid,
        lingers: false,
        commands: [Command { pid: 0, ended: None }; COMMANDS_MAX],
        command_count: 0,
        backlog: false,
    };
    init.run(signals, message)
}

/// Blocks every signal, gives every one its default action (commands inherit that), and returns a signalfd for SIGCHLD.
fn block_signals() -> i32 {
    let all = u64::MAX;
    sys!(sys::RT_SIGPROCMASK, 2, &raw const all, 0, 8);
    let default = [0u64; 4];
    for signal in 1..=64 {
        sys!(sys::RT_SIGACTION, signal, &raw const default, 0, 8);
    }
    let child = 1u64 << (sys::SIGCHLD - 1);
    const SFD_CLOEXEC_NONBLOCK: usize = 0o2000000 | 0o4000;
    let fd = sys!(sys::SIGNALFD4, -1isize, &raw const child, 8, SFD_CLOEXEC_NONBLOCK);
    if fd < 0 {
        sys::exit(5);
    }
    fd as i32
}

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
const POLLERR_HUP: i16 = 8 | 16;

impl Init {
    fn run(&mut self, signals: i32, message: &mut [u8]) -> ! {
        loop {
            let waits_for_room = if self.backlog { POLLOUT } else { 0 };
            let mut polls = [
                sys::Poll {
                    fd: signals,
                    events: POLLIN,
                    revents: 0,
                },
                sys::Poll {
                    fd: self.control,
                    events: POLLIN,
                    revents: 0,
                },
                sys::Poll {
                    fd: if self.backlog { self.events } else { -1 },
                    events: waits_for_room,
                    revents: 0,
                },
            ];
            sys!(sys::PPOLL, &raw mut polls, polls.len(), 0, 0, 8);
            if polls[0].revents != 0 {
                let mut info = [0u8; 128];
                sys!(sys::READ, signals, &raw mut info, info.len());
                self.reap();
            }
            if polls[2].revents & POLLERR_HUP != 0 {
                self.backlog = false;
            } else if polls[2].revents != 0 {
                self.report();
            }
            if polls[1].revents != 0 {
                self.answer(message);
            }
        }
    }

    /// Takes in every child that has ended, ours or adopted.
    fn reap(&mut self) {
        const WNOHANG_WALL: usize = 1 | 0x4000_0000;
        loop {
            let mut status = 0i32;
            let pid = sys!(sys::WAIT4, -1isize, &raw mut status, WNOHANG_WALL, 0);
            if pid <= 0 {
                break;
            }
            let running = self.commands.iter_mut().take(self.command_count);
            for command in running {
                if command.pid == pid as i32 && command.ended.is_none() {
                    command.ended = Some(status);
                }
            }
        }
        self.report();
    }

    /// Tells the daemon of ended commands while its socket has room.
    fn report(&mut self) {
        self.backlog = false;
        let mut index = 0;
        while index < self.command_count {
            let command = self.commands[index];
            let Some(status) = command.ended else {
                index += 1;
                continue;
            };
            let sent = sys::send(self.events, &[EXITED, command.pid as u32, status as u32], &[]);
            if sent == -sys::EAGAIN {
                self.backlog = true;
                return;
            }
            self.command_count -= 1;
            self.commands[index] = self.commands[self.command_count];
        }
    }

    /// Reads one request and answers it.
    fn answer(&mut self, message: &mut [u8]) {
        let mut fds = [-1; MESSAGE_FDS_MAX];
        let (got, fd_count) = sys::receive(self.control, message, &mut fds);
        if got == -sys::EINTR || got == -sys::EAGAIN {
            return;
        }
        if got <= 0 {
            if !self.lingers {
                sys::exit(0);
            }
            sys::close(self.control);
            self.control = -1;
            return;
        }
        let request = message.get(..got as usize).unwrap_or(&[]);
        let fds = fds.get(..fd_count).unwrap_or(&[]);
        let argument = sys::word(request, 1);
        match sys::word(request, 0) {
            START => self.start(argument, fds),
            SET_LAST_PID => self.done(set_last_pid(self.last_pid, argument)),
            SIGNAL_ALL => {
                let result = sys!(sys::KILL, -1isize, argument);
                const ESRCH: isize = 3;
                self.done(if result == -ESRCH { 0 } else { result });
            }
            LINGER => {
                self.lingers = argument != 0;
                self.done(0);
            }
            _ => self.done(-sys::EINVAL),
        }
        for fd in fds {
            sys::close(*fd);
        }
    }

    fn done(&self, result: isize) {
        let errno = if result < 0 { -result as u32 } else { 0 };
        sys::send(self.control, &[DONE, errno], &[]);
    }

    fn start(&mut self, payload_bytes: u32, fds: &[i32]) {
        if self.command_count == COMMANDS_MAX || fds.len() != 5 {
            sys::send(self.control, &[STARTED, sys::EAGAIN as u32, 0], &[]);
            return;
        }
        let mut pidfd = -1;
        let pid = sys::fork(0, 0, &mut pidfd);
        if pid == 0 {
            start::become_command(payload_bytes as usize, fds);
        }
        if pid < 0 {
            sys::send(self.control, &[STARTED, -pid as u32, 0], &[]);
            return;
        }
        self.commands[self.command_count] = Command {
            pid: pid as i32,
            ended: None,
        };
        self.command_count += 1;
        sys::send(self.control, &[STARTED, 0, pid as u32], &[pidfd]);
        sys::close(pidfd);
    }
}

/// Writes the number in decimal to the held `ns_last_pid`.
fn set_last_pid(fd: i32, pid: u32) -> isize {
    if fd < 0 {
        return -sys::ENOENT;
    }
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut rest = pid;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    const PWRITE64: usize = 18;
    let text = digits.get(at..).unwrap_or(&[]);
    sys!(PWRITE64, fd, text.as_ptr(), text.len(), 0)
}
