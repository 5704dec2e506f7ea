//! A reservation of 1 TiB without access, as V8 and Go make them: the few pages in use, and nothing else of it.
// fault: skip:pages
#include "workload.h"

#define LENGTH (1ul << 40)
#define SPOTS 8
static unsigned char *area;

static unsigned char *spot(int i) { return area + (i * 3ul + 1) * (LENGTH / 32) + i * PAGE; }
static void setup(void) {
    area = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) DIE("1 TiB: %s", strerror(errno));
    for (int i = 0; i < SPOTS; i++) {
        MUST(mprotect(spot(i), 4 * PAGE, PROT_READ | PROT_WRITE));
        fill(spot(i), i, 0, 4 * PAGE);
    }
}
// All of a range is mapped without access, in however many pieces.
static void want_reserved(unsigned long at, unsigned long end) {
    struct mapping mapping;
    while (at < end) {
        WANT("the reservation is mapped", mapping_of((void *)at, &mapping));
        WANT_STR("protection of the reservation", "---p", mapping.permissions);
        at = mapping.end;
    }
}
static void check(void) {
    unsigned long end = (unsigned long)area;
    for (int i = 0; i < SPOTS; i++) {
        struct mapping mapping;
        WANTS(want_reserved(end, (unsigned long)spot(i)));
        WANT("a spot is mapped", mapping_of(spot(i), &mapping));
        WANT_STR("its protection", "rw-p", mapping.permissions);
        WANT_CONTENT("a spot in use", i, 0, spot(i), 4 * PAGE);
        end = (unsigned long)spot(i) + 4 * PAGE;
    }
    WANTS(want_reserved(end, (unsigned long)area + LENGTH));
}
static void disturb(int round) {
    unsigned char *more = area + LENGTH / 2 + round * 1000 * PAGE;
    MUST(mprotect(more, 16 * PAGE, PROT_READ | PROT_WRITE));
    fill(more, 90, 0, 16 * PAGE);
    for (int i = round % 2; i < SPOTS; i += 2) fill(spot(i), 80 + round, 0, 2 * PAGE);
    MUST(mprotect(spot(round), 4 * PAGE, PROT_NONE));
}
