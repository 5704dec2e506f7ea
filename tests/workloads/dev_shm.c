//! /dev/shm: files and POSIX shared memory in it, mapped and not; written, made and removed since.
// fault: skip:files.shm
#include "workload.h"

static char names[3][64], paths[3][80];
static unsigned char *map;

static void clean(void) {
    for (int i = 0; i < 3; i++) unlink(paths[i]);
}
static void setup(void) {
    at_end = clean;
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "/workload-%d-%d", getpid(), i);
        snprintf(paths[i], sizeof paths[i], "/dev/shm%s", names[i]);
    }
    int fd = MUST(shm_open(names[0], O_RDWR | O_CREAT, 0600));
    MUST(ftruncate(fd, 8 * PAGE));
    map = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fill(map, 1, 0, 8 * PAGE);
    write_file(paths[1], 2, 5000);
}
static void check(void) {
    WANT_CONTENT("the mapping", 1, 0, map, 8 * PAGE);
    WANT_FILE(paths[0], 1, 8 * PAGE);
    WANT_FILE(paths[1], 2, 5000);
    WANT_EQ("what was made since", -1, access(paths[2], F_OK));
    map[3] ^= 1;
    unsigned char byte = 0;
    int fd = WANT_CALL(open(paths[0], O_RDONLY));
    ssize_t got = pread(fd, &byte, 1, 3);
    close(fd);
    map[3] ^= 1;
    WANT_EQ("bytes read", 1, got);
    WANT_EQ("a store through the mapping, in the file of that name", byte_at(1, 3) ^ 1, byte);
}
static void disturb(int round) {
    fill(map + round * PAGE, 20 + round, 0, PAGE);
    if (round % 2) TRY(unlink(paths[1]));
    else write_file(paths[1], 9, 100);
    write_file(paths[2], 3, 3000);
}
