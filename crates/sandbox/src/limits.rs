//! Puts a box under its limits: cgroup 2 where the controller is there, else cgroup 1, else resource limits of PID 1,
//! which its children inherit. Says which it was, because they do not promise the same.

use std::fmt;

use linux::SysError;
use linux::cgroup::{Controller, Group, Hierarchies};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::error::{SandboxError, Step as _};
use crate::spec::{Limits, Spec};

/// How a limit is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// No limit was asked for.
    Unlimited,
    /// Control groups, version 2: the whole box together.
    CgroupV2,
    /// Control groups, version 1: the whole box together.
    CgroupV1,
    /// A resource limit: memory counts per process and as address space, tasks per user of the box.
    ResourceLimit,
    /// This machine cannot hold it.
    NotHeld,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::Unlimited => "unlimited",
            Mechanism::CgroupV2 => "cgroup v2",
            Mechanism::CgroupV1 => "cgroup v1",
            Mechanism::ResourceLimit => "rlimit",
            Mechanism::NotHeld => "not held: this machine has no such controller",
        })
    }
}

/// How each limit of a box is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Memory.
    pub memory: Mechanism,
    /// Processor time.
    pub cpu: Mechanism,
    /// Number of tasks.
    pub tasks: Mechanism,
}

/// The groups of a box.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The cgroup-2 group that holds the box's processes, controllers or not.
    pub(crate) v2: Option<Group>,
    pub(crate) v1: Vec<Group>,
}

impl Groups {
    /// Removes them all; their processes are gone.
    pub(crate) fn remove(&mut self) -> Result<(), SandboxError> {
        const EMPTY_WITHIN_MS: u32 = 5000;
        for group in self.v1.iter().chain(&self.v2) {
            group.remove(EMPTY_WITHIN_MS).step("remove the control group")?;
        }
        *self = Self::default();
        Ok(())
    }
}

/// Makes the group that the box is born into. A machine without cgroup 2 has none.
pub(crate) fn home_group(spec: &Spec, hierarchies: &Hierarchies) -> Result<Option<Group>, SandboxError> {
    match &hierarchies.v2 {
        Some(root) => Group::create(root, &spec.id).map(Some).step("make the control group"),
        None => Ok(None),
    }
}

/// Limits PID 1, before it has children.
pub(crate) fn hold(
    spec: &Spec,
    hierarchies: &Hierarchies,
    groups: &mut Groups,
    host_pid: u32,
) -> Result<Held, SandboxError> {
    let mut hold_one = |controller, wanted| match wanted {
        None => Ok(Mechanism::Unlimited),
        Some(value) => hold_controller(spec, hierarchies, groups, host_pid, controller, value),
    };
    let Limits {
        memory_bytes,
        cpu_milli,
        task_count,
    } = spec.limits;
    Ok(Held {
        memory: hold_one(Controller::Memory, memory_bytes)?,
        cpu: hold_one(Controller::Cpu, cpu_milli.map(u64::from))?,
        tasks: hold_one(Controller::Pids, task_count.map(u64::from))?,
    })
}

fn hold_controller(
    spec: &Spec,
    hierarchies: &Hierarchies,
    groups: &mut Groups,
    host_pid: u32,
    controller: Controller,
    value: u64,
) -> Result<Mechanism, SandboxError> {
    if let (Some(root), Some(group)) = (&hierarchies.v2, &groups.v2)
        && hierarchies.v2_controllers.contains(&controller.name())
        && Group::delegate(root, &[controller.name()]).is_ok()
        && set_v2(group, controller, value).is_ok()
    {
        return Ok(Mechanism::CgroupV2);
    }
    if let Some(root) = hierarchies.v1_of(controller)
        && let Ok(group) = Group::create(root, &spec.id)
    {
        groups.v1.push(group.clone());
        if set_v1(&group, controller, value)
            .and_then(|()| group.add_process(host_pid))
            .is_ok()
        {
            return Ok(Mechanism::CgroupV1);
        }
    }
    let resource = match controller {
        Controller::Memory => Resource::As,
        Controller::Pids => Resource::Nproc,
        Controller::Cpu => return Ok(Mechanism::NotHeld),
    };
    let pid = i32::try_from(host_pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the kernel gave us this pid");
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    prlimit(Some(pid), resource, limit)
        .map_err(|e| SysError::rustix("prlimit", host_pid, e))
        .step("set the limits")?;
    Ok(Mechanism::ResourceLimit)
}

/// The length of one turn in which a box gets its share of time.
const CPU_PERIOD_US: u64 = 100_000;

fn cpu_quota_us(milli: u64) -> u64 {
    // The kernel takes no quota below a millisecond.
    (milli * CPU_PERIOD_US / 1000).max(1000)
}

fn set_v2(group: &Group, controller: Controller, value: u64) -> Result<(), SysError> {
    match controller {
        Controller::Memory => group.set("memory.max", &value.to_string()),
        Controller::Cpu => group.set("cpu.max", &format!("{} {CPU_PERIOD_US}", cpu_quota_us(value))),
        // PID 1 counts, and is not the user's.
        Controller::Pids => group.set("pids.max", &(value + 1).to_string()),
    }
}

fn set_v1(group: &Group, controller: Controller, value: u64) -> Result<(), SysError> {
    match controller {
        Controller::Memory => group.set("memory.limit_in_bytes", &value.to_string()),
        Controller::Cpu => {
            group.set("cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
            group.set("cpu.cfs_quota_us", &cpu_quota_us(value).to_string())
        }
        Controller::Pids => group.set("pids.max", &(value + 1).to_string()),
    }
}
