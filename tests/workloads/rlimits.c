//! Soft limits lowered or raised since (hard limits stay: raising them needs rights that a box has not).
// fault: skip:rlimits
#include "workload.h"

static const int kinds[] = {RLIMIT_NOFILE, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_DATA};
static rlim_t value(int i, int round) { return 1000000 + 4096 * i + 8192 * round; }

static void set(int round) {
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct rlimit limit;
        MUST(getrlimit(kinds[i], &limit));
        limit.rlim_cur = kinds[i] == RLIMIT_NOFILE ? 200 + 10 * (rlim_t)round
                       : kinds[i] == RLIMIT_CORE   ? (limit.rlim_max ? (rlim_t)round : 0)
                                                   : value(i, round) * 100;
        if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
        MUST(setrlimit(kinds[i], &limit));
    }
}
static void setup(void) { set(0); }
static void check(void) {
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct rlimit limit;
        MUST(getrlimit(kinds[i], &limit));
        rlim_t want = kinds[i] == RLIMIT_NOFILE ? 200 : kinds[i] == RLIMIT_CORE ? 0 : value(i, 0) * 100;
        if (want > limit.rlim_max) want = limit.rlim_max;
        WANT_EQ("a soft limit", want, limit.rlim_cur);
    }
}
static void disturb(int round) { set(round); }
