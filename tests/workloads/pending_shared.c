//! Signals that wait for the process as a whole.
// fault: skip:pending
#include "workload.h"

static unsigned long long bit(int number) { return 1ull << (number - 1); }
static void setup(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGHUP);
    kill(getpid(), 42);
}
static void check(void) {
    WANT_HEX("pending for the process", bit(SIGUSR1) | bit(SIGHUP) | bit(42), status_hex(getpid(), "ShdPnd"));
    WANT_HEX("pending for the thread", 0, status_hex(getpid(), "SigPnd"));
}
static void disturb(int round) {
    struct timespec none = {0, 0};
    sigset_t set;
    sigfillset(&set);
    if (round % 2)
        while (sigtimedwait(&set, NULL, &none) > 0) {}
    kill(getpid(), SIGUSR2);
    kill(getpid(), 50 + round % 3);
}
