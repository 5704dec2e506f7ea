//! Modes of files and directories, with set-id and sticky bits.
// fault: skip:files.mode
#include "workload.h"

static const mode_t modes[] = {0644, 0000, 04755, 02711, 0777, 0400};
static char name[32];
static const char *file(int i) { return snprintf(name, sizeof name, "file-%d", i), name; }

static void setup(void) {
    for (size_t i = 0; i < COUNT(modes); i++) {
        write_file(file(i), i, 10);
        MUST(chmod(file(i), modes[i]));
    }
    MUST(mkdir("directory", 0755));
    MUST(chmod("directory", 01770));
}
static void check(void) {
    struct stat status;
    for (size_t i = 0; i < COUNT(modes); i++) {
        WANT_CALL(stat(file(i), &status));
        WANT_EQ("mode of a file", modes[i], status.st_mode & 07777);
    }
    WANT_CALL(stat("directory", &status));
    WANT_EQ("mode of the directory", 01770, status.st_mode & 07777);
}
static void disturb(int round) {
    for (size_t i = 0; i < COUNT(modes); i++) MUST(chmod(file(i), modes[(i + round) % COUNT(modes)]));
    MUST(chmod("directory", 0700 + round));
}
