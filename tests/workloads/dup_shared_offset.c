//! Which descriptors share one open file (dup) and which only its path: dup'd, closed and reopened since.
// fault: skip:fds
#include "workload.h"

static int first, copy, other;

static void setup(void) {
    write_file("file", 1, 9000);
    first = MUST(open("file", O_RDWR));
    copy = MUST(dup(first));
    other = MUST(open("file", O_RDWR));
    MUST(lseek(first, 300, SEEK_SET));
    MUST(lseek(other, 400, SEEK_SET));
}
static void check(void) {
    WANT_EQ("position of the first", 300, lseek(first, 0, SEEK_CUR));
    WANT_EQ("position of its copy", 300, lseek(copy, 0, SEEK_CUR));
    WANT_EQ("position of the other", 400, lseek(other, 0, SEEK_CUR));
    lseek(copy, 350, SEEK_SET);
    off_t first_now = lseek(first, 0, SEEK_CUR), other_now = lseek(other, 0, SEEK_CUR);
    lseek(copy, 300, SEEK_SET);
    WANT_EQ("the first moves with its copy", 350, first_now);
    WANT_EQ("the other does not", 400, other_now);
}
static void disturb(int round) {
    // The same numbers, the same path, the same positions; only the sharing is another.
    if (round % 2) {
        int alone = MUST(open("file", O_RDWR));
        MUST(lseek(alone, 300, SEEK_SET));
        MUST(dup2(alone, copy));
        close(alone);
    } else {
        MUST(dup2(first, other));
    }
}
