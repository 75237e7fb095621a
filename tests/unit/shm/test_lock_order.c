// The order of locks, as checked builds assert it: what a thread may take, and what ends it.

#include "shm/lock_order.h"

#include <signal.h>

#include "tests/lib/suite.h"

#define INSTANCE "client/state/instance.c"
#define REGISTRY "client/state/module.c"
#define SLAB	 "client/state/slab.c"

static int instance, registry, slab, ids; /* stand for locks */

static void take(const void *lock, const char *file, const char *expression)
{
	const struct lock_class *class = NULL;

	lock_order_check(&class, file, expression);
	lock_order_note(lock, &class, file, expression);
}

static void take_registry(void)
{
	take(&registry, REGISTRY, "&registry_lock");
}

static void take_instance(void)
{
	take(&instance, "../" INSTANCE, "&lock");
}

TEST(order, a_thread_takes_locks_in_their_order)
{
	take_instance();
	take_registry();
	take(&slab, SLAB, "&slab->lock");
	/* Given back in any order. */
	lock_order_drop(&registry, 0);
	lock_order_drop(&slab, 0);
	take_registry();
	lock_order_drop(&instance, 0);
	lock_order_drop(&registry, 0);
	take_instance();
	/* A child of a fork makes locks anew. */
	lock_order_drop(&instance, 1);
	lock_order_drop(&registry, 1);
	take_instance();
}

START_TEST(not_in_the_other_order)
{
	take_registry();
	take_instance();
}
END_TEST

START_TEST(not_two_of_a_rank)
{
	take(&slab, SLAB, "&slab->lock");
	take(&ids, "client/state/ids.c", "&ids->lock");
}
END_TEST

/* A try may come in any order, and counts for what comes behind it. */
START_TEST(not_behind_a_try_of_a_higher_rank)
{
	const struct lock_class *class = NULL;

	take_registry();
	lock_order_note(&instance, &class, INSTANCE, "&lock");
	lock_order_drop(&registry, 0);
	take_registry();
	take_instance();
}
END_TEST

START_TEST(not_what_has_no_row)
{
	take(&slab, SLAB, "&lock");
}
END_TEST

START_TEST(not_what_the_thread_does_not_hold)
{
	take_registry();
	lock_order_drop(&slab, 0);
}
END_TEST

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* This file has no row. */
START_TEST(the_checked_calls_look_it_up)
{
	pthread_mutex_lock(&mutex);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lock_order");
	TCase *tests = suite_case(suite, "order");

	suite_add(tests, "order");
	tcase_add_test_raise_signal(tests, not_in_the_other_order, SIGABRT);
	tcase_add_test_raise_signal(tests, not_two_of_a_rank, SIGABRT);
	tcase_add_test_raise_signal(tests, not_behind_a_try_of_a_higher_rank, SIGABRT);
	tcase_add_test_raise_signal(tests, not_what_has_no_row, SIGABRT);
	tcase_add_test_raise_signal(tests, not_what_the_thread_does_not_hold, SIGABRT);
	tcase_add_test_raise_signal(tests, the_checked_calls_look_it_up, SIGABRT);
	return suite_run(suite);
}
