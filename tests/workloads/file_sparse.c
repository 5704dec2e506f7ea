//! A sparse file: its length, its data, its holes; holes filled and data punched out since.
// fault: skip:files.sparse
#include "workload.h"

#define MIB (1l << 20)
static int fd;

static void put(unsigned seed, off_t at, size_t length) {
    unsigned char *bytes = malloc(length);
    fill(bytes, seed, at, length);
    if (pwrite(fd, bytes, length, at) != (ssize_t)length) DIE("pwrite");
    free(bytes);
}
static void setup(void) {
    fd = MUST(open("sparse", O_RDWR | O_CREAT, 0644));
    MUST(ftruncate(fd, 64 * MIB));
    put(1, 8 * MIB, 65536);
    put(1, 40 * MIB, 65536);
    MUST(fsync(fd));
}
static void check(void) {
    static unsigned char bytes[65536];
    struct stat status;
    WANT_CALL(fstat(fd, &status));
    WANT_EQ("length", 64 * MIB, status.st_size);
    for (int i = 0; i < 2; i++) {
        WANT_EQ("bytes of data", 65536, pread(fd, bytes, sizeof bytes, i ? 40 * MIB : 8 * MIB));
        WANT_CONTENT("data", 1, i ? 40 * MIB : 8 * MIB, bytes, sizeof bytes);
    }
    for (off_t at = 9 * MIB; at < 40 * MIB; at += 3 * MIB) {
        WANT_EQ("bytes of a hole", 4096, pread(fd, bytes, 4096, at));
        for (int k = 0; k < 4096; k++) WANT_EQ("a byte of a hole", 0, bytes[k]);
    }
    // A hole is a hole: far less is stored than the file is long.
    WANT_BETWEEN("bytes stored", 2 * 65536, 3 * MIB, status.st_blocks * 512l);
    WANT_EQ("where data begins", 8 * MIB, lseek(fd, 0, SEEK_DATA));
}
static void disturb(int round) {
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 * MIB, 65536) && errno != EOPNOTSUPP)
        DIE("fallocate: %s", strerror(errno));
    put(20 + round, (9 + 3 * round) * MIB, 5 * MIB);
    if (round % 2 == 0) MUST(ftruncate(fd, 80 * MIB));
    MUST(fsync(fd));
}
