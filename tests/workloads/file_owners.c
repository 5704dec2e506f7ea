//! Owners and groups of files, directories and symbolic links.
// fault: skip:files.owner
#include "workload.h"

static void setup(void) {
    if (geteuid()) SKIP("only root gives files away");
    write_file("file", 1, 100);
    MUST(mkdir("directory", 0755));
    MUST(symlink("file", "link"));
    MUST(chown("file", 33, 44));
    MUST(chown("directory", 1000, 0));
    MUST(lchown("link", 7, 8));
}
static void want_owner(const char *path, uid_t user, gid_t group) {
    struct stat status;
    WANT_CALL(lstat(path, &status));
    WANT_EQ(path, user, status.st_uid);
    WANT_EQ(path, group, status.st_gid);
}
static void check(void) {
    WANTS(want_owner("file", 33, 44));
    WANTS(want_owner("directory", 1000, 0));
    WANTS(want_owner("link", 7, 8));
}
static void disturb(int round) {
    MUST(chown("file", round, 100 + round));
    MUST(chown("directory", 2000 + round, 5));
    if (round % 2) MUST(lchown("link", 70, 80));
}
