// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Time as the shim uses it to decide how long it spins or rests. Any thread.

#ifndef FRMPS_CLIENT_STATE_CLOCK_H
#define FRMPS_CLIENT_STATE_CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/** Nanoseconds of the monotonic clock. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/** Sleeps for less than a second; may end early. The bare system call, which is no cancellation point: a thread
 * that is cancelled in the middle of a call leaves what it holds taken for ever. */
static inline void clock_sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_nsec = (long)ns};

	syscall(SYS_nanosleep, &t, NULL);
}

#endif
