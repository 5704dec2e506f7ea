//! Mappings made since are gone, and the addresses are free.
// fault: skip:vmas
#include "workload.h"

static unsigned char *gap;
#define LENGTH (64 * PAGE)

static void setup(void) {
    // An address range that is known to be free, between two pages that stay.
    gap = mmap(NULL, LENGTH + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    gap += PAGE;
    munmap(gap, LENGTH);
    write_file("file", 4, 8 * PAGE);
}
static void check(void) {
    for (size_t offset = 0; offset < LENGTH; offset += PAGE) {
        struct mapping mapping;
        if (mapping_of(gap + offset, &mapping))
            FAILED("the gap: wanted nothing, got a mapping %lx-%lx %s", mapping.start, mapping.end, mapping.permissions);
    }
}
static void disturb(int round) {
    fill(mmap(gap + round * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), 1,
         0, 4 * PAGE);
    fill(mmap(gap + 20 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), 1, 0, PAGE);
    int fd = MUST(open("file", O_RDONLY));
    mmap(gap + (30 + round) * PAGE, 8 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    close(fd);
}
