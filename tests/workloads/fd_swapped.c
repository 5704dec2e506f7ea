//! Descriptor numbers that mean another object since (dup2 over them): each number means its own object again.
// fault: skip:fds
#include "workload.h"

static int a, b, ends[2];

static void setup(void) {
    write_file("a", 1, 500);
    write_file("b", 2, 500);
    a = MUST(open("a", O_RDONLY));
    b = MUST(open("b", O_RDONLY));
    MUST(pipe(ends));
}
static void want(int fd, unsigned seed) {
    unsigned char bytes[500];
    WANT_EQ("bytes of a file", 500, pread(fd, bytes, 500, 0));
    WANT_CONTENT("a file", seed, 0, bytes, 500);
}
static void check(void) {
    char byte = 0;
    WANTS(want(a, 1));
    WANTS(want(b, 2));
    WANT_EQ("write into the pipe", 1, write(ends[1], "x", 1));
    WANT_EQ("read from the pipe", 1, read(ends[0], &byte, 1));
    WANT_EQ("what came through it", 'x', byte);
}
static void disturb(int round) {
    int spare = MUST(dup(a));
    if (round % 2) {
        MUST(dup2(b, a));
        MUST(dup2(spare, b));
        close(spare);
    } else {
        MUST(dup2(ends[0], b));
        MUST(dup2(spare, ends[0]));
    }
}
