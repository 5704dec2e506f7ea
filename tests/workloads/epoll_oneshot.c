//! One-shot items of an epoll set: the one that has fired stays disarmed, the armed one fires once.
// fault: skip:epoll
#include "pipes.h"

static int epoll, fired[2], armed[2];

static void arm(int how, int fd, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = data};
    MUST(epoll_ctl(epoll, how, fd, &event));
}
static void setup(void) {
    struct epoll_event event;
    epoll = MUST(epoll_create1(0));
    MUST(pipe(fired));
    MUST(pipe(armed));
    arm(EPOLL_CTL_ADD, fired[0], 1);
    arm(EPOLL_CTL_ADD, armed[0], 2);
    put(fired[1], 1, 0, 3);
    if (epoll_wait(epoll, &event, 1, 0) != 1) DIE("no event");
}
static void check(void) {
    struct epoll_event event;
    WANT_EQ("ready items, one disarmed, one without bytes", 0, epoll_wait(epoll, &event, 1, 0));
    put(armed[1], 1, 0, 1);
    WANT_EQ("the armed item fires", 1, epoll_wait(epoll, &event, 1, 0));
    WANT_EQ("its data", 2, event.data.u64);
    WANT_EQ("once", 0, epoll_wait(epoll, &event, 1, 0));
    take(armed[0], 1);
    arm(EPOLL_CTL_MOD, armed[0], 2);
}
static void disturb(int round) {
    struct epoll_event event;
    arm(EPOLL_CTL_MOD, fired[0], 100 + round);
    put(armed[1], 1, 0, 1);
    if (round % 2) while (epoll_wait(epoll, &event, 1, 0) == 1) {}
    if (round % 2) arm(EPOLL_CTL_MOD, fired[0], 100 + round);
}
