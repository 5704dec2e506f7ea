//! A signalfd: its mask, changed since, and that it still gives the signals that wait.
// fault: skip:signalfd
#include "workload.h"

static int fd;
static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, a);
    sigaddset(&set, b);
    return set;
}
static void setup(void) {
    sigset_t all, set = set_of(SIGUSR1, 40);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    fd = MUST(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    MUST(kill(getpid(), SIGUSR1));
}
static void check(void) {
    char path[64], line[128];
    unsigned long long mask = 0;
    struct signalfd_siginfo info;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "sigmask: %llx", &mask);
    if (file) fclose(file);
    WANT_HEX("mask of the signalfd", 1ull << (SIGUSR1 - 1) | 1ull << 39, mask);
    WANT_EQ("a signal to read", (int)sizeof info, read(fd, &info, sizeof info));
    WANT_EQ("its number", SIGUSR1, info.ssi_signo);
    kill(getpid(), SIGUSR1);
}
static void disturb(int round) {
    struct signalfd_siginfo info;
    sigset_t set = set_of(SIGUSR2, 50 + round);
    if (round % 2 && read(fd, &info, sizeof info) < 0) DIE("read of a signalfd");
    MUST(signalfd(fd, &set, 0));
}
