//! Forty threads, each with a state of its own in registers, stack and memory; some ended, some went on since.
// fault: skip:threads
#include "workload.h"

#define THREADS 40
static struct worker workers[THREADS];
static long steps[THREADS];

static long answer(struct worker *worker, long question) {
    long i = worker - workers;
    if (question > 0) steps[i] += question;
    return gettid() == worker->tid ? steps[i] : -1;
}
static void setup(void) {
    long reply;
    for (int i = 0; i < THREADS; i++) {
        worker_start(&workers[i], answer);
        ask(&workers[i], i + 1, &reply);
    }
}
static void check(void) {
    long reply;
    WANT_EQ("threads", THREADS + 1, thread_count());
    for (int i = 0; i < THREADS; i++) {
        WANT("a thread answers", ask(&workers[i], 0, &reply));
        WANT_EQ("its count", i + 1, reply);
    }
}
static void disturb(int round) {
    long reply;
    for (int i = 0; i < THREADS; i++) {
        if (i % 7 == round % 7) worker_end(&workers[i]);
        else if (i % 2) ask(&workers[i], 100 * round, &reply);
    }
}
