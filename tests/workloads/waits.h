// A thread in a timed wait of WAIT_MS. READY comes when WAITED_MS of it are over, so that a wait begun anew would end
// visibly later, and one ended early visibly sooner, than what was left.
#pragma once
#include "workload.h"

#define WAIT_MS 1800
#define WAITED_MS 700
#define EARLY_MS 60
#define LATE_MS 400 // less than WAITED_MS

static const long wait_number;      // of its system call
static void prepare_wait(void);     // once
static void wait_once(void);        // sets wait_result; errno is looked at
static volatile long wait_result;
static volatile int wait_errno, signalled, wait_over;
static volatile long long wait_began, wait_ended;
static volatile pid_t waiter_tid;
static pthread_t waiter;

static void on_signal(int number) { (void)number, signalled++; }
static void *wait_main(void *unused) {
    waiter_tid = gettid();
    wait_began = now_ns();
    errno = 0;
    wait_once();
    wait_errno = errno;
    wait_ended = now_ns();
    wait_over = 1;
    // Somewhere quite different: in another wait, with another time-out, which leaves its own restart block behind.
    for (;;) poll(NULL, 0, 7000);
    return unused;
}
static void setup(void) {
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGUSR1, &action, NULL));
    prepare_wait();
    if (pthread_create(&waiter, NULL, wait_main, NULL)) DIE("pthread_create");
    while (!wait_began) pause_ms(1);
    await_syscall(waiter_tid, wait_number);
    pause_ms(WAITED_MS);
}
static void check(void) {
    const int wanted[2] = {WAIT_WANTED};
    for (long until = now_ms() + WAIT_MS + 1500; !wait_over && now_ms() < until;) pause_ms(2);
    WANT_EQ("the wait is over", 1, wait_over);
    WANT_EQ("its result", wanted[0], wait_result);
    WANT_EQ("its errno", wanted[1], wait_errno);
    WANT_BETWEEN("milliseconds it took", WAIT_MS + undone_lo_ms - EARLY_MS, WAIT_MS + undone_hi_ms + LATE_MS,
                 (wait_ended - wait_began) / 1000000);
    WANT_EQ("signals that came", 0, signalled);
}
static void disturb(int round) {
    int wanted = signalled + 1;
    pthread_kill(waiter, SIGUSR1);
    while (!wait_over || signalled < wanted) pause_ms(1);
    await_syscall(waiter_tid, SYS_poll);
    // A second one while the first is pending would be none.
    if (round % 2 == 0) pthread_kill(waiter, SIGUSR1), wanted++;
    while (signalled < wanted) pause_ms(1);
}
