//! A pipe with bytes that was emptied since, and an empty one that was filled.
// fault: skip:pipes
#include "pipes.h"

static int full[2], empty[2];

static void setup(void) {
    MUST(pipe(full));
    MUST(pipe(empty));
    put(full[1], 1, 0, 20000);
}
static void check(void) {
    struct pollfd ready = {empty[0], POLLIN, 0};
    WANTS(want_waiting("bytes in the emptied pipe", full[0], 1, 0, 20000));
    WANT_EQ("bytes in the empty pipe", 0, poll(&ready, 1, 0));
    put(empty[1], 4, 0, 10);
    WANTS(want_waiting("bytes in the empty pipe, once written", empty[0], 4, 0, 10));
    take(empty[0], 10);
}
static void disturb(int round) {
    char bytes[20000];
    fcntl(full[0], F_SETFL, O_NONBLOCK);
    TRY(read(full[0], bytes, round % 2 ? 20000 : 3));
    fcntl(full[0], F_SETFL, 0);
    put(empty[1], 9, 0, 100 * round);
}
