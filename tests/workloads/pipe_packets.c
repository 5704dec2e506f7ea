//! A pipe in packet mode (O_DIRECT): the bounds of its packets, not only their bytes.
// fault: skip:pipes
#include "pipes.h"

static int ends[2];
static const int lengths[] = {10, 300, 1, 4000, 77};

static void send_all(void) {
    for (size_t i = 0; i < COUNT(lengths); i++) put(ends[1], i, 0, lengths[i]);
}
static void setup(void) {
    MUST(pipe2(ends, O_DIRECT | O_NONBLOCK));
    send_all();
}
static void check(void) {
    unsigned char bytes[8192];
    WANT_HEX("packet mode", O_DIRECT, fcntl(ends[1], F_GETFL) & O_DIRECT);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        WANT_EQ("length of a packet", lengths[i], read(ends[0], bytes, sizeof bytes));
        WANT_CONTENT("a packet", i, 0, bytes, lengths[i]);
    }
    WANT_EQ("nothing after them", -1, read(ends[0], bytes, sizeof bytes));
    send_all();
}
static void disturb(int round) {
    char bytes[8192];
    for (int i = 0; i < round; i++)
        if (read(ends[0], bytes, sizeof bytes) < 0) DIE("read");
    put(ends[1], 60, 0, 5);
    put(ends[1], 61, 0, 6);
}
