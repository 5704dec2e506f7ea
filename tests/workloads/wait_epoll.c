//! A thread inside epoll_wait with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:wait_remaining
#define WAIT_WANTED 0, 0 // result, errno
#include "waits.h"
static int ends[2], epoll;

static const long wait_number = SYS_epoll_wait;

static void prepare_wait(void) {
    struct epoll_event event = {.events = EPOLLIN};
    MUST(pipe(ends));
    epoll = MUST(epoll_create1(0));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
}
static void wait_once(void) {
    struct epoll_event event;
    wait_result = epoll_wait(epoll, &event, 1, WAIT_MS);
}
