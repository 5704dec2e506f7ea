//! A one-shot timerfd: disarmed, read or armed anew since, it ticks once, after the rest of its time.
// fault: skip:timerfd
#include "clocks.h"

#define AFTER_MS 900
static int fd;

static void arm(long ms) {
    struct itimerspec spec = {.it_value = {ms / 1000, ms % 1000 * 1000000}};
    MUST(timerfd_settime(fd, 0, &spec, NULL));
}
static void setup(void) {
    fd = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
    arm(AFTER_MS);
    armed_at = now_ns();
}
static void check(void) {
    uint64_t ticks = 0;
    long long began = (now_ns() - armed_at) / 1000000;
    struct pollfd ready = {fd, POLLIN, 0};
    WANT_EQ("it ticks", 1, poll(&ready, 1, AFTER_MS + 1000));
    WANT_CAME("milliseconds until it ticked", AFTER_MS, began);
    WANT_EQ("bytes read", 8, read(fd, &ticks, sizeof ticks));
    WANT_EQ("ticks", 1, ticks);
    struct itimerspec spec;
    MUST(timerfd_gettime(fd, &spec));
    WANT_EQ("it is disarmed now", 0, ms_of(spec.it_value));
}
static void disturb(int round) {
    uint64_t ticks;
    if (round % 2) {
        arm(1);
        if (read(fd, &ticks, sizeof ticks) != sizeof ticks) DIE("read of a timerfd");
    } else {
        arm(90000);
    }
}
