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
// A thread whose %fs base moves. It must not call libc, which finds its data there.
enum { SLEEP, TELL, MOVE };
static volatile uint32_t mover_command;
static volatile unsigned long mover_fs;
static unsigned long moved_to[2][512];
static pthread_t mover_thread;

static inline long raw_call(long number, long a, long b, long c) {
    register long no_time __asm__("r10") = 0;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(no_time) : "rcx", "r11", "memory");
    return result;
}
static void *mover(void *unused) {
    for (int moves = 0;;) {
        while (mover_command == SLEEP) raw_call(SYS_futex, (long)&mover_command, FUTEX_WAIT_PRIVATE, SLEEP);
        if (mover_command == MOVE) {
            unsigned long *block = moved_to[moves++ % 2] + 256;
            block[0] = (unsigned long)block;
            raw_call(SYS_arch_prctl, ARCH_SET_FS, (long)block, 0);
        }
        unsigned long self;
        __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
        mover_fs = self;
        mover_command = SLEEP;
    }
    return unused;
}
static bool tell_mover(uint32_t command) {
    mover_command = command;
    syscall(SYS_futex, &mover_command, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    for (long until = now_ms() + ANSWER_WITHIN_MS; mover_command != SLEEP; pause_ms(1))
        if (now_ms() > until) return false;
    return true;
}
static void setup(void) {
    long reply;
    if (pthread_create(&mover_thread, NULL, mover, NULL)) DIE("pthread_create");
    if (!tell_mover(TELL)) DIE("a thread does not answer");
    set_up(NULL, 39, first_base);
    for (int i = 0; i < 3; i++) {
        worker_start(&workers[i], answer);
        ask(&workers[i], 1, &reply);
    }
}
static void check(void) {
    static const char *const parts[] = {"", "fs base", "a __thread number", "__thread bytes", "the word at %gs:0"};
    long reply = inspect(NULL, 39);
    WANT("the thread that moves answers", tell_mover(TELL));
    WANT_HEX("its fs base", mover_thread, mover_fs);
    if (reply) FAILED("%s of the main thread: wanted as set up, got another", parts[reply]);
    for (int i = 0; i < 3; i++) {
        WANT("a thread answers", ask(&workers[i], 0, &reply));
        if (reply) FAILED("%s of thread %d: wanted as set up, got another", parts[reply], i);
    }
}
static void disturb(int round) {
    long reply;
    if (!tell_mover(MOVE)) DIE("a thread does not answer");
    set_up(NULL, 100 + round, second_base[round & 3]);
    for (int i = 0; i < 3; i++)
        if (!ask(&workers[i], 100 + round, &reply)) DIE("a thread does not answer");
}
