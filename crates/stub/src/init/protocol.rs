//! The words that the daemon and PID 1 of a box say to each other, as numbers. Included by both sides, so that they
//! cannot drift apart. It holds constants only: no code, no types with a layout to get wrong.
//!
//! Every message is one record of a `SOCK_SEQPACKET` socket and starts with a `u32` kind, little-endian. Descriptors
//! travel beside it in the order given here.

/// Daemon to stage 0: `[kind, has_cgroup, clone_flags as u64]`, descriptors `[cgroup?]`. Makes PID 1.
pub(crate) const BIRTH: u32 = 1;
/// Stage 0 to daemon: `[kind, errno, host_pid]`, descriptors `[pidfd]` when `errno` is 0.
pub(crate) const BORN: u32 = 2;
/// Daemon to PID 1: `[kind, flags, hostname_len, prefix_len, volume_count]`, hostname, prefix, then for each volume
/// `[is_dir, path_len]` and the path; descriptors `[events, overlay, volume...]`.
pub(crate) const SETUP: u32 = 3;
/// PID 1 to daemon: `[kind, errno, stage]`; descriptors `[root, dev_shm, dev_pts]` when `errno` is 0.
pub(crate) const READY: u32 = 4;
/// Daemon to PID 1: `[kind, payload_bytes]`, descriptors `[payload, report, stdin, stdout, stderr]`.
pub(crate) const START: u32 = 5;
/// PID 1 to daemon: `[kind, errno, pid_inside]`, descriptors `[pidfd]` when `errno` is 0.
pub(crate) const STARTED: u32 = 6;
/// Daemon to PID 1: `[kind, pid]`: the next process made in the box gets `pid + 1`.
pub(crate) const SET_LAST_PID: u32 = 7;
/// Daemon to PID 1: `[kind, signal]`: send to every process of the box but PID 1.
pub(crate) const SIGNAL_ALL: u32 = 8;
/// Daemon to PID 1: `[kind, on]`: when on, the box outlives the daemon's end of the socket.
pub(crate) const LINGER: u32 = 9;
/// PID 1 to daemon: `[kind, errno]`, the answer to `SET_LAST_PID`, `SIGNAL_ALL` and `LINGER`.
pub(crate) const DONE: u32 = 10;
/// PID 1 to daemon, on the events socket: `[kind, pid_inside, wait_status]`.
pub(crate) const EXITED: u32 = 11;

/// `SETUP` flag: real root, nothing masked.
pub(crate) const SETUP_PRIVILEGED: u32 = 1;

/// Words of the payload header of `START`, in order, each a `u32`. All `*_AT` are byte offsets into the payload.
pub(crate) const HEAD_FLAGS: usize = 0;
/// User id inside.
pub(crate) const HEAD_UID: usize = 1;
/// Group id inside.
pub(crate) const HEAD_GID: usize = 2;
/// Number of supplementary groups.
pub(crate) const HEAD_GROUP_COUNT: usize = 3;
/// Supplementary groups, `u32` each.
pub(crate) const HEAD_GROUPS_AT: usize = 4;
/// Number of arguments.
pub(crate) const HEAD_ARG_COUNT: usize = 5;
/// Offsets of the arguments, `u32` each; every string ends with a zero byte.
pub(crate) const HEAD_ARGS_AT: usize = 6;
/// Number of environment strings.
pub(crate) const HEAD_ENV_COUNT: usize = 7;
/// Offsets of the environment strings, `u32` each.
pub(crate) const HEAD_ENV_AT: usize = 8;
/// The working directory.
pub(crate) const HEAD_CWD_AT: usize = 9;
/// The search path for a program named without a slash.
pub(crate) const HEAD_PATH_AT: usize = 10;
/// Number of BPF instructions; 0: no filter.
pub(crate) const HEAD_FILTER_COUNT: usize = 11;
/// The BPF instructions, 8 bytes each, 8-byte aligned.
pub(crate) const HEAD_FILTER_AT: usize = 12;
/// Capabilities kept, low half.
pub(crate) const HEAD_CAPS_LOW: usize = 13;
/// Capabilities kept, high half.
pub(crate) const HEAD_CAPS_HIGH: usize = 14;
/// Number of header words.
pub(crate) const HEAD_WORDS: usize = 15;

/// Payload flag: stdin is a terminal and becomes the controlling one.
pub(crate) const START_TERMINAL: u32 = 1;
/// Payload flag: set `no_new_privs`.
pub(crate) const START_NO_NEW_PRIVS: u32 = 2;
/// Payload flag: drop capabilities that are not in the mask.
pub(crate) const START_DROP_CAPS: u32 = 4;

/// Which step of birth or of a start failed; the index into this table is sent. Errors name it.
pub(crate) const STAGES: &[&str] = &[
    "unknown",
    "receive",
    "ids",
    "private mounts",
    "cgroup namespace",
    "loopback",
    "hostname",
    "attach root",
    "mount /dev",
    "device nodes",
    "mount /dev/pts",
    "mount /dev/shm",
    "mount /proc",
    "mask /proc",
    "pivot root",
    "volume",
    "open descriptors",
    "session",
    "terminal",
    "descriptors",
    "capabilities",
    "groups",
    "user",
    "working directory",
    "no_new_privs",
    "seccomp",
    "exec",
    "memory",
];
/// Longest message either side sends.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Most descriptors beside one message.
pub(crate) const MESSAGE_FDS_MAX: usize = 64;
/// Most commands that PID 1 watches at a time.
pub(crate) const COMMANDS_MAX: usize = 4096;
