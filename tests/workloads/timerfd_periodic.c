//! Periodic timerfds: ticks that nobody has read yet, what is left until the next, interval, clock, flags.
// fault: skip:timerfd
#include "clocks.h"

static int slow, fast;

static void arm(int fd, long first_ms, long interval_ms) {
    struct itimerspec spec = {.it_value = {first_ms / 1000, first_ms % 1000 * 1000000},
                              .it_interval = {interval_ms / 1000, interval_ms % 1000 * 1000000}};
    MUST(timerfd_settime(fd, 0, &spec, NULL));
}
static void setup(void) {
    slow = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    fast = MUST(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    arm(fast, 1, 100000); // one tick at once, the next in 100 s
    struct pollfd ready = {fast, POLLIN, 0};
    arm(slow, 500000, 60000);
    armed_at = now_ns();
    poll(&ready, 1, -1);
}
static void check(void) {
    struct itimerspec spec;
    struct pollfd ready = {fast, POLLIN, 0};
    MUST(timerfd_gettime(slow, &spec));
    WANT_EQ("interval", 60, spec.it_interval.tv_sec);
    WANT_LEFT("left of the slow one", 500000, ms_of(spec.it_value));
    MUST(timerfd_gettime(fast, &spec));
    WANT_EQ("interval", 100, spec.it_interval.tv_sec);
    WANT_LEFT("left until the next tick", 100000, ms_of(spec.it_value));
    WANT_EQ("the unread tick is there", 1, poll(&ready, 1, 0));
    WANT_EQ("non-blocking", O_NONBLOCK, fcntl(slow, F_GETFL) & O_NONBLOCK);
    // Its number, from /proc: reading would take it.
    char path[64], line[128];
    long ticks = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fast);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "ticks: %ld", &ticks);
    if (file) fclose(file);
    WANT_EQ("unread ticks", 1, ticks);
}
static void disturb(int round) {
    uint64_t ticks;
    if (read(fast, &ticks, sizeof ticks) < 0 && errno != EAGAIN) DIE("read of a timerfd");
    arm(slow, round % 2 ? 0 : 70000, round % 2 ? 0 : 5);
    arm(fast, 3000 + round, 5);
}
