//! Counters of eventfds: plain, semaphore, zero, and one that is full.
// fault: skip:eventfd
#include "workload.h"

static int fds[4];
static const uint64_t wanted[4] = {7, 3, 0, 0xfffffffffffffffe};

static void setup(void) {
    for (int i = 0; i < 4; i++) {
        fds[i] = MUST(eventfd(0, EFD_NONBLOCK | (i == 1 ? EFD_SEMAPHORE : 0)));
        if (wanted[i] && write(fds[i], &wanted[i], 8) != 8) DIE("write to an eventfd");
    }
}
static void check(void) {
    for (int i = 0; i < 4; i++) {
        uint64_t total = 0, count;
        if (i == 1) {
            for (int k = 0; k < 20 && read(fds[i], &count, 8) == 8; k++) {
                WANT_EQ("what one read of a semaphore gives", 1, count);
                total += count;
            }
        } else if (read(fds[i], &count, 8) == 8) {
            total = count;
        }
        WANT_EQ("counter", wanted[i], total);
        if (total && write(fds[i], &total, 8) != 8) FAILED("eventfd %d cannot be written", i);
    }
}
static void disturb(int round) {
    uint64_t more = 10 * round;
    for (int i = 0; i < 3; i++)
        if (write(fds[i], &more, 8) != 8) DIE("write to an eventfd");
    TRY(read(fds[3], &more, 8));
    if (round % 2 && read(fds[0], &more, 8) != 8) DIE("read of an eventfd");
}
