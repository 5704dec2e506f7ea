//! An epoll set: level and edge items, their events and data, and which of them are ready; changed since.
// fault: skip:epoll
#include "pipes.h"

#define ITEMS 4
static int epoll, pipes[ITEMS][2];

static uint32_t events_of(int i) { return i % 2 ? EPOLLIN | EPOLLET | EPOLLRDHUP : EPOLLIN; }
static void setup(void) {
    epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
    for (int i = 0; i < ITEMS; i++) {
        MUST(pipe(pipes[i]));
        struct epoll_event event = {.events = events_of(i), .data.u64 = 0xABCD000000000000ull + i};
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[i][0], &event));
    }
    put(pipes[2][1], 1, 0, 5);
}
static int wait_for(struct epoll_event *event, int count) { return epoll_wait(epoll, event, count, 0); }
static void check(void) {
    struct epoll_event got[8];
    WANT_EQ("ready items", 1, wait_for(got, 8));
    WANT_HEX("data of the ready item", 0xABCD000000000002ull, got[0].data.u64);
    // An edge item tells of each new write once; a level item as long as there are bytes.
    put(pipes[1][1], 1, 0, 1);
    WANT_EQ("ready items after an edge", 2, wait_for(got, 8));
    WANT_EQ("ready items, the edge told already", 1, wait_for(got, 8));
    take(pipes[1][0], 1);
    put(pipes[0][1], 1, 0, 1);
    WANT_EQ("ready level items", 2, wait_for(got, 8));
    WANT_EQ("ready level items, once more", 2, wait_for(got, 8));
    take(pipes[0][0], 1);
    for (int i = 0; i < ITEMS; i++) {
        struct epoll_event same = {.events = events_of(i), .data.u64 = 0xABCD000000000000ull + i};
        WANT_CALL(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[i][0], &same));
    }
}
static void disturb(int round) {
    for (int i = round % 2; i < ITEMS; i += 2) {
        struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 1000 * round + i};
        MUST(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[i][0], &event));
    }
    struct epoll_event other = {.events = EPOLLIN | EPOLLET, .data.u64 = 77};
    MUST(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[2][0], &other));
}
