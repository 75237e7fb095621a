// The clock that limits the library's spinning. Any thread.

#ifndef FRMPS_CLIENT_STATE_CLOCK_H
#define FRMPS_CLIENT_STATE_CLOCK_H

#include <stdint.h>
#include <time.h>

/** Nanoseconds of the monotonic clock. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
