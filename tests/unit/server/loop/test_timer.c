// Timers: what is started in a round of the loop waits for a later one.

#include <uv.h>

#include "server/loop/timer.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct timer *first, *second, *third;
static unsigned fired;

static void on_second(void *context)
{
	(void)context;
	fired++;
}

static void spin_ms(unsigned ms)
{
	uint64_t end_us = timer_now_us() + ms * 1000u;

	while (timer_now_us() < end_us)
		continue;
}

static void on_first(void *context)
{
	(void)context;
	timer_start(second, 1);
	spin_ms(5);
	timer_start(third, 1000);
}

/* Otherwise a callback that takes long would make the next one due, and so on: sockets would wait
 * for all of them. */
TEST(timer, a_timer_that_a_callback_starts_fires_in_a_later_round)
{
	uv_loop_t loop;

	uv_loop_init(&loop);
	first = timer_new(&loop, on_first, NULL);
	second = timer_new(&loop, on_second, NULL);
	third = timer_new(&loop, on_second, NULL);
	timer_start(first, 0);
	while (timer_running(first))
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(timer_running(third));
	ck_assert_uint_eq(fired, 0);
	while (timer_running(second))
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(fired, 1);
	timer_free(first);
	timer_free(second);
	timer_free(third);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* The loop's clock stands still while callbacks run. */
TEST(timer, the_time_counts_from_the_start)
{
	uv_loop_t loop;

	uv_loop_init(&loop);
	second = timer_new(&loop, on_second, NULL);
	spin_ms(20);
	timer_start(second, 10);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(fired, 0);
	while (timer_running(second))
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(fired, 1);
	timer_free(second);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

int main(void)
{
	Suite *suite = suite_create("timer");
	TCase *timer = suite_case(suite, "timer");

	fake_prepare();
	suite_add(timer, "timer");
	return suite_run(suite);
}
