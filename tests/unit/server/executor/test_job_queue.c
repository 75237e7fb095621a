// The queue of the module thread: which job comes next, and when who sleeps is woken.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "server/executor/job_queue.h"
#include "server/executor/tenant.h"
#include "tests/lib/suite.h"

#define JOBS 5

static struct job_queue queue;
static struct tenant *tenants[2];
static struct job jobs[JOBS];

static void start(void)
{
	queue = (struct job_queue){0};
	memset(jobs, 0, sizeof(jobs));
	job_queue_init(&queue);
	for (int i = 0; i < 2; i++)
		tenants[i] = calloc(1, sizeof(*tenants[i]));
}

static void stop(void)
{
	for (int i = 0; i < 2; i++)
		free(tenants[i]);
	job_queue_deinit(&queue);
}

/* @tenant: its number */
static struct job *add(int number, int tenant)
{
	jobs[number].tenant = tenants[tenant];
	job_queue_append(&queue, &jobs[number]);
	return &jobs[number];
}

static void rest(struct job *job, uint64_t ns)
{
	job->not_before = clock_now() + ns;
	job_queue_put_back(&queue, job);
}

static bool is_second(const struct job *job)
{
	return job == &jobs[1] || job == &jobs[3];
}

TEST(job_queue, jobs_come_in_order)
{
	for (int i = 0; i < 3; i++)
		add(i, i % 2);
	ck_assert(job_queue_is_wanted(&queue));
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_eq(job_queue_take(&queue), &jobs[i]);
	ck_assert_ptr_null(job_queue_take(&queue));
	ck_assert(!job_queue_is_wanted(&queue));
}

/* Those behind it of the same tenant wait, too, and it is the first when its rest is over. */
TEST(job_queue, one_that_rests_is_passed_over_and_keeps_its_place)
{
	add(0, 0);
	add(1, 0);
	add(2, 1);
	rest(job_queue_take(&queue), UINT64_C(3600000) * CLOCK_MS);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[2]);
	ck_assert_ptr_null(job_queue_take(&queue));
	ck_assert(!job_queue_is_wanted(&queue));
	ck_assert_uint_eq(job_queue_waits_since(&queue, clock_now()), 0);
	add(3, 1);
	jobs[0].not_before = 0;
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[0]);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[1]);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[3]);
}

/* @_i: its tenant ends, or all does */
TEST_LOOP(job_queue, nothing_rests_at_the_end, 0, 2)
{
	add(0, 0);
	rest(job_queue_take(&queue), UINT64_C(3600000) * CLOCK_MS);
	ck_assert_ptr_null(job_queue_take(&queue));
	if (_i)
		job_queue_stop(&queue);
	else
		tenants[0]->closing = true;
	ck_assert(job_queue_sleep(&queue, UINT64_MAX));
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[0]);
	if (_i)
		ck_assert(!job_queue_sleep(&queue, UINT64_MAX));
}

TEST(job_queue, one_that_is_put_off_comes_behind_all)
{
	add(0, 0);
	add(1, 1);
	job_queue_append(&queue, job_queue_take(&queue));
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[1]);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[0]);
}

TEST(job_queue, what_fits_is_taken_also_where_it_rests)
{
	for (int i = 0; i < 4; i++)
		add(i, i / 2);
	/* Not before what its tenant has asked for earlier. */
	ck_assert_ptr_null(job_queue_take_fitting(&queue, is_second, NULL));
	rest(job_queue_take(&queue), UINT64_C(3600000) * CLOCK_MS);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[2]);
	ck_assert(!job_queue_has(&queue, is_second, tenants[1]));
	ck_assert(job_queue_has(&queue, is_second, NULL));
	ck_assert_ptr_null(job_queue_take_fitting(&queue, is_second, tenants[1]));
	ck_assert_ptr_eq(job_queue_take_fitting(&queue, is_second, NULL), &jobs[3]);
	ck_assert_ptr_null(job_queue_take_fitting(&queue, is_second, NULL));
}

TEST(job_queue, who_sleeps_is_woken_when_a_rest_is_over)
{
	add(0, 0);
	add(1, 0);
	rest(job_queue_take(&queue), 20 * CLOCK_MS);
	/* A few times for nothing, as the system likes, but not all the time. */
	for (int i = 0; i < 100 && !job_queue_is_wanted(&queue); i++)
		ck_assert(job_queue_sleep(&queue, UINT64_MAX));
	ck_assert_uint_ge(clock_now(), jobs[0].not_before);
	ck_assert_ptr_eq(job_queue_take(&queue), &jobs[0]);
}

/* Also where that was before it falls asleep. */
TEST(job_queue, who_is_woken_looks_around)
{
	uint64_t begin;

	job_queue_wake(&queue);
	ck_assert(job_queue_sleep(&queue, UINT64_MAX));
	begin = clock_now();
	ck_assert(job_queue_sleep(&queue, begin + 5 * CLOCK_MS));
	ck_assert_uint_ge(clock_now(), begin + 5 * CLOCK_MS);
}

static void *append_one(void *argument)
{
	(void)argument;
	add(0, 0);
	return NULL;
}

TEST(job_queue, what_comes_wakes)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, append_one, NULL), 0);
	while (!job_queue_is_wanted(&queue))
		ck_assert(job_queue_sleep(&queue, UINT64_MAX));
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

int main(void)
{
	Suite *suite = suite_create("job queue");
	TCase *tests = suite_case(suite, "job queue");

	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "job_queue");
	return suite_run(suite);
}
