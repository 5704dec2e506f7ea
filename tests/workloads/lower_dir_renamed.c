//! A directory of the lower layer, renamed since: back under its name, complete; the other name is gone.
// fault: skip:files.rename
#include "tree.h"

static uint64_t wanted;
static long wanted_entries;

static void setup(void) {
    wanted = tree_digest(lower_dir);
    wanted_entries = tree_entries;
    if (wanted_entries < 100) DIE("%s is no large directory", lower_dir);
}
static const char *renamed(int round) {
    static char name[4096];
    snprintf(name, sizeof name, "%s-renamed-%d", lower_dir, round);
    return name;
}
static void check(void) {
    WANTS(want_tree(lower_dir, wanted, wanted_entries));
    for (int round = 1; round < 4; round++) WANT_EQ("the other name", -1, access(renamed(round), F_OK));
    // It can be renamed and renamed back.
    WANT_CALL(rename(lower_dir, renamed(9)));
    WANT_CALL(rename(renamed(9), lower_dir));
}
static void disturb(int round) {
    if (access(lower_dir, F_OK)) return;
    MUST(rename(lower_dir, renamed(round)));
    if (round % 2 == 0) {
        char path[5000];
        MUST(mkdir(lower_dir, 0700)); // another directory in its place
        snprintf(path, sizeof path, "%s/new", lower_dir);
        write_file(path, 1, 100);
    }
}
