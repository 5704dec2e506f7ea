//! A tree of processes (three children, each with a child): memory, descriptors, directory, mask of each go back.
// fault: skip:pages
#include "workload.h"

static struct child children[3], grandchild;
static int self; // which child this process is: 1..3; 11..13 for their children
static unsigned char state[20 * PAGE];
static int file;

static void enter(int number) {
    char name[32];
    self = number;
    fill(state, number, 0, sizeof state);
    snprintf(name, sizeof name, "own-%d", number);
    MUST(mkdir(name, 0755));
    MUST(chdir(name));
    write_file("state", number, 5000);
    file = MUST(open("state", O_RDONLY));
    MUST(lseek(file, number * 10, SEEK_SET));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, 40 + number);
    sigprocmask(SIG_SETMASK, &set, NULL);
}
// 0 right; else 100 * the process + what is wrong.
static long inspect(void) {
    unsigned char bytes[100];
    char directory[4096];
    sigset_t set;
    char *last = getcwd(directory, sizeof directory) ? strrchr(directory, '-') : NULL;
    sigprocmask(SIG_SETMASK, NULL, &set);
    long wrong = 0;
    if (differs_at(self, 0, state, sizeof state) >= 0) wrong = 1;
    else if (lseek(file, 0, SEEK_CUR) != self * 10) wrong = 2;
    else if (pread(file, bytes, 100, 50) != 100 || differs_at(self, 50, bytes, 100) >= 0) wrong = 3;
    else if (!last || atoi(last + 1) != self) wrong = 4;
    else if (!sigismember(&set, 40 + self)) wrong = 5;
    return wrong ? self * 100 + wrong : 0;
}
static void mess(int round) {
    fill(state, 50 + round, 0, sizeof state / 2);
    lseek(file, round, SEEK_SET);
    MUST(chdir(round % 2 ? "/" : "/tmp"));
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
}
static long answer(long question) {
    long reply;
    if (question > 1000) {
        enter((int)question - 1000);
        return 0;
    }
    if (question > 0) mess((int)question);
    return question == 0 ? inspect() : (reply = 0);
}
static long answer_parent(long question) {
    long reply = 0, below = 0;
    if (question > 1000) {
        child_start(&grandchild, answer);
        enter((int)question - 1000);
        if (!ask_child(&grandchild, question + 10, &reply)) return -1;
        return reply;
    }
    if (!ask_child(&grandchild, question, &below)) return 99;
    reply = answer(question);
    return reply ? reply : below;
}
static void setup(void) {
    long reply;
    for (int i = 0; i < 3; i++) {
        child_start(&children[i], answer_parent);
        if (!ask_child(&children[i], 1001 + i, &reply) || reply) DIE("a child does not answer");
    }
}
static void check(void) {
    static const char *const parts[] = {"", "memory", "position of its file", "its file", "its directory", "its mask"};
    for (int i = 0; i < 3; i++) {
        long reply = -1;
        WANT("a child answers", ask_child(&children[i], 0, &reply));
        if (reply % 100 > 5) FAILED("child %d: its child does not answer", i);
        if (reply) FAILED("process %ld: %s: wanted as set up, got another", reply / 100, parts[reply % 100]);
    }
}
static void disturb(int round) {
    long reply;
    for (int i = 0; i < 3; i++)
        if ((i + round) % 3 && !ask_child(&children[i], round, &reply)) DIE("a child does not answer");
}
