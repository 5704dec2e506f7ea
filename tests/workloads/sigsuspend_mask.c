//! A thread inside sigsuspend, which has put another signal mask in place: it is in it again, the temporary mask holds, and
//! after the call the mask is the thread's own.
// fault: skip:sigmask
#include "workload.h"

static volatile pid_t tid;
static volatile int returns, mode;
static volatile unsigned long long mask_after;
static pthread_t thread;

// Pair 0 is what setup makes; the others come from disturb.
static const int own_blocked[3] = {SIGUSR1, SIGHUP, 44}, temporary[3] = {SIGUSR2, SIGTERM, 45};

static void on_signal(int number) { (void)number; }
static void make(sigset_t *set, int number) {
    sigemptyset(set);
    sigaddset(set, number);
}
static void *sleeper(void *unused) {
    for (;;) {
        sigset_t own, inside, now;
        int pair = mode;
        make(&own, own_blocked[pair]);
        make(&inside, temporary[pair]);
        // SIGURG is what ends the wait: blocked outside, open inside.
        sigaddset(&own, SIGURG);
        pthread_sigmask(SIG_SETMASK, &own, NULL);
        tid = gettid();
        sigsuspend(&inside);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        mask_after = *(unsigned long long *)&now;
        returns++;
    }
    return unused;
}
static void setup(void) {
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGURG, &action, NULL));
    if (pthread_create(&thread, NULL, sleeper, NULL)) DIE("pthread_create");
    while (!tid) pause_ms(1);
    await_syscall(tid, SYS_rt_sigsuspend);
}
static void check(void) {
    // After a stop a thread takes a moment until it is back in its wait.
    await_syscall(tid, SYS_rt_sigsuspend);
    WANT_EQ("times the wait had returned", 0, returns);
    WANT_HEX("mask while it waits", 1ull << (temporary[0] - 1), status_hex(tid, "SigBlk"));
    pthread_kill(thread, SIGURG);
    for (long until = now_ms() + ANSWER_WITHIN_MS; !returns && now_ms() < until;) pause_ms(1);
    WANT_EQ("times it returned for a signal", 1, returns);
    WANT_HEX("mask after the wait", 1ull << (own_blocked[0] - 1) | 1ull << (SIGURG - 1), mask_after);
    await_syscall(tid, SYS_rt_sigsuspend);
    returns = 0;
}
static void disturb(int round) {
    int before = returns;
    mode = 1 + round % 2;
    pthread_kill(thread, SIGURG);
    while (returns == before) pause_ms(1);
    await_syscall(tid, SYS_rt_sigsuspend);
}
