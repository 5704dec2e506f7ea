//! Positions of regular files, of each descriptor its own.
// fault: skip:fd_offsets
#include "workload.h"

#define FILES 6
static int fds[FILES];

static void setup(void) {
    write_file("file", 1, 50000);
    for (int i = 0; i < FILES; i++) {
        fds[i] = MUST(open("file", i % 2 ? O_RDWR : O_RDONLY));
        MUST(lseek(fds[i], 1000 * i + 7, SEEK_SET));
    }
    MUST(lseek(fds[5], 5000000000, SEEK_SET)); // beyond the end, beyond 4 GiB
}
static void check(void) {
    unsigned char bytes[500];
    for (int i = 0; i < FILES; i++) {
        off_t want = i == 5 ? 5000000000 : 1000 * i + 7;
        WANT_EQ("position", want, lseek(fds[i], 0, SEEK_CUR));
        WANT_EQ("bytes read on from it", i == 5 ? 0 : 500, read(fds[i], bytes, 500));
        if (i != 5) WANT_CONTENT("what is read on", 1, want, bytes, 500);
        lseek(fds[i], want, SEEK_SET);
    }
}
static void disturb(int round) {
    unsigned char bytes[100];
    for (int i = 0; i < FILES; i++)
        if ((i + round) % 2) lseek(fds[i], 100 * round + i, SEEK_SET);
        else if (read(fds[i], bytes, 10 * round) < 0) DIE("read");
    lseek(fds[0], 0, SEEK_END);
}
