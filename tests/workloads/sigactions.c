//! What each signal does: handlers with their flags and masks, ignored, default.
// fault: skip:sigactions
#include "workload.h"

static void first(int number) { (void)number; }
static void second(int number, siginfo_t *info, void *context) { (void)number, (void)info, (void)context; }

static void act(int number, int kind) {
    struct sigaction action = {0};
    sigemptyset(&action.sa_mask);
    switch (kind) {
    case 0: action.sa_handler = SIG_DFL; break;
    case 1: action.sa_handler = SIG_IGN; break;
    case 2:
        action.sa_handler = first;
        action.sa_flags = SA_RESTART;
        sigaddset(&action.sa_mask, SIGALRM);
        break;
    case 3:
        action.sa_sigaction = second;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESETHAND;
        sigaddset(&action.sa_mask, 50);
        sigaddset(&action.sa_mask, SIGUSR1);
    }
    MUST(sigaction(number, &action, NULL));
}
static bool usable(int number) {
    return number != SIGKILL && number != SIGSTOP && number != SIGPIPE && !(number > 31 && number < 34);
}
static void setup(void) {
    for (int i = 1; i <= 64; i++)
        if (usable(i)) act(i, i % 4);
}
static void check(void) {
    for (int i = 1; i <= 64; i++) {
        if (!usable(i)) continue;
        struct sigaction now;
        MUST(sigaction(i, NULL, &now));
        void *handlers[] = {SIG_DFL, SIG_IGN, first, second};
        int flags[] = {0, 0, SA_RESTART, SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESETHAND};
        if ((void *)now.sa_handler != handlers[i % 4])
            FAILED("handler of signal %d: wanted %p, got %p", i, handlers[i % 4], (void *)now.sa_handler);
        WANT_HEX("flags", flags[i % 4], now.sa_flags & ~0x04000000);
        WANT_EQ("SIGALRM in the mask", i % 4 == 2, sigismember(&now.sa_mask, SIGALRM));
        WANT_EQ("50 in the mask", i % 4 == 3, sigismember(&now.sa_mask, 50));
    }
}
static void disturb(int round) {
    for (int i = 1; i <= 64; i++)
        if (usable(i) && i % 3 == round % 3) act(i, (i + round) % 4);
    act(SIGUSR1, (SIGUSR1 + 1) % 4);
}
