//! Files cut, emptied or stretched since.
// fault: skip:files.content
#include "workload.h"

static const char *const names[] = {"cut", "emptied", "stretched"};
static void setup(void) {
    for (int i = 0; i < 3; i++) write_file(names[i], i, 20000);
}
static void check(void) {
    for (int i = 0; i < 3; i++) WANT_FILE(names[i], i, 20000);
}
static void disturb(int round) {
    MUST(truncate(names[round % 3], 100 * round));
    close(MUST(open(names[(round + 1) % 3], O_WRONLY | O_TRUNC)));
    MUST(truncate(names[(round + 2) % 3], 90000));
}
