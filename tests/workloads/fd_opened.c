//! Descriptors opened since are closed, and the lowest free number is what it was.
// fault: skip:fds
#include "workload.h"

static int lowest(void) {
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}
static int wanted_open, wanted_lowest, kept;
static void setup(void) {
    write_file("file", 1, 100);
    kept = MUST(open("file", O_RDONLY));
    wanted_open = count_entries("/proc/self/fd");
    wanted_lowest = lowest();
}
static void check(void) {
    WANT_EQ("open descriptors", wanted_open, count_entries("/proc/self/fd"));
    WANT_EQ("lowest free descriptor", wanted_lowest, lowest());
}
static void disturb(int round) {
    int ends[2];
    MUST(pipe(ends));
    MUST(open("file", O_RDWR));
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    MUST(dup2(kept, 100 + round));
    if (round % 2 == 0) MUST(epoll_create1(0));
}
