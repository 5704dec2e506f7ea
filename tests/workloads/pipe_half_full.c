//! Bytes that wait in a pipe: read, or joined by more, since; and the pipe's size.
// fault: skip:pipes
#include "pipes.h"

static int ends[2];

static void setup(void) {
    MUST(pipe(ends));
    MUST(fcntl(ends[0], F_SETPIPE_SZ, 128 * 1024));
    for (int i = 0; i < 10; i++) put(ends[1], 1, i * 3333, 3333);
    take(ends[0], 1234);
}
static void check(void) {
    WANT_EQ("size of the pipe", 128 * 1024, fcntl(ends[0], F_GETPIPE_SZ));
    WANTS(want_waiting("bytes that wait", ends[0], 1, 1234, 33330 - 1234));
}
static void disturb(int round) {
    if (round % 2) take(ends[0], 5000 * round);
    put(ends[1], 50 + round, 0, 7000);
    if (round % 2 == 0) MUST(fcntl(ends[0], F_SETPIPE_SZ, 256 * 1024));
}
