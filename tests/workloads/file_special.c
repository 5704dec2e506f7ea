//! Special files: named pipes and socket files; replaced, removed and made since.
// fault: skip:files.special
#include "workload.h"

static void setup(void) {
    MUST(mkfifo("pipe", 0640));
    MUST(mkfifo("pipe-removed", 0600));
    MUST(mknod("socket", S_IFSOCK | 0755, 0));
}
static void want_kind(const char *path, mode_t mode) {
    struct stat status;
    WANT_CALL(lstat(path, &status));
    WANT_EQ(path, mode, status.st_mode);
}
static void check(void) {
    WANTS(want_kind("pipe", S_IFIFO | 0640));
    WANTS(want_kind("pipe-removed", S_IFIFO | 0600));
    WANTS(want_kind("socket", S_IFSOCK | 0755));
    WANT_EQ("entries", 3, count_entries("."));
    int fd = WANT_CALL(open("pipe", O_RDWR | O_NONBLOCK));
    ssize_t done = write(fd, "x", 1);
    close(fd);
    WANT_EQ("the pipe carries bytes", 1, done);
}
static void disturb(int round) {
    TRY(unlink("pipe-removed"));
    TRY(unlink("pipe"));
    if (round % 2) write_file("pipe", 1, 10);
    else TRY(mknod("pipe", S_IFSOCK | 0640, 0));
    TRY(mkfifo("pipe-new", 0600));
    TRY(unlink("socket"));
}
