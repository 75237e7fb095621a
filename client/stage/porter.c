// See porter.h.
//
//   state   FREE ──claim()──► CLAIMED ──give──► WORK ──porter is done──► DONE ──take──► FREE
//
// Whoever claims the porter owns the job's fields until it gives them; the porter owns them in
// WORK. The state is the only word that both look at. The porter never ends; in a forked child
// there is none, and nothing copies there.

#include "client/stage/porter.h"

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

/* How long the porter looks for the next piece before it sleeps. */
#define SPIN_NS UINT64_C(100000)
/* How often the other half is looked for before it is given way to. */
#define LOOKS 1000u

static struct {
	word32 state;
	word32 asleep;
	porter_copy_fn *copy;
	void *dst;
	const void *src;
	uint64_t bytes;
} job;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool started;

/* Sleeps while there is no work. Pairs with give(): either it sees us asleep, or we see its
 * work. */
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
	started = helper_start(carry) == CUDA_SUCCESS;
}

static bool claim(void)
{
	uint32_t expected = FREE;

	pthread_once(&once, start);
	return started && atomic_compare_exchange_strong_explicit(
				  &job.state, &expected, CLAIMED, memory_order_acquire, memory_order_relaxed);
}

static void give(porter_copy_fn *copy, void *dst, const void *src, uint64_t bytes)
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

void porter_copy(porter_copy_fn *copy, void *dst, const void *src, uint64_t bytes)
{
	/* Both halves begin at cache lines if the whole does. */
	uint64_t own = bytes / 2 / 64 * 64;

	if (bytes < PORTER_LEAST || !claim()) {
		copy(dst, src, bytes);
		return;
	}
	give(copy, (uint8_t *)dst + own, (const uint8_t *)src + own, bytes - own);
	copy(dst, src, own);
	for (unsigned int looks = 0; word_acquire(&job.state) != DONE; ++looks)
		looks < LOOKS ? word_pause() : (void)sched_yield();
	word_release(&job.state, FREE);
}
