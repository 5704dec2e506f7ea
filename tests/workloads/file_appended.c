//! Files that grew since: a log that was appended to, again and again, ends where it ended.
// fault: skip:files.content
#include "workload.h"

static int fd;
static void append(unsigned seed, size_t from, size_t length) {
    char bytes[1000];
    fill(bytes, seed, from, length);
    if (write(fd, bytes, length) != (ssize_t)length) DIE("write");
}
static void setup(void) {
    fd = MUST(open("log", O_WRONLY | O_CREAT | O_APPEND, 0644));
    for (int i = 0; i < 20; i++) append(1, i * 700, 700);
}
static void check(void) {
    WANT_FILE("log", 1, 14000);
    append(1, 14000, 100);
    WANT_FILE("log", 1, 14100);
    MUST(truncate("log", 14000));
}
static void disturb(int round) {
    for (int i = 0; i < 10 * round; i++) append(7, i * 700, 700);
}
