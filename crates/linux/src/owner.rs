//! Whose files are made: for a while, one thread makes files as another user and loses none of its rights.
//!
//! A file system that was mounted in a user namespace (a box's `/dev/shm`) takes new names only from a user that this
//! namespace knows; the daemon's root is not one (`EOVERFLOW`, for every call that makes a name: `open`, `mkdir`,
//! `mknod`, `symlink`, `link`, `rename`). The kernel asks the thread's *file system* ids, which nothing else uses.
//!
//! Changing them has three side effects, which are undone: the thread loses the capabilities that concern files, it is
//! not told any more when its parent dies, and the whole process counts as undumpable (its `/proc` files go to root).

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::process::{
    DumpableBehavior, Signal, dumpable_behavior, parent_process_death_signal, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

use crate::error::{Result, SysError};

/// While it lives, what the calling thread makes belongs to another user. It cannot be sent to another thread.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Acting {
    uid: Uid,
    gid: Gid,
    capabilities: CapabilitySets,
    death_signal: Option<Signal>,
    here: PhantomData<*const ()>,
}

/// Lets the calling thread make files as `uid` and `gid`, with all the capabilities it has, until the guard is dropped.
///
/// # Errors
/// `EPERM` without `CAP_SETUID` and `CAP_SETGID`; then nothing has changed.
pub fn act_as(uid: u32, gid: u32) -> Result<Acting> {
    let failed = |call, errno| SysError::rustix(call, "the calling thread", errno);
    let before = capabilities(None).map_err(|errno| failed("capget", errno))?;
    let death_signal = parent_process_death_signal().map_err(|errno| failed("prctl PR_GET_PDEATHSIG", errno))?;
    Undumpable::enter().map_err(|errno| failed("prctl PR_GET_DUMPABLE", errno))?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // From here on the guard puts back whatever was changed.
    let acting = Acting {
        gid: setfsgid(gid),
        uid: setfsuid(uid),
        capabilities: before,
        death_signal,
        here: PhantomData,
    };
    // These two calls report no errors, only what was there before.
    if setfsgid(Gid::from_raw(u32::MAX)) != gid || setfsuid(Uid::from_raw(u32::MAX)) != uid {
        return Err(failed("setfsuid", rustix::io::Errno::PERM));
    }
    set_capabilities(None, before).map_err(|errno| failed("capset", errno))?;
    Ok(acting)
}

impl Drop for Acting {
    fn drop(&mut self) {
        let _ours = setfsuid(self.uid);
        let _ours = setfsgid(self.gid);
        let (uid, gid) = (setfsuid(Uid::from_raw(u32::MAX)), setfsgid(Gid::from_raw(u32::MAX)));
        assert_eq!((uid, gid), (self.uid, self.gid), "a thread may go back to its own ids");
        set_capabilities(None, self.capabilities).expect("a thread may use what it is permitted");
        set_parent_process_death_signal(self.death_signal).expect("it is a signal that was set before");
        Undumpable::leave();
    }
}

/// Being dumpable is the whole process's, so the first thread that acts remembers it and the last one puts it back.
#[derive(Debug)]
struct Undumpable {
    thread_count: usize,
    was_dumpable: bool,
}

static UNDUMPABLE: Mutex<Undumpable> = Mutex::new(Undumpable {
    thread_count: 0,
    was_dumpable: false,
});

impl Undumpable {
    fn lock() -> MutexGuard<'static, Self> {
        UNDUMPABLE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter() -> rustix::io::Result<()> {
        let mut state = Self::lock();
        if state.thread_count == 0 {
            state.was_dumpable = dumpable_behavior()? == DumpableBehavior::Dumpable;
        }
        state.thread_count += 1;
        Ok(())
    }

    fn leave() {
        let mut state = Self::lock();
        state.thread_count -= 1;
        if state.thread_count == 0 && state.was_dumpable {
            set_dumpable_behavior(DumpableBehavior::Dumpable).expect("a process may always be dumpable");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn everything() -> (String, Option<Signal>) {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("our own");
        let told = |line: &&str| ["Uid:", "Gid:", "Cap"].iter().any(|start| line.starts_with(start));
        let lines: Vec<&str> = status.lines().filter(told).collect();
        (lines.join("\n"), parent_process_death_signal().expect("reads"))
    }

    #[test]
    fn files_are_another_users_and_all_comes_back() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        set_parent_process_death_signal(Some(Signal::TERM)).expect("TERM is a signal");
        let before = everything();
        // A directory that only its owner may use, so the rights are needed.
        let directory = std::env::temp_dir().join(format!("deltabox-owner-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("mkdir");
        std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("chmod");
        let outer = act_as(100_000, 100_001).expect("root may");
        {
            let _inner = act_as(100_002, 100_003).expect("and still may");
            std::fs::write(directory.join("inner"), b"").expect("write");
        }
        std::fs::write(directory.join("outer"), b"").expect("write");
        assert_eq!(
            capabilities(None).expect("reads").effective,
            outer.capabilities.effective
        );
        drop(outer);
        let owner = |name: &str| {
            let there = std::fs::metadata(directory.join(name)).expect("is there");
            (there.uid(), there.gid())
        };
        let owners = (owner("inner"), owner("outer"));
        std::fs::remove_dir_all(&directory).expect("rmdir");
        assert_eq!(owners, ((100_002, 100_003), (100_000, 100_001)));
        assert_eq!(everything(), before);
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable));
    }
}
