//! A memfd that is mapped nowhere and written only by descriptor: bytes, holes, size, position.
// fault: skip:shared_memory
#include "workload.h"

static int fd;

static void put(unsigned seed, off_t offset, size_t length) {
    unsigned char *bytes = malloc(length);
    fill(bytes, seed, offset, length);
    if (pwrite(fd, bytes, length, offset) != (ssize_t)length) DIE("pwrite to a memfd");
    free(bytes);
}
static void setup(void) {
    fd = MUST(memfd_create("written", MFD_CLOEXEC));
    put(1, 0, 10000);
    put(1, 100 * PAGE, 5000);
    MUST(lseek(fd, 4321, SEEK_SET));
}
static void check(void) {
    static unsigned char bytes[101 * PAGE + 5000];
    ssize_t size = 100 * PAGE + 5000;
    WANT_EQ("position", 4321, lseek(fd, 0, SEEK_CUR));
    WANT_EQ("size", size, pread(fd, bytes, sizeof bytes, 0));
    WANT_CONTENT("start", 1, 0, bytes, 10000);
    WANT_CONTENT("end", 1, 100 * PAGE, bytes + 100 * PAGE, 5000);
    for (size_t i = 10000; i < 100 * PAGE; i++) WANT_EQ("a byte of the hole", 0, bytes[i]);
}
static void disturb(int round) {
    put(30 + round, 2 * PAGE * round, 9000);
    if (round % 2 == 0) MUST(ftruncate(fd, 50 * PAGE));
    else put(3, 300 * PAGE, 100);
    MUST(lseek(fd, round, SEEK_SET));
}
