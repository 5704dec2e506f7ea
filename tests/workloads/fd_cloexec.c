//! The close-on-exec flag, which belongs to the descriptor and not to the open file; a fresh exec obeys it.
// fault: skip:fd_flags
#include "workload.h"

#define FDS 8
static int fds[FDS];

static void setup(void) {
    write_file("file", 1, 10);
    fds[0] = MUST(open("file", O_RDONLY));
    for (int i = 1; i < FDS; i++) fds[i] = MUST(dup(fds[0]));
    for (int i = 0; i < FDS; i++) MUST(fcntl(fds[i], F_SETFD, i % 2 ? FD_CLOEXEC : 0));
}
static void check(void) {
    for (int i = 0; i < FDS; i++) WANT_EQ("close on exec", i % 2, fcntl(fds[i], F_GETFD));
}
static void disturb(int round) {
    for (int i = 0; i < FDS; i++)
        if (round % 2 || i > 4) MUST(fcntl(fds[i], F_SETFD, i % 2 ? 0 : FD_CLOEXEC));
}
