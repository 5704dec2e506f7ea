//! Real boxes on this machine: what a box sees, may do and may use. They need root, as `boxes`.

mod fixture;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use fixture::{Box, spec};
use sandbox::{ExecRequest, ExitStatus, Image, Limits, Mechanism, Volume};

const OK: ExitStatus = ExitStatus::Code(0);

#[test]
fn the_root_is_an_allow_list() {
    let a_box = Box::host("root");
    let (out, _) = a_box.sh("ls -A / | tr '\\n' ' '");
    for name in out.split_whitespace() {
        const KNOWN: &str =
            "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var";
        assert!(KNOWN.split(' ').any(|known| known == name), "{name} in {out}");
    }
    let (out, _) = a_box.sh(
        "ls -A /root /home /srv /mnt | grep -v : ; ls -d /etc/ssh /etc/ssl/private /etc/pip.conf /etc/npmrc /etc/default \
         /var/lib/systemd/* /var/log/* /etc/apt/auth.conf.d /@* 2>/dev/null; cat /etc/machine-id; grep -v ':\\*:' /etc/shadow",
    );
    assert_eq!(out.trim(), "/var/log/apt", "secrets or leftovers of the host");
    let (out, status) = a_box
        .sh("test -d /usr/bin && test -d /var/lib/dpkg && test -f /etc/passwd && stat -c %u:%g /usr/bin /etc/passwd /");
    assert_eq!((out.as_str(), status), ("0:0\n0:0\n0:0\n", OK));
    let (out, _) =
        a_box.sh("stat -c '%a %n' /tmp /var/tmp /root /dev/shm; stat -f -c %T /tmp /dev/shm; ls /opt | wc -l");
    let opt = std::fs::read_dir("/opt").map_or(0, Iterator::count);
    assert_eq!(
        out,
        format!("1777 /tmp\n1777 /var/tmp\n700 /root\n1777 /dev/shm\noverlayfs\ntmpfs\n{opt}\n")
    );
    // The source directories shadow nothing of each other: /opt, /etc and /var/lib share names.
    let (inside, _) = a_box.sh("ls /usr/bin /usr/lib /var/lib/apt /var/lib/dpkg | cat");
    let outside = Command::new("/bin/sh")
        .args(["-c", "ls /usr/bin /usr/lib /var/lib/apt /var/lib/dpkg | cat"])
        .output();
    assert_eq!(
        inside,
        String::from_utf8_lossy(&outside.expect("ls on the host").stdout)
    );
    a_box.end();
}

#[test]
fn the_whole_root_is_writable_and_the_host_untouched() {
    let a_box = Box::host("writes");
    let (out, status) = a_box.sh(
        "set -e; touch /usr/bin/zz-deltabox-test; chown 33:33 /usr/bin/zz-deltabox-test; mv /usr/share/doc /srv/moved\n\
         test -n \"$(ls /srv/moved)\"; test ! -e /usr/share/doc; rm -rf /usr/lib/python3; test ! -e /usr/lib/python3\n\
         echo changed >> /etc/passwd; mknod /tmp/fifo p; ln /etc/passwd /etc/passwd2; stat -c %u:%g /usr/bin/zz-deltabox-test",
    );
    assert_eq!((out.as_str(), status), ("33:33\n", OK));
    let first = a_box.spec.id_range().first;
    let upper = a_box.dirs.upper();
    let meta = std::fs::metadata(upper.join("usr/bin/zz-deltabox-test")).expect("it is in the upper directory");
    assert_eq!((meta.uid(), meta.gid()), (first + 33, first + 33));
    assert!(upper.join("srv/moved").is_dir());
    assert!(!Path::new("/usr/bin/zz-deltabox-test").exists() && Path::new("/usr/share/doc").exists());
    assert!(
        !std::fs::read_to_string("/etc/passwd")
            .expect("read")
            .contains("changed")
    );
    // The daemon sees the same through its descriptor.
    let flags = rustix::fs::OFlags::PATH;
    let resolve = rustix::fs::ResolveFlags::IN_ROOT;
    let mode = rustix::fs::Mode::empty();
    rustix::fs::openat2(
        a_box.sandbox.merged_root(),
        "/usr/bin/zz-deltabox-test",
        flags,
        mode,
        resolve,
    )
    .expect("the merged root");
    a_box.sh("touch /dev/shm/here");
    rustix::fs::openat2(a_box.sandbox.dev_shm(), "here", flags, mode, resolve).expect("the box's /dev/shm");
    a_box.end();
}

const SYSCALLS: &str = "
import ctypes, errno
c = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    r = c.syscall(*a)
    return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'
print('io_uring', call(425, 8, 0), call(426, 0, 0, 0, 0, 0, 0), call(427, 0, 0, 0, 0))
print('clone3', call(435, 0, 0))
print('userfaultfd', call(323, 0), call(323, 1))
print('mount', call(165, 0, 0, 0, 0, 0), 'bpf', call(321, 0, 0, 0), 'perf', call(298, 0, 0, -1, -1, 0), 'keyctl', call(250, 0, 0, 0))
print('unshare', call(272, 0x10000000), 'clone', call(56, 0x10000000 | 17, 0, 0, 0, 0), 'unknown', call(1000))
print('vsock', call(41, 40, 1, 0), 'unix', call(41, 1, 1, 0), 'x32', call(0x40000000 + 39))
";

#[test]
fn the_filter_answers() {
    let a_box = Box::host("filter");
    let (out, _) = a_box.run(ExecRequest::new(["python3", "-c", SYSCALLS]));
    let expected = "io_uring ENOSYS ENOSYS ENOSYS\nclone3 ENOSYS\nuserfaultfd EPERM ok\n\
                    mount EPERM bpf EPERM perf EPERM keyctl EPERM\nunshare EPERM clone EPERM unknown ENOSYS\n\
                    vsock EPERM unix ok x32 ENOSYS\n";
    assert_eq!(out, expected);
    let (out, _) = a_box.sh("grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status");
    let docker = "00000000a80425fb";
    let none = "0000000000000000";
    let caps = format!("CapInh:\t{none}\nCapPrm:\t{docker}\nCapEff:\t{docker}\nCapBnd:\t{docker}\nCapAmb:\t{none}\n");
    assert_eq!(out, format!("{caps}NoNewPrivs:\t1\nSeccomp:\t2\n"));
    // Threads, subprocesses and signals of a common runtime get along with it.
    let python = "import threading, subprocess, asyncio\n\
                  t = [threading.Thread(target=sum, args=([1],)) for _ in range(20)]\n\
                  [x.start() for x in t]; [x.join() for x in t]\n\
                  print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout, end='')\n\
                  asyncio.run(asyncio.sleep(0.01)); print('fine')";
    assert_eq!(
        a_box.run(ExecRequest::new(["python3", "-c", python])).0,
        "child\nfine\n"
    );
    a_box.end();
}

#[test]
fn nested_user_namespaces_are_an_opt_in() {
    let nest = "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /mnt && touch /mnt/x && ls /mnt'";
    let a_box = Box::host("flat");
    let (out, status) = a_box.sh(nest);
    assert!(status != OK && out.contains("not permitted"), "{out}");
    a_box.end();
    let a_box = Box::from(sandbox::Spec {
        nested_userns: true,
        ..spec("nested")
    });
    assert_eq!(a_box.sh(nest), ("x\n".to_owned(), OK));
    a_box.end();
}

#[test]
fn pid_1_and_the_host_are_out_of_reach() {
    let a_box = Box::host("reach");
    let (out, _) = a_box.sh(
        "for f in /proc/1/environ /proc/1/mem /proc/1/maps; do cat $f > /dev/null 2>&1 && echo read $f; done; ls /proc/1/fd /proc/1/root >/dev/null 2>&1 && echo listed\n\
         cat /proc/kcore /proc/timer_list /proc/keys 2>/dev/null | wc -c; echo 1 > /proc/sys/kernel/ns_last_pid; echo x > /proc/irq/default_smp_affinity\n\
         mknod /tmp/sda b 254 0; ls -A /sys/firmware; ls -A /sys/fs/cgroup; cat /proc/self/cgroup | tail -1",
    );
    assert!(!out.contains("read /proc") && !out.contains("listed"), "{out}");
    assert!(out.starts_with("0\n"), "{out}");
    assert_eq!(out.matches("Read-only file system").count(), 2, "{out}");
    assert!(out.contains("mknod: /tmp/sda: Operation not permitted"), "{out}");
    assert!(out.ends_with("0::/\n"), "the group of the box is its root: {out}");
    a_box.end();
}

/// The pivot once left the host's root mounted over the box's: invisible from `/`, but there in `/..`.
#[test]
fn no_mount_of_the_host_is_left_inside() {
    for privileged in [false, true] {
        let a_box = Box::from(sandbox::Spec {
            privileged,
            ..spec(if privileged { "pivot-real" } else { "pivot" })
        });
        let (out, _) = a_box.sh("cat /proc/self/mountinfo");
        let line = |line: &str| {
            let (left, right) = line.split_once(" - ").expect("mountinfo");
            let mut left = left.split(' ').skip(3);
            (
                left.next().expect("root").to_owned(),
                left.next().expect("point").to_owned(),
                right.to_owned(),
            )
        };
        let mounts: Vec<_> = out.lines().map(line).collect();
        assert_eq!(mounts.iter().filter(|(_, point, _)| point == "/").count(), 1, "{out}");
        for (root, point, kind) in &mounts {
            let own = ["overlay ", "tmpfs ", "devpts ", "proc ", "sysfs ", "mqueue "]
                .iter()
                .any(|k| kind.starts_with(k));
            let node = kind.starts_with("devtmpfs ") && root != "/";
            assert!(own || node, "{point} is {kind}");
        }
        assert_eq!(
            a_box
                .sh("stat -c %d:%i / /.. /proc/1/cwd/.. 2>/dev/null | sort -u | wc -l")
                .0,
            "1\n"
        );
        a_box.end();
    }
}

#[test]
fn the_namespaces_are_its_own() {
    let a_box = Box::host("spaces");
    let init = a_box.sandbox.init_host_pid();
    for name in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"] {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).expect("a namespace");
        assert_ne!(of(&init.to_string()), of("self"), "{name}");
    }
    let python = "import socket\ns = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); \
                  s.accept()[0].send(b'lo'); print(c.recv(2).decode(), [n for _, n in socket.if_nameindex()])\n\
                  s = socket.socket(); s.settimeout(2)\n\
                  try: s.connect(('192.0.2.1', 80))\nexcept OSError as e: print(e.strerror)";
    assert_eq!(
        a_box.run(ExecRequest::new(["python3", "-c", python])).0,
        "lo ['lo']\nNetwork is unreachable\n"
    );
    a_box.end();
}

#[test]
fn limits_hold() {
    let mut spec = spec("limits");
    spec.limits = Limits {
        memory_bytes: Some(96 << 20),
        cpu_milli: Some(500),
        task_count: Some(20),
    };
    let a_box = Box::from(spec);
    let held = a_box.sandbox.limits_held();
    eprintln!("memory: {}, cpu: {}, tasks: {}", held.memory, held.cpu, held.tasks);
    assert!(held.memory != Mechanism::Unlimited && held.tasks != Mechanism::Unlimited);
    let (out, status) = a_box.run(ExecRequest::new([
        "python3",
        "-c",
        "b = bytearray(400 << 20); print(len(b))",
    ]));
    assert!(status != OK, "{out}");
    let (out, _) = a_box.run(ExecRequest::new([
        "python3",
        "-c",
        "b = bytearray(30 << 20); print('fits')",
    ]));
    assert_eq!(out, "fits\n");
    let many = "import os\nn = 0\ntry:\n  while n < 100:\n    if os.fork() == 0: os.execvp('sleep', ['sleep', '5'])\n    n += 1\n\
                except OSError as e: print(n, e.strerror)";
    let request = ExecRequest::new(["python3", "-c", many]);
    let started = a_box.sandbox.exec(&request).expect("start");
    assert_eq!(a_box.status_of(started.pid_inside), OK);
    a_box.sandbox.kill_all().expect("end the sleepers");
    assert_eq!(fixture::output(started).trim(), "19 Resource temporarily unavailable");
    if held.cpu != Mechanism::NotHeld {
        let spin = "import time\nw = time.monotonic(); c = time.process_time()\nwhile time.monotonic() - w < 1: pass\n\
                    print(time.process_time() - c)";
        let used: f64 = a_box
            .run(ExecRequest::new(["python3", "-c", spin]))
            .0
            .trim()
            .parse()
            .expect("seconds");
        assert!(used < 0.75, "half a processor was allowed, {used} s of 1 used");
    }
    a_box.end();
}

#[test]
fn volumes_have_sane_owners() {
    let host = fixture::directory(&format!("volume-{}", std::process::id()));
    std::fs::write(host.join("given"), "from the host").expect("write");
    let mut spec = spec("volumes");
    let volume = |inside: &str, read_only| Volume {
        host: host.clone(),
        inside: inside.to_owned(),
        read_only,
    };
    spec.volumes = vec![volume("/data/deep", false), volume("/frozen", true)];
    spec.volumes.push(Volume {
        host: host.join("given"),
        inside: "/etc/given".to_owned(),
        read_only: true,
    });
    let a_box = Box::from(spec);
    let (out, _) = a_box.sh(
        "cat /data/deep/given /etc/given; echo; stat -c %u /data/deep/given; echo new > /data/deep/new; chown 33 /data/deep/new\n\
         touch /frozen/x || rm /frozen/given || echo y > /etc/given",
    );
    assert!(out.starts_with("from the hostfrom the host\n0\n"), "{out}");
    assert_eq!(out.matches("Read-only file system").count(), 3, "{out}");
    assert_eq!(
        std::fs::metadata(host.join("new")).expect("it was made").uid(),
        33,
        "ids are those of the host"
    );
    a_box.end();
    std::fs::remove_dir_all(&host).expect("remove the volume");
}

#[test]
fn packages_install() {
    let a_box = Box::host("packages");
    let (out, status) = a_box.sh(
        "set -e; cd /root; mkdir -p p/DEBIAN p/usr/share/dbtest; echo payload > p/usr/share/dbtest/f; chown 33:33 p/usr/share/dbtest/f\n\
         printf 'Package: dbtest\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b.c>\\nDescription: d\\n' > p/DEBIAN/control\n\
         printf '#!/bin/sh\\nset -e\\nchown 33:33 /usr/share/dbtest\\n' > p/DEBIAN/postinst; chmod 755 p/DEBIAN/postinst\n\
         dpkg-deb -b p dbtest.deb; dpkg -i dbtest.deb; dpkg -s dbtest | grep Status; stat -c %u /usr/share/dbtest /usr/share/dbtest/f",
    );
    assert_eq!(status, OK, "{out}");
    assert!(out.ends_with("Status: install ok installed\n33\n33\n"), "{out}");
    assert!(!Path::new("/usr/share/dbtest").exists());
    let (out, status) = a_box.sh(
        "set -e; cd /root; cat > wheel.py <<'E'\nimport zipfile\n\
         z = zipfile.ZipFile('dbwheel-1.0-py3-none-any.whl', 'w')\n\
         z.writestr('dbwheel.py', 'print(\"imported\")')\n\
         z.writestr('dbwheel-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: dbwheel\\nVersion: 1.0\\n')\n\
         z.writestr('dbwheel-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr('dbwheel-1.0.dist-info/RECORD', '')\nz.close()\nE\n\
         python3 wheel.py; python3 -m pip install --no-index --break-system-packages ./dbwheel-1.0-py3-none-any.whl; cd /; python3 -c 'import dbwheel'",
    );
    if out.contains("No module named pip") {
        eprintln!("not checked: the host's python3 has no pip");
    } else {
        assert_eq!(status, OK, "{out}");
        assert!(out.ends_with("imported\n"), "{out}");
    }
    a_box.end();
}

/// A root file system of one static program: our own PID 1 will do for the files, the host's shell with its libraries
/// for the running.
fn small_root(at: &Path) {
    let script = "set -e; mkdir -p $0/usr/bin $0/etc $0/var/lib $0/empty; ln -s usr/bin $0/bin; \
                  for p in sh ls cat id stat; do cp -L $(command -v $p) $0/usr/bin/; done; \
                  ldd /bin/sh $(command -v ls cat id stat) | grep -o '/[^ :]*' | sort -u | grep -v '^/usr/bin\\|^/bin' | while read l; do \
                  mkdir -p $0$(dirname $l); cp -Ln $l $0$l; done; echo 'root:x:0:0::/root:/bin/sh' > $0/etc/passwd; \
                  chown 12:13 $0/empty; chmod 1750 $0/empty; echo marker > $0/var/lib/marker; ln -s /nowhere $0/home; mkdir $0/tmp; echo old > $0/tmp/old";
    let status = Command::new("/bin/sh")
        .args(["-c", script])
        .arg(at)
        .status()
        .expect("run a shell");
    assert!(status.success());
}

#[test]
fn a_directory_is_an_image() {
    let root = fixture::directory(&format!("image-{}", std::process::id()));
    small_root(&root);
    let a_box = Box::from(sandbox::Spec {
        image: Image::Directory(root.clone()),
        ..spec("dirimage")
    });
    let script = "id -u; cat /var/lib/marker; stat -c %u:%g:%a /empty /var/tmp /tmp; ls /tmp; ls -d /root /home; cat /etc/hostname; \
                  echo changed > /var/lib/marker; cat /var/lib/marker";
    let (out, _) = a_box.sh(script);
    let expected = "0\nmarker\n12:13:1750\n0:0:1777\n0:0:1777\n/home\n/root\ndirimage\nchanged\n";
    assert_eq!(out, expected);
    assert_eq!(
        std::fs::read_to_string(root.join("var/lib/marker")).expect("read"),
        "marker\n"
    );
    a_box.end();

    let inner = root.join("state");
    std::fs::create_dir(&inner).expect("make a directory");
    let overlapping = sandbox::Spec {
        image: Image::Directory(root.clone()),
        ..spec("overlapping")
    };
    let error = sandbox::Sandbox::spawn(&overlapping, &sandbox::Dirs::new(&inner)).expect_err("layers overlap");
    assert!(matches!(error, sandbox::SandboxError::Image { .. }), "{error}");
    std::fs::remove_dir_all(&inner).expect("remove it");

    let tar = root.with_extension("tar");
    let target = root.with_extension("unpacked");
    let made = Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status()
        .expect("run tar");
    assert!(made.success());
    sandbox::image::unpack(&tar, &target).expect("unpack");
    let a_box = Box::from(sandbox::Spec {
        image: Image::Directory(target.clone()),
        ..spec("tarimage")
    });
    assert_eq!(
        a_box.sh("cat /var/lib/marker; stat -c %u:%g:%a /empty").0,
        "marker\n12:13:1750\n"
    );
    a_box.end();
    assert!(sandbox::image::unpack(&root.join("etc/passwd"), &root.join("x")).is_err());
    assert!(!root.join("x").exists());
    for path in [&root, &target] {
        std::fs::remove_dir_all(path).expect("remove the image");
    }
    std::fs::remove_file(&tar).expect("remove the archive");
}

#[test]
fn a_privileged_box_is_real_root() {
    let a_box = Box::from(sandbox::Spec {
        privileged: true,
        ..spec("privileged")
    });
    let (out, status) = a_box.sh(
        "set -e; cat /proc/self/uid_map | tr -s ' '; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; mount -t tmpfs none /mnt; touch /mnt/x\n\
         mknod /tmp/null c 1 3; echo 1 > /proc/sys/kernel/ns_last_pid; python3 -c \"open('/usr/bin/y', 'w')\"; stat -c %u /usr/bin/y /usr/bin",
    );
    assert_eq!(
        (out.as_str(), status),
        (" 0 0 4294967295\nNoNewPrivs:\t0\nSeccomp:\t0\n0\n0\n", OK)
    );
    a_box.end();
}
