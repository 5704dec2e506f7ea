//! Ends of pipes closed or opened since: end of file and EPIPE come exactly where they did.
// fault: skip:fds
#include "pipes.h"

static int whole[2], no_writer[2], no_reader[2];

static void setup(void) {
    MUST(pipe2(whole, O_NONBLOCK));
    MUST(pipe2(no_writer, O_NONBLOCK));
    MUST(pipe2(no_reader, O_NONBLOCK));
    put(no_writer[1], 1, 0, 100);
    close(no_writer[1]);
    close(no_reader[0]);
}
static void check(void) {
    unsigned char bytes[200];
    errno = 0;
    WANT_EQ("read of the whole, empty pipe", -1, read(whole[0], bytes, 1));
    WANT_EQ("its errno", EAGAIN, errno);
    WANT_EQ("write into it", 1, write(whole[1], "x", 1));
    WANT_EQ("read again", 1, read(whole[0], bytes, 1));
    struct pollfd ready = {no_writer[0], POLLIN, 0};
    WANT_EQ("the pipe without a writer is ready", 1, poll(&ready, 1, 0));
    WANT_HEX("and at its end after its bytes", POLLIN | POLLHUP, ready.revents);
    WANT_EQ("bytes in it", 100, peek_pipe(no_writer[0], bytes, sizeof bytes));
    WANT_EQ("write without a reader", -1, write(no_reader[1], "x", 1));
    WANT_EQ("its errno", EPIPE, errno);
}
static void disturb(int round) {
    if (round % 2) close(whole[1]);
    else close(whole[0]);
    char bytes[100];
    TRY(read(no_writer[0], bytes, 100));
}
