//! Mappings taken away since, whole, at an end or in the middle: they are back at their place with their bytes.
// fault: skip:vmas
#include "workload.h"

#define LENGTH (24 * PAGE)
static unsigned char *areas[3];

static void setup(void) {
    for (int i = 0; i < 3; i++) {
        // The page between keeps neighbours from becoming one mapping.
        areas[i] = mmap(NULL, LENGTH + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(mprotect(areas[i] + LENGTH, PAGE, PROT_NONE));
        fill(areas[i], i, 0, LENGTH);
    }
}
static void check(void) {
    for (int i = 0; i < 3; i++)
        for (size_t offset = 0; offset < LENGTH; offset += PAGE) {
            struct mapping mapping;
            WANT("every page is mapped", mapping_of(areas[i] + offset, &mapping));
            WANT_STR("its protection", "rw-p", mapping.permissions);
            WANT_CONTENT("its bytes", i, offset, areas[i] + offset, PAGE);
        }
}
static void disturb(int round) {
    munmap(areas[round % 3], LENGTH);
    munmap(areas[(round + 1) % 3] + 8 * PAGE, 4 * PAGE);
    munmap(areas[(round + 2) % 3], 2 * PAGE);
    // Something else where one was.
    if (round % 2) {
        unsigned char *other = mmap(areas[round % 3] + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fill(other, 99, 0, 4 * PAGE);
    }
}
