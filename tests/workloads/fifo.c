//! A named pipe with bytes in it, open at both ends.
// fault: skip:pipes
#include "pipes.h"

static int reader, writer;

static void setup(void) {
    MUST(mkfifo("fifo", 0600));
    reader = MUST(open("fifo", O_RDONLY | O_NONBLOCK));
    writer = MUST(open("fifo", O_WRONLY));
    put(writer, 1, 0, 9000);
}
static void check(void) {
    struct stat named, here;
    WANT_CALL(stat("fifo", &named));
    WANT_CALL(fstat(reader, &here));
    WANT("it is a fifo", S_ISFIFO(named.st_mode));
    WANT_EQ("inode by name and by descriptor", named.st_ino, here.st_ino);
    WANTS(want_waiting("bytes in the fifo", reader, 1, 0, 9000));
    int another = WANT_CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    ssize_t put_more = write(another, "!", 1);
    close(another);
    WANT_EQ("written by another open", 1, put_more);
    char bytes[9001];
    WANT_EQ("read by the old reader", 9001, read(reader, bytes, sizeof bytes));
    put(writer, 1, 0, 9000);
}
static void disturb(int round) {
    char bytes[10000];
    TRY(read(reader, bytes, 4000 + round));
    if (round % 2 == 0) TRY(read(reader, bytes, sizeof bytes));
    put(writer, 5, 0, 300);
}
