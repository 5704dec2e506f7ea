//! Items added to an epoll set since are gone from it, and those taken out are in it again.
// fault: skip:epoll
#include "pipes.h"

static int epoll, in[2], out[2], event_counter;

static void add(int fd, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}
static void setup(void) {
    epoll = MUST(epoll_create1(0));
    MUST(pipe(in));
    MUST(pipe(out));
    event_counter = MUST(eventfd(1, 0));
    add(in[0], 1);
    add(event_counter, 2);
    put(in[1], 1, 0, 4);
    put(out[1], 1, 0, 4);
}
static void check(void) {
    struct epoll_event got[4];
    WANT_EQ("ready items", 2, epoll_wait(epoll, got, 4, 0));
    WANT_EQ("their data together", 3, got[0].data.u64 + got[1].data.u64);
    errno = 0;
    struct epoll_event event = {.events = EPOLLIN};
    WANT_EQ("a change of what is not in it", -1, epoll_ctl(epoll, EPOLL_CTL_MOD, out[0], &event));
    WANT_EQ("its errno", ENOENT, errno);
}
static void disturb(int round) {
    TRY(epoll_ctl(epoll, EPOLL_CTL_DEL, round % 2 ? in[0] : event_counter, NULL));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 50 + round};
    TRY(epoll_ctl(epoll, EPOLL_CTL_ADD, out[0], &event));
}
