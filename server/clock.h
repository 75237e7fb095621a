// Time of executors, backends and trials: monotonic nanoseconds, and the interval between polls,
// which grows with the time waited. Any thread.

#ifndef FRMPS_SERVER_CLOCK_H
#define FRMPS_SERVER_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_US UINT64_C(1000)
#define CLOCK_MS UINT64_C(1000000)

/** ns of any clock; 0 where there is none: that of a thread that has ended. */
static inline uint64_t clock_of(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_now(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

/** 1 % of the time waited, between 20 µs and 1 ms: how late a waiter may notice the end of the
 * wait. */
static inline uint64_t clock_interval(uint64_t since, uint64_t now)
{
	uint64_t interval = now > since ? (now - since) / 100 : 0;

	if (interval < 20 * CLOCK_US)
		return 20 * CLOCK_US;
	return interval > CLOCK_MS ? CLOCK_MS : interval;
}

#endif
