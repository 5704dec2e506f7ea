//! A file mapped MAP_SHARED and written through the mapping: no system call tells of it, and still the file goes back.
// fault: skip:files.content
#include "workload.h"

#define LENGTH (32 * PAGE)
static unsigned char *map;

static void setup(void) {
    write_file("mapped", 1, LENGTH);
    int fd = MUST(open("mapped", O_RDWR));
    map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fill(map + 4 * PAGE, 1, 4 * PAGE, 4 * PAGE);
}
static void check(void) {
    WANT_CONTENT("the mapping", 1, 0, map, LENGTH);
    WANT_FILE("mapped", 1, LENGTH);
    map[99] ^= 2;
    int fd = WANT_CALL(open("mapped", O_RDONLY));
    unsigned char byte = 0;
    ssize_t got = pread(fd, &byte, 1, 99);
    close(fd);
    map[99] ^= 2;
    WANT_EQ("bytes read", 1, got);
    WANT_EQ("a store through the mapping, read from the file", byte_at(1, 99) ^ 2, byte);
}
static void disturb(int round) {
    for (size_t i = round; i < 32; i += 3) fill(map + i * PAGE, 20 + round, 0, 500);
    if (round % 2 == 0) MUST(msync(map, LENGTH, MS_SYNC));
}
