//! The file creation mask, of the process and of its child.
// fault: skip:umask
#include "workload.h"

static struct child child;

static long answer(long question) {
    if (question) return umask((mode_t)question);
    mode_t now = umask(0);
    umask(now);
    return now;
}
static void setup(void) {
    long reply;
    child_start(&child, answer);
    ask_child(&child, 0051, &reply);
    umask(0137);
}
static void check(void) {
    long reply;
    struct stat status;
    WANT_EQ("umask", 0137, answer(0));
    close(WANT_CALL(open("made", O_CREAT | O_WRONLY, 0777)));
    WANT_CALL(stat("made", &status));
    WANT_CALL(unlink("made"));
    WANT_EQ("mode of a new file", 0640, status.st_mode & 0777);
    WANT("the child answers", ask_child(&child, 0, &reply));
    WANT_EQ("umask of the child", 0051, reply);
}
static void disturb(int round) {
    long reply;
    umask(round);
    ask_child(&child, 0070 + round, &reply);
}
