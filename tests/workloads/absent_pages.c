//! Pages that were never touched, or given back with MADV_DONTNEED: written since, they are zero and absent again.
// fault: skip:absent
#include "workload.h"

#define PAGES 128
static unsigned char *area;

static void setup(void) {
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, PAGES * PAGE, MADV_NOHUGEPAGE);
    fill(area, 9, 0, PAGES / 2 * PAGE);
    MUST(madvise(area, PAGES / 4 * PAGE, MADV_DONTNEED)); // a quarter given back, a quarter full, half untouched
}
static void check(void) {
    unsigned char present[PAGES];
    MUST(mincore(area, PAGES * PAGE, present));
    for (int i = 0; i < PAGES; i++) {
        bool full = i >= PAGES / 4 && i < PAGES / 2;
        WANT_EQ("whether a page is present", full, present[i] & 1);
        if (full) WANT_CONTENT("a full page", 9, i * PAGE, area + i * PAGE, PAGE);
    }
    for (int i = 0; i < PAGES; i++)
        if (i < PAGES / 4 || i >= PAGES / 2)
            for (size_t k = 0; k < PAGE; k += 64) WANT_EQ("a byte of an absent page", 0, area[i * PAGE + k]);
    // Reading made them present (the zero page): give them back, so that the next check sees what this one saw.
    MUST(madvise(area, PAGES / 4 * PAGE, MADV_DONTNEED));
    MUST(madvise(area + PAGES / 2 * PAGE, PAGES / 2 * PAGE, MADV_DONTNEED));
}
static void disturb(int round) {
    for (int i = 0; i < PAGES; i += 1 + round) fill(area + i * PAGE, 40 + round, 0, PAGE);
}
