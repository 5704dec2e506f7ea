//! /tmp is part of the root: files in it go back like all others.
// fault: skip:files.content
#include "workload.h"

static char path[64], other[64];
static void clean(void) { unlink(path), unlink(other); }
static void setup(void) {
    at_end = clean;
    snprintf(path, sizeof path, "/tmp/workload-%d", getpid());
    snprintf(other, sizeof other, "/tmp/workload-%d-new", getpid());
    write_file(path, 1, 6000);
}
static void check(void) {
    WANT_FILE(path, 1, 6000);
    WANT_EQ("the file made since", -1, access(other, F_OK));
}
static void disturb(int round) {
    write_file(path, 30 + round, 6000);
    write_file(other, 2, 100);
}
