//! Contents of files small and large, overwritten since in place, in part and whole; inode and open descriptor stay.
// fault: skip:files.content
#include "workload.h"

static const size_t lengths[] = {1, 4096, 5000, 300000, 3 << 20};
static const char *const names[] = {"one", "page", "small", "large", "huge"};
static ino_t inodes[5];
static int fds[5];

static void setup(void) {
    for (int i = 0; i < 5; i++) {
        struct stat status;
        write_file(names[i], i, lengths[i]);
        MUST(stat(names[i], &status));
        inodes[i] = status.st_ino;
        fds[i] = MUST(open(names[i], O_RDWR));
    }
}
static void check(void) {
    for (int i = 0; i < 5; i++) {
        struct stat status;
        unsigned char byte = 0;
        WANT_FILE(names[i], i, lengths[i]);
        WANT_CALL(stat(names[i], &status));
        WANT_EQ("inode of a file", inodes[i], status.st_ino);
        WANT_EQ("a byte by the old descriptor", 1, pread(fds[i], &byte, 1, lengths[i] - 1));
        WANT_EQ("the last byte", byte_at(i, lengths[i] - 1), byte);
    }
}
static void disturb(int round) {
    for (int i = 0; i < 5; i++) {
        if ((i + round) % 3 == 0) write_file(names[i], 50 + round, lengths[i]);
        else if (pwrite(fds[i], "changed!", 8, lengths[i] / 2) != 8) DIE("pwrite");
    }
}
