/* What the DeltaBox paper (arXiv 2605.22781) does instead, on the same kind of process: a checkpoint injects fork() and
 * keeps the child stopped as a template; a rollback ends the running process and forks the template again.
 *
 * Memory only: no files, no children of the process, and of its threads only the first survives a fork. Ends what it
 * made. It exists to be measured beside the product, never to be used by it.
 *
 * usage: template_fork PID       stdin: "checkpoint" | "rollback" | "quit"; one line of JSON back. */
#include "kernel.h"
#include <dirent.h>

#define OPTIONS (PTRACE_O_TRACEFORK)

static pid_t running, template;
static struct user_regs_struct template_regs;
static uint64_t template_syscall_at;
static double part_start;
static char parts[512];

static void part(const char *name) {
    double now = now_us();
    size_t len = strlen(parts);
    snprintf(parts + len, sizeof parts - len, "%s\"%s\":%.1f", len ? "," : "", name, now - part_start);
    part_start = now;
}

/* Injects fork() into the stopped task, whose registers are `regs`, at the system call it sits behind. */
static pid_t inject_fork(pid_t pid, const struct user_regs_struct *regs, uint64_t syscall_at) {
    struct user_regs_struct call = *regs;
    call.rip = syscall_at;
    call.rax = SYS_fork;
    call.orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, pid, 0, &call)) die("PTRACE_SETREGS");
    if (ptrace(PTRACE_CONT, pid, 0, 0)) die("PTRACE_CONT");
    int status;
    if (waitpid(pid, &status, __WALL) != pid || status >> 8 != (SIGTRAP | PTRACE_EVENT_FORK << 8)) {
        fprintf(stderr, "fork was not reported (%x)\n", status);
        exit(1);
    }
    unsigned long child;
    if (ptrace(PTRACE_GETEVENTMSG, pid, 0, &child)) die("PTRACE_GETEVENTMSG");
    wait_stop((pid_t)child);
    /* The parent still sits inside fork(), which would overwrite rax: let it come to the end of the call. */
    if (ptrace(PTRACE_SYSCALL, pid, 0, 0)) die("PTRACE_SYSCALL");
    wait_stop(pid);
    return (pid_t)child;
}

static void set_registers(pid_t pid, const struct user_regs_struct *regs) {
    if (ptrace(PTRACE_SETREGS, pid, 0, (void *)regs)) die("PTRACE_SETREGS");
}

static void end_process(pid_t pid) {
    kill(pid, SIGKILL);
    int status;
    while (waitpid(pid, &status, __WALL) > 0 && !WIFEXITED(status) && !WIFSIGNALED(status)) {}
}

static void checkpoint(void) {
    double start = part_start = now_us();
    if (ptrace(PTRACE_SEIZE, running, 0, (void *)OPTIONS)) die("PTRACE_SEIZE");
    if (ptrace(PTRACE_INTERRUPT, running, 0, 0)) die("PTRACE_INTERRUPT");
    wait_stop(running);
    part("attach");
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, running, 0, &regs)) die("PTRACE_GETREGS");
    if ((long)regs.orig_rax < 0) { fprintf(stderr, "the process is not inside a system call\n"); exit(1); }
    uint64_t syscall_at = regs.rip - 2;
    pid_t before = template;
    template = inject_fork(running, &regs, syscall_at);
    part("fork");
    restart_call(&regs);
    template_regs = regs;
    template_syscall_at = syscall_at;
    set_registers(running, &regs);
    set_registers(template, &regs);
    if (ptrace(PTRACE_DETACH, running, 0, 0)) die("PTRACE_DETACH");
    part("detach");
    double stop = now_us() - start;
    printf("{\"op\":\"checkpoint\",\"stop_us\":%.1f,\"pages\":0,\"parts_us\":{%s}}\n", stop, parts);
    fflush(stdout);
    if (before) end_process(before);
}

static void rollback(void) {
    double start = part_start = now_us();
    kill(running, SIGKILL);
    part("kill");
    running = inject_fork(template, &template_regs, template_syscall_at);
    part("fork");
    set_registers(running, &template_regs);
    set_registers(template, &template_regs);
    if (ptrace(PTRACE_DETACH, running, 0, 0)) die("PTRACE_DETACH");
    part("detach");
    double stop = now_us() - start;
    printf("{\"op\":\"rollback\",\"stop_us\":%.1f,\"pages\":0,\"parts_us\":{%s}}\n", stop, parts);
    fflush(stdout);
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

int main(int argc, char **argv) {
    if (argc != 2) { fprintf(stderr, "usage: %s PID\n", argv[0]); return 2; }
    running = atoi(argv[1]);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        parts[0] = 0;
        if (!strcmp(line, "checkpoint\n")) checkpoint();
        else if (!strcmp(line, "rollback\n") && template) rollback();
        else break;
    }
    kill(running, SIGKILL);
    if (template) end_process(template);
    return 0;
}
