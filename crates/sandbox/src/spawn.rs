//! The birth of a box, the daemon's side. Each step leaves something that the next needs; a failure undoes what is there
//! by dropping the half-made [`Sandbox`] parts.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use linux::SysError;
use linux::cgroup::Hierarchies;
use linux::mount::{Overlay, clone_tree, map_ids, mount_overlay, restrict};
use linux::namespace::{BOX_NAMESPACES, USER_NAMESPACE, user_namespace_of, write_id_maps};

use crate::control::{Control, Message};
use crate::error::{SandboxError, Step as _};
use crate::limits::{self, Groups};
use crate::rootfs::{Dirs, ROOT_PREFIX, compose};
use crate::spec::{Spec, Volume};
use crate::teardown::end_and_reap;
use crate::{Sandbox, filter, protocol};

/// PID 1, built by `build.rs`.
const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// PID 1 and its groups while the box is being made: ended when a later step fails.
struct Newborn {
    host_pid: u32,
    init: Option<OwnedFd>,
    groups: Groups,
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(init) = self.init.take() {
            end_and_reap(init.as_fd());
        }
        // Nothing can be told from here; an empty group that is left is taken again by the next box of that id.
        drop(self.groups.remove());
    }
}

impl Sandbox {
    /// Makes a box and returns when it is ready for commands.
    ///
    /// # Errors
    /// `Invalid`, `Image`, `Kernel`, `Birth`; nothing of the box is left but files in `dirs.base`.
    pub fn spawn(spec: &Spec, dirs: &Dirs) -> Result<Self, SandboxError> {
        spec.check()?;
        let filter = if spec.privileged {
            Vec::new()
        } else {
            filter::instructions(spec.nested_userns)?
        };
        let lowers = compose(spec, dirs)?;
        let hierarchies = Hierarchies::find().step("find the control groups")?;
        let mut groups = Groups {
            v2: limits::home_group(spec, &hierarchies)?,
            v1: Vec::new(),
        };
        let (control, theirs) = Control::pair()?;
        let mut newborn = match give_birth(spec, &groups, &control, theirs) {
            Ok((host_pid, init)) => Newborn {
                host_pid,
                init: Some(init),
                groups,
            },
            Err(error) => {
                drop(groups.remove());
                return Err(error);
            }
        };
        let host_pid = newborn.host_pid;
        let mapping = match spec.privileged {
            true => None,
            false => {
                write_id_maps(host_pid, spec.id_range()).step("map the ids")?;
                Some(user_namespace_of(host_pid).step("open the user namespace")?)
            }
        };
        let lower = |path: &PathBuf| mapped_clone(path, mapping.as_ref()).step("map the ids of a layer");
        let lowers = lowers.iter().map(lower).collect::<Result<Vec<_>, _>>()?;
        let overlay = make_root(&lowers, dirs)?;
        let kept = duplicate(&overlay)?;
        let volumes = make_volumes(&spec.volumes, mapping.as_ref())?;
        unprotect(host_pid)?;
        let held = limits::hold(spec, &hierarchies, &mut newborn.groups, host_pid)?;
        let (events, their_events) = Control::pair()?;
        let ready = set_up(spec, &control, their_events, overlay, volumes)?;
        let [root, dev_shm, dev_pts] = <[OwnedFd; 3]>::try_from(ready.fds).map_err(|_| SandboxError::Died)?;
        Ok(Self {
            spec: spec.clone(),
            init_host_pid: host_pid,
            init: newborn.init.take().expect("nothing took it"),
            control: Mutex::new(control),
            events,
            stillborn: Mutex::default(),
            overlay: kept,
            lowers,
            root,
            dev_shm,
            dev_pts,
            filter,
            groups: std::mem::take(&mut newborn.groups),
            held,
            lingers: false,
            gone: false,
        })
    }
}

/// Runs stage 0, which makes PID 1 as our child; returns its host pid and pidfd.
fn give_birth(
    spec: &Spec,
    groups: &Groups,
    control: &Control,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), SandboxError> {
    let image = linux::clone::sealed_memory_file("deltabox-init", INIT).step("load PID 1")?;
    let mut stage_0 = linux::clone::run_program(&image, "deltabox-init", theirs).step("run PID 1")?;
    let group = groups
        .v2
        .as_ref()
        .map(|group| group.open().step("open the control group"))
        .transpose()?;
    let fds: Vec<_> = group.iter().map(AsFd::as_fd).collect();
    let flags = if spec.privileged {
        BOX_NAMESPACES
    } else {
        BOX_NAMESPACES | USER_NAMESPACE
    };
    let [low, high] = [flags & u64::from(u32::MAX), flags >> 32].map(|half| u32::try_from(half).expect("32 bits"));
    let asked = control.send(&[protocol::BIRTH, u32::from(group.is_some()), low, high], &[], &fds);
    let born = asked.and_then(|()| control.receive());
    stage_0
        .wait()
        .map_err(|e| SysError::io("wait", "stage 0", &e))
        .step("run PID 1")?;
    let born = born?;
    match (
        i32::try_from(born.word(1)).unwrap_or(i32::MAX),
        born.fds.into_iter().next(),
    ) {
        (0, Some(pidfd)) => Ok((born.words.get(2).copied().unwrap_or(0), pidfd)),
        (errno, _) => Err(SandboxError::Kernel {
            step: "make the namespaces",
            source: SysError::new("clone3", &spec.id, errno),
        }),
    }
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, SandboxError> {
    fd.try_clone()
        .map_err(|e| SysError::io("dup", "a mount", &e))
        .step("keep the root")
}

fn make_root(lowers: &[OwnedFd], dirs: &Dirs) -> Result<OwnedFd, SandboxError> {
    let lowers = lowers.iter().map(duplicate).collect::<Result<Vec<_>, _>>()?;
    let staging = dirs.staging();
    let mounted = mount_overlay(Overlay {
        staging: &staging,
        lowers,
        upper: "../tree",
        work: "../work",
    });
    if mounted.as_ref().is_err_and(|error| error.errno == libc::ELOOP) {
        let why = format!(
            "it contains the state directory {} or the other way round",
            dirs.base.display()
        );
        return Err(SandboxError::Image {
            image: "of this box".to_owned(),
            why,
        });
    }
    mounted.step("mount the root")
}

/// A daemon that is protected from the OOM killer does not pass that on to its boxes.
fn unprotect(host_pid: u32) -> Result<(), SandboxError> {
    let path = format!("/proc/{host_pid}/oom_score_adj");
    let score = std::fs::read_to_string(&path)
        .map_err(|e| SysError::io("read", &path, &e))
        .step("reset the OOM score")?;
    if score.trim().starts_with('-') {
        std::fs::write(&path, "0")
            .map_err(|e| SysError::io("write", &path, &e))
            .step("reset the OOM score")?;
    }
    Ok(())
}

fn mapped_clone(path: &Path, mapping: Option<&OwnedFd>) -> Result<OwnedFd, SysError> {
    let tree = clone_tree(path)?;
    if let Some(user_namespace) = mapping {
        map_ids(tree.as_fd(), user_namespace.as_fd(), path)?;
    }
    Ok(tree)
}

struct AttachableVolume {
    tree: OwnedFd,
    inside: String,
    is_dir: bool,
}

fn make_volumes(volumes: &[Volume], mapping: Option<&OwnedFd>) -> Result<Vec<AttachableVolume>, SandboxError> {
    let make = |volume: &Volume| {
        let kind = std::fs::metadata(&volume.host).map_err(|e| SysError::io("stat", volume.host.display(), &e))?;
        let tree = mapped_clone(&volume.host, mapping)?;
        restrict(tree.as_fd(), volume.read_only, &volume.host)?;
        Ok(AttachableVolume {
            tree,
            inside: volume.inside.clone(),
            is_dir: kind.is_dir(),
        })
    };
    volumes
        .iter()
        .map(|volume| make(volume).step("open a volume"))
        .collect()
}

/// Sends PID 1 everything it builds the box from, and waits until it has.
fn set_up(
    spec: &Spec,
    control: &Control,
    events: OwnedFd,
    overlay: OwnedFd,
    volumes: Vec<AttachableVolume>,
) -> Result<Message, SandboxError> {
    let count = |len: usize| u32::try_from(len).expect("checked by Spec::check");
    let prefix = format!("{ROOT_PREFIX}\0");
    let flags = if spec.privileged { protocol::SETUP_PRIVILEGED } else { 0 };
    let words = [
        protocol::SETUP,
        flags,
        count(spec.hostname.len()),
        count(prefix.len()),
        count(volumes.len()),
    ];
    let mut tail = spec.hostname.clone().into_bytes();
    tail.extend_from_slice(prefix.as_bytes());
    let mut fds = vec![events.as_fd(), overlay.as_fd()];
    for volume in &volumes {
        tail.extend_from_slice(&u32::from(volume.is_dir).to_le_bytes());
        tail.extend_from_slice(&count(volume.inside.len() + 1).to_le_bytes());
        tail.extend_from_slice(volume.inside.as_bytes());
        tail.push(0);
        fds.push(volume.tree.as_fd());
    }
    control.send(&words, &tail, &fds)?;
    let ready = control.receive()?;
    match i32::try_from(ready.word(1)).unwrap_or(i32::MAX) {
        0 => Ok(ready),
        errno => Err(SandboxError::Birth {
            stage: stage_name(ready.word(2)),
            errno,
        }),
    }
}

/// The name of a step that PID 1 or a starting command reports.
pub(crate) fn stage_name(stage: u32) -> &'static str {
    let index = usize::try_from(stage).unwrap_or(0);
    protocol::STAGES.get(index).copied().unwrap_or("unknown")
}

/// The host pid that a pidfd refers to, as the kernel's descriptor information tells it.
pub(crate) fn host_pid_of(pidfd: &OwnedFd) -> Result<u32, SandboxError> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let mut text = String::new();
    std::fs::File::open(&path)
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|e| SysError::io("read", path, &e))
        .step("read the pid")?;
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
    // A process that has ended already, and was reaped, has -1.
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0))
}
