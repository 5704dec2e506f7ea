//! Messages that wait in a datagram socket pair: bytes, bounds, order.
// fault: skip:sockets
#include "pipes.h"

static int pair[2];
static const int lengths[] = {10, 3000, 1, 500};

static void setup(void) {
    MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    for (size_t i = 0; i < COUNT(lengths); i++) put(pair[0], i, 0, lengths[i]);
    put(pair[1], 9, 0, 77);
}
static void check(void) {
    unsigned char bytes[8192];
    for (size_t i = 0; i < COUNT(lengths); i++) {
        WANT_EQ("length of a message", lengths[i], recv(pair[1], bytes, sizeof bytes, 0));
        WANT_CONTENT("a message", i, 0, bytes, lengths[i]);
    }
    WANT_EQ("nothing after them", -1, recv(pair[1], bytes, sizeof bytes, 0));
    WANT_EQ("the message the other way", 77, recv(pair[0], bytes, sizeof bytes, MSG_PEEK));
    WANT_CONTENT("the message the other way", 9, 0, bytes, 77);
    for (size_t i = 0; i < COUNT(lengths); i++) put(pair[0], i, 0, lengths[i]);
}
static void disturb(int round) {
    char bytes[8192];
    for (int i = 0; i < round; i++)
        if (recv(pair[1], bytes, sizeof bytes, 0) < 0) DIE("recv");
    put(pair[1], 60, 0, 200);
    if (round % 2) put(pair[0], 61, 0, 4);
}
