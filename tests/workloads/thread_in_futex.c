//! Threads asleep in a futex without a time-out: woken and elsewhere since, they sleep again on the word they slept on.
// fault: skip:regs
#include "workload.h"

#define THREADS 4
static uint32_t words[THREADS], elsewhere[THREADS];
static volatile int woken[THREADS];
static volatile pid_t tids[THREADS];
static pthread_t threads[THREADS];

static long wait_on(uint32_t *word) {
    long result;
    do result = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    while (result && errno == EINTR);
    return result;
}
static void *sleeper(void *argument) {
    long i = (long)argument;
    tids[i] = gettid();
    for (;;) {
        wait_on(&words[i]);
        woken[i]++;
        wait_on(&elsewhere[i]);
    }
    __builtin_unreachable();
}
static void setup(void) {
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, sleeper, (void *)i)) DIE("pthread_create");
        while (!tids[i]) sched_yield();
        await_syscall(tids[i], SYS_futex);
    }
}
static void check(void) {
    // After a stop a thread takes a moment until it is back in its wait.
    for (int i = 0; i < THREADS; i++) await_syscall(tids[i], SYS_futex);
    for (int i = 0; i < THREADS; i++) {
        WANT_EQ("times a thread was woken", 0, woken[i]);
        WANT_EQ("sleepers on the other word", 0, syscall(SYS_futex, &elsewhere[i], FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0));
        WANT_EQ("sleepers on the word", 1, syscall(SYS_futex, &words[i], FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0));
        for (long until = now_ms() + ANSWER_WITHIN_MS; !woken[i] && now_ms() < until;) pause_ms(1);
        WANT_EQ("times a thread was woken", 1, woken[i]);
        // Back to where it was: it takes the second word, and then sleeps on the first.
        woken[i] = 0;
        await_syscall(tids[i], SYS_futex);
        while (syscall(SYS_futex, &elsewhere[i], FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0) == 0) sched_yield();
        await_syscall(tids[i], SYS_futex);
    }
}
static void disturb(int round) {
    for (int i = round % 2; i < THREADS; i += 2) {
        syscall(SYS_futex, &words[i], FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0);
        for (long until = now_ms() + ANSWER_WITHIN_MS; !woken[i] && now_ms() < until;) pause_ms(1);
        await_syscall(tids[i], SYS_futex);
    }
}
