//! Files and directories made since are gone, and their names are free.
// fault: skip:files.delete
#include "workload.h"

static void setup(void) {
    MUST(mkdir("directory", 0755));
    write_file("directory/resident", 1, 100);
}
static void check(void) {
    WANT_EQ("entries of the top", 1, count_entries("."));
    WANT_EQ("entries of the directory", 1, count_entries("directory"));
    WANT_FILE("directory/resident", 1, 100);
    errno = 0;
    WANT_EQ("a file made since", -1, access("new-1", F_OK));
    WANT_EQ("its errno", ENOENT, errno);
    int fd = WANT_CALL(open("new-1", O_CREAT | O_EXCL | O_WRONLY, 0644));
    close(fd);
    WANT_CALL(unlink("new-1"));
}
static void disturb(int round) {
    char name[64];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%snew-%d", i % 2 ? "" : "directory/", i * round);
        write_file(name, round, 1000);
    }
    snprintf(name, sizeof name, "deep-%d", round);
    TRY(mkdir(name, 0755));
    TRY(chdir(name));
    TRY(mkdir("deeper", 0755));
    write_file("deeper/file", 1, 10);
    TRY(chdir(".."));
}
