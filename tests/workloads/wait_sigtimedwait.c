//! A thread inside sigtimedwait with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:wait_remaining
#define WAIT_WANTED -1, EAGAIN // result, errno
#include "waits.h"

static const long wait_number = SYS_rt_sigtimedwait;

static void prepare_wait(void) {}
static void wait_once(void) {
    struct timespec time = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000000};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    wait_result = sigtimedwait(&set, NULL, &time);
}
