//! A thread inside select with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:regs
// (The kernel itself writes what is left into the time-out of pselect6, so that beginning the call anew is right.)
#define WAIT_WANTED 0, 0 // result, errno
#include "waits.h"
static int ends[2];

static const long wait_number = SYS_pselect6;

static void prepare_wait(void) { MUST(pipe(ends)); }
static void wait_once(void) {
    struct timeval time = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    wait_result = select(ends[0] + 1, &set, NULL, NULL, &time);
}
