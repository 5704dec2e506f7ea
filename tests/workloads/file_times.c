//! Access and modification times of files and directories, to the nanosecond.
// fault: skip:files.times
#include "workload.h"

static const char *const names[] = {"file", "written", "directory"};
static struct timespec time_of(int i, int which) {
    return (struct timespec){1000000000 + 77777 * i + which, 123456789 + 1000 * i + which};
}
static void stamp(int i, int shift) {
    struct timespec times[2] = {time_of(i, 0), time_of(i, 1)};
    times[0].tv_sec += shift;
    times[1].tv_sec += shift;
    MUST(utimensat(AT_FDCWD, names[i], times, 0));
}
static void setup(void) {
    write_file("file", 1, 10);
    write_file("written", 2, 10);
    MUST(mkdir("directory", 0755));
    for (int i = 0; i < 3; i++) stamp(i, 0);
}
static void check(void) {
    for (int i = 0; i < 3; i++) {
        struct stat status;
        WANT_CALL(stat(names[i], &status));
        WANT_EQ("modification time, s", time_of(i, 1).tv_sec, status.st_mtim.tv_sec);
        WANT_EQ("modification time, ns", time_of(i, 1).tv_nsec, status.st_mtim.tv_nsec);
        WANT_EQ("access time, s", time_of(i, 0).tv_sec, status.st_atim.tv_sec);
        WANT_EQ("access time, ns", time_of(i, 0).tv_nsec, status.st_atim.tv_nsec);
    }
}
static void disturb(int round) {
    stamp(0, 1000 * round);
    write_file("written", 2, 10); // the same bytes at another time
    write_file("directory/new", 1, 1);
    MUST(unlink("directory/new"));
    if (round % 2 == 0) stamp(2, 5);
}
