//! Extended attributes of files and directories: set, changed and removed since.
// fault: skip:files.xattr
#include "workload.h"

static void setup(void) {
    write_file("file", 1, 100);
    MUST(mkdir("directory", 0755));
    if (setxattr("file", "user.kept", "value one", 9, 0)) {
        if (errno == EOPNOTSUPP) SKIP("no user extended attributes on this file system");
        DIE("setxattr: %s", strerror(errno));
    }
    MUST(setxattr("file", "user.second", "2", 1, 0));
    MUST(setxattr("directory", "user.of-a-directory", "", 0, 0));
}
static void check(void) {
    char value[100] = {0}, names[500];
    WANT_EQ("length of user.kept", 9, getxattr("file", "user.kept", value, sizeof value));
    WANT_STR("user.kept", "value one", value);
    WANT_EQ("length of user.second", 1, getxattr("file", "user.second", value, sizeof value));
    WANT_EQ("length of user.of-a-directory", 0, getxattr("directory", "user.of-a-directory", value, sizeof value));
    int users = 0;
    ssize_t got = WANT_CALL(listxattr("file", names, sizeof names));
    for (ssize_t at = 0; at < got; at += strlen(names + at) + 1) users += !strncmp(names + at, "user.", 5);
    WANT_EQ("user attributes of the file", 2, users);
}
static void disturb(int round) {
    TRY(setxattr("file", "user.kept", "another", 3 + round % 3, 0));
    TRY(removexattr("file", "user.second"));
    TRY(setxattr("file", "user.new", "new", 3, 0));
    if (round % 2) TRY(removexattr("directory", "user.of-a-directory"));
}
