//! A thread inside poll with a time-out, which was interrupted and elsewhere since: it waits on for what was left, and
//! the call returns what it returns when its time is over.
// fault: skip:wait_remaining
#define WAIT_WANTED 0, 0 // result, errno
#include "waits.h"
static int ends[2];

static const long wait_number = SYS_poll;

static void prepare_wait(void) { MUST(pipe(ends)); }
static void wait_once(void) {
    struct pollfd ready = {ends[0], POLLIN, 0};
    wait_result = poll(&ready, 1, WAIT_MS);
}
