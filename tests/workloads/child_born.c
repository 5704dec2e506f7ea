//! Children born since: gone and reaped; no zombie, no SIGCHLD that nobody sent.
// fault: skip:born
// recreates
#include "workload.h"

static volatile int child_signals;

static void on_child(int number) { (void)number, child_signals++; }
static void setup(void) {
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGCHLD, &action, NULL));
}
static int children(void) {
    char line[256], *end;
    int count = 0, parent;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(proc));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (!file) continue;
        if (fgets(line, sizeof line, file) && (end = strrchr(line, ')')) && sscanf(end + 1, " %*c %d", &parent) == 1)
            count += parent == getpid();
        fclose(file);
    }
    closedir(proc);
    return count;
}
static void check(void) {
    WANT_EQ("SIGCHLDs that came", 0, child_signals);
    WANT_EQ("children in /proc", 0, children());
    errno = 0;
    WANT_EQ("waitpid", -1, waitpid(-1, NULL, WNOHANG));
    WANT_EQ("its errno", ECHILD, errno);
    WANT_HEX("pending signals", 0, status_hex(getpid(), "ShdPnd") | status_hex(getpid(), "SigPnd"));
    // A child can be had as ever.
    pid_t child = WANT_CALL(fork());
    if (!child) _exit(7);
    int status = 0;
    WANT_EQ("a new child", child, waitpid(child, &status, 0));
    WANT_EQ("its code", 7, WEXITSTATUS(status));
    child_signals = 0;
}
// Ends with its parent, also when that has ended already.
static void stay_until_parent_ends(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) pause();
    _exit(0);
}
static void disturb(int round) {
    pid_t here = getpid();
    for (int i = 0; i < 1 + round; i++) {
        pid_t child = MUST(fork());
        if (child) continue;
        pid_t self = getpid();
        if (i % 2 && fork() == 0) stay_until_parent_ends(self); // a grandchild, too
        stay_until_parent_ends(here);
    }
    if (round % 2 == 0) { // and a zombie
        pid_t dead = MUST(fork());
        if (!dead) _exit(3);
        siginfo_t info;
        while (waitid(P_PID, dead, &info, WEXITED | WNOWAIT) && errno == EINTR) {}
    }
}
