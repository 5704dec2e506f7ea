//! A directory of the lower layer removed since, with all that is in it (rm -rf): complete again, with times and modes.
// fault: skip:files.lowerdir
#include "tree.h"

static uint64_t wanted;
static long wanted_entries;

static void setup(void) {
    wanted = tree_digest(lower_dir);
    wanted_entries = tree_entries;
    if (wanted_entries < 100) DIE("%s is no large directory", lower_dir);
}
static void check(void) { WANTS(want_tree(lower_dir, wanted, wanted_entries)); }
static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    return remove(path);
}
static void disturb(int round) {
    nftw(lower_dir, remove_one, 40, FTW_PHYS | FTW_DEPTH);
    if (round % 2 == 0) write_file(lower_dir, 1, 1000); // a file in its place
    else if (round > 2) MUST(mkdir(lower_dir, 0755));
}
