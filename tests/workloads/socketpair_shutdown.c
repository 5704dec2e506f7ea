//! Socket pairs closed or half closed since: both directions are open again, with what was in them.
// fault: skip:sockets
#include "pipes.h"

static int pair[2], half[2];

static void setup(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, half));
    put(pair[0], 1, 0, 300);
    MUST(shutdown(half[0], SHUT_WR));
}
static void check(void) {
    unsigned char bytes[400];
    WANT_EQ("bytes that wait", 300, recv(pair[1], bytes, sizeof bytes, MSG_PEEK));
    WANT_CONTENT("bytes that wait", 1, 0, bytes, 300);
    WANT_EQ("a write back", 5, write(pair[1], "hello", 5));
    WANT_EQ("it arrives", 5, recv(pair[0], bytes, sizeof bytes, 0));
    WANT_EQ("end of file where it was shut down", 0, recv(half[1], bytes, sizeof bytes, 0));
    WANT_EQ("the other way is open", 2, write(half[1], "ok", 2));
    WANT_EQ("it arrives", 2, recv(half[0], bytes, sizeof bytes, 0));
}
static void disturb(int round) {
    char bytes[300];
    if (round % 2) close(pair[1]);
    else TRY(read(pair[1], bytes, 300));
    put(half[1], 3, 0, 40);
}
