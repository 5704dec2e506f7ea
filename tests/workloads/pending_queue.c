//! A queue of pending signals: each with its sender's number (siginfo), in the order in which they were sent.
// fault: skip:pending
#include "workload.h"

#define QUEUED 12
static const int numbers[] = {40, SIGUSR1, 41};

static void queue(int count, int base) {
    for (int i = 0; i < count; i++) {
        union sigval value = {.sival_int = base + i};
        MUST(sigqueue(getpid(), i % 3 == 1 && i > 1 ? 40 : numbers[i % 3], value));
    }
}
static int take(siginfo_t *info) {
    struct timespec none = {0, 0};
    sigset_t set;
    sigfillset(&set);
    return sigtimedwait(&set, info, &none);
}
static void setup(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    queue(QUEUED, 500);
}
static void check(void) {
    // The kernel gives the lowest number first, and within a number the oldest first.
    siginfo_t got[QUEUED + 1];
    int count = 0;
    while (count <= QUEUED && take(&got[count]) > 0) count++;
    int index = 0;
    WANT_EQ("signals in the queue", QUEUED, count);
    for (int pass = 0; pass < 3; pass++) {
        int number = (const int[]){SIGUSR1, 40, 41}[pass];
        for (int i = 0; i < QUEUED; i++) {
            int sent = i % 3 == 1 && i > 1 ? 40 : numbers[i % 3];
            if (sent != number) continue;
            WANT_EQ("number of a queued signal", number, got[index].si_signo);
            WANT_EQ("its value", 500 + i, got[index].si_value.sival_int);
            WANT_EQ("its code", SI_QUEUE, got[index].si_code);
            WANT_EQ("its sender", getpid(), got[index].si_pid);
            index++;
        }
    }
    queue(QUEUED, 500);
}
static void disturb(int round) {
    siginfo_t info;
    for (int i = 0; i < 5 + round; i++) take(&info);
    queue(2, 900 + round);
}
