//! Data that belongs to a library and to the program itself: libc's generator and environment, .data, .bss, relro.
// fault: skip:pages
#include "workload.h"

static unsigned char own_bss[5 * PAGE];
static unsigned char own_data[5 * PAGE] = {1};
static int one, two;
static int *const volatile relro __attribute__((section(".data.rel.ro.workload"))) = &one;

static void seed_generator(unsigned seed) {
    srandom(seed);
    for (int i = 0; i < 5; i++) random();
}
static void setup(void) {
    fill(own_bss, 1, 0, sizeof own_bss);
    fill(own_data, 2, 0, sizeof own_data);
    setenv("WORKLOAD", "as set up", 1);
    seed_generator(7);
}
static void check(void) {
    static char state[128];
    long next[10];
    for (int i = 0; i < 10; i++) next[i] = random();
    char *old = initstate(7, state, sizeof state);
    seed_generator(7);
    for (int i = 0; i < 10; i++) WANT_EQ("a number of libc's generator", random(), next[i]);
    setstate(old);
    seed_generator(7);
    WANT_CONTENT(".bss", 1, 0, own_bss, sizeof own_bss);
    WANT_CONTENT(".data", 2, 0, own_data, sizeof own_data);
    WANT_HEX("relro", &one, relro);
    WANT("WORKLOAD is set", getenv("WORKLOAD"));
    WANT_STR("WORKLOAD", "as set up", getenv("WORKLOAD"));
}
static void disturb(int round) {
    fill(own_bss, 50 + round, 0, sizeof own_bss);
    fill(own_data + PAGE, 50 + round, 0, 2 * PAGE);
    srandom(99 + round);
    if (round % 2) unsetenv("WORKLOAD");
    else setenv("WORKLOAD", "another", 1);
    void *page = (void *)((uintptr_t)&relro & ~(PAGE - 1));
    MUST(mprotect(page, PAGE, PROT_READ | PROT_WRITE));
    *(int **)(uintptr_t)&relro = &two;
    MUST(mprotect(page, PAGE, PROT_READ));
}
