//! Descriptors closed since: open again at the same number, the same kind, with position and flags.
// fault: skip:fds
#include "workload.h"

static int file, null, ends[2], event;

static void setup(void) {
    write_file("file", 1, 8000);
    file = MUST(open("file", O_RDWR | O_APPEND | O_CLOEXEC));
    null = MUST(open("/dev/null", O_WRONLY));
    MUST(pipe(ends));
    event = MUST(eventfd(5, EFD_NONBLOCK));
    MUST(lseek(file, 100, SEEK_SET));
    if (write(ends[1], "hello", 5) != 5) DIE("write");
}
static void check(void) {
    unsigned char bytes[50];
    struct stat status;
    uint64_t count = 0;
    int ready = 0;
    WANT_EQ("position of the file", 100, lseek(file, 0, SEEK_CUR));
    WANT_HEX("its flags", O_RDWR | O_APPEND, fcntl(file, F_GETFL) & (O_ACCMODE | O_APPEND));
    WANT_EQ("its close-on-exec", FD_CLOEXEC, fcntl(file, F_GETFD));
    WANT_EQ("bytes read", 50, pread(file, bytes, 50, 100));
    WANT_CONTENT("what is read", 1, 100, bytes, 50);
    WANT_CALL(fstat(null, &status));
    WANT("the null device", S_ISCHR(status.st_mode) && status.st_rdev == 0x103);
    WANT_CALL(ioctl(ends[0], FIONREAD, &ready));
    WANT_EQ("bytes in the pipe", 5, ready);
    WANT_EQ("the pipe's write end", 1, write(ends[1], "!", 1));
    WANT_EQ("read from it", 6, read(ends[0], bytes, 50));
    WANT("what it held", !memcmp(bytes, "hello!", 6));
    WANT_EQ("refilled", 5, write(ends[1], "hello", 5));
    WANT_EQ("read of the eventfd", 8, read(event, &count, 8));
    WANT_EQ("its count", 5, count);
    WANT_EQ("refilled", 8, write(event, &count, 8));
}
static void disturb(int round) {
    if (round % 2 == 0) close(ends[0]), close(ends[1]);
    if (round % 3) close(event);
    close(file);
    close(null);
}
