//! An interval timer that has fired and been turned off since: it fires again, when the rest of its time is over.
// fault: skip:itimers
#include "clocks.h"

#define AFTER_MS 900
static volatile long long fired_at;
static volatile int fired;

static void on_alarm(int number) {
    (void)number;
    if (!fired++) fired_at = now_ns();
}
static void arm(long ms) {
    struct itimerval timer = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL));
}
static void setup(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL));
    arm(AFTER_MS);
    armed_at = now_ns();
}
static void check(void) {
    for (long until = now_ms() + AFTER_MS + 1000; !fired && now_ms() < until;) pause_ms(2);
    WANT_EQ("times it fired", 1, fired);
    WANT_BETWEEN("milliseconds until it fired", AFTER_MS + undone_lo_ms - 50, AFTER_MS + undone_hi_ms + 300,
                 (fired_at - armed_at) / 1000000);
}
static void disturb(int round) {
    arm(round % 2 ? 1 : 0);
    if (round % 2)
        while (!fired) pause_ms(1);
}
