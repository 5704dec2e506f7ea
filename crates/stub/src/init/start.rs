//! The life of a command between `fork` and `execve`: session, terminal, descriptors, ids, capabilities, filter. It
//! returns never: it becomes the command, or reports `[stage, errno]` on the report pipe and ends with 127. That pipe is
//! close-on-exec, so its plain end tells the daemon that the program runs.

use crate::protocol::*;
use crate::sys::{self, stage, sys};

/// The payload that the daemon laid out, mapped for reading.
struct Payload {
    at: *const u8,
    len: usize,
    report: i32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    count: u16,
    at: *const u8,
}

/// What a start needs after the descriptors are in place.
pub fn become_command(len: usize, fds: &[i32]) -> ! {
    let report = fds[1];
    let at = sys!(sys::MMAP, 0, len, 1, 2, fds[0], 0);
    if at < 0 || len < HEAD_WORDS * 4 {
        fail(report, stage("memory"), -at);
    }
    let payload = Payload {
        at: at as *const u8,
        len,
        report,
    };
    let flags = payload.head(HEAD_FLAGS);
    payload.check("session", sys!(sys::SETSID));
    for (target, source) in fds[2..5].iter().enumerate() {
        payload.check("descriptors", sys!(sys::DUP2, *source, target));
    }
    if flags & START_TERMINAL != 0 {
        const TIOCSCTTY: usize = 0x540E;
        payload.check("terminal", sys!(sys::IOCTL, 0, TIOCSCTTY, 0));
    }
    let unblocked = 0u64;
    sys!(sys::RT_SIGPROCMASK, 2, &raw const unblocked, 0, 8);
    drop_rights(&payload, flags);
    payload.check(
        "working directory",
        sys!(sys::CHDIR, payload.string(payload.head(HEAD_CWD_AT))),
    );
    const PR_SET_DUMPABLE: usize = 4;
    sys!(sys::PRCTL, PR_SET_DUMPABLE, 1);
    if flags & START_NO_NEW_PRIVS != 0 {
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        payload.check("no_new_privs", sys!(sys::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    }
    let (argv, envp) = payload.vectors();
    let filter_count = payload.head(HEAD_FILTER_COUNT);
    if filter_count > 0 {
        let program = Program {
            count: filter_count as u16,
            at: payload.at.wrapping_add(payload.head(HEAD_FILTER_AT) as usize),
        };
        const SECCOMP_SET_MODE_FILTER: usize = 1;
        payload.check(
            "seccomp",
            sys!(sys::SECCOMP, SECCOMP_SET_MODE_FILTER, 0, &raw const program),
        );
    }
    let errno = execute(&payload, argv, envp);
    fail(report, stage("exec"), errno)
}

/// Bounding set first (it needs `CAP_SETPCAP`), then groups and ids (they need theirs), then the rest.
fn drop_rights(payload: &Payload, flags: u32) {
    const PR_CAPBSET_DROP: usize = 24;
    const EINVAL: isize = 22;
    let keep = u64::from(payload.head(HEAD_CAPS_LOW)) | u64::from(payload.head(HEAD_CAPS_HIGH)) << 32;
    let drops = flags & START_DROP_CAPS != 0;
    if drops {
        for capability in 0..64 {
            if keep >> capability & 1 == 0 {
                let result = sys!(sys::PRCTL, PR_CAPBSET_DROP, capability, 0, 0, 0);
                if result == -EINVAL {
                    break; // past the last one this kernel knows
                }
                payload.check("capabilities", result);
            }
        }
    }
    let (uid, gid) = (payload.head(HEAD_UID), payload.head(HEAD_GID));
    let groups = payload.at.wrapping_add(payload.head(HEAD_GROUPS_AT) as usize);
    payload.check("groups", sys!(sys::SETGROUPS, payload.head(HEAD_GROUP_COUNT), groups));
    payload.check("user", sys!(sys::SETRESGID, gid, gid, gid));
    payload.check("user", sys!(sys::SETRESUID, uid, uid, uid));
    if drops && uid == 0 {
        const VERSION_3: u32 = 0x2008_0522;
        let head = [VERSION_3, 0];
        let (low, high) = (keep as u32, (keep >> 32) as u32);
        let sets = [low, low, 0, high, high, 0];
        payload.check("capabilities", sys!(sys::CAPSET, &raw const head, &raw const sets));
    }
}

/// `execve`, along the search path when the name has no slash. Returns the errno that says most.
fn execute(payload: &Payload, argv: *const usize, envp: *const usize) -> isize {
    let name = payload.bytes_of(payload.word_at(payload.head(HEAD_ARGS_AT)));
    if name.contains(&b'/') {
        return -sys!(sys::EXECVE, name.as_ptr(), argv, envp);
    }
    let mut errno = sys::ENOENT;
    let mut candidate = [0u8; 4096];
    for directory in payload.bytes_of(payload.head(HEAD_PATH_AT)).split(|byte| *byte == b':') {
        let total = directory.len() + 1 + name.len();
        if name.is_empty() || total + 1 > candidate.len() {
            continue;
        }
        candidate[..directory.len()].copy_from_slice(directory);
        candidate[directory.len()] = b'/';
        candidate[directory.len() + 1..total].copy_from_slice(name);
        candidate[total] = 0;
        let path: &[u8] = if directory.is_empty() {
            &candidate[1..]
        } else {
            &candidate
        };
        match -sys!(sys::EXECVE, path.as_ptr(), argv, envp) {
            sys::ENOENT | sys::ENOTDIR => {}
            sys::EACCES => errno = sys::EACCES,
            other => return other,
        }
    }
    errno
}

impl Payload {
    fn head(&self, index: usize) -> u32 {
        self.word_at((index * 4) as u32)
    }

    fn word_at(&self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(offset as usize + index);
        }
        u32::from_le_bytes(bytes)
    }

    fn byte(&self, offset: usize) -> u8 {
        if offset >= self.len {
            return 0;
        }
        // SAFETY: `offset` is inside the mapping of `len` bytes, which is never unmapped before exec.
        unsafe { self.at.add(offset).read() }
    }

    /// The address of a zero-ended string of the payload.
    fn string(&self, offset: u32) -> *const u8 {
        self.bytes_of(offset).as_ptr()
    }

    /// A string of the payload, without the zero that ends it.
    fn bytes_of(&self, offset: u32) -> &[u8] {
        let start = offset as usize;
        let mut end = start;
        while end < self.len && self.byte(end) != 0 {
            end += 1;
        }
        if end >= self.len {
            fail(self.report, stage("memory"), sys::EINVAL);
        }
        // SAFETY: `start..end` was just read byte by byte inside the mapping.
        unsafe { core::slice::from_raw_parts(self.at.add(start), end - start) }
    }

    /// The two null-ended pointer arrays that `execve` wants.
    fn vectors(&self) -> (*const usize, *const usize) {
        let (args, env) = (self.head(HEAD_ARG_COUNT) as usize, self.head(HEAD_ENV_COUNT) as usize);
        let bytes = (args + env + 2) * size_of::<usize>();
        const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
        let at = sys!(sys::MMAP, 0, bytes, 3, MAP_PRIVATE_ANONYMOUS, -1isize, 0);
        self.check("memory", at);
        let table = at as *mut usize;
        let fill = |from: usize, count: usize, offsets: u32| {
            for index in 0..count {
                let string = self.string(self.word_at(offsets + (index * 4) as u32));
                // SAFETY: the table has room for `args + env + 2` pointers and `from + index` is below that; the
                // places left out are the zeros that end the arrays.
                unsafe { table.add(from + index).write(string as usize) };
            }
        };
        fill(0, args, self.head(HEAD_ARGS_AT));
        fill(args + 1, env, self.head(HEAD_ENV_AT));
        (table, table.wrapping_add(args + 1))
    }

    fn check(&self, name: &str, result: isize) {
        if result < 0 && result >= -4095 {
            fail(self.report, stage(name), -result);
        }
    }
}

fn fail(report: i32, stage: u32, errno: isize) -> ! {
    let words = [stage, errno as u32];
    sys!(sys::WRITE, report, &raw const words, size_of_val(&words));
    sys::exit(127)
}
