//! A box's mounts without a box: an overlay over an idmapped lower tree, a tmpfs of a user namespace, and a tracker, in
//! a mount namespace of the test's thread. Nothing of it is visible outside; the kernel unmounts it when the thread ends.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use files::{Roots, Tracker, Volume};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Where the upper lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The file system of the build directory.
    Plain,
    /// A state volume that shares extents.
    Volume,
    /// As `Plain`, with a second lower layer over the first: opaque directories, whiteouts, files of its own.
    Layered,
}

pub(crate) struct Fixture {
    pub(crate) merged: PathBuf,
    pub(crate) shm: PathBuf,
    pub(crate) upper: PathBuf,
    lowers: Vec<PathBuf>,
    blobs: PathBuf,
    base: PathBuf,
    volume: Option<Volume>,
    _shm: UserTmpfs,
}

/// Root of the boxes, outside.
pub(crate) const BOX_ROOT: u32 = 100_000;

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Fixture {
    /// Mounts everything. `None`, with the reason printed, when this machine cannot.
    pub(crate) fn new(home: Home, lower: Option<&Path>) -> Option<Fixture> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root for mounts");
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).expect("root may unshare");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("own propagation");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{}-{number}", std::process::id()));
        fs::create_dir_all(&base).expect("target directory is writable");
        let (top, volume) = match home {
            Home::Plain | Home::Layered => (base.clone(), None),
            Home::Volume => {
                let volume = Volume::open(&base, 2 << 30).expect("volume");
                if !volume.reflink {
                    eprintln!("skipped: {}", volume.how);
                    fs::remove_dir_all(&base).expect("own directory");
                    return None;
                }
                (volume.root.clone(), Some(volume))
            }
        };
        let made = |name: &str| {
            let path = top.join(name);
            fs::create_dir_all(&path).expect("mkdir");
            path
        };
        let lower = lower.map(Path::to_path_buf).unwrap_or_else(|| {
            let lower = made("lower");
            make_lower(&lower);
            lower
        });
        let (upper, work, merged, mapped) = (made("upper"), made("work"), made("merged"), made("mapped"));
        let mut lowers = vec![if idmap(&lower, &mapped) { mapped } else { lower }];
        if home == Home::Layered {
            let layer = made("layer");
            make_layer(&layer);
            lowers.insert(0, layer);
        }
        let layers: Vec<String> = lowers.iter().map(|lower| lower.display().to_string()).collect();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on,index=off,metacopy=on",
            layers.join(":"),
            upper.display(),
            work.display()
        );
        mount(
            Some("overlay"),
            &merged,
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .expect("overlay");
        let tmpfs = UserTmpfs::mount();
        let blobs = made("blobs");
        Some(Fixture {
            merged,
            shm: PathBuf::from(format!("/proc/self/fd/{}", tmpfs.root.as_raw_fd())),
            upper,
            lowers,
            blobs,
            base,
            volume,
            _shm: tmpfs,
        })
    }

    /// A tracker with these fault points.
    pub(crate) fn tracker(&self, faults: &[&str]) -> Tracker {
        Tracker::new(Roots {
            upper: directory(&self.upper),
            merged: directory(&self.merged),
            lowers: self.lowers.iter().map(|lower| directory(lower)).collect(),
            blobs: directory(&self.blobs),
            shm: Some(directory(&self.shm)),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        })
        .expect("tracker")
    }

    /// Makes files in `shm` as the box's root does; the daemon's root may not.
    pub(crate) fn in_shm<T>(body: impl FnOnce() -> T) -> T {
        let _acting = linux::owner::act_as(BOX_ROOT, BOX_ROOT).expect("root may");
        body()
    }

    /// A second tracker that walks everything, to compare with.
    pub(crate) fn fresh_walk(&self) -> files::Tree {
        let blobs = self.upper.parent().expect("has a parent").join("blobs-of-walk");
        fs::create_dir_all(&blobs).expect("mkdir");
        let mut tracker = Tracker::new(Roots {
            upper: directory(&self.upper),
            merged: directory(&self.merged),
            lowers: self.lowers.iter().map(|lower| directory(lower)).collect(),
            blobs: directory(&blobs),
            shm: Some(directory(&self.shm)),
            faults: Vec::new(),
        })
        .expect("tracker");
        tracker.capture(&[]).expect("walk")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let top = self.upper.parent().expect("has a parent").to_path_buf();
        for name in ["merged", "mapped"] {
            let _not_mounted = nix::mount::umount2(&top.join(name), nix::mount::MntFlags::MNT_DETACH);
        }
        if let Some(volume) = &self.volume {
            let _busy = nix::mount::umount2(&volume.root, nix::mount::MntFlags::MNT_DETACH);
        }
        let _left = fs::remove_dir_all(&self.base);
    }
}

/// A tmpfs mounted in a user namespace of its own, as `/dev/shm` of a box is.
struct UserTmpfs {
    root: OwnedFd,
    holder: Child,
}

impl UserTmpfs {
    fn mount() -> Self {
        // `cat` holds the namespaces until its input ends; once it echoes, they are there.
        let mut command = Command::new("unshare");
        command.args(["--user", "--mount", "cat"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = spawned.expect("unshare of util-linux");
        let (stdin, stdout) = (holder.stdin.as_mut(), holder.stdout.as_mut());
        stdin.expect("asked for").write_all(b"x").expect("cat reads");
        stdout.expect("asked for").read_exact(&mut [0]).expect("cat echoes");
        let pid = holder.id();
        for kind in ["uid", "gid"] {
            fs::write(format!("/proc/{pid}/{kind}_map"), format!("0 {BOX_ROOT} 65536")).expect("root may map");
        }
        let mut command = Command::new("nsenter");
        command.args([
            "--user",
            "--mount",
            "-S",
            "0",
            "-G",
            "0",
            "-t",
            &pid.to_string(),
            "mount",
        ]);
        command.args(["-t", "tmpfs", "-o", "size=64m,mode=1777", "shm", "/tmp"]);
        let mounted = command.status().expect("nsenter of util-linux");
        assert!(mounted.success(), "a tmpfs mounts in a user namespace");
        Self {
            root: directory(Path::new(&format!("/proc/{pid}/root/tmp"))),
            holder,
        }
    }
}

impl Drop for UserTmpfs {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}

fn directory(path: &Path) -> OwnedFd {
    fs::File::open(path).expect("directory").into()
}

/// Mounts `source` at `target` with ids shifted, as the sandbox does. False, with the reason printed, when it fails.
fn idmap(source: &Path, target: &Path) -> bool {
    const SCRIPT: &str = r#"
import ctypes, os, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
child = subprocess.Popen(["unshare", "-U", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write(b"x"); child.stdin.flush(); child.stdout.read(1)
for kind in ("uid", "gid"):
    open(f"/proc/{child.pid}/{kind}_map", "w").write("0 100000 65536")
ns = os.open(f"/proc/{child.pid}/ns/user", os.O_RDONLY)
def check(value, what):
    if value < 0: sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
    return value
tree = check(libc.syscall(428, -100, sys.argv[1].encode(), 1 | 0o2000000), "open_tree")
attr = struct.pack("QQQQ", 0x100000, 0, 0, ns)
check(libc.syscall(442, tree, b"", 0x1000, attr, len(attr)), "mount_setattr")
check(libc.syscall(429, tree, b"", -100, sys.argv[2].encode(), 4), "move_mount")
child.stdin.close(); child.wait()
"#;
    let output = Command::new("python3")
        .arg("-c")
        .arg(SCRIPT)
        .args([source, target])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("lower is not idmapped: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("lower is not idmapped: python3: {error}");
            false
        }
    }
}

/// A layer over [`make_lower`]: `etc` is all its own, `usr/lib` has additions, `srv/large` is deleted.
fn make_layer(root: &Path) {
    for directory in ["etc/own", "usr/lib/python", "srv"] {
        fs::create_dir_all(root.join(directory)).expect("mkdir");
    }
    for name in ["etc/l1", "etc/own/l2", "usr/lib/python/l1", "usr/lib/python/above"] {
        fs::write(root.join(name), format!("{name} of the upper layer\n")).expect("write");
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(root.join("etc"), "trusted.overlay.opaque", b"y", flags).expect("root may");
    let device = nix::sys::stat::makedev(0, 0);
    let (kind, mode) = (nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::empty());
    nix::sys::stat::mknod(&root.join("srv/large"), kind, mode, device).expect("root may");
    nix::sys::stat::mknod(&root.join("usr/bin"), kind, mode, device).expect("root may");
}

/// A lower tree with a bit of everything.
fn make_lower(root: &Path) {
    for directory in ["etc", "usr/lib/python/deep/er", "usr/bin", "srv", "usr/share/doc/x"] {
        fs::create_dir_all(root.join(directory)).expect("mkdir");
    }
    for index in 0..12 {
        let text = format!("lower file {index}\n").repeat(1 + index * 700);
        for directory in [
            "etc",
            "usr/lib/python",
            "usr/lib/python/deep",
            "usr/lib/python/deep/er",
            "usr/bin",
        ] {
            fs::write(root.join(directory).join(format!("l{index}")), &text).expect("write");
        }
    }
    fs::set_permissions(root.join("usr/bin/l1"), fs::Permissions::from_mode(0o4755)).expect("chmod");
    fs::hard_link(root.join("etc/l3"), root.join("etc/l3-hard")).expect("link");
    symlink("l2", root.join("etc/symbolic")).expect("symlink");
    symlink("/nowhere/../etc", root.join("usr/lib/up")).expect("symlink");
    let mut sparse = fs::File::create(root.join("srv/sparse")).expect("create");
    sparse.set_len(1 << 20).expect("truncate");
    sparse.write_all(b"begin").expect("write");
    fs::write(root.join("srv/large"), vec![7; 300 << 10]).expect("write");
    for (path, value) in [("etc/l4", "of a file"), ("usr/lib/python", "of a directory")] {
        rustix::fs::setxattr(
            root.join(path),
            "user.note",
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
        .expect("xattrs work here");
    }
}
