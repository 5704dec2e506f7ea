/* What the two bare programs of the bench need from the kernel and the C library's headers may be too old to name:
 * PAGEMAP_SCAN, asynchronous write-protection, and the few ptrace steps both share. Nothing here is used by the
 * product; the numbers come from include/uapi/linux/{fs,userfaultfd}.h. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ull
#define ADDRESS_MAX 0x7ffffffff000ull

struct scan_region { uint64_t start, end, categories; };
struct scan_args {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_args)
#define SCAN_WP_MATCHING 1ull
#define IS_WPALLOWED 1ull
#define IS_WRITTEN 2ull
#define IS_PRESENT 8ull
#define IS_SWAPPED 16ull
#define FEATURE_WP_UNPOPULATED (1ull << 13)
#define FEATURE_WP_ASYNC (1ull << 15)

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Waits until the thread shows a ptrace stop; returns its status. Signals that arrive meanwhile are let through. */
static int wait_stop(pid_t tid) {
    for (;;) {
        int status;
        if (waitpid(tid, &status, __WALL) != tid) die("waitpid");
        if (!WIFSTOPPED(status)) { fprintf(stderr, "thread %d ended\n", tid); exit(1); }
        if (status >> 16 == PTRACE_EVENT_STOP || WSTOPSIG(status) == SIGTRAP) return status;
        if (ptrace(PTRACE_CONT, tid, 0, (long)WSTOPSIG(status))) die("PTRACE_CONT");
    }
}

/* A task that was stopped inside a system call must run that call again: the kernel forgets how to restart it as soon
 * as other code has run in between. */
static void restart_call(struct user_regs_struct *regs) {
    if ((long)regs->orig_rax >= 0 && (long)regs->rax <= -512 && (long)regs->rax >= -516) {
        regs->rip -= 2;
        regs->rax = regs->orig_rax;
    }
    regs->orig_rax = -1;
}
