//! Protections changed both ways since: what was read-only is so again, what was writable can be written again.
// fault: skip:prot
#include "workload.h"

#define PAGES 12
static unsigned char *area;
static const int wanted[PAGES] = {3, 3, 1, 1, 0, 0, 3, 1, 3, 0, 5, 3};

static void protect(int page, int protection) { MUST(mprotect(area + page * PAGE, PAGE, protection)); }
static void setup(void) {
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(area, 6, 0, PAGES * PAGE);
    for (int i = 0; i < PAGES; i++) protect(i, wanted[i]);
}
static void check(void) {
    for (int i = 0; i < PAGES; i++) {
        struct mapping mapping;
        char text[8] = "---p";
        if (wanted[i] & PROT_READ) text[0] = 'r';
        if (wanted[i] & PROT_WRITE) text[1] = 'w';
        if (wanted[i] & PROT_EXEC) text[2] = 'x';
        WANT("the page is mapped", mapping_of(area + i * PAGE, &mapping));
        WANT_STR("protection of a page", text, mapping.permissions);
        if (wanted[i] & PROT_READ) WANT_CONTENT("a page", 6, i * PAGE, area + i * PAGE, PAGE);
    }
    // What hides behind PROT_NONE is state too.
    for (int i = 0; i < PAGES; i++) {
        if (wanted[i]) continue;
        protect(i, PROT_READ);
        WANT_CONTENT("a page behind PROT_NONE", 6, i * PAGE, area + i * PAGE, PAGE);
        protect(i, PROT_NONE);
    }
}
static void disturb(int round) {
    for (int i = 0; i < PAGES; i++) {
        protect(i, PROT_READ | PROT_WRITE);
        fill(area + i * PAGE, 20 + round, 0, 100);
        protect(i, (i + round) % 3 == 0 ? PROT_NONE : (i + round) % 3 == 1 ? PROT_READ : PROT_READ | PROT_WRITE);
    }
}
