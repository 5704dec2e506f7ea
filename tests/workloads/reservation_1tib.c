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
static void check(void) {
    struct mapping mapping;
    unsigned long end = (unsigned long)area;
    for (int i = 0; i <= SPOTS; i++) {
        unsigned long want = i < SPOTS ? (unsigned long)spot(i) : (unsigned long)area + LENGTH;
        WANT("the reservation is mapped", mapping_of((void *)end, &mapping));
        WANT_STR("protection of the reservation", "---p", mapping.permissions);
        if (i < SPOTS) WANT_HEX("end of a reserved range", want, mapping.end);
        if (i == SPOTS) break;
        WANT_CONTENT("a spot in use", i, 0, spot(i), 4 * PAGE);
        end = want + 4 * PAGE;
    }
    WANT("it is 1 TiB long", mapping.end >= (unsigned long)area + LENGTH);
}
static void disturb(int round) {
    unsigned char *more = area + LENGTH / 2 + round * 1000 * PAGE;
    MUST(mprotect(more, 16 * PAGE, PROT_READ | PROT_WRITE));
    fill(more, 90, 0, 16 * PAGE);
    for (int i = round % 2; i < SPOTS; i += 2) fill(spot(i), 80 + round, 0, 2 * PAGE);
    MUST(mprotect(spot(round), 4 * PAGE, PROT_NONE));
}
