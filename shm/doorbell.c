// The system calls behind doorbell.h. No state. Programs ring and sleep with locks held, where a
// thread must not be cancelled: these are bare system calls, not the C library's cancellation
// points.

#include "shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

void doorbell_force(int eventfd)
{
	uint64_t one = 1;
	/* EAGAIN means that the counter is full: the other side has been rung enough. */
	ssize_t r = syscall(SYS_write, eventfd, &one, sizeof(one));

	(void)r;
}

void doorbell_ring(int eventfd, const word32 *asleep)
{
	/* Pairs with the sleeper's fence between its store of `asleep` and its last look at the
	 * tails. */
	word_fence();
	if (word_relaxed(asleep))
		doorbell_force(eventfd);
}

void doorbell_drain(int eventfd)
{
	uint64_t count;
	struct iovec part = {&count, sizeof(count)};
	/* The client has the same open file, and may have made it blocking and emptied it by
	 * now. */
	ssize_t r = preadv2(eventfd, &part, 1, -1, RWF_NOWAIT);

	(void)r;
}

void wake_wait(const word32 *word, uint32_t seen, uint64_t timeout_us)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_us / 1000000),
		.tv_nsec = (long)(timeout_us % 1000000) * 1000,
	};

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void wake_all(word32 *word)
{
	atomic_fetch_add_explicit(word, 1, memory_order_release);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
