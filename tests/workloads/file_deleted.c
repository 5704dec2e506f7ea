//! Files and directories deleted since are back, with contents and modes.
// fault: skip:files.create
#include "workload.h"

static void setup(void) {
    MUST(mkdir("directory", 0750));
    MUST(mkdir("directory/inner", 0700));
    write_file("directory/inner/file", 1, 5000);
    write_file("directory/file", 2, 50);
    write_file("top", 3, 7000);
    MUST(chmod("top", 0601));
}
static void check(void) {
    struct stat status;
    WANT_FILE("directory/inner/file", 1, 5000);
    WANT_FILE("directory/file", 2, 50);
    WANT_FILE("top", 3, 7000);
    WANT_CALL(stat("top", &status));
    WANT_EQ("mode of the file", 0601, status.st_mode & 07777);
    WANT_CALL(stat("directory/inner", &status));
    WANT_EQ("mode of the directory", 0700, status.st_mode & 07777);
    WANT_EQ("entries", 2, count_entries("directory"));
}
static void disturb(int round) {
    TRY(unlink("top"));
    TRY(unlink("directory/inner/file"));
    if (round % 2) {
        TRY(rmdir("directory/inner"));
        TRY(unlink("directory/file"));
        TRY(rmdir("directory"));
    } else {
        write_file("top", 9, 10); // another file of the same name
    }
}
