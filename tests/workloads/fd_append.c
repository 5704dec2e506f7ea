//! O_APPEND of an open file, taken away or put on since: writes go where they went.
// fault: skip:fd_flags
#include "workload.h"

static int appending, placing;

static void setup(void) {
    write_file("appended", 1, 1000);
    write_file("placed", 1, 1000);
    appending = MUST(open("appended", O_RDWR | O_APPEND));
    placing = MUST(open("placed", O_RDWR));
}
static void check(void) {
    unsigned char next = byte_at(1, 1000);
    WANT_HEX("O_APPEND of the one", O_APPEND, fcntl(appending, F_GETFL) & O_APPEND);
    WANT_HEX("O_APPEND of the other", 0, fcntl(placing, F_GETFL) & O_APPEND);
    WANT_FILE("appended", 1, 1000);
    WANT_CALL(lseek(appending, 0, SEEK_SET));
    WANT_EQ("bytes appended", 1, write(appending, &next, 1));
    WANT_FILE("appended", 1, 1001);
    WANT_CALL(ftruncate(appending, 1000));
    next = byte_at(1, 0);
    WANT_CALL(lseek(placing, 0, SEEK_SET));
    WANT_EQ("bytes placed", 1, write(placing, &next, 1));
    WANT_FILE("placed", 1, 1000);
    lseek(placing, 0, SEEK_SET);
    lseek(appending, 0, SEEK_SET);
}
static void disturb(int round) {
    if (round % 2) MUST(fcntl(appending, F_SETFL, 0));
    MUST(fcntl(placing, F_SETFL, O_APPEND));
    if (write(placing, "more", 3 + round % 2) < 0) DIE("write");
}
