//! An open file shared by a parent and its child: one position for both, and each table has its own numbers.
// fault: skip:fd_offsets
#include "workload.h"

static int shared, closed_in_child;
static struct child child;

static long answer(long question) {
    switch (question) {
    case -1: return lseek(shared, 0, SEEK_CUR);
    case -2: return fcntl(closed_in_child, F_GETFD);
    case -3: return lseek(shared, 100, SEEK_CUR);
    case -4: return close(closed_in_child);
    default: return lseek(shared, question, SEEK_SET);
    }
}
static void setup(void) {
    long reply;
    write_file("shared", 1, 20000);
    shared = MUST(open("shared", O_RDWR));
    closed_in_child = MUST(open("shared", O_RDONLY));
    child_start(&child, answer);
    ask_child(&child, -4, &reply);
    MUST(lseek(shared, 700, SEEK_SET));
}
static void check(void) {
    long reply;
    WANT_EQ("position in the parent", 700, lseek(shared, 0, SEEK_CUR));
    WANT("the child answers", ask_child(&child, -1, &reply));
    WANT_EQ("position in the child", 700, reply);
    WANT("the child answers", ask_child(&child, -2, &reply));
    WANT_EQ("what the child had closed", -1, reply);
    WANT("it is open in the parent", fcntl(closed_in_child, F_GETFD) >= 0);
    WANT("the child answers", ask_child(&child, -3, &reply));
    WANT_EQ("the parent moves with the child", 800, lseek(shared, 0, SEEK_CUR));
    lseek(shared, 700, SEEK_SET);
}
static void disturb(int round) {
    long reply;
    ask_child(&child, 4000 + round, &reply);
    if (round % 2 == 0) close(closed_in_child);
}
