// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Mutexes of the driver, contended: pthread_mutex_lock() of this program comes before the C library's for the
// driver, which is loaded later, and looks for a few microseconds whether the mutex becomes free before it
// sleeps. See mutex.h.
//
// Why: the driver has one mutex per context on the way of every launch, and holds it for about a microsecond,
// in which the doorbell's write goes over the bus. With eight serving threads a quarter of their time went to
// sleeping and waking one another in the kernel (perf, H200, driver 580.159.04), which takes longer than what
// they waited for. The C library's own remedy (glibc.pthread.mutex_spin_count) is for adaptive mutexes only,
// which the driver's are not.
//
// Not under the thread sanitizer, which has a pthread_mutex_lock() of its own. Any thread.

#include "server/executor/mutex.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/executor/clock.h"
#include "shm/order.h"

/* Pauses between two tries, so that those who wait leave the mutex's cache line to its holder. */
#define PAUSES 8

typedef int lock_function(pthread_mutex_t *);

static _Atomic(lock_function *) library_lock;
static _Atomic uint64_t spin_ns;

void mutex_spin(uint64_t ns)
{
	atomic_store_explicit(&spin_ns, ns, memory_order_relaxed);
}

static lock_function *find_library_lock(void)
{
	lock_function *found = atomic_load_explicit(&library_lock, memory_order_relaxed);

	if (found)
		return found;
	found = (lock_function *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
	if (!found)
		abort();
	atomic_store_explicit(&library_lock, found, memory_order_relaxed);
	return found;
}

/* Return: EBUSY if it did not become free in time. */
static int try_for(pthread_mutex_t *mutex, uint64_t ns)
{
	uint64_t begin = 0, now = 0;
	int error;

	while ((error = pthread_mutex_trylock(mutex)) == EBUSY && now - begin <= ns) {
		for (int i = 0; i < PAUSES; i++)
			word_pause();
		now = clock_now();
		begin = begin ? begin : now;
	}
	return error;
}

int mutex_lock(pthread_mutex_t *mutex)
{
	uint64_t ns = atomic_load_explicit(&spin_ns, memory_order_relaxed);
	int error = ns ? try_for(mutex, ns) : EBUSY;

	return error == EBUSY ? find_library_lock()(mutex) : error;
}

#ifndef __SANITIZE_THREAD__
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	return mutex_lock(mutex);
}
#endif
