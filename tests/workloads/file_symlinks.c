//! Symbolic links: their targets, also those that lead nowhere; changed, removed, or made a file since.
// fault: skip:files.symlink
#include "workload.h"

static const char *const links[][2] = {{"relative", "target"}, {"dangling", "no/such/place"}, {"absolute", "/etc/../etc"},
                                       {"looped", "looped"}};
static void setup(void) {
    write_file("target", 1, 100);
    for (size_t i = 0; i < COUNT(links); i++) MUST(symlink(links[i][1], links[i][0]));
}
static void check(void) {
    for (size_t i = 0; i < COUNT(links); i++) {
        char target[256] = {0};
        if (readlink(links[i][0], target, sizeof target - 1) < 0)
            FAILED("link %s: wanted a link to %s, got %s", links[i][0], links[i][1], strerror(errno));
        WANT_STR("target of a link", links[i][1], target);
    }
    WANT_FILE("relative", 1, 100);
    WANT_EQ("entries", 5, count_entries("."));
}
static void disturb(int round) {
    for (size_t i = 0; i < COUNT(links); i++) {
        TRY(unlink(links[i][0]));
        if ((i + round) % 3 == 0) write_file(links[i][0], 1, 100);
        else if ((i + round) % 3 == 1) TRY(symlink("another", links[i][0]));
    }
    TRY(symlink("new", "new-link"));
}
