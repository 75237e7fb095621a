// Threads that are parked: in a call that does not come back, in the middle of a loop, and where no
// signal reaches them. None of them can be joined any more.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "server/executor/park.h"
#include "server/executor/serve.h"
#include "tests/lib/suite.h"

static struct serve_thread thread;
static word64 counter;
static int ends[2];

static void start(void *(*run)(void *))
{
	thread = (struct serve_thread){0};
	word_set(&counter, 0);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(pthread_create(&thread.thread, NULL, run, NULL), 0);
	while (!word_acquire(&counter))
		sched_yield();
}

static void park(void)
{
	while (!park_thread(&thread))
		sched_yield();
}

/* What a thread that goes on would have done by now. */
static void expect_still(void)
{
	uint64_t before = word_acquire(&counter);

	for (int i = 0; i < 1000; i++)
		sched_yield();
	ck_assert_uint_eq(word_acquire(&counter), before);
}

static void *read_once(void *unused)
{
	char byte;

	park_enter(&thread);
	word_release(&counter, 1);
	if (read(ends[0], &byte, 1) == 1)
		word_release(&counter, 2);
	return unused;
}

TEST(park, one_that_waits_does_not_come_back)
{
	start(read_once);
	park();
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	expect_still();
	ck_assert_uint_eq(word_acquire(&counter), 1);
}

static void *count_on(void *unused)
{
	park_enter(&thread);
	for (;;)
		word_release(&counter, word_relaxed(&counter) + 1);
	return unused;
}

TEST(park, one_that_runs_is_stopped_where_it_is)
{
	start(count_on);
	park();
	expect_still();
	/* Asked again it is the same. */
	ck_assert(park_thread(&thread));
}

static bool blocks;

/* A parent waits uninterruptibly until the child of a vfork() is gone. The child shares its memory
 * and says when it is there: a signal that comes earlier would be handled before that wait. */
static void *wait_for_child(void *unused)
{
	sigset_t signals;
	char byte;

	park_enter(&thread);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	if (blocks)
		pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (!vfork()) {
		word_release(&counter, 1);
		_exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
	}
	word_release(&counter, 2);
	return unused;
}

TEST(park, one_that_no_signal_reaches_stands_still_as_well)
{
	start(wait_for_child);
	park();
	ck_assert(!word_acquire(&thread.parked));
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	/* The signal comes before anything else. */
	while (!word_acquire(&thread.parked))
		sched_yield();
	ck_assert_uint_eq(word_acquire(&counter), 1);
}

/* It would go on as soon as it is back. */
TEST(park, one_that_blocks_the_signal_does_not)
{
	blocks = true;
	start(wait_for_child);
	for (int i = 0; i < 1000; i++) {
		ck_assert(!park_thread(&thread));
		sched_yield();
	}
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	while (word_acquire(&counter) != 2)
		sched_yield();
	ck_assert_int_eq(pthread_join(thread.thread, NULL), 0);
}

int main(void)
{
	Suite *suite = suite_create("park");
	TCase *tests = tcase_create("park");

	suite_add(tests, "park");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
