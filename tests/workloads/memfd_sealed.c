//! Memfds that were filled and sealed, closed since and so made again: their bytes, that nobody can write to the one, and
//! that the other can still be written and not be run.
// fault: skip:seals
#include "workload.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK)
#define LENGTH 9000
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
static int fd, plain;

static void setup(void) {
    unsigned char bytes[LENGTH];
    fd = MUST(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    fill(bytes, 1, 0, LENGTH);
    MUST(write(fd, bytes, LENGTH));
    MUST(fcntl(fd, F_ADD_SEALS, SEALS));
    plain = MUST(memfd_create("plain", MFD_CLOEXEC | MFD_NOEXEC_SEAL));
    MUST(write(plain, bytes, LENGTH));
}
static void check(void) {
    unsigned char bytes[LENGTH];
    WANT_EQ("size", LENGTH, pread(fd, bytes, LENGTH, 0));
    WANT_CONTENT("content", 1, 0, bytes, LENGTH);
    WANT_EQ("seals", SEALS, fcntl(fd, F_GET_SEALS));
    WANT_EQ("a write", -1, pwrite(fd, "x", 1, 0));
    struct stat status;
    WANT_CALL(fstat(plain, &status));
    WANT_EQ("permissions", 0666, status.st_mode & 07777);
    WANT_EQ("the seal of what cannot be run", F_SEAL_EXEC, fcntl(plain, F_GET_SEALS));
    WANT_EQ("a write to it", 1, pwrite(plain, "x", 1, LENGTH));
}
static void disturb(int round) {
    (void)round;
    TRY(close(fd));
    TRY(close(plain));
}
