//! Threads that ended since: alive again with the same thread id, stack, locals and thread-local storage.
// fault: skip:threads
#include "workload.h"

#define THREADS 5
static struct worker workers[THREADS];
static __thread long mark;

static long answer(struct worker *worker, long question) {
    if (question == 1) mark = 1000 + (worker - workers);
    // Bits: the thread is the one that was made, %fs is its own, its mark is there.
    return (gettid() == worker->tid) | (pthread_self() == worker->thread) << 1 |
           (mark == 1000 + (worker - workers)) << 2;
}
static void setup(void) {
    long reply;
    for (int i = 0; i < THREADS; i++) {
        worker_start(&workers[i], answer);
        ask(&workers[i], 1, &reply);
    }
}
static void check(void) {
    long reply;
    WANT_EQ("threads", THREADS + 1, thread_count());
    for (int i = 0; i < THREADS; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d", workers[i].tid);
        WANT("the thread has its id", access(path, F_OK) == 0);
        WANT("the thread answers", ask(&workers[i], 0, &reply));
        WANT_EQ("id, self and mark of the thread", 7, reply);
    }
}
static void disturb(int round) {
    for (int i = 0; i < THREADS; i++)
        if (round % 3 == 0 || i % 2 == round % 2) worker_end(&workers[i]);
}
