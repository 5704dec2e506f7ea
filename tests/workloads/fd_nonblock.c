//! Status flags (O_NONBLOCK, O_ASYNC, O_DIRECT) of pipes, sockets and files.
// fault: skip:fd_flags
#include "workload.h"

#define FDS 5
static int fds[FDS], pipe_ends[2], pair[2];
static const int wanted[FDS] = {O_NONBLOCK, 0, O_NONBLOCK, 0, O_NONBLOCK};

static void setup(void) {
    write_file("file", 1, 10);
    MUST(pipe(pipe_ends));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int all[FDS] = {pipe_ends[0], pipe_ends[1], pair[0], pair[1], MUST(open("file", O_RDONLY))};
    for (int i = 0; i < FDS; i++) MUST(fcntl(fds[i] = all[i], F_SETFL, wanted[i]));
}
static void check(void) {
    char byte;
    for (int i = 0; i < FDS; i++) WANT_HEX("status flags", wanted[i], fcntl(fds[i], F_GETFL) & O_NONBLOCK);
    errno = 0;
    WANT_EQ("read of the empty pipe", -1, read(pipe_ends[0], &byte, 1));
    WANT_EQ("its errno", EAGAIN, errno);
}
static void disturb(int round) {
    for (int i = 0; i < FDS; i++)
        if (round % 2 || i == 2) MUST(fcntl(fds[i], F_SETFL, wanted[i] ^ O_NONBLOCK));
}
