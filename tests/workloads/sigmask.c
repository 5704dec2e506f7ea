//! Signal masks, of the main thread and of others, each its own.
// fault: skip:sigmask
#include "workload.h"

static struct worker worker;
static const int own[2][3] = {{SIGUSR1, SIGCHLD, 40}, {SIGUSR2, SIGTERM, 63}};

static void block(const int *numbers, int extra) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 3; i++) sigaddset(&set, numbers[i]);
    if (extra) sigaddset(&set, extra);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
}
static long answer(struct worker *w, long question) {
    (void)w;
    if (question) block(own[1], question - 1);
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return *(long *)&set;
}
static unsigned long long bits(const int *numbers) {
    return 1ull << (numbers[0] - 1) | 1ull << (numbers[1] - 1) | 1ull << (numbers[2] - 1);
}
static void setup(void) {
    long reply;
    worker_start(&worker, answer);
    ask(&worker, 1, &reply);
    block(own[0], 0);
}
static void check(void) {
    sigset_t set;
    long reply;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    WANT_HEX("mask of the main thread", bits(own[0]), *(long *)&set);
    WANT("the thread answers", ask(&worker, 0, &reply));
    WANT_HEX("mask of the other thread", bits(own[1]), reply);
    WANT_HEX("mask in /proc", bits(own[1]), status_hex(worker.tid, "SigBlk"));
}
static void disturb(int round) {
    long reply;
    block(round % 2 ? own[1] : own[0], SIGWINCH + round % 3);
    ask(&worker, 1 + SIGURG + round % 3, &reply);
}
