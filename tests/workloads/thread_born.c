//! Threads born since are gone, and no trace of them is left in the process.
// fault: skip:born
#include "workload.h"

static struct worker resident;
static volatile long ticks;

static long answer(struct worker *worker, long question) { return (void)worker, question + 1; }
static void *newborn(void *sleeps) {
    for (;;) {
        __atomic_add_fetch(&ticks, 1, __ATOMIC_SEQ_CST);
        if (sleeps) pause_ms(1);
        else sched_yield();
    }
    __builtin_unreachable();
}
static void setup(void) { worker_start(&resident, answer); }
static void check(void) {
    long reply;
    WANT_EQ("threads", 2, thread_count());
    long before = ticks;
    pause_ms(5);
    WANT_EQ("steps a newborn went on by", before, ticks);
    WANT("the resident thread answers", ask(&resident, 41, &reply));
    WANT_EQ("its answer", 42, reply);
    // A thread can be made and ended as ever.
    struct worker another;
    worker_start(&another, answer);
    worker_end(&another);
    // Joined is a little earlier than gone from /proc.
    for (long until = now_ms() + ANSWER_WITHIN_MS; thread_count() != 2 && now_ms() < until;) pause_ms(1);
    WANT_EQ("threads", 2, thread_count());
}
static void disturb(int round) {
    pthread_t thread;
    for (int i = 0; i < 1 + round; i++)
        if (pthread_create(&thread, NULL, newborn, i ? "sleeps" : NULL)) DIE("pthread_create");
    while (ticks < 10) pause_ms(1);
}
