//! A private mapping of a file: pages written in it are its own, the others show the file, and the file is untouched.
// fault: skip:pages
#include "workload.h"

#define PAGES 64
static unsigned char *map;

static void setup(void) {
    write_file("file", 1, PAGES * PAGE);
    int fd = MUST(open("file", O_RDONLY));
    map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    for (int i = 0; i < PAGES; i += 2) fill(map + i * PAGE, 2, i * PAGE, PAGE);
}
static void check(void) {
    for (int i = 0; i < PAGES; i++)
        WANT_CONTENT(i % 2 ? "a page of the file" : "a private page", i % 2 ? 1 : 2, i * PAGE, map + i * PAGE, PAGE);
    WANT_FILE("file", 1, PAGES * PAGE);
}
static void disturb(int round) {
    for (int i = round % 3; i < PAGES; i += 3) fill(map + i * PAGE, 10 + round, 0, PAGE);
    // Private pages dropped: the file shows through.
    madvise(map + 32 * PAGE, 16 * PAGE, MADV_DONTNEED);
}
