//! A file deleted but open: its bytes and its namelessness stay; one deleted since is back, as the same file.
// fault: skip:ghosts
#include "workload.h"

static int ghost, since;
static void setup(void) {
    write_file("ghost", 1, 30000);
    write_file("since", 2, 30000);
    ghost = MUST(open("ghost", O_RDWR));
    since = MUST(open("since", O_RDWR));
    MUST(unlink("ghost"));
    MUST(lseek(ghost, 123, SEEK_SET));
}
static void want_bytes(int fd, unsigned seed) {
    static unsigned char bytes[40000];
    WANT_EQ("bytes of an open file", 30000, pread(fd, bytes, sizeof bytes, 0));
    WANT_CONTENT("an open file", seed, 0, bytes, 30000);
}
static void check(void) {
    struct stat status, named;
    WANTS(want_bytes(ghost, 1));
    WANT_CALL(fstat(ghost, &status));
    WANT_EQ("names of the ghost", 0, status.st_nlink);
    WANT_EQ("its position", 123, lseek(ghost, 0, SEEK_CUR));
    WANT_EQ("its name is free", -1, access("ghost", F_OK));
    WANTS(want_bytes(since, 2));
    WANT_FILE("since", 2, 30000);
    WANT_CALL(fstat(since, &status));
    WANT_CALL(stat("since", &named));
    WANT_EQ("inode by descriptor and by name", named.st_ino, status.st_ino);
}
static void disturb(int round) {
    char bytes[500];
    fill(bytes, 60 + round, 0, sizeof bytes);
    if (pwrite(ghost, bytes, 500, 1000 * round) != 500) DIE("pwrite");
    if (round % 2 == 0) TRY(ftruncate(ghost, 10));
    else write_file("ghost", 9, 9);
    TRY(unlink("since"));
    if (pwrite(since, bytes, 500, 0) != 500) DIE("pwrite");
}
