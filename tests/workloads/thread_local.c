//! Thread-local storage: variables of each thread, the address that %fs gives, and a %gs base of the program's own.
// fault: skip:tls
#include "workload.h"
#include <asm/prctl.h>

static __thread unsigned char own[300];
static __thread long number;
static long first_base[2] = {1111, 0}, second_base[4][2] = {{2220}, {2221}, {2222}, {2223}};
static struct worker workers[3];

static long gs_value(void) {
    long value;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(value));
    return value;
}
static void set_up(struct worker *worker, long seed, void *gs) {
    number = worker ? gettid() : getpid();
    fill(own, (unsigned)seed, 0, sizeof own);
    if (syscall(SYS_arch_prctl, ARCH_SET_GS, gs)) DIE("ARCH_SET_GS");
}
// 0 for right; else what is wrong.
static long inspect(struct worker *worker, long seed) {
    unsigned long fs = 0, self;
    syscall(SYS_arch_prctl, ARCH_GET_FS, &fs);
    __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
    if (fs != self || (worker && fs != (unsigned long)worker->thread)) return 1;
    if (number != gettid()) return 2;
    if (differs_at((unsigned)seed, 0, own, sizeof own) >= 0) return 3;
    if (gs_value() != 1111) return 4;
    return 0;
}
static long answer(struct worker *worker, long question) {
    long seed = 40 + (worker - workers);
    if (question == 0) return inspect(worker, seed);
    if (question == 1) set_up(worker, seed, first_base);
    else set_up(worker, seed + question, second_base[question & 3]);
    return 0;
}
static void setup(void) {
    long reply;
    set_up(NULL, 39, first_base);
    for (int i = 0; i < 3; i++) {
        worker_start(&workers[i], answer);
        ask(&workers[i], 1, &reply);
    }
}
static void check(void) {
    static const char *const parts[] = {"", "fs base", "a __thread number", "__thread bytes", "the word at %gs:0"};
    long reply = inspect(NULL, 39);
    if (reply) FAILED("%s of the main thread: wanted as set up, got another", parts[reply]);
    for (int i = 0; i < 3; i++) {
        WANT("a thread answers", ask(&workers[i], 0, &reply));
        if (reply) FAILED("%s of thread %d: wanted as set up, got another", parts[reply], i);
    }
}
static void disturb(int round) {
    long reply;
    set_up(NULL, 100 + round, second_base[round & 3]);
    for (int i = 0; i < 3; i++)
        if (!ask(&workers[i], 100 + round, &reply)) DIE("a thread does not answer");
}
