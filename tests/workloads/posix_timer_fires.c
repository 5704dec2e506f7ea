//! A POSIX timer that has fired or been deleted since: it fires again, after the rest of its time.
// fault: skip:posix_timers
#include "clocks.h"

#define AFTER_MS 900
static timer_t timer;

static void setup(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 46, .sigev_value.sival_int = 9};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec spec = {.it_value = {0, AFTER_MS * 1000000l}};
    MUST(timer_settime(timer, 0, &spec, NULL));
    armed_at = now_ns();
}
static void check(void) {
    sigset_t set;
    siginfo_t info;
    long long began = (now_ns() - armed_at) / 1000000;
    struct timespec within = {2, 0};
    sigemptyset(&set);
    sigaddset(&set, 46);
    WANT_EQ("the timer's signal", 46, sigtimedwait(&set, &info, &within));
    WANT_CAME("milliseconds until it fired", AFTER_MS, began);
    WANT_EQ("value", 9, info.si_value.sival_int);
    // So that a second check finds what the first took.
    union sigval value = {.sival_int = 9};
    sigqueue(getpid(), 46, value);
}
static void disturb(int round) {
    struct itimerspec soon = {.it_value = {0, 1000}};
    sigset_t set;
    sigfillset(&set);
    if (round % 2) {
        MUST(timer_settime(timer, 0, &soon, NULL));
        sigwaitinfo(&set, NULL);
    } else {
        MUST(timer_delete(timer));
    }
}
