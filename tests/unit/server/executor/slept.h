// Whether somebody waits for a mutex, as the C library knows it.

#ifndef FRMPS_TESTS_UNIT_SERVER_EXECUTOR_SLEPT_H
#define FRMPS_TESTS_UNIT_SERVER_EXECUTOR_SLEPT_H

#include <pthread.h>
#include <stdbool.h>

/* Whether a thread sleeps at @mutex, which is locked: the C library writes 2 into it then, and 1
 * else. What the kernel counts are a thread's sleeps anywhere, a sanitizer's and those of page
 * faults among them. */
static inline bool is_slept_at(const pthread_mutex_t *mutex)
{
	return __atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) == 2;
}

#endif
