//! A thread inside futex with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:wait_remaining
#define WAIT_WANTED -1, ETIMEDOUT // result, errno
#include "waits.h"
static uint32_t word;

static const long wait_number = SYS_futex;

static void prepare_wait(void) {}
static void wait_once(void) {
    struct timespec time = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000000};
    wait_result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
}
