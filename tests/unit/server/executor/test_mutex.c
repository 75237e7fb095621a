// How threads wait for mutexes: looking for a while, then asleep; and what locking returns.

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/mutex.h"
#include "shm/order.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/slept.h"

#ifdef __SANITIZE_THREAD__
static const bool is_thread_sanitized = true;
#else
static const bool is_thread_sanitized = false;
#endif

#define LIMIT_NS (UINT64_C(60000) * CLOCK_MS)

struct waiter {
	pthread_t thread;
	pthread_mutex_t *mutex;
	word32 tid; /* once it begins */
};

static void *wait_for_it(void *data)
{
	struct waiter *waiter = data;

	word_release(&waiter->tid, (uint32_t)gettid());
	if (mutex_lock(waiter->mutex) == 0)
		pthread_mutex_unlock(waiter->mutex);
	return NULL;
}

static uint64_t processor_ns(const struct waiter *waiter)
{
	struct timespec used;
	clockid_t clock;

	ck_assert_int_eq(pthread_getcpuclockid(waiter->thread, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &used), 0);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* As the kernel names it: 'R' runs or could, 'S' sleeps. */
static char state_of(const struct waiter *waiter)
{
	char path[64], text[64] = "", state = '?';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%u/stat", word_acquire(&waiter->tid));
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert(fscanf(file, "%*d (%63[^)]) %c", text, &state) == 2);
	fclose(file);
	return state;
}

/* A thread finds the mutex held until it has looked for a while, or sleeps at it. */
static void wait_in_vain(uint64_t spin_ns, bool looks)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct waiter waiter = {.mutex = &mutex};
	uint64_t before;

	mutex_spin(spin_ns);
	ck_assert_int_eq(mutex_lock(&mutex), 0);
	ck_assert_int_eq(pthread_create(&waiter.thread, NULL, wait_for_it, &waiter), 0);
	while (!word_acquire(&waiter.tid))
		sched_yield();
	before = processor_ns(&waiter);
	while (!is_slept_at(&mutex) && (!looks || processor_ns(&waiter) < before + 5 * CLOCK_MS))
		sched_yield();
	ck_assert_int_eq(is_slept_at(&mutex), !looks);
	pthread_mutex_unlock(&mutex);
	ck_assert_int_eq(pthread_join(waiter.thread, NULL), 0);
	mutex_spin(0);
}

TEST(mutex, a_held_mutex_is_looked_at_before_the_thread_sleeps)
{
	/* Twice: the turn to look is given back. */
	for (int i = 0; i < 2; i++)
		wait_in_vain(LIMIT_NS, true);
	wait_in_vain(0, false);
	wait_in_vain(CLOCK_US, false);
}

/* One of two that wait looks at the mutex; the other's time is over as well when the first one's
 * is. */
TEST(mutex, nobody_waits_longer_for_its_turn)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct waiter waiters[2] = {{.mutex = &mutex}, {.mutex = &mutex}};

	mutex_spin(CLOCK_MS);
	ck_assert_int_eq(mutex_lock(&mutex), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_for_it, &waiters[i]), 0);
	for (int i = 0; i < 2; i++)
		while (!word_acquire(&waiters[i].tid) || state_of(&waiters[i]) != 'S' || !is_slept_at(&mutex))
			sched_yield();
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(waiters[i].thread, NULL), 0);
	mutex_spin(0);
}

#define THREADS 4
#define TIMES	20000
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static unsigned counted;

static void *count(void *unused)
{
	(void)unused;
	for (int i = 0; i < TIMES; i++) {
		if (mutex_lock(&shared))
			return &shared;
		counted++;
		pthread_mutex_unlock(&shared);
	}
	return NULL;
}

TEST_LOOP(mutex, one_thread_at_a_time_has_it, 0, 2)
{
	pthread_t threads[THREADS];
	void *failed;

	mutex_spin(_i ? 3 * CLOCK_US : 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
		ck_assert_ptr_null(failed);
	}
	ck_assert_uint_eq(counted, THREADS * TIMES);
}

static void *leave_it_locked(void *mutex)
{
	mutex_lock(mutex);
	return NULL;
}

/* All kinds that there are, the driver's among them, as the C library has them. */
TEST_LOOP(mutex_2, it_returns_what_the_library_returns, 0, 2)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t mutex;
	pthread_t thread;

	mutex_spin(_i ? 3 * CLOCK_US : 0);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&mutex, &attributes);
	ck_assert_int_eq(mutex_lock(&mutex), 0);
	ck_assert_int_eq(mutex_lock(&mutex), 0);
	ck_assert_int_eq(pthread_mutex_unlock(&mutex), 0);
	ck_assert_int_eq(pthread_mutex_unlock(&mutex), 0);
	ck_assert_int_eq(pthread_mutex_unlock(&mutex), EPERM);

	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&mutex, &attributes);
	ck_assert_int_eq(mutex_lock(&mutex), 0);
	ck_assert_int_eq(mutex_lock(&mutex), EDEADLK);
	ck_assert_int_eq(pthread_mutex_unlock(&mutex), 0);

	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_NORMAL);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &attributes);
	ck_assert_int_eq(pthread_create(&thread, NULL, leave_it_locked, &mutex), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(mutex_lock(&mutex), EOWNERDEAD);
}

int main(void)
{
	Suite *suite = suite_create("mutex");
	TCase *tests = tcase_create("mutex");

	suite_add(tests, "mutex");
	/* The thread sanitizer takes for mistakes what this does on purpose. */
	if (!is_thread_sanitized)
		suite_add(tests, "mutex_2");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
