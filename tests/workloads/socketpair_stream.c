//! Bytes that wait in a stream socket pair, both ways.
// fault: skip:sockets
#include "pipes.h"

static int pair[2];

static void want_peek(const char *what, int fd, unsigned seed, size_t offset, size_t length) {
    static unsigned char bytes[1 << 17];
    int ready = -1;
    WANT_CALL(ioctl(fd, FIONREAD, &ready));
    WANT_EQ(what, length, ready);
    WANT_EQ(what, length, recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT));
    WANT_CONTENT(what, seed, offset, bytes, length);
}
static void setup(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    put(pair[0], 1, 0, 30000);
    put(pair[0], 1, 30000, 500);
    put(pair[1], 2, 0, 777);
    take(pair[1], 100);
}
static void check(void) {
    WANTS(want_peek("bytes one way", pair[1], 1, 100, 30400));
    WANTS(want_peek("bytes the other way", pair[0], 2, 0, 777));
    put(pair[0], 1, 30500, 10);
    WANTS(want_peek("bytes one way after a write", pair[1], 1, 100, 30410));
    take(pair[1], 30410);
    put(pair[0], 1, 100, 30400);
}
static void disturb(int round) {
    take(pair[1], 10000 * round);
    put(pair[1], 40 + round, 0, 5000);
    if (round % 2 == 0) take(pair[0], 777 + 5000);
}
