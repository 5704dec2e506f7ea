//! A mapping moved, grown or shrunk by mremap since: back at its address, with its length and bytes.
// fault: skip:vmas
#include "workload.h"

#define LENGTH (16 * PAGE)
static unsigned char *area, *other, *now_at; // now_at: where the first area is
static size_t now_long = LENGTH;

static unsigned char *reserve(unsigned seed) {
    unsigned char *at = mmap(NULL, LENGTH + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(mprotect(at + PAGE, LENGTH, PROT_READ | PROT_WRITE));
    fill(at + PAGE, seed, 0, LENGTH);
    return at + PAGE;
}
static void setup(void) {
    now_at = area = reserve(1);
    other = reserve(2);
}
static void want_area(unsigned char *at, unsigned seed) {
    struct mapping mapping;
    for (size_t offset = 0; offset < LENGTH; offset += PAGE) {
        WANT("every page is mapped", mapping_of(at + offset, &mapping));
        WANT_STR("its protection", "rw-p", mapping.permissions);
    }
    WANT("what follows is mapped", mapping_of(at + LENGTH, &mapping));
    WANT_STR("its protection", "---p", mapping.permissions);
    WANT_CONTENT("an area", seed, 0, at, LENGTH);
}
static void check(void) {
    WANTS(want_area(area, 1));
    WANTS(want_area(other, 2));
}
static void disturb(int round) {
    unsigned char *moved = mremap(now_at, now_long, LENGTH + 100 * round * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) DIE("mremap: %s", strerror(errno));
    now_at = moved;
    now_long = LENGTH + 100 * round * PAGE;
    fill(moved, 50 + round, 0, 3 * PAGE);
    TRY(mremap(other, LENGTH, (2 + round) * PAGE, 0));
}
