//! Composes the root of a box: ONE overlay with ONE upper directory, over an allow-list.
//!
//! An overlay does not see mounts below a lower layer, always merges the roots of its layers, and refuses (`ELOOP`) a
//! lower `/` when the upper directory is on the same file system. What works on a stock kernel (tried on 6.18):
//!
//! - The box's root is not the overlay's root but the directory `box` in it ([`ROOT_PREFIX`]), which the box gets as a
//!   bind mount; so the merged roots of the layers are never visible. `upper/box` is the one directory that holds every
//!   change; a layer made from it (for a fork) is `layer/box/…`.
//! - The *skeleton* is a layer of our own. Its `box` is opaque: what it does not name does not exist. An allowed
//!   directory `/usr/lib` is an empty `box/usr/lib` in it with an absolute redirect, which the kernel follows
//!   through the layers below even out of an opaque parent. Links and files are copied.
//! - Each *source* (`/usr`, `/etc`, …) is a lower layer, its ids mapped. Sources share one name space of
//!   redirects (`/usr/bin` and `/opt/bin` are both `/bin` in their layers), so each has an *alias* layer over it:
//!   the skeleton redirects to `/@2/bin`, which only alias 2 has, and it redirects to `/bin` below it; a whiteout in the
//!   next alias ends the search.
//!
//! ```text
//! upper      box/…                         what the box changed
//! skeleton   box (opaque), box/usr/bin -> /@0/bin, box/opt/bin -> /@1/bin, box/etc/hosts
//! alias 0    @0/bin -> /bin
//! /usr       bin
//! alias 1    @1/bin -> /bin, bin (whiteout)
//! /opt       bin
//! ```
//!
//! A directory that is renamed inside gets the redirect `/box/usr/…`, which resolves the same way, also when the upper
//! has become a lower layer. Names that appear on the host directly in a source later do not appear in the box. This
//! module never follows a link of the image.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use linux::SysError;
use linux::mount::{make_whiteout, set_attribute};

use crate::error::{SandboxError, Step as _};
use crate::spec::{Image, Spec};

/// The directory of the overlay that is the box's root.
pub const ROOT_PREFIX: &str = "box";

/// Where a box's directories are. The caller makes and removes `base`; everything in it belongs to this crate and, once
/// the box runs, `upper()` to whoever tracks files. It must be on a file system that can be an overlay's upper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// A directory of this box alone. It may be traversable by root only.
    pub base: PathBuf,
    /// Overlay layers from checkpoints, topmost first, each with [`ROOT_PREFIX`] in it; empty for a new box.
    pub layers: Vec<PathBuf>,
}

impl Dirs {
    /// Directories for a new box below `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            layers: Vec::new(),
        }
    }

    /// The overlay's upper directory: what becomes a layer.
    pub fn tree(&self) -> PathBuf {
        self.base.join("tree")
    }

    /// The directory whose entries are the changed entries of the box's `/`.
    pub fn upper(&self) -> PathBuf {
        self.tree().join(ROOT_PREFIX)
    }

    /// The overlay's work directory.
    pub fn work(&self) -> PathBuf {
        self.base.join("work")
    }

    fn skeleton(&self) -> PathBuf {
        self.base.join("skeleton")
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.base.join("staging")
    }
}

/// A directory of the host, some entries of which the box sees.
struct Source<'a> {
    host: PathBuf,
    inside: &'a str,
    entries: Entries,
}

enum Entries {
    All,
    Only(&'static [&'static str]),
    Except(&'static [&'static str]),
}

/// The harmless part of `/etc`: no passwords, keys, tokens or machine ids; nothing that commonly holds them (`default`,
/// `security/opasswd`, `pip.conf`, `npmrc`, `wgetrc`). A name that ends with `*` allows what starts so; one with a slash allows
/// just that of its directory (sources must not overlap: the kernel refuses that with `ELOOP`).
const ETC: &[&str] = &[
    "ImageMagick-*",
    "X11",
    "adduser.conf",
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "bindresvport.blacklist",
    "ca-certificates",
    "ca-certificates.conf",
    "debconf.conf",
    "debian_version",
    "deluser.conf",
    "dpkg",
    "emacs",
    "environment",
    "ethertypes",
    "fedora-release",
    "fonts",
    "gai.conf",
    "gdb",
    "glvnd",
    "groff",
    "group",
    "gss",
    "host.conf",
    "init.d",
    "inputrc",
    "issue",
    "issue.net",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libaudit.conf",
    "locale.alias",
    "locale.conf",
    "locale.gen",
    "localtime",
    "login.defs",
    "logrotate.d",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "manpath.config",
    "mime.types",
    "mke2fs.conf",
    "motd",
    "netconfig",
    "networks",
    "nsswitch.conf",
    "opt",
    "os-release",
    "pam.conf",
    "pam.d",
    "passwd",
    "perl",
    "profile",
    "profile.d",
    "protocols",
    "python*",
    "redhat-release",
    "rpc",
    "selinux",
    "services",
    "sgml",
    "shells",
    "skel",
    "terminfo",
    "timezone",
    "ucf.conf",
    "vim",
    "xattr.conf",
    "xdg",
    "xml",
    "security/access.conf",
    "security/group.conf",
    "security/limits.conf",
    "security/limits.d",
    "security/namespace.conf",
    "security/pam_env.conf",
    "security/time.conf",
    "ssl/certs",
    "ssl/openssl.cnf",
    "apt/apt.conf.d",
    "apt/keyrings",
    "apt/preferences.d",
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg",
    "apt/trusted.gpg.d",
];
const VAR_LIB: &[&str] = &["apt", "dpkg"];
/// Top-level names of an image that are the kernel's or start empty.
const NOT_FROM_IMAGE: &[&str] = &["dev", "proc", "run", "sys", "tmp"];

/// Directories that every box has, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];
/// More of them for a box from the host's root, so that `apt` and `dpkg` find their places.
const DIRECTORIES_HOST: &[(&str, u32)] = &[
    ("var/cache/apt", 0o755),
    ("var/cache/apt/archives", 0o755),
    ("var/cache/apt/archives/partial", 0o700),
    ("var/cache/debconf", 0o755),
    ("var/log/apt", 0o755),
    ("var/lib/misc", 0o755),
    ("var/lib/pam", 0o755),
    ("var/lib/python", 0o755),
    ("var/lib/systemd", 0o755),
    ("var/lib/ucf", 0o755),
];

/// Makes the directories of a box and returns its lower layers, topmost first.
pub(crate) fn compose(spec: &Spec, dirs: &Dirs) -> Result<Vec<PathBuf>, SandboxError> {
    let skeleton = dirs.skeleton();
    let made = || -> Result<Vec<PathBuf>, SysError> {
        match fs::remove_dir_all(&skeleton) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault("remove", &skeleton, &e)),
            _ => {}
        }
        let owner = spec.id_range().first;
        for (path, is_the_box) in [
            (dirs.tree(), true),
            (dirs.upper(), true),
            (dirs.work(), false),
            (dirs.staging(), false),
        ] {
            fs::create_dir_all(&path).map_err(|e| fault("mkdir", &path, &e))?;
            if is_the_box {
                chown(&path, Some(owner), Some(owner)).map_err(|e| fault("chown", &path, &e))?;
                set_mode(&path, 0o755)?;
            }
        }
        let mut builder = Builder {
            skeleton: skeleton.clone(),
            layers: vec![skeleton.join("root")],
            hidden: BTreeSet::new(),
        };
        builder.directory(&builder.layers[0].join(ROOT_PREFIX), 0o755)?;
        set_attribute(&builder.layers[0].join(ROOT_PREFIX), "trusted.overlay.opaque", b"y")?;
        for source in sources(&spec.image) {
            builder.source(&source)?;
        }
        builder.furnish(spec)?;
        Ok(builder.layers)
    };
    if let Image::Host = spec.image {
        check_host_layout()?;
    }
    if let Image::Directory(path) = &spec.image
        && !path.is_dir()
    {
        return Err(SandboxError::Image {
            image: path.display().to_string(),
            why: "is not a directory".to_owned(),
        });
    }
    let mut layers = dirs.layers.clone();
    layers.extend(made().step("compose the root")?);
    Ok(layers)
}

/// Programs outside `/usr` would need a layer of single files.
fn check_host_layout() -> Result<(), SandboxError> {
    for name in ["/bin", "/sbin", "/lib"] {
        if fs::symlink_metadata(name).is_ok_and(|m| m.is_dir()) {
            let why = format!("{name} is not a link into /usr; give a directory or a tar file with --image");
            return Err(SandboxError::Image {
                image: "host".to_owned(),
                why,
            });
        }
    }
    Ok(())
}

fn sources(image: &Image) -> Vec<Source<'static>> {
    let source = |host: &str, entries| Source {
        host: host.into(),
        inside: "",
        entries,
    };
    match image {
        Image::Directory(path) => {
            vec![Source {
                host: path.clone(),
                inside: "",
                entries: Entries::Except(NOT_FROM_IMAGE),
            }]
        }
        Image::Host => vec![
            Source {
                inside: "usr",
                ..source("/usr", Entries::All)
            },
            Source {
                inside: "opt",
                ..source("/opt", Entries::All)
            },
            Source {
                inside: "etc",
                ..source("/etc", Entries::Only(ETC))
            },
            Source {
                inside: "var/lib",
                ..source("/var/lib", Entries::Only(VAR_LIB))
            },
        ],
    }
}

impl Source<'_> {
    /// The allowed entries, by path below the source. Names that are not UTF-8 are left out.
    fn allowed(&self) -> Result<Vec<PathBuf>, SysError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.host).map_err(|e| fault("read", &self.host, &e))? {
            let entry = entry.map_err(|e| fault("read", &self.host, &e))?;
            names.extend(entry.file_name().into_string());
        }
        let matches = |allowed: &str, name: &str| match allowed.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == allowed,
        };
        let mut paths: Vec<PathBuf> = Vec::new();
        match self.entries {
            Entries::All => paths.extend(names.iter().map(PathBuf::from)),
            Entries::Except(list) => {
                paths.extend(
                    names
                        .iter()
                        .filter(|name| !list.contains(&name.as_str()))
                        .map(PathBuf::from),
                );
            }
            Entries::Only(list) => {
                let listed = |name: &&String| list.iter().any(|allowed| matches(allowed, name));
                paths.extend(names.iter().filter(listed).map(PathBuf::from));
                paths.extend(list.iter().filter(|allowed| allowed.contains('/')).map(PathBuf::from));
            }
        }
        Ok(paths)
    }
}

struct Builder {
    skeleton: PathBuf,
    /// Lower layers, topmost first; the first is the skeleton.
    layers: Vec<PathBuf>,
    /// Names in the last source's layer that the next alias layer must hide.
    hidden: BTreeSet<OsString>,
}

impl Builder {
    fn inside(&self, path: &str) -> PathBuf {
        self.layers[0].join(ROOT_PREFIX).join(path)
    }

    /// Adds the allowed entries of a host directory that exists.
    fn source(&mut self, source: &Source<'_>) -> Result<(), SysError> {
        let Ok(host) = fs::symlink_metadata(&source.host) else {
            return Ok(());
        };
        if !host.is_dir() {
            return Ok(());
        }
        let index = self.layers.len() / 2;
        let alias = self.skeleton.join(format!("alias-{index}"));
        let marker = format!("@{index}");
        self.directory(&alias.join(&marker), 0o755)?;
        for name in std::mem::take(&mut self.hidden) {
            make_whiteout(&alias.join(name))?;
        }
        let target = self.inside(source.inside);
        self.directory_like(&target, &host)?;
        for path in source.allowed()? {
            let from = source.host.join(&path);
            let Ok(meta) = fs::symlink_metadata(&from) else {
                continue;
            };
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                let Ok(meta) = fs::symlink_metadata(source.host.join(parent)) else {
                    continue;
                };
                if !meta.is_dir() {
                    continue;
                }
                self.directory_like(&target.join(parent), &meta)?;
            }
            if !meta.is_dir() {
                copy(&from, &meta, &target.join(&path))?;
                continue;
            }
            let text = path.display();
            self.directory_like(&target.join(&path), &meta)?;
            redirect(&target.join(&path), &format!("/{marker}/{text}"))?;
            self.directory(&alias.join(&marker).join(&path), 0o755)?;
            redirect(&alias.join(&marker).join(&path), &format!("/{text}"))?;
            self.hidden.extend(path.iter().next().map(|first| first.to_owned()));
        }
        self.layers.push(alias);
        self.layers.push(source.host.clone());
        Ok(())
    }

    /// Adds what every box needs and the image does not have.
    fn furnish(&self, spec: &Spec) -> Result<(), SysError> {
        let host = matches!(spec.image, Image::Host);
        let more = if host { DIRECTORIES_HOST } else { &[] };
        for (path, mode) in DIRECTORIES.iter().chain(more) {
            self.directory_if_free(spec, path, *mode)?;
        }
        if host {
            for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
                if let Ok(to) = fs::read_link(Path::new("/").join(name)) {
                    link(&to, &self.inside(name))?;
                }
            }
            link(Path::new("/run"), &self.inside("var/run"))?;
            link(Path::new("/run/lock"), &self.inside("var/lock"))?;
            link(Path::new("/proc/self/mounts"), &self.inside("etc/mtab"))?;
            self.file(
                "etc/shadow",
                &locked_shadow("/etc/passwd", ":*:19000:0:99999:7:::"),
                0o640,
            )?;
            self.file("etc/gshadow", &locked_shadow("/etc/group", ":*::"), 0o640)?;
            self.file("etc/machine-id", "", 0o444)?;
        }
        if !self.inside("etc").is_symlink() {
            let name = &spec.hostname;
            self.file("etc/hostname", &format!("{name}\n"), 0o644)?;
            let hosts = format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{name}\n");
            self.file("etc/hosts", &hosts, 0o644)?;
            self.file("etc/resolv.conf", "", 0o644)?;
        }
        Ok(())
    }

    /// Makes a directory unless the image has something of that name, or a link where its parents should be.
    fn directory_if_free(&self, spec: &Spec, path: &str, mode: u32) -> Result<(), SysError> {
        if let Image::Directory(image) = &spec.image {
            let first = path.split('/').next().unwrap_or(path);
            let parents = Path::new(path)
                .ancestors()
                .skip(1)
                .filter(|p| !p.as_os_str().is_empty());
            let own = NOT_FROM_IMAGE.contains(&first);
            if !own && image.join(path).symlink_metadata().is_ok() {
                return Ok(());
            }
            for parent in parents {
                if !own && image.join(parent).symlink_metadata().is_ok_and(|m| !m.is_dir()) {
                    return Ok(());
                }
            }
        }
        self.directory(&self.inside(path), mode)
    }

    fn directory(&self, path: &Path, mode: u32) -> Result<(), SysError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(|e| fault("mkdir", path, &e))?;
        set_mode(path, mode)
    }

    /// A directory with the mode, owner and times of another one: in a merged directory the topmost layer's count.
    fn directory_like(&self, path: &Path, like: &fs::Metadata) -> Result<(), SysError> {
        self.directory(path, like.mode())?;
        own_like(path, like)
    }

    fn file(&self, path: &str, text: &str, mode: u32) -> Result<(), SysError> {
        let path = self.inside(path);
        if path.is_symlink() {
            fs::remove_file(&path).map_err(|e| fault("remove", &path, &e))?;
        }
        fs::write(&path, text).map_err(|e| fault("write", &path, &e))?;
        set_mode(&path, mode)
    }
}

/// Nobody has a password, but the tools that add users find their files.
fn locked_shadow(from: &str, rest: &str) -> String {
    let names = fs::read_to_string(from).unwrap_or_default();
    let names = names
        .lines()
        .filter_map(|line| line.split(':').next())
        .filter(|name| !name.is_empty());
    names.fold(String::new(), |text, name| text + name + rest + "\n")
}

fn redirect(path: &Path, to: &str) -> Result<(), SysError> {
    set_attribute(path, "trusted.overlay.redirect", to.as_bytes())
}

/// Links and regular files; sockets, pipes and devices are left out.
fn copy(from: &Path, meta: &fs::Metadata, to: &Path) -> Result<(), SysError> {
    if meta.is_symlink() {
        let target = fs::read_link(from).map_err(|e| fault("readlink", from, &e))?;
        return link(&target, to);
    }
    if meta.is_file() {
        fs::copy(from, to).map_err(|e| fault("copy", from, &e))?;
        set_mode(to, meta.mode())?;
        own_like(to, meta)?;
    }
    Ok(())
}

fn link(target: &Path, at: &Path) -> Result<(), SysError> {
    symlink(target, at).map_err(|e| fault("symlink", at, &e))
}

fn own_like(path: &Path, like: &fs::Metadata) -> Result<(), SysError> {
    lchown(path, Some(like.uid()), Some(like.gid())).map_err(|e| fault("chown", path, &e))?;
    // `chown` clears set-id bits.
    set_mode(path, like.mode())?;
    let times = like.modified().map(|time| fs::FileTimes::new().set_modified(time));
    let set = times.and_then(|times| fs::File::open(path).and_then(|file| file.set_times(times)));
    set.map_err(|e| fault("utimensat", path, &e))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), SysError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777)).map_err(|e| fault("chmod", path, &e))
}

fn fault(call: &'static str, path: &Path, error: &io::Error) -> SysError {
    SysError::io(call, path.display(), error)
}
