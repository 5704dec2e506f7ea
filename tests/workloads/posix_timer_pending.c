//! A signal that a POSIX timer has queued and nobody has taken: it is there again, also where the timer has queued one since
//! that looks the same.
// fault: skip:pending
#include "workload.h"

static timer_t timer;
static int rounds;

static void fire(void) {
    struct itimerspec soon = {.it_value = {0, 1000}};
    sigset_t queued;
    MUST(timer_settime(timer, 0, &soon, NULL));
    do MUST(sigpending(&queued));
    while (!sigismember(&queued, 46));
}
static void setup(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 46, .sigev_value.sival_int = 9};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    fire();
}
static void check(void) {
    sigset_t set;
    siginfo_t info;
    struct timespec none = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, 46);
    WANT_EQ("the timer's signal", 46, sigtimedwait(&set, &info, &none));
    WANT_EQ("value", 9, info.si_value.sival_int);
    WANT_EQ("a second one", -1, sigtimedwait(&set, &info, &none));
    WANT_EQ("rounds", 0, rounds);
    fire();
}
static void disturb(int round) {
    sigset_t set;
    rounds = round;
    sigfillset(&set);
    sigwaitinfo(&set, NULL);
    fire();
}
