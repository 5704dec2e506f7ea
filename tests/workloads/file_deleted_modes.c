//! A file deleted but open: its permissions and times; one that was closed since is made again with them.
// fault: skip:ghosts
#include "workload.h"

static int held, closed;
static struct timespec then = {1000000000, 123456789};

static int ghost(const char *name, mode_t mode) {
    write_file(name, 1, 3000);
    int fd = MUST(open(name, O_RDWR));
    MUST(unlink(name));
    MUST(fchmod(fd, mode));
    struct timespec times[2] = {{0, UTIME_OMIT}, then};
    MUST(futimens(fd, times));
    return fd;
}
static void setup(void) {
    held = ghost("held", 0640);
    closed = ghost("closed", 04751);
}
static void want(int fd, mode_t mode) {
    struct stat status;
    WANT_CALL(fstat(fd, &status));
    WANT_EQ("permissions", mode, status.st_mode & 07777);
    WANT_EQ("user", getuid(), status.st_uid);
    WANT_EQ("names", 0, status.st_nlink);
    WANT_EQ("seconds", then.tv_sec, status.st_mtim.tv_sec);
    WANT_EQ("nanoseconds", then.tv_nsec, status.st_mtim.tv_nsec);
}
static void check(void) {
    WANTS(want(held, 0640));
    WANTS(want(closed, 04751));
}
static void disturb(int round) {
    MUST(fchmod(held, round % 2 ? 0400 : 0777));
    if (pwrite(held, "x", 1, 5) != 1) DIE("pwrite");
    TRY(close(closed));
}
