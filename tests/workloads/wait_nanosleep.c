//! A thread inside nanosleep with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:wait_remaining
#define WAIT_WANTED 0, 0 // result, errno
#include "waits.h"

static const long wait_number = SYS_clock_nanosleep;

static void prepare_wait(void) {}
static void wait_once(void) {
    struct timespec time = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000000};
    wait_result = nanosleep(&time, NULL);
}
