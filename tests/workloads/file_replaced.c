//! A file and a directory that others removed and made again: who held them is on those that the names mean. One process
//! sleeps through it; the other closes its file, and a new file of another name may get the number of its inode.
// fault: skip:fds
#include "workload.h"

static struct child sleeper;
static int own;

// What is written through the descriptor is read by the name, and the other way round.
static bool is_file(int fd, const char *path) {
    struct stat here, named;
    char byte, other;
    if (fstat(fd, &here) || stat(path, &named) || here.st_ino != named.st_ino || here.st_dev != named.st_dev) return false;
    int by_name = open(path, O_RDWR | O_CLOEXEC);
    bool same = pread(by_name, &byte, 1, 10) == 1;
    for (int i = 0; same && i < 2; i++) {
        byte ^= 1;
        same = pwrite(i ? by_name : fd, &byte, 1, 10) == 1 && pread(i ? fd : by_name, &other, 1, 10) == 1 && other == byte;
    }
    close(by_name);
    return same;
}
static long answer(long question) {
    static int fd;
    struct stat here, named;
    if (question == 1) {
        fd = open("held", O_RDWR | O_CLOEXEC);
        return fd < 0 || chdir("inside");
    }
    if (!is_file(fd, "../held")) return 1;
    if (stat(".", &here) || stat("../inside", &named) || here.st_ino != named.st_ino) return 2;
    int made = open("made", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (made < 0 || access("../inside/made", F_OK) || unlink("../inside/made")) return 3;
    return close(made);
}
static void setup(void) {
    long reply;
    write_file("held", 1, 5000);
    write_file("own", 2, 6000);
    MUST(mkdir("inside", 0755));
    write_file("inside/witness", 3, 10);
    child_start(&sleeper, answer);
    if (!ask_child(&sleeper, 1, &reply) || reply) DIE("the child cannot hold what it should");
    own = MUST(open("own", O_RDWR));
    MUST(lseek(own, 77, SEEK_SET));
}
static void check(void) {
    long reply;
    WANT_FILE("held", 1, 5000);
    WANT_FILE("own", 2, 6000);
    WANT_FILE("inside/witness", 3, 10);
    WANT_EQ("a file of the undone time", -1, access("unlike", F_OK));
    WANT_EQ("position", 77, lseek(own, 0, SEEK_CUR));
    WANT("the descriptor is on the file of its name", is_file(own, "own"));
    WANT("the child answers", ask_child(&sleeper, 2, &reply));
    WANT_EQ("the child's file (1) and directory (2, 3)", 0, reply);
    WANT_FILE("held", 1, 5000);
    WANT_FILE("own", 2, 6000);
}
static void disturb(int round) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf held inside; echo other %d >held; mkdir inside; echo >inside/other", round);
    int status = system(command);
    if (status) DIE("the shell ended with %d", status);
    close(own);
    TRY(unlink("own"));
    write_file("unlike", 20 + round, 500);
    int fd = MUST(open(round % 2 ? "unlike" : "held", O_RDWR));
    if (fd != own) DIE("wanted descriptor %d, got %d", own, fd);
    MUST(lseek(own, 33, SEEK_SET));
}
