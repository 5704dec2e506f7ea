//! Full pages given back with MADV_DONTNEED since: their bytes are back; dirty bits say nothing of such pages.
// fault: skip:pages
#include "workload.h"

#define LENGTH (96 * PAGE)
static unsigned char *area;

static void setup(void) {
    area = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(area, 11, 0, LENGTH);
}
static void check(void) { WANT_CONTENT("a page given back since", 11, 0, area, LENGTH); }
static void disturb(int round) {
    MUST(madvise(area + round * 8 * PAGE, 20 * PAGE, round % 2 ? MADV_DONTNEED : MADV_FREE));
    MUST(madvise(area + 80 * PAGE, 8 * PAGE, MADV_DONTNEED));
    if (round % 2 == 0) fill(area, 12, 0, 4 * PAGE);
}
