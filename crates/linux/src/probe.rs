//! What this kernel and these rights can do, found by really calling with the shape that the product calls with, on
//! throw-away objects. Never a version comparison. `doctor` prints it; each thing that is missing has a hint.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use linux_raw_sys::general as uapi;

use crate::cgroup::Hierarchies;
use crate::error::{Result, SysError};
use crate::mount::{Overlay, clone_tree, map_ids, mount_overlay};
use crate::namespace::{IdRange, user_namespace_of, write_id_maps};

/// The answers, each from a call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// `uname -r`, for people.
    pub kernel_release: String,
    /// The process is root in the initial user namespace.
    pub initial_root: bool,
    /// PAGEMAP_SCAN (kernel 6.7).
    pub pagemap_scan: bool,
    /// `UFFD_USER_MODE_ONLY` with asynchronous write-protection of unpopulated pages (kernel 6.7).
    pub uffd_wp_async: bool,
    /// PROCMAP_QUERY (kernel 6.11).
    pub procmap_query: bool,
    /// `PTRACE_SEIZE` of a child works.
    pub ptrace: bool,
    /// `PTRACE_O_SUSPEND_SECCOMP` may be used: `CAP_SYS_ADMIN`, and no filter on this process.
    pub suspend_seccomp: bool,
    /// User namespaces can be made and mapped.
    pub user_namespaces: bool,
    /// An overlay over an id-mapped layer with our options can be mounted in the directory that was asked about.
    pub overlay_over_mapped_ids: bool,
    /// fanotify inode marks with names.
    pub fanotify: bool,
    /// `openat2` with `RESOLVE_IN_ROOT`.
    pub openat2: bool,
    /// `pidfd_getfd`.
    pub pidfd_getfd: bool,
    /// `kcmp`.
    pub kcmp: bool,
    /// `clone3` knows `CLONE_INTO_CGROUP`, and there is a cgroup 2 to clone into.
    pub cgroup2_group: bool,
    /// `cgroup.kill` exists in a new group.
    pub cgroup_kill: bool,
    /// `/proc/sys/kernel/ns_last_pid` exists.
    pub ns_last_pid: bool,
    /// Raising limits (`CAP_SYS_RESOURCE`).
    pub sys_resource: bool,
    /// Controllers that cgroup 2 offers.
    pub cgroup_v2_controllers: Vec<&'static str>,
    /// Controllers that live in cgroup 1.
    pub cgroup_v1_controllers: Vec<&'static str>,
}

/// One line of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// It is there.
    pub works: bool,
    /// DeltaBox cannot make a box without it.
    pub needed: bool,
    /// What to do when it is not.
    pub hint: &'static str,
}

impl Features {
    /// Asks the kernel. `directory` is where boxes would live; a temporary directory is made and removed in it.
    ///
    /// # Errors
    /// Only when nothing can be asked at all: `/proc` is not mounted, or no child can be made.
    pub fn probe(directory: &Path) -> Result<Self> {
        let hierarchies = Hierarchies::find()?;
        let group = group_features(&hierarchies);
        let names = |list: &[(&'static str, std::path::PathBuf)]| list.iter().map(|(name, _)| *name).collect();
        let capabilities = rustix::thread::capabilities(None).map_err(|e| SysError::rustix("capget", "self", e))?;
        let mut features = Self {
            kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
            initial_root: rustix::process::geteuid().is_root() && in_initial_user_namespace(),
            pagemap_scan: pagemap_scan().is_ok(),
            uffd_wp_async: uffd_wp_async().is_ok(),
            procmap_query: procmap_query().is_ok(),
            ptrace: false,
            suspend_seccomp: false,
            user_namespaces: false,
            overlay_over_mapped_ids: false,
            fanotify: fanotify(directory).is_ok(),
            openat2: openat2().is_ok(),
            pidfd_getfd: pidfd_getfd().is_ok(),
            kcmp: kcmp().is_ok(),
            cgroup2_group: group.0,
            cgroup_kill: group.1,
            ns_last_pid: Path::new("/proc/sys/kernel/ns_last_pid").exists(),
            sys_resource: capabilities
                .effective
                .contains(rustix::thread::CapabilitySet::SYS_RESOURCE),
            cgroup_v2_controllers: hierarchies.v2_controllers.clone(),
            cgroup_v1_controllers: names(&hierarchies.v1),
        };
        let traced = Sleeper::start(false)?;
        features.ptrace = seize(&traced, 0).is_ok();
        drop(traced);
        let traced = Sleeper::start(false)?;
        features.suspend_seccomp = seize(&traced, libc::PTRACE_O_SUSPEND_SECCOMP).is_ok();
        drop(traced);
        if let Ok(inside) = Sleeper::start(true) {
            features.user_namespaces = write_id_maps(inside.pid(), PROBE_RANGE).is_ok();
            features.overlay_over_mapped_ids = overlay(&inside, directory).is_ok();
        }
        Ok(features)
    }

    /// What `doctor` says, most important first.
    pub fn findings(&self) -> Vec<Finding> {
        let line = |name, works, needed, hint| Finding {
            name,
            works,
            needed,
            hint,
        };
        let offers = |name| self.cgroup_v2_controllers.contains(&name) || self.cgroup_v1_controllers.contains(&name);
        vec![
            line(
                "root",
                self.initial_root,
                true,
                "run as root of the machine (sudo), not inside a user namespace",
            ),
            line(
                "user namespaces",
                self.user_namespaces,
                true,
                "sysctl user.max_user_namespaces=10000; on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            line(
                "overlay over id-mapped layers",
                self.overlay_over_mapped_ids,
                true,
                "kernel 5.19 or later, and the state directory on ext4, XFS, btrfs or tmpfs",
            ),
            line(
                "ptrace",
                self.ptrace,
                true,
                "allow ptrace: in a container --cap-add=SYS_PTRACE; sysctl kernel.yama.ptrace_scope=1 or 0",
            ),
            line(
                "openat2",
                self.openat2,
                true,
                "kernel 5.6 or later; in a container, a seccomp profile that knows openat2",
            ),
            line(
                "pidfd_getfd",
                self.pidfd_getfd,
                true,
                "kernel 5.6 or later, and the same rights as ptrace",
            ),
            line(
                "kcmp",
                self.kcmp,
                true,
                "a kernel with CONFIG_KCMP; in a container --cap-add=SYS_PTRACE",
            ),
            line(
                "PAGEMAP_SCAN",
                self.pagemap_scan,
                false,
                "kernel 6.7 or later: without it every checkpoint compares all memory",
            ),
            line(
                "write tracking",
                self.uffd_wp_async,
                false,
                "kernel 6.7 or later with CONFIG_USERFAULTFD: without it every checkpoint compares all memory",
            ),
            line(
                "PROCMAP_QUERY",
                self.procmap_query,
                false,
                "kernel 6.11 or later: without it mappings are read as text",
            ),
            line(
                "suspending seccomp",
                self.suspend_seccomp,
                false,
                "run the daemon without a seccomp filter of its own (Docker: seccomp=unconfined)",
            ),
            line(
                "fanotify",
                self.fanotify,
                false,
                "kernel 5.9 or later and CAP_SYS_ADMIN: without it changed files are found by walking",
            ),
            line(
                "ns_last_pid",
                self.ns_last_pid,
                false,
                "a kernel with CONFIG_CHECKPOINT_RESTORE",
            ),
            line(
                "cgroup 2",
                self.cgroup2_group,
                false,
                "mount -t cgroup2 none /sys/fs/cgroup/unified: without it processes are found by walking /proc",
            ),
            line(
                "cgroup.kill",
                self.cgroup_kill,
                false,
                "kernel 5.14 or later: without it a box is killed by its PID 1",
            ),
            line(
                "limit memory",
                offers("memory"),
                false,
                "enable the memory controller: without it --mem is a limit per process",
            ),
            line(
                "limit processors",
                offers("cpu"),
                false,
                "enable the cpu controller: without it --cpus does nothing",
            ),
            line(
                "limit tasks",
                offers("pids"),
                false,
                "enable the pids controller: without it --pids counts per user",
            ),
            line(
                "CAP_SYS_RESOURCE",
                self.sys_resource,
                false,
                "give the daemon CAP_SYS_RESOURCE: without it limits that a program lowered cannot be raised again",
            ),
        ]
    }
}

const PROBE_RANGE: IdRange = IdRange {
    first: 100_000,
    count: 65536,
};

/// A child that waits in the kernel until it is dropped: it reads a pipe that nobody writes.
struct Sleeper {
    child: Child,
}

impl Sleeper {
    fn start(in_user_namespace: bool) -> Result<Self> {
        let mut command = Command::new("/bin/cat");
        command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if in_user_namespace {
            // SAFETY: the closure makes one system call and touches no memory, so it is sound between fork and exec.
            unsafe {
                command.pre_exec(enter_user_namespace);
            }
        }
        let child = command
            .spawn()
            .map_err(|e| SysError::io("exec", "a child to ask about", &e))?;
        Ok(Self { child })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to end, and `wait` takes it in.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn enter_user_namespace() -> std::io::Result<()> {
    // SAFETY: no pointers; the child is alone in its process.
    let result = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn in_initial_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

fn seize(sleeper: &Sleeper, options: libc::c_int) -> Result<()> {
    let pid = i32::try_from(sleeper.pid()).expect("a pid");
    // SAFETY: PTRACE_SEIZE takes no address (null) and options by value; the tracee is our own child.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, std::ptr::null_mut::<libc::c_void>(), options) };
    check(result, "PTRACE_SEIZE", pid)
}

fn check(result: libc::c_long, call: &'static str, object: impl std::fmt::Display) -> Result<()> {
    if result < 0 {
        Err(SysError::last(call, object))
    } else {
        Ok(())
    }
}

/// One anonymous page of our own, to ask about.
struct Page {
    at: *mut libc::c_void,
}

const PAGE_BYTES: usize = 4096;

impl Page {
    fn map() -> Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            Err(SysError::last("mmap", "a page"))
        } else {
            Ok(Self { at })
        }
    }

    fn range(&self) -> std::ops::Range<u64> {
        let start = u64::try_from(self.at.addr()).expect("64-bit");
        start..start + 4096
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing else refers to it.
        let result = unsafe { libc::munmap(self.at, PAGE_BYTES) };
        assert_eq!(result, 0, "a mapping of ours can be unmapped");
    }
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611;

fn pagemap_scan() -> Result<()> {
    let page = Page::map()?;
    let file = File::open("/proc/self/pagemap").map_err(|e| SysError::io("open", "/proc/self/pagemap", &e))?;
    let mut regions = [uapi::page_region {
        start: 0,
        end: 0,
        categories: 0,
    }; 4];
    let mut arg = uapi::pm_scan_arg {
        size: u64::try_from(size_of::<uapi::pm_scan_arg>()).expect("small"),
        flags: 0,
        start: page.range().start,
        end: page.range().end,
        walk_end: 0,
        vec: u64::try_from(regions.as_mut_ptr().addr()).expect("64-bit"),
        vec_len: 4,
        max_pages: 0,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: u64::from(uapi::PAGE_IS_PRESENT | uapi::PAGE_IS_SWAPPED),
        return_mask: u64::from(uapi::PAGE_IS_PRESENT | uapi::PAGE_IS_WRITTEN),
    };
    // SAFETY: `arg` is the structure of this call and `vec` points to `vec_len` live regions; both outlive the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    check(result.into(), "PAGEMAP_SCAN", "a page")
}

fn procmap_query() -> Result<()> {
    let page = Page::map()?;
    let file = File::open("/proc/self/maps").map_err(|e| SysError::io("open", "/proc/self/maps", &e))?;
    // size, flags, address, then 80 bytes of answer: `struct procmap_query`.
    let mut query = [0u64; 13];
    query[0] = u64::try_from(size_of_val(&query)).expect("small");
    query[2] = page.range().start;
    // SAFETY: the kernel reads and writes `query[0]` bytes at a live array of that size.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), PROCMAP_QUERY, query.as_mut_ptr()) };
    check(result.into(), "PROCMAP_QUERY", "a page")
}

fn uffd_wp_async() -> Result<()> {
    const UFFD_USER_MODE_ONLY: libc::c_int = 1;
    // SAFETY: no pointers; a new descriptor comes back.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, UFFD_USER_MODE_ONLY | libc::O_CLOEXEC) };
    check(fd, "userfaultfd", "user mode only")?;
    let fd = i32::try_from(fd).expect("a descriptor");
    // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
    const UFFD_API: u64 = 0xaa;
    const WP_UNPOPULATED: u64 = 1 << 13;
    const WP_ASYNC: u64 = 1 << 15;
    let mut api = [UFFD_API, WP_UNPOPULATED | WP_ASYNC, 0];
    // SAFETY: `struct uffdio_api` is three u64, read and written in place.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) };
    check(result.into(), "UFFDIO_API", "asynchronous write-protection")?;
    let page = Page::map()?;
    const MODE_WP: u64 = 2;
    let mut register = [page.range().start, 4096, MODE_WP, 0];
    // SAFETY: `struct uffdio_register` is four u64, read and written in place; the range is a page of ours.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, register.as_mut_ptr()) };
    check(result.into(), "UFFDIO_REGISTER", "a page")
}

fn fanotify(directory: &Path) -> Result<()> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_DFID_NAME;
    // SAFETY: no pointers; a new descriptor comes back.
    let fd = unsafe { libc::fanotify_init(flags, 0) };
    check(fd.into(), "fanotify_init", "directory and name")?;
    // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes())
        .map_err(|_| SysError::new("fanotify_mark", directory.display(), libc::EINVAL))?;
    let mask = libc::FAN_CREATE
        | libc::FAN_DELETE
        | libc::FAN_MOVED_FROM
        | libc::FAN_MOVED_TO
        | libc::FAN_MODIFY
        | libc::FAN_ATTRIB
        | libc::FAN_CLOSE_WRITE
        | libc::FAN_EVENT_ON_CHILD
        | libc::FAN_ONDIR;
    let how = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
    // SAFETY: `path` ends with a zero byte and outlives the call.
    let result = unsafe { libc::fanotify_mark(fd.as_raw_fd(), how, mask, libc::AT_FDCWD, path.as_ptr()) };
    check(result.into(), "fanotify_mark", directory.display())
}

fn openat2() -> Result<()> {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    let root = File::open("/proc/self").map_err(|e| SysError::io("open", "/proc/self", &e))?;
    rustix::fs::openat2(
        &root,
        "/../status",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )
    .map(drop)
    .map_err(|e| SysError::rustix("openat2", "in root", e))
}

fn pidfd_getfd() -> Result<()> {
    let sleeper = Sleeper::start(false)?;
    let pid = i32::try_from(sleeper.pid())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a pid");
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(|e| SysError::rustix("pidfd_open", "a child", e))?;
    rustix::process::pidfd_getfd(&pidfd, 0, rustix::process::PidfdGetfdFlags::empty())
        .map(drop)
        .map_err(|e| SysError::rustix("pidfd_getfd", "a child", e))
}

fn kcmp() -> Result<()> {
    const KCMP_FILE: libc::c_int = 0;
    let file = File::open("/dev/null").map_err(|e| SysError::io("open", "/dev/null", &e))?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: no pointers: two pids, a kind, two descriptor numbers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, file.as_raw_fd(), file.as_raw_fd()) };
    check(result, "kcmp", "self")
}

/// Can a group be made in cgroup 2, and has it `cgroup.kill`?
fn group_features(hierarchies: &Hierarchies) -> (bool, bool) {
    let Some(root) = &hierarchies.v2 else {
        return (false, false);
    };
    let name = format!("probe-{}", std::process::id());
    let Ok(group) = crate::cgroup::Group::create(root, &name) else {
        return (false, false);
    };
    let kill = group.kill().is_ok();
    (true, group.remove(0).is_ok() && kill)
}

fn overlay(inside: &Sleeper, directory: &Path) -> Result<()> {
    let base = directory.join(format!("probe-{}", std::process::id()));
    let made = overlay_in(inside, &base);
    std::fs::remove_dir_all(&base).map_err(|e| SysError::io("remove", base.display(), &e))?;
    made
}

fn overlay_in(inside: &Sleeper, base: &Path) -> Result<()> {
    for name in ["lower", "upper", "work", "staging"] {
        let path = base.join(name);
        std::fs::create_dir_all(&path).map_err(|e| SysError::io("mkdir", path.display(), &e))?;
    }
    let user_namespace = user_namespace_of(inside.pid())?;
    let lower = clone_tree(&base.join("lower"))?;
    map_ids(lower.as_fd(), user_namespace.as_fd(), base)?;
    let staging = base.join("staging");
    mount_overlay(Overlay {
        staging: &staging,
        lowers: vec![lower],
        upper: "../upper",
        work: "../work",
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On this machine the kernel is asked, not a table: what must hold together, holds together.
    #[test]
    fn answers_are_consistent_and_nothing_is_left() {
        let directory = std::env::temp_dir();
        let features = Features::probe(&directory).expect("a machine that runs tests has /proc and cat");
        eprintln!("{features:#?}");
        let findings = features.findings();
        assert!(findings.iter().all(|finding| !finding.hint.is_empty()));
        if features.suspend_seccomp {
            assert!(features.ptrace, "suspending needs seizing");
        }
        assert!(!directory.join(format!("probe-{}", std::process::id())).exists());
        if !features.initial_root {
            eprintln!("not root: only the shape was checked");
            return;
        }
        let missing: Vec<_> = findings
            .iter()
            .filter(|finding| finding.needed && !finding.works)
            .collect();
        assert!(
            missing.is_empty(),
            "root on a kernel that the other tests run on: {missing:?}"
        );
    }
}
