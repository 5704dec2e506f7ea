//! A memfd mapped twice: bytes written through either mapping, size, and that mappings and descriptor stay one object.
// fault: skip:shared_memory
#include "workload.h"

#define LENGTH (32 * PAGE)
static int fd;
static unsigned char *first, *second;

static void setup(void) {
    fd = MUST(memfd_create("workload", MFD_CLOEXEC));
    MUST(ftruncate(fd, LENGTH));
    first = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    second = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    fill(first, 8, 0, LENGTH);
}
static void check(void) {
    unsigned char bytes[PAGE];
    struct stat status;
    MUST(fstat(fd, &status));
    WANT_EQ("size of the memfd", LENGTH, status.st_size);
    WANT_CONTENT("first mapping", 8, 0, first, LENGTH);
    WANT_CONTENT("second mapping", 8, 0, second, LENGTH);
    WANT_EQ("bytes read by descriptor", (long)PAGE, pread(fd, bytes, PAGE, 5 * PAGE));
    WANT_CONTENT("by descriptor", 8, 5 * PAGE, bytes, PAGE);
    second[7] ^= 0x40;
    WANT_EQ("a store through the second mapping, seen in the first", byte_at(8, 7) ^ 0x40, first[7]);
    second[7] ^= 0x40;
}
static void disturb(int round) {
    fill(round % 2 ? first : second, 60 + round, 0, 9 * PAGE);
    fill(second + 20 * PAGE, 70 + round, 0, PAGE);
    if (round % 2) MUST(ftruncate(fd, LENGTH + 5 * PAGE));
}
