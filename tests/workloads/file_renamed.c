//! Files and directories renamed since, over others and in a circle: each name means its own file again.
// fault: skip:files.rename
#include "workload.h"

static const char *const names[] = {"a", "b", "c", "directory/d"};

static void setup(void) {
    MUST(mkdir("directory", 0755));
    for (int i = 0; i < 4; i++) {
        write_file(names[i], i, 1000 + i);
    }
}
static void check(void) {
    for (int i = 0; i < 4; i++) {
        WANT_FILE(names[i], i, 1000 + i);
    }
    WANT_EQ("entries of the top", 4, count_entries("."));
    WANT_EQ("entries of the directory", 1, count_entries("directory"));
}
static void disturb(int round) {
    if (round % 2) {
        TRY(rename("a", "spare"));
        TRY(rename("b", "a"));
        TRY(rename("spare", "b"));
        TRY(rename("directory", "elsewhere"));
    } else {
        TRY(rename("a", "c"));
        TRY(rename("directory/d", "a"));
        TRY(rename("b", "directory/b"));
    }
}
