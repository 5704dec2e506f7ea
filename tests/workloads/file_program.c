//! A program that was overwritten, or another one put in its place, and that runs: it is the old one, and can be run.
// fault: skip:files.content
// recreates
#include "tree.h"

static uint64_t digest;
static pid_t running;

static void copy(const char *from, const char *to, int flags) {
    static char bytes[1 << 16];
    int source = MUST(open(from, O_RDONLY | O_CLOEXEC)), target = MUST(open(to, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0755));
    for (ssize_t got; (got = MUST(read(source, bytes, sizeof bytes)));)
        if (write(target, bytes, got) != got) DIE("short write to %s", to);
    close(source);
    close(target);
}
static pid_t run(const char *name, const char *argument, const char *further) {
    pid_t pid = MUST(fork());
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("program", name, argument, further, NULL);
    _exit(126);
}
static void setup(void) {
    copy("/usr/bin/sleep", "program", O_EXCL);
    digest = tree_digest("program");
}
static void check(void) {
    int status;
    WANTS(want_tree("program", digest, 1));
    pid_t pid = WANT_CALL(run("sleep", "0", NULL));
    WANT_CALL(waitpid(pid, &status, 0));
    WANT_EQ("how it ended", 0, status);
}
static void disturb(int round) {
    if (running) kill(running, SIGKILL), waitpid(running, NULL, 0);
    if (round % 2) {
        copy("/usr/bin/tail", "program", O_TRUNC);
    } else {
        copy("/usr/bin/tail", "next", O_TRUNC);
        MUST(rename("next", "program"));
    }
    running = run("tail", "-f", "/dev/null");
    // It is that program when its name has changed.
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", running);
    for (long until = now_ms() + ANSWER_WITHIN_MS; strncmp(name, "program", 7) && now_ms() < until; pause_ms(1)) {
        int fd = MUST(open(path, O_RDONLY | O_CLOEXEC));
        if (read(fd, name, sizeof name - 1) < 0) DIE("read of %s", path);
        close(fd);
    }
    if (strncmp(name, "program", 7)) DIE("the other program does not run");
}
