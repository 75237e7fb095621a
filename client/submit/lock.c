// The contended half of lock.h.

#include "client/submit/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 100

void submit_lock_wait(struct submit_lock *lock)
{
	for (int i = 0; i < SPINS; ++i) {
		uint32_t free_word = 0;

		if (word_relaxed(&lock->word) == 0 &&
			atomic_compare_exchange_weak_explicit(
				&lock->word, &free_word, 1, memory_order_acquire, memory_order_relaxed))
			return;
		word_pause();
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void submit_lock_wake(struct submit_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
