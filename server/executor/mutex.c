// Mutexes of the driver, contended: pthread_mutex_lock() of this program comes before the C
// library's for the driver, which is loaded later, and looks at the mutex for a few microseconds
// before the thread sleeps. See mutex.h.
//
// Reason: each launch takes a mutex of the context, for about half a microsecond. Eight serving
// threads spent a quarter of their time on sleeping and waking one another in the kernel (perf,
// H200, driver 580.159.04), which takes longer than the hold. The C library's own remedy
// (glibc.pthread.mutex_spin_count) is for adaptive mutexes only, and the driver's are of another
// kind.
//
// Only one waiting thread looks at the mutex, so that the cache line is left to the mutex's holder;
// the others wait at a turnstile in front. There are fewer turnstiles than mutexes: threads that
// share a turnstile wait a little longer for their turn, but no thread longer than the time given.
//
// Not under the thread sanitizer, which has a pthread_mutex_lock() of its own. Any thread.

#include "server/executor/mutex.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/clock.h"
#include "shm/order.h"

/* The C library's, whose order nobody checks (shm/lock_order.h). */
#undef pthread_mutex_lock
#undef pthread_mutex_trylock

/* Pauses between two looks at a mutex or a turnstile. The holder may want the mutex again at once:
 * an eager waiter takes the cache line away each time, which slows both down. */
#define PAUSES	   8
#define TURNSTILES 64u

struct turnstile {
	_Alignas(SHM_LINE) word32 taken; /* 1: a thread looks at a mutex behind the turnstile */
};

typedef int lock_function(pthread_mutex_t *);

static _Atomic(lock_function *) library_lock;
static _Atomic uint64_t spin_ns;
static struct turnstile turnstiles[TURNSTILES];

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

static struct turnstile *turnstile_of(const pthread_mutex_t *mutex)
{
	/* Knuth's multiplicative hash; the lowest bits of addresses are all the same. */
	return &turnstiles[(uint32_t)((uintptr_t)mutex >> 4) * UINT32_C(2654435761) /
			   (UINT32_MAX / TURNSTILES + 1)];
}

/* A failed try takes the cache line away from the mutex's holder; a look does not. */
static bool looks_free(const pthread_mutex_t *mutex)
{
#ifdef __GLIBC__
	return __atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) == 0;
#else
	(void)mutex;
	return true;
#endif
}

static void pause_a_little(void)
{
	for (int i = 0; i < PAUSES; i++)
		word_pause();
}

/* Return: true if this thread has passed; word_release() of 0 lets the next thread pass. */
static bool go_through(struct turnstile *turnstile, uint64_t until)
{
	while (word_relaxed(&turnstile->taken) ||
		atomic_exchange_explicit(&turnstile->taken, 1, memory_order_acquire)) {
		if (clock_now() > until)
			return false;
		pause_a_little();
	}
	return true;
}

/* Return: EBUSY if the mutex did not become free in time. */
static int try_for(pthread_mutex_t *mutex, uint64_t ns)
{
	struct turnstile *turnstile = turnstile_of(mutex);
	int error = pthread_mutex_trylock(mutex);
	uint64_t until;

	if (error != EBUSY)
		return error;
	until = clock_now() + ns;
	if (!go_through(turnstile, until))
		return EBUSY;
	do
		pause_a_little();
	while ((!looks_free(mutex) || (error = pthread_mutex_trylock(mutex)) == EBUSY) &&
		clock_now() <= until);
	word_release(&turnstile->taken, 0);
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
