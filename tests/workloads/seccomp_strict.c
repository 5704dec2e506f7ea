//! A program whose own filter kills it for any call but `read`, `write` and the end: what a checkpoint has it do must not
//! count as its own.
// fault: skip:pages
#include "workload.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#define LENGTH (40 * PAGE)
static unsigned char memory[LENGTH];

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void setup(void) {
    fill(memory, 1, 0, LENGTH);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        // The kernel's own way to go on with a call that a stop interrupted.
        ALLOW(SYS_restart_syscall),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {COUNT(code), code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}
static void check(void) { WANT_CONTENT("memory", 1, 0, memory, LENGTH); }
static void disturb(int round) { fill(memory, 1000 + round, 0, LENGTH); }
