//! Alternate signal stacks of two threads; a handler really runs on them.
// fault: skip:altstack
#include "workload.h"

#define STACK (64 * 1024)
static unsigned char stacks[2][STACK], other[STACK * 2];
static struct worker worker;
static char *volatile ran_at;

static void on_signal(int number) {
    (void)number;
    ran_at = __builtin_frame_address(0);
}
static void set(void *at, size_t size, int flags) {
    stack_t stack = {.ss_sp = at, .ss_size = size, .ss_flags = flags};
    MUST(sigaltstack(&stack, NULL));
}
// 0 right, 1 another stack is set, 2 the handler ran elsewhere.
static long inspect(unsigned char *want) {
    stack_t now;
    MUST(sigaltstack(NULL, &now));
    if (now.ss_sp != want || now.ss_size != STACK || now.ss_flags != 0) return 1;
    ran_at = NULL;
    pthread_kill(pthread_self(), SIGUSR1);
    return (unsigned char *)ran_at < want || (unsigned char *)ran_at >= want + STACK ? 2 : 0;
}
static long answer(struct worker *w, long question) {
    (void)w;
    if (question == 0) return inspect(stacks[1]);
    if (question == 1) set(stacks[1], STACK, 0);
    else if (question % 2) set(other + STACK, STACK / 2, 0);
    else set(NULL, 0, SS_DISABLE);
    return 0;
}
static void setup(void) {
    long reply;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL));
    set(stacks[0], STACK, 0);
    worker_start(&worker, answer);
    ask(&worker, 1, &reply);
}
static void check(void) {
    static const char *const what[] = {"", "stack that is set", "place where the handler ran"};
    long reply = inspect(stacks[0]);
    if (reply) FAILED("main thread, %s: wanted its alternate stack, got another", what[reply]);
    WANT("the thread answers", ask(&worker, 0, &reply));
    if (reply) FAILED("other thread, %s: wanted its alternate stack, got another", what[reply]);
}
static void disturb(int round) {
    long reply;
    if (round % 2) set(NULL, 0, SS_DISABLE);
    else set(other, STACK, 0);
    ask(&worker, 10 + round, &reply);
}
