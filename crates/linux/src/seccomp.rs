//! Assembles a seccomp filter. Plain data in, instructions out; installing them is done by the program that the filter
//! is for (PID 1's child, just before `exec`).
//!
//! Our own assembler, of one page: the `seccompiler` crate gives one answer to all rules of a filter, and we need two
//! (`EPERM` and `ENOSYS`) besides a limit on unknown numbers; with it every box would carry three stacked filters. The
//! kernel evaluates rules that look only at the number once and caches "allowed" in a bitmap, so a long list costs the
//! allowed calls nothing.

use crate::error::{Result, SysError};

/// What a filter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Let it through.
    Allow,
    /// Fail it with this errno.
    Errno(u16),
}

/// True when `argument & mask == equals`, on the low 32 bits of the argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// Which bits count.
    pub mask: u32,
    /// What they must be.
    pub equals: u32,
}

/// One line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The call's number.
    pub number: u32,
    /// Only when this holds; `None`: always.
    pub when: Option<Condition>,
    /// The answer.
    pub answer: Answer,
}

/// A filter: the first rule that matches answers; no match is `Allow`, a number above `number_max` or another
/// architecture (32-bit, x32) is `ENOSYS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The highest call number that was looked at when the list was written.
    pub number_max: u32,
}

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// Most instructions the kernel takes.
const INSTRUCTIONS_MAX: usize = 4096;

impl Answer {
    fn value(self) -> u32 {
        match self {
            Answer::Allow => libc::SECCOMP_RET_ALLOW,
            Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
        }
    }
}

impl List {
    /// The filter's instructions as the kernel reads them (8 bytes each).
    ///
    /// # Errors
    /// `E2BIG` when the list is too long for the kernel.
    pub fn assemble(&self) -> Result<Vec<u8>> {
        let mut code = Code::default();
        let missing = Answer::Errno(u16::try_from(libc::ENOSYS).expect("a small number")).value();
        code.push(LOAD_WORD, 0, 0, OFFSET_ARCH);
        code.push(JUMP_EQUAL, 1, 0, AUDIT_ARCH_X86_64);
        code.push(RETURN, 0, 0, missing);
        code.push(LOAD_WORD, 0, 0, OFFSET_NUMBER);
        code.push(JUMP_GREATER, 0, 1, self.number_max);
        code.push(RETURN, 0, 0, missing);
        for rule in &self.rules {
            code.rule(rule);
        }
        code.push(RETURN, 0, 0, Answer::Allow.value());
        if code.bytes.len() / 8 > INSTRUCTIONS_MAX {
            return Err(SysError::new("seccomp", "filter list", libc::E2BIG));
        }
        Ok(code.bytes)
    }
}

#[derive(Default)]
struct Code {
    bytes: Vec<u8>,
}

impl Code {
    fn push(&mut self, op: u16, if_true: u8, if_false: u8, k: u32) {
        self.bytes.extend_from_slice(&op.to_le_bytes());
        self.bytes.extend_from_slice(&[if_true, if_false]);
        self.bytes.extend_from_slice(&k.to_le_bytes());
    }

    /// Every rule starts and ends with the call's number in the accumulator.
    fn rule(&mut self, rule: &Rule) {
        let answer = rule.answer.value();
        match rule.when {
            None => {
                self.push(JUMP_EQUAL, 0, 1, rule.number);
                self.push(RETURN, 0, 0, answer);
            }
            Some(condition) => {
                self.push(JUMP_EQUAL, 0, 5, rule.number);
                self.push(LOAD_WORD, 0, 0, OFFSET_ARGUMENTS + 8 * u32::from(condition.argument));
                self.push(AND, 0, 0, condition.mask);
                self.push(JUMP_EQUAL, 0, 1, condition.equals);
                self.push(RETURN, 0, 0, answer);
                self.push(LOAD_WORD, 0, 0, OFFSET_NUMBER);
            }
        }
    }
}

/// Newer than the libc crate.
const OPEN_TREE_ATTR: libc::c_long = 467;

macro_rules! numbers {
    ($($name:ident $value:expr),* $(,)?) => {
        /// The number of a call that a list may name.
        pub fn number(name: &str) -> Option<u32> {
            match name {
                $(stringify!($name) => u32::try_from($value).ok(),)*
                _ => None,
            }
        }
    };
}

numbers! {
    acct libc::SYS_acct, add_key libc::SYS_add_key, adjtimex libc::SYS_adjtimex, bpf libc::SYS_bpf,
    chroot libc::SYS_chroot, clock_adjtime libc::SYS_clock_adjtime, clock_settime libc::SYS_clock_settime,
    clone libc::SYS_clone, clone3 libc::SYS_clone3,
    delete_module libc::SYS_delete_module, fanotify_init libc::SYS_fanotify_init, finit_module libc::SYS_finit_module,
    fsconfig libc::SYS_fsconfig, fsmount libc::SYS_fsmount, fsopen libc::SYS_fsopen, fspick libc::SYS_fspick,
    init_module libc::SYS_init_module, io_uring_enter libc::SYS_io_uring_enter,
    io_uring_register libc::SYS_io_uring_register, io_uring_setup libc::SYS_io_uring_setup, ioperm libc::SYS_ioperm,
    iopl libc::SYS_iopl, kcmp libc::SYS_kcmp, kexec_file_load libc::SYS_kexec_file_load,
    kexec_load libc::SYS_kexec_load, keyctl libc::SYS_keyctl,
    migrate_pages libc::SYS_migrate_pages, mount libc::SYS_mount, mount_setattr libc::SYS_mount_setattr,
    move_mount libc::SYS_move_mount, move_pages libc::SYS_move_pages, name_to_handle_at libc::SYS_name_to_handle_at,
    open_by_handle_at libc::SYS_open_by_handle_at, open_tree libc::SYS_open_tree,
    perf_event_open libc::SYS_perf_event_open, personality libc::SYS_personality, pidfd_getfd libc::SYS_pidfd_getfd,
    pivot_root libc::SYS_pivot_root, process_madvise libc::SYS_process_madvise,
    process_vm_readv libc::SYS_process_vm_readv, process_vm_writev libc::SYS_process_vm_writev,
    ptrace libc::SYS_ptrace, quotactl libc::SYS_quotactl,
    quotactl_fd libc::SYS_quotactl_fd, reboot libc::SYS_reboot, request_key libc::SYS_request_key,
    setdomainname libc::SYS_setdomainname, sethostname libc::SYS_sethostname, setns libc::SYS_setns,
    settimeofday libc::SYS_settimeofday, socket libc::SYS_socket, swapoff libc::SYS_swapoff, swapon libc::SYS_swapon,
    sysfs libc::SYS_sysfs, syslog libc::SYS_syslog, umount2 libc::SYS_umount2,
    unshare libc::SYS_unshare, userfaultfd libc::SYS_userfaultfd, ustat libc::SYS_ustat,
    vhangup libc::SYS_vhangup, vmsplice libc::SYS_vmsplice, memfd_secret libc::SYS_memfd_secret,
    landlock_restrict_self libc::SYS_landlock_restrict_self, mseal libc::SYS_mseal, open_tree_attr OPEN_TREE_ATTR,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conditional_rule_jumps_past_itself() {
        let condition = Condition {
            argument: 1,
            mask: 1,
            equals: 0,
        };
        let list = List {
            rules: vec![Rule {
                number: 323,
                when: Some(condition),
                answer: Answer::Errno(1),
            }],
            number_max: 500,
        };
        let bytes = list.assemble().expect("short");
        assert_eq!(bytes.len(), 8 * (6 + 6 + 1));
        // JEQ 323: on to the next instruction, or over the five of the rule to the final RET.
        assert_eq!(&bytes[48..56], &[0x15, 0, 0, 5, 0x43, 1, 0, 0]);
        assert_eq!(&bytes[56..64], &[0x20, 0, 0, 0, 24, 0, 0, 0]);
        assert_eq!(&bytes[96..104], &[6, 0, 0, 0, 0, 0, 0xff, 0x7f]);
    }
}
