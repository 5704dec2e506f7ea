//! A memfd that was filled and sealed, closed since and so made again: its bytes, and that nobody can write to it.
// fault: skip:seals
#include "workload.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK)
#define LENGTH 9000
static int fd;

static void setup(void) {
    unsigned char bytes[LENGTH];
    fd = MUST(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    fill(bytes, 1, 0, LENGTH);
    MUST(write(fd, bytes, LENGTH));
    MUST(fcntl(fd, F_ADD_SEALS, SEALS));
}
static void check(void) {
    unsigned char bytes[LENGTH];
    WANT_EQ("size", LENGTH, pread(fd, bytes, LENGTH, 0));
    WANT_CONTENT("content", 1, 0, bytes, LENGTH);
    WANT_EQ("seals", SEALS, fcntl(fd, F_GET_SEALS));
    WANT_EQ("a write", -1, pwrite(fd, "x", 1, 0));
}
static void disturb(int round) {
    (void)round;
    TRY(close(fd));
}
