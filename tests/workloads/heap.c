//! Allocated blocks of many sizes: their bytes, and that the allocator's own records still fit them.
// fault: skip:pages
#include "workload.h"

#define BLOCKS 600
static unsigned char *blocks[BLOCKS];
static size_t size_of(int i) { return 16 + (size_t)i * 37 % 5000; }

static void setup(void) {
    for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = malloc(size_of(i)), i, 0, size_of(i));
}
static void check(void) {
    for (int i = 0; i < BLOCKS; i++) WANT_CONTENT("a block of the heap", i, 0, blocks[i], size_of(i));
    // Frees and allocates a third of them: a torn allocator aborts here.
    for (int i = 0; i < BLOCKS; i += 3) free(blocks[i]);
    for (int i = 0; i < BLOCKS; i += 3) fill(blocks[i] = malloc(size_of(i)), i, 0, size_of(i));
}
static void disturb(int round) {
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 4 == round % 4) {
            free(blocks[i]);
            blocks[i] = malloc(size_of(i) + 100000 * (i % 8 == 0));
        }
        fill(blocks[i], 1000 * round + i, 0, size_of(i));
    }
}
