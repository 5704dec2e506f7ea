//! An open directory: the place in its listing, and that the same directory is meant.
// fault: skip:fd_offsets
#include "workload.h"

#define ENTRIES 200
static int fd;
static char rest[2048]; // what a listing gives next after setup, as names

static void next_names(char *names, size_t capacity) {
    char buffer[1024];
    off_t here = lseek(fd, 0, SEEK_CUR);
    long got = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
    lseek(fd, here, SEEK_SET);
    names[0] = 0;
    for (long at = 0; at < got; at += *(unsigned short *)(buffer + at + 16)) {
        if (strlen(names) + strlen(buffer + at + 19) + 2 > capacity) break;
        strcat(strcat(names, buffer + at + 19), " ");
    }
}
static void setup(void) {
    char name[64], buffer[2000];
    MUST(mkdir("listed", 0755));
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(name, sizeof name, "listed/entry-%d", i);
        write_file(name, i, 10);
    }
    fd = MUST(open("listed", O_RDONLY | O_DIRECTORY));
    MUST(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
    next_names(rest, sizeof rest);
}
static void check(void) {
    char now[2048];
    struct stat here, named;
    next_names(now, sizeof now);
    WANT_STR("next names of the listing", rest, now);
    WANT_CALL(fstat(fd, &here));
    WANT_CALL(stat("listed", &named));
    WANT_EQ("inode by descriptor and by name", named.st_ino, here.st_ino);
    int file = WANT_CALL(openat(fd, "entry-7", O_RDONLY));
    close(file);
}
static void disturb(int round) {
    char buffer[3000];
    if (round % 2) MUST(syscall(SYS_getdents64, fd, buffer, 1000 + 500 * round));
    else MUST(lseek(fd, 0, SEEK_SET));
}
