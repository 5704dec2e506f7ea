//! The program break: grown or shrunk since, it is where it was, and the bytes below it too.
// fault: skip:brk
#include "workload.h"

#define LENGTH (32 * PAGE)
static char *start;

static void setup(void) {
    start = sbrk(0);
    MUST(brk(start + LENGTH));
    fill(start, 3, 0, LENGTH);
}
static void check(void) {
    WANT_HEX("the break", start + LENGTH, syscall(SYS_brk, 0));
    WANT_CONTENT("bytes below the break", 3, 0, start, LENGTH);
}
static void disturb(int round) {
    if (round % 2) {
        MUST(brk(start + LENGTH + 64 * PAGE));
        fill(start + LENGTH, 4, 0, 64 * PAGE);
    } else {
        MUST(brk(start + PAGE));
    }
    fill(start, round + 10, 0, PAGE);
}
