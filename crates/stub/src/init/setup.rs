//! Builds the box's own view from inside its fresh namespaces: ids, loopback, host name, the root overlay that the daemon
//! mounted, `/dev`, `/proc`, `/sys`, volumes. It runs once, as PID 1, before any command exists; it decides nothing about
//! the layers of the root, which the daemon composed.

use crate::protocol::SETUP_PRIVILEGED;
use crate::sys::{self, stage, sys};

/// Descriptors that come out of the building.
pub struct Made {
    pub events: i32,
    pub root: i32,
    pub dev_shm: i32,
    pub dev_pts: i32,
    /// `/proc/sys/kernel/ns_last_pid`, or -1 where the kernel has none.
    pub last_pid: i32,
}

type Failure = (u32, i32);

const MS_RDONLY: usize = 1;
const MS_NOSUID: usize = 2;
const MS_NODEV: usize = 4;
const MS_NOEXEC: usize = 8;
const MS_REMOUNT: usize = 32;
const MS_BIND: usize = 4096;
const MS_REC: usize = 16384;
const MS_PRIVATE: usize = 1 << 18;
const MNT_DETACH: usize = 2;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;

/// Bound from the host; a box can make no device nodes of its own.
const DEVICES: &[(&[u8], &[u8])] = &[
    (b"/dev/null\0", b"dev/null\0"),
    (b"/dev/zero\0", b"dev/zero\0"),
    (b"/dev/full\0", b"dev/full\0"),
    (b"/dev/random\0", b"dev/random\0"),
    (b"/dev/urandom\0", b"dev/urandom\0"),
    (b"/dev/tty\0", b"dev/tty\0"),
];

const LINKS: &[(&[u8], &[u8])] = &[
    (b"/proc/self/fd\0", b"dev/fd\0"),
    (b"/proc/self/fd/0\0", b"dev/stdin\0"),
    (b"/proc/self/fd/1\0", b"dev/stdout\0"),
    (b"/proc/self/fd/2\0", b"dev/stderr\0"),
    (b"pts/ptmx\0", b"dev/ptmx\0"),
];

/// Files of `/proc` that tell about the host; covered by `/dev/null`.
const MASKED_FILES: &[&[u8]] = &[
    b"proc/kcore\0",
    b"proc/keys\0",
    b"proc/latency_stats\0",
    b"proc/sched_debug\0",
    b"proc/timer_list\0",
    b"proc/timer_stats\0",
    b"proc/kallsyms\0",
    b"proc/kmsg\0",
    b"proc/interrupts\0",
];

/// Directories that tell about the host; covered by an empty read-only tmpfs.
const MASKED_DIRECTORIES: &[&[u8]] = &[
    b"proc/acpi\0",
    b"proc/scsi\0",
    b"sys/firmware\0",
    b"sys/kernel/security\0",
    b"sys/fs/cgroup\0",
];

/// Parts of `/proc` that set things; read-only as docker has them.
const READ_ONLY: &[&[u8]] = &[
    b"proc/bus\0",
    b"proc/fs\0",
    b"proc/irq\0",
    b"proc/sys\0",
    b"proc/sysrq-trigger\0",
    b"proc/asound\0",
];

fn check(name: &str, result: isize) -> Result<isize, Failure> {
    if result < 0 {
        Err((stage(name), -result as i32))
    } else {
        Ok(result)
    }
}

fn mount(source: &[u8], target: &[u8], kind: &[u8], flags: usize, data: &[u8]) -> isize {
    let data = if data.is_empty() {
        core::ptr::null()
    } else {
        sys::zero_ended(data)
    };
    sys!(
        sys::MOUNT,
        sys::zero_ended(source),
        sys::zero_ended(target),
        sys::zero_ended(kind),
        flags,
        data
    )
}

/// Follows the request `[SETUP, flags, hostname_len, prefix_len, volume_count]…` (see `protocol`).
pub fn build(request: &[u8], fds: &[i32]) -> Result<Made, Failure> {
    const HEAD: usize = 20;
    let bad = (stage("receive"), sys::EINVAL as i32);
    let privileged = sys::word(request, 1) & SETUP_PRIVILEGED != 0;
    let hostname_len = sys::word(request, 2) as usize;
    let prefix_len = sys::word(request, 3) as usize;
    let volume_count = sys::word(request, 4) as usize;
    let hostname = request.get(HEAD..HEAD + hostname_len).ok_or(bad)?;
    let prefix = request
        .get(HEAD + hostname_len..HEAD + hostname_len + prefix_len)
        .ok_or(bad)?;
    let volumes = request.get(HEAD + hostname_len + prefix_len..).ok_or(bad)?;
    let [events, overlay, volume_fds @ ..] = fds else {
        return Err(bad);
    };
    if volume_fds.len() != volume_count {
        return Err(bad);
    }
    become_root()?;
    check(
        "private mounts",
        mount(b"none\0", b"/\0", b"none\0", MS_REC | MS_PRIVATE, b""),
    )?;
    check("cgroup namespace", sys!(sys::UNSHARE, sys::CLONE_NEWCGROUP))?;
    loopback_up()?;
    check("hostname", sys!(sys::SETHOSTNAME, hostname.as_ptr(), hostname.len()))?;
    attach_root(*overlay, prefix)?;
    make_dev()?;
    let last_pid = make_proc(privileged)?;
    check("pivot root", sys!(sys::PIVOT_ROOT, c".".as_ptr(), c".".as_ptr()))?;
    check("pivot root", sys!(sys::UMOUNT2, c".".as_ptr(), MNT_DETACH))?;
    check("pivot root", sys!(sys::CHDIR, c"/".as_ptr()))?;
    attach_volumes(volumes, volume_fds)?;
    // 0 to 2 stay taken, so that no descriptor of a command lands there by chance.
    for _ in 0..3 {
        check("open descriptors", sys::open(b"/dev/null\0", sys::O_RDWR, 0))?;
    }
    // What commands inherit.
    sys!(sys::UMASK, 0o022);
    let path = |name: &[u8]| check("open descriptors", sys::open(name, sys::O_PATH, 0));
    Ok(Made {
        events: *events,
        root: path(b"/\0")? as i32,
        dev_shm: path(b"/dev/shm\0")? as i32,
        dev_pts: path(b"/dev/pts\0")? as i32,
        last_pid,
    })
}

/// Takes the ids of the box's root, and hides this process from the box: root inside has fewer rights than it.
fn become_root() -> Result<(), Failure> {
    const PR_SET_DUMPABLE: usize = 4;
    const PR_SET_NAME: usize = 15;
    check("ids", sys!(sys::SETRESGID, 0, 0, 0))?;
    check("ids", sys!(sys::SETGROUPS, 0, 0))?;
    check("ids", sys!(sys::SETRESUID, 0, 0, 0))?;
    sys!(sys::PRCTL, PR_SET_DUMPABLE, 0);
    sys!(sys::PRCTL, PR_SET_NAME, c"deltabox-init".as_ptr());
    sys!(sys::UMASK, 0);
    Ok(())
}

fn loopback_up() -> Result<(), Failure> {
    const SIOCSIFFLAGS: usize = 0x8914;
    const AF_INET_DGRAM_CLOEXEC: (usize, usize) = (2, 2 | 0o2000000);
    let socket = check(
        "loopback",
        sys!(sys::SOCKET, AF_INET_DGRAM_CLOEXEC.0, AF_INET_DGRAM_CLOEXEC.1, 0),
    )?;
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = 1 | 0x40; // IFF_UP, IFF_RUNNING
    let result = sys!(sys::IOCTL, socket, SIOCSIFFLAGS, &raw const request);
    sys::close(socket as i32);
    check("loopback", result).map(|_| ())
}

/// Puts the overlay over the host's `/proc` and stands in the directory of it that is the box's root, itself a mount.
///
/// Not over `/`: the pivot stacks the host's root on the new one, and detaching what is on top would then detach only
/// the overlay and leave the host's root at the box's `/..`.
fn attach_root(overlay: i32, prefix: &[u8]) -> Result<(), Failure> {
    let attach = sys!(
        sys::MOVE_MOUNT,
        overlay,
        c"".as_ptr(),
        sys::AT_FDCWD,
        c"/proc".as_ptr(),
        MOVE_MOUNT_F_EMPTY_PATH
    );
    check("attach root", attach)?;
    check("attach root", sys!(sys::FCHDIR, overlay))?;
    check("attach root", mount(prefix, prefix, b"none\0", MS_BIND, b""))?;
    check("attach root", sys!(sys::CHDIR, sys::zero_ended(prefix)))?;
    sys::close(overlay);
    Ok(())
}

// From here to the pivot: absolute paths are the host's, relative ones the box's.

fn make_dev() -> Result<(), Failure> {
    check(
        "mount /dev",
        mount(
            b"tmpfs\0",
            b"dev\0",
            b"tmpfs\0",
            MS_NOSUID | MS_NOEXEC,
            b"mode=755,size=1m\0",
        ),
    )?;
    for (source, target) in DEVICES {
        let file = check("device nodes", sys::open(target, sys::O_CREAT | sys::O_WRONLY, 0o666))?;
        sys::close(file as i32);
        check("device nodes", mount(source, target, b"none\0", MS_BIND, b""))?;
    }
    for (to, link) in LINKS {
        check(
            "device nodes",
            sys!(
                sys::SYMLINKAT,
                sys::zero_ended(to),
                sys::AT_FDCWD,
                sys::zero_ended(link)
            ),
        )?;
    }
    for directory in [&b"dev/pts\0"[..], b"dev/shm\0", b"dev/mqueue\0"] {
        check(
            "mount /dev",
            sys!(sys::MKDIRAT, sys::AT_FDCWD, sys::zero_ended(directory), 0o755),
        )?;
    }
    let options = b"newinstance,ptmxmode=0666,mode=0620,gid=5\0";
    check(
        "mount /dev/pts",
        mount(b"devpts\0", b"dev/pts\0", b"devpts\0", MS_NOSUID | MS_NOEXEC, options),
    )?;
    let shm = mount(
        b"shm\0",
        b"dev/shm\0",
        b"tmpfs\0",
        MS_NOSUID | MS_NODEV | MS_NOEXEC,
        b"mode=1777\0",
    );
    check("mount /dev/shm", shm)?;
    // A kernel without POSIX queues is no reason to fail.
    mount(
        b"mqueue\0",
        b"dev/mqueue\0",
        b"mqueue\0",
        MS_NOSUID | MS_NODEV | MS_NOEXEC,
        b"",
    );
    Ok(())
}

/// Mounts `/proc` and `/sys`; returns the descriptor of `ns_last_pid`, opened before `/proc/sys` is made read-only.
fn make_proc(privileged: bool) -> Result<i32, Failure> {
    let quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    check("mount /proc", mount(b"proc\0", b"proc\0", b"proc\0", quiet, b""))?;
    // Refused where the daemon's own /sys is partly covered (a container); the box then has an empty one.
    mount(b"sysfs\0", b"sys\0", b"sysfs\0", quiet | MS_RDONLY, b"");
    let last_pid = sys::open(b"proc/sys/kernel/ns_last_pid\0", sys::O_WRONLY, 0);
    if privileged {
        return Ok(last_pid.max(-1) as i32);
    }
    let absent = |result: isize| if result == -sys::ENOENT { 0 } else { result };
    for file in MASKED_FILES {
        check(
            "mask /proc",
            absent(mount(b"/dev/null\0", file, b"none\0", MS_BIND, b"")),
        )?;
    }
    for directory in MASKED_DIRECTORIES {
        let data = b"size=0,mode=755,nr_inodes=1\0";
        check(
            "mask /proc",
            absent(mount(b"tmpfs\0", directory, b"tmpfs\0", quiet | MS_RDONLY, data)),
        )?;
    }
    for path in READ_ONLY {
        let bound = mount(path, path, b"none\0", MS_BIND | MS_REC, b"");
        if bound == -sys::ENOENT {
            continue;
        }
        check("mask /proc", bound)?;
        let flags = MS_REMOUNT | MS_BIND | MS_RDONLY | quiet;
        check("mask /proc", mount(b"none\0", path, b"none\0", flags, b""))?;
    }
    Ok(last_pid.max(-1) as i32)
}

/// Each volume's target is made inside the box's root, after the pivot: a planted link cannot lead out of it.
fn attach_volumes(mut list: &[u8], fds: &[i32]) -> Result<(), Failure> {
    let bad = (stage("volume"), sys::EINVAL as i32);
    for fd in fds {
        let is_dir = sys::word(list, 0) != 0;
        let len = sys::word(list, 1) as usize;
        let target = list.get(8..8 + len).ok_or(bad)?;
        list = list.get(8 + len..).ok_or(bad)?;
        make_target(target, is_dir)?;
        let flags = MOVE_MOUNT_F_EMPTY_PATH | 0x10; // follow links of the target, inside the box
        let to = sys::zero_ended(target);
        check(
            "volume",
            sys!(sys::MOVE_MOUNT, *fd, c"".as_ptr(), sys::AT_FDCWD, to, flags),
        )?;
        sys::close(*fd);
    }
    Ok(())
}

fn make_target(target: &[u8], is_dir: bool) -> Result<(), Failure> {
    let mut path = [0u8; 4096];
    if target.len() > path.len() {
        return Err((stage("volume"), sys::EINVAL as i32));
    }
    let exists = |result: isize| if result == -sys::EEXIST { 0 } else { result };
    for (index, byte) in target.iter().enumerate() {
        let ends = *byte == 0;
        if index > 0 && (*byte == b'/' || ends && is_dir) {
            path[index] = 0;
            let made = sys!(sys::MKDIRAT, sys::AT_FDCWD, sys::zero_ended(&path[..=index]), 0o755);
            check("volume", exists(made))?;
        }
        path[index] = *byte;
    }
    if !is_dir {
        let file = check("volume", sys::open(target, sys::O_CREAT | sys::O_WRONLY, 0o644))?;
        sys::close(file as i32);
    }
    Ok(())
}
