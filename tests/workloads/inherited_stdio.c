//! The streams a program inherited: still the same pipes after it put others in their place.
// fault: skip:fds
#include "workload.h"

static ino_t inodes[3];
static int kept;

static ino_t inode(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}
static void setup(void) {
    for (int fd = 0; fd < 3; fd++) inodes[fd] = inode(fd);
    write_file("log", 1, 10);
    kept = MUST(open("log", O_WRONLY | O_APPEND));
}
static void check(void) {
    for (int fd = 0; fd < 3; fd++) WANT_EQ("inode of a standard stream", inodes[fd], inode(fd));
    WANT("standard error can be written", write(2, "", 0) == 0);
}
static void disturb(int round) {
    // 0 and 1 carry this protocol; 2 is replaced.
    if (round % 2) MUST(dup2(kept, 2));
    else close(2);
}
