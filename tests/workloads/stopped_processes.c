//! Job control: a child that is stopped stays so and one that runs goes on, whatever happened since, and the parent
//! hears of a stop exactly once. (A shell that was continued, and rolled back to before it stopped itself, never went on.)
// fault: skip:stops
#include "workload.h"

static pid_t told, untold, running;
static volatile sig_atomic_t heard;

static void on_child(int number) {
    (void)number;
    heard++;
}
static pid_t sleeper(void) {
    pid_t pid = MUST(fork());
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
}
static char state_of(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return '?';
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    char *end = got > 0 ? strrchr(text, ')') : NULL;
    return end ? end[2] : '?';
}
// Until the kernel has done what a signal asked for.
static bool becomes(pid_t pid, bool stopped) {
    for (int i = 0; i < ANSWER_WITHIN_MS; i++) {
        char state = state_of(pid);
        if ((state == 'T' || state == 't') == stopped) return true;
        usleep(1000);
    }
    return false;
}
static void stop(pid_t pid) {
    kill(pid, SIGSTOP);
    becomes(pid, true);
}
static void go_on(pid_t pid) {
    kill(pid, SIGCONT);
    becomes(pid, false);
}
static void setup(void) {
    siginfo_t info;
    told = sleeper();
    untold = sleeper();
    running = sleeper();
    stop(told);
    MUST(waitid(P_PID, told, &info, WSTOPPED));
    stop(untold);
    struct sigaction action = {.sa_handler = on_child};
    MUST(sigaction(SIGCHLD, &action, NULL));
}
static int asks(pid_t pid, int flags) {
    siginfo_t info = {0};
    if (waitid(P_PID, pid, &info, flags | WNOHANG | WNOWAIT)) return -errno;
    return info.si_pid == pid;
}
static void check(void) {
    if (!becomes(told, true)) FAILED("the first child: wanted T, got %c", state_of(told));
    if (!becomes(untold, true)) FAILED("the second child: wanted T, got %c", state_of(untold));
    if (!becomes(running, false)) FAILED("the third child: wanted S, got %c", state_of(running));
    WANT_EQ("of the first one's stop the parent knows", 0, asks(told, WSTOPPED));
    WANT_EQ("of the second one's stop it will hear", 1, asks(untold, WSTOPPED));
    WANT_EQ("the third one was not continued", 0, asks(running, WCONTINUED));
    WANT_EQ("signals about children", 0, heard);
}
static void disturb(int round) {
    siginfo_t info;
    go_on(told);
    waitid(P_PID, told, &info, WCONTINUED | WNOHANG);
    if (round % 2) stop(running);
    if (round % 3) waitid(P_PID, running, &info, WSTOPPED | WNOHANG);
    go_on(untold);
}
