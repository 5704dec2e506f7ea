//! The current directory, of the process and of its child; also when it was renamed since.
// fault: skip:cwd
#include "workload.h"

static struct child child;
static char wanted[4096];

static long answer(long question) {
    char now[4096];
    if (question == 1) return chdir("inner");
    if (question > 1) return chdir("/");
    char *last = getcwd(now, sizeof now) ? strrchr(now, '/') : NULL;
    return last && !strcmp(last, "/inner") && access("witness", F_OK) == 0;
}
static void setup(void) {
    long reply;
    MUST(mkdir("outer", 0755));
    MUST(chdir("outer"));
    MUST(mkdir("inner", 0755));
    write_file("witness", 1, 10);
    write_file("inner/witness", 2, 10);
    if (!getcwd(wanted, sizeof wanted)) DIE("getcwd");
    child_start(&child, answer);
    if (!ask_child(&child, 1, &reply) || reply) DIE("the child cannot change its directory");
}
static void check(void) {
    char now[4096];
    long reply;
    WANT("getcwd", getcwd(now, sizeof now));
    WANT_STR("current directory", wanted, now);
    WANT_FILE("witness", 1, 10);
    WANT("the child answers", ask_child(&child, 0, &reply));
    WANT_EQ("the child is in its directory", 1, reply);
}
static void disturb(int round) {
    long reply;
    ask_child(&child, 2, &reply);
    if (round % 2) {
        MUST(chdir("/tmp"));
    } else {
        char renamed[4200];
        snprintf(renamed, sizeof renamed, "%s-renamed", wanted);
        MUST(rename(wanted, renamed));
        MUST(chdir("/"));
    }
}
