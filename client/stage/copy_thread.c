// See copy_thread.h.
//
//   state   FREE ──claim()──► CLAIMED ──give──► WORK ──copy thread is done──► DONE ──take──► FREE
//
// A thread that claims the copy thread owns the job's fields until give(); the copy thread owns the
// fields in WORK. The state is the only word that both threads access. The copy thread never ends;
// a forked child has none, and makes no copies.

#include "client/stage/copy_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/state/clock.h"
#include "client/state/helper.h"
#include "shm/order.h"

enum state { FREE, CLAIMED, WORK, DONE };

/* Time that the copy thread spins for the next piece before it sleeps. */
#define SPIN_NS UINT64_C(100000)
/* Spins of a caller for the other half before it yields. */
#define LOOKS 1000u

static struct {
	word32 state;
	word32 asleep;
	copy_thread_fn *copy;
	void *dst;
	const void *src;
	uint64_t bytes;
} job;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool started;

/* Sleeps while there is no work. Pairs with give(): either give() sees `asleep`, or this thread
 * sees the work. */
static void rest(void)
{
	uint32_t seen;

	word_set(&job.asleep, 1);
	word_fence();
	seen = word_acquire(&job.state);
	if (seen != WORK)
		syscall(SYS_futex, &job.state, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	word_set(&job.asleep, 0);
}

static void *carry(void *nothing)
{
	uint64_t since = clock_now_ns();

	(void)nothing;
	for (;;) {
		if (word_acquire(&job.state) == WORK) {
			job.copy(job.dst, job.src, job.bytes);
			word_release(&job.state, DONE);
			since = clock_now_ns();
		} else if (clock_now_ns() - since < SPIN_NS) {
			word_pause();
		} else {
			rest();
			since = clock_now_ns();
		}
	}
	return NULL;
}

static void start(void)
{
	started = helper_start(carry, NULL) == CUDA_SUCCESS;
}

static bool claim(void)
{
	uint32_t expected = FREE;

	pthread_once(&once, start);
	return started && atomic_compare_exchange_strong_explicit(
				  &job.state, &expected, CLAIMED, memory_order_acquire, memory_order_relaxed);
}

static void give(copy_thread_fn *copy, void *dst, const void *src, uint64_t bytes)
{
	job.copy = copy;
	job.dst = dst;
	job.src = src;
	job.bytes = bytes;
	word_release(&job.state, WORK);
	word_fence();
	if (word_relaxed(&job.asleep))
		syscall(SYS_futex, &job.state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void copy_thread_copy(copy_thread_fn *copy, void *dst, const void *src, uint64_t bytes)
{
	/* Both halves begin at cache lines if the whole does. */
	uint64_t own = bytes / 2 / 64 * 64;

	if (bytes < COPY_THREAD_LEAST || !claim()) {
		copy(dst, src, bytes);
		return;
	}
	give(copy, (uint8_t *)dst + own, (const uint8_t *)src + own, bytes - own);
	copy(dst, src, own);
	for (unsigned int looks = 0; word_acquire(&job.state) != DONE; ++looks)
		looks < LOOKS ? word_pause() : (void)sched_yield();
	word_release(&job.state, FREE);
}
