//! Signals that wait for one thread: neither lost, nor doubled, nor given to another thread.
// fault: skip:pending
#include "workload.h"

static struct worker workers[2];
static const int wanted[2][2] = {{SIGUSR1, 45}, {SIGUSR2, 45}};

static void block_all(void) {
    sigset_t set;
    sigfillset(&set);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
}
static void take_all(void) {
    sigset_t set;
    struct timespec none = {0, 0};
    sigfillset(&set);
    while (sigtimedwait(&set, NULL, &none) > 0) {}
}
static long answer(struct worker *worker, long question) {
    if (question == 1) block_all();
    if (question == 2) take_all();
    if (question == 3)
        for (int i = 0; i < 2; i++) pthread_kill(pthread_self(), wanted[worker - workers][i]);
    if (question > 10) pthread_kill(pthread_self(), (int)question);
    return 0;
}
static void setup(void) {
    long reply;
    block_all();
    for (int i = 0; i < 2; i++) {
        worker_start(&workers[i], answer);
        ask(&workers[i], 1, &reply);
        ask(&workers[i], 3, &reply);
    }
}
static void check(void) {
    WANT_HEX("pending for the main thread", 0, status_hex(getpid(), "SigPnd"));
    WANT_HEX("pending for the process", 0, status_hex(getpid(), "ShdPnd"));
    for (int i = 0; i < 2; i++)
        WANT_HEX("pending for a thread", 1ull << (wanted[i][0] - 1) | 1ull << 44, status_hex(workers[i].tid, "SigPnd"));
}
static void disturb(int round) {
    long reply;
    ask(&workers[round % 2], 2, &reply);
    ask(&workers[(round + 1) % 2], 46 + round % 3, &reply);
}
