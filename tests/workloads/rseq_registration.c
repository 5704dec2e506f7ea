//! Areas of restartable sequences: a thread that had none registers its own after a rollback, as the C library does
//! for each new thread (it ended the program where the area was still registered); one that had one still has it.
// fault: skip:rseq
#include "workload.h"
#include <sys/rseq.h>

#define AREA 32
#define SIGNATURE 0x53053053
static struct worker worker;
static unsigned char own[2][AREA] __attribute__((aligned(AREA)));

static long area(void *at, int flags) { return syscall(SYS_rseq, at, AREA, flags, SIGNATURE) ? errno : 0; }
static void forget_that_of_the_library(void) {
    if (!__rseq_size) return;
    MUST(syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, AREA, 1, SIGNATURE));
}
// 0 registers, 1 takes it back, 2 forgets the one of the library.
static long answer(struct worker *w, long question) {
    (void)w;
    if (question == 2) forget_that_of_the_library();
    return question == 2 ? 0 : area(own[1], question);
}
static void setup(void) {
    long reply;
    worker_start(&worker, answer); // the library leaves its area out where its maker has none
    ask(&worker, 2, &reply);
    forget_that_of_the_library();
    ask(&worker, 0, &reply);
    if (reply) SKIP("this kernel has no restartable sequences of that size");
}
static void check(void) {
    long reply;
    WANT_EQ("main thread: its area is not registered yet", 0, area(own[0], 0));
    WANT_EQ("main thread: it can be taken back", 0, area(own[0], 1));
    WANT("the thread answers", ask(&worker, 0, &reply));
    WANT_EQ("other thread: its area is registered", EBUSY, reply);
}
static void disturb(int round) {
    long reply;
    area(own[0], 0);
    if (round % 2) ask(&worker, 1, &reply);
}
