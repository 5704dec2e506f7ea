//! The three interval timers: what was left of each, and its interval.
// fault: skip:itimers
#include "clocks.h"

static void arm(int which, long seconds, long interval) {
    struct itimerval timer = {.it_value = {seconds, 0}, .it_interval = {interval, 5000}};
    MUST(setitimer(which, &timer, NULL));
}
static void setup(void) {
    arm(ITIMER_REAL, 1000, 77);
    arm(ITIMER_VIRTUAL, 2000, 78);
    arm(ITIMER_PROF, 3000, 79);
    armed_at = now_ns();
}
static void check(void) {
    struct itimerval timer;
    for (int which = 0; which < 3; which++) {
        MUST(getitimer(which, &timer));
        WANT_EQ("interval", (77 + which) * 1000 + 5, ms_of_value(timer.it_interval));
        // The other two run with the process's own time: next to nothing is gone of them.
        if (which == ITIMER_REAL) WANT_LEFT("left of ITIMER_REAL", 1000000, ms_of_value(timer.it_value));
        else WANT_BETWEEN("left of a CPU timer", (which + 1) * 1000000 - 3000, (which + 1) * 1000000 + 10,
                          ms_of_value(timer.it_value));
    }
}
static void disturb(int round) {
    arm(ITIMER_REAL, round % 2 ? 0 : 500, 5);
    arm(ITIMER_VIRTUAL, 100 + round, 0);
    arm(ITIMER_PROF, round % 2 ? 100 : 0, round);
}
