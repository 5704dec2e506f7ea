//! The seccomp list of a box, `filter/default.json`: one call and one reason a line. Everything not named is allowed, up
//! to the highest number that was looked at when the list was written; newer calls answer `ENOSYS`.
//!
//! `ptrace` and `process_vm_*` stay: debuggers work inside, since kernel 4.8 a tracer cannot get a call past the filter, and
//! PID 1 has rights that no process of the box may trace. (A traced process cannot be captured, which the engine says.)
//!
//! The engine makes calls in the box's processes, and where it may not suspend their filter (a daemon that is itself
//! filtered) these must pass: the test below names them.

use linux::seccomp::{Answer, Condition, List, Rule, number};
use serde::Deserialize;

use crate::error::{SandboxError, Step as _};

const DEFAULT: &str = include_str!("filter/default.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    number_max: u32,
    deny: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    call: String,
    answer: Refusal,
    when: Option<When>,
    unless: Option<Grant>,
    #[expect(
        dead_code,
        reason = "for the reader of the file; a line without a reason does not load"
    )]
    reason: String,
}

#[derive(Deserialize, Clone, Copy)]
enum Refusal {
    #[serde(rename = "EPERM")]
    NotPermitted,
    #[serde(rename = "ENOSYS")]
    Missing,
}

/// What lifts a line.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
enum Grant {
    #[serde(rename = "nested_userns")]
    NestedUserNamespaces,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct When {
    argument: u8,
    mask: u32,
    equals: u32,
}

/// The instructions for a box.
pub(crate) fn instructions(nested_userns: bool) -> Result<Vec<u8>, SandboxError> {
    list(nested_userns).assemble().step("assemble the seccomp filter")
}

fn list(nested_userns: bool) -> List {
    let file: File = serde_json::from_str(DEFAULT).expect("the embedded list parses: a test loads it");
    let lines = file
        .deny
        .iter()
        .filter(|line| !(nested_userns && line.unless == Some(Grant::NestedUserNamespaces)));
    let rules = lines.map(|line| Rule {
        number: number(&line.call).expect("the embedded list names known calls: a test loads it"),
        when: line.when.map(|w| Condition {
            argument: w.argument,
            mask: w.mask,
            equals: w.equals,
        }),
        answer: Answer::Errno(match line.answer {
            Refusal::NotPermitted => 1,
            Refusal::Missing => 38,
        }),
    });
    List {
        rules: rules.collect(),
        number_max: file.number_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(list: &List, number: i64, argument_0: u32) -> bool {
        let number = u32::try_from(number).expect("a call number");
        number > list.number_max
            || list.rules.iter().any(|rule| {
                rule.number == number
                    && rule
                        .when
                        .is_none_or(|when| when.argument == 0 && argument_0 & when.mask == when.equals)
            })
    }

    /// Calls that the engine makes in the processes of a box.
    #[test]
    fn the_engine_passes() {
        let list = list(false);
        use libc::*;
        for call in [
            SYS_mmap,
            SYS_munmap,
            SYS_mprotect,
            SYS_mremap,
            SYS_madvise,
            SYS_brk,
            SYS_rt_sigaction,
            SYS_rt_sigprocmask,
            SYS_rt_sigqueueinfo,
            SYS_rt_tgsigqueueinfo,
            SYS_rt_sigtimedwait,
            SYS_sigaltstack,
            SYS_lseek,
            SYS_fcntl,
            SYS_dup,
            SYS_dup2,
            SYS_dup3,
            SYS_close,
            SYS_open,
            SYS_openat,
            SYS_openat2,
            SYS_pipe2,
            SYS_socketpair,
            SYS_recvmsg,
            SYS_sendmsg,
            SYS_ftruncate,
            SYS_fallocate,
            SYS_read,
            SYS_write,
            SYS_pread64,
            SYS_pwrite64,
            SYS_prctl,
            SYS_prlimit64,
            SYS_setitimer,
            SYS_getitimer,
            SYS_timer_create,
            SYS_timer_settime,
            SYS_timer_delete,
            SYS_timer_gettime,
            SYS_timerfd_create,
            SYS_timerfd_settime,
            SYS_timerfd_gettime,
            SYS_eventfd2,
            SYS_epoll_create1,
            SYS_epoll_ctl,
            SYS_epoll_pwait,
            SYS_epoll_wait,
            SYS_signalfd4,
            SYS_memfd_create,
            SYS_set_tid_address,
            SYS_set_robust_list,
            SYS_get_robust_list,
            SYS_rseq,
            SYS_clone,
            SYS_exit,
            SYS_exit_group,
            SYS_wait4,
            SYS_umask,
            SYS_chdir,
            SYS_fchdir,
            SYS_getpid,
            SYS_gettid,
            SYS_setpgid,
            SYS_setsid,
            SYS_ioctl,
            SYS_splice,
            SYS_tee,
            SYS_vmsplice,
        ] {
            assert!(!denied(&list, call, 0), "call {call}");
        }
        const USER_MODE_ONLY: u32 = 1;
        assert!(!denied(&list, SYS_userfaultfd, USER_MODE_ONLY | 0o2000000));
        assert!(denied(&list, SYS_userfaultfd, 0o2000000));
        assert!(denied(&list, SYS_io_uring_setup, 0));
        assert!(denied(&list, SYS_clone, 0x1000_0000));
        assert!(denied(&list, 0x4000_0000, 0), "x32");
    }

    #[test]
    fn nesting_is_an_opt_in() {
        let list = list(true);
        assert!(!denied(&list, libc::SYS_clone, 0x1000_0000));
        assert!(!denied(&list, libc::SYS_mount, 0));
        assert!(denied(&list, libc::SYS_bpf, 0));
    }
}
