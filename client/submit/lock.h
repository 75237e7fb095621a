// The ring lock: held for the few nanoseconds of writing a record, so a thread that finds the lock
// taken spins a little before it sleeps. 0 free, 1 taken, 2 taken and a thread may sleep.

#ifndef FRMPS_CLIENT_SUBMIT_LOCK_H
#define FRMPS_CLIENT_SUBMIT_LOCK_H

#include "shm/order.h"

struct submit_lock {
	word32 word;
};

/* The slow halves; only for the two functions below. */
void submit_lock_wait(struct submit_lock *lock);
void submit_lock_wake(struct submit_lock *lock);

static inline void submit_lock_take(struct submit_lock *lock)
{
	uint32_t free_word = 0;

	if (!atomic_compare_exchange_strong_explicit(
		    &lock->word, &free_word, 1, memory_order_acquire, memory_order_relaxed))
		submit_lock_wait(lock);
}

static inline void submit_lock_give(struct submit_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		submit_lock_wake(lock);
}

#endif
