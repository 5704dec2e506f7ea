//! POSIX timers: their ids, clocks, what was left, intervals, what they tell and to which thread; new ones are gone.
// fault: skip:posix_timers
#include "clocks.h"

#define TIMERS 4
static timer_t timers[TIMERS];
static timer_t since[8];
static int since_count;

static void arm(timer_t timer, long seconds, long interval) {
    struct itimerspec spec = {.it_value = {seconds, 0}, .it_interval = {interval, 0}};
    MUST(timer_settime(timer, 0, &spec, NULL));
}
static timer_t make(int i) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = i % 2 ? SIGEV_NONE : SIGEV_SIGNAL, .sigev_signo = SIGUSR1 + i,
                             .sigev_value.sival_int = 40 + i};
    MUST(timer_create(i < 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME, &event, &timer));
    return timer;
}
static void setup(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    for (int i = 0; i < TIMERS; i++) arm(timers[i] = make(i), 1000 + i, 10 + i);
    armed_at = now_ns();
}
static int listed(void) {
    FILE *file = fopen("/proc/self/timers", "re");
    char line[128];
    int count = 0;
    while (file && fgets(line, sizeof line, file)) count += !strncmp(line, "ID:", 3);
    if (file) fclose(file);
    else return -1;
    return count;
}
static void check(void) {
    for (int i = 0; i < TIMERS; i++) {
        struct itimerspec spec;
        if (timer_gettime(timers[i], &spec)) FAILED("timer %d: wanted it to be there, got %s", i, strerror(errno));
        WANT_EQ("interval", 10 + i, spec.it_interval.tv_sec);
        WANT_LEFT("left of a timer", (1000 + i) * 1000, ms_of(spec.it_value));
    }
    int count = listed();
    if (count >= 0) WANT_EQ("timers of the process", TIMERS, count);
    // One is made to fire: what it tells, and through which signal.
    struct itimerspec soon = {.it_value = {0, 1000000}}, before;
    struct timespec within = {2, 0};
    sigset_t set;
    siginfo_t info;
    sigfillset(&set);
    MUST(timer_gettime(timers[0], &before));
    MUST(timer_settime(timers[0], 0, &soon, NULL));
    int got = sigtimedwait(&set, &info, &within);
    MUST(timer_settime(timers[0], 0, &before, NULL));
    WANT_EQ("signal of the timer", SIGUSR1, got);
    WANT_EQ("value it tells", 40, info.si_value.sival_int);
    WANT_EQ("code", SI_TIMER, info.si_code);
}
static void disturb(int round) {
    arm(timers[0], 5 + round, 0);
    arm(timers[1], 0, 0);
    if (round % 2) {
        TRY(timer_delete(timers[2]));
        arm(since[since_count++ % 8] = make(3), 50, 1);
    } else {
        struct itimerspec spec = {.it_value = {3000, 0}};
        TRY(timer_settime(timers[2], 0, &spec, NULL)); // deleted by another round, maybe
        since[since_count++ % 8] = make(1);
    }
}
