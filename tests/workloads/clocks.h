// Remaining times. Clocks go on over a rollback, a timer goes on with what was left: it ends later by what was undone.
#pragma once
#include "workload.h"

#define TOLERANCE_MS 250
static long long armed_at;

// How much of `value_ms`, armed at `armed_at`, must be left now.
#define WANT_LEFT(what, value_ms, left_ms) do { \
    long long gone_ = (now_ns() - armed_at) / 1000000; \
    WANT_BETWEEN(what, (value_ms) - gone_ + undone_lo_ms - TOLERANCE_MS, (value_ms) - gone_ + undone_hi_ms + TOLERANCE_MS, \
                 left_ms); } while (0)
// That what was to come AFTER ms after `armed_at` has come at its time, when a check that began CHECKED ms after
// `armed_at` saw it now; a check may begin long after.
#define WANT_CAME(what, after_ms, checked_ms) do { \
    long long latest_ = (after_ms) + undone_hi_ms + 300, late_ = (checked_ms) + 100; \
    WANT_BETWEEN(what, (after_ms) + undone_lo_ms - 50, late_ > latest_ ? late_ : latest_, (now_ns() - armed_at) / 1000000); } while (0)
UNUSED static long long ms_of_value(struct timeval value) { return value.tv_sec * 1000ll + value.tv_usec / 1000; }
UNUSED static long long ms_of(struct timespec value) { return value.tv_sec * 1000ll + value.tv_nsec / 1000000; }
