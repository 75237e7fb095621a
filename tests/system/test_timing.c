// Times between events, over the replacement of the executor that served the first of them: what
// cuEventElapsedTime says is compared with the host's monotonic clock. An event that is recorded on
// an idle stream and waited for lies between two readings of it; of several the tightest counts.
// The two clocks do not run at the same rate: how they differ is measured before, but for the host
// backend, where they are one.

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/tools/ask.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define TRIES 64
/* Beyond what the readings leave open. */
#define TOLERANCE_NS 10000.0
/* How far apart the events are that the rates are compared with. */
#define RATE_MS 2000
/* A busy machine is given more tries. */
#define TIGHT_NS  200000.0
#define TRIES_MAX 5000

static struct service service;

static void start(void)
{
	ck_assert(service_start_configured(&service, "quarantine_faults = 0\n"));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* An event, and when it was recorded by the host's clock. */
struct moment {
	CUevent event;
	double from, to;
};

static void record_once(CUstream stream, struct moment *ret)
{
	CUresult r;
	float ms;

	ret->from = now_ns();
	ck_cuda(cuEventRecord(ret->event, stream));
	/* What waits for it may be over before the time is taken. */
	do
		r = cuEventElapsedTime(&ms, ret->event, ret->event);
	while (r == CUDA_ERROR_NOT_READY);
	ret->to = now_ns();
	ck_cuda(r);
}

static struct moment record_moment(CUstream stream)
{
	struct moment best = {0}, next;

	for (int i = 0; i < TRIES || (i < TRIES_MAX && best.to - best.from > TIGHT_NS); i++) {
		ck_cuda(cuEventCreate(&next.event, CU_EVENT_DEFAULT));
		record_once(stream, &next);
		if (best.event && next.to - next.from >= best.to - best.from) {
			ck_cuda(cuEventDestroy_v2(next.event));
			continue;
		}
		if (best.event)
			ck_cuda(cuEventDestroy_v2(best.event));
		best = next;
	}
	return best;
}

static double middle(const struct moment *moment)
{
	return (moment->from + moment->to) / 2;
}

static double elapsed_ns(const struct moment *from, const struct moment *to)
{
	float ms;

	ck_cuda(cuEventElapsedTime(&ms, from->event, to->event));
	return (double)ms * 1e6;
}

static bool is_host(void)
{
	return !is_native() && strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0;
}

/* Of the device's clock to the host's, after a while. */
static double measure_rate(CUstream stream)
{
	struct moment first, second;

	if (is_host())
		return 1;
	first = record_moment(stream);
	pass_time(RATE_MS);
	second = record_moment(stream);
	return elapsed_ns(&first, &second) / (middle(&second) - middle(&first));
}

/* Half of what the readings leave open, both ends, and what a binary32 does. */
static double slack(const struct moment *from, const struct moment *to, double ns)
{
	return (from->to - from->from + to->to - to->from) / 2 + ns / (1 << 24) + TOLERANCE_NS;
}

/* The program. Ends: 0 all times are right, 2 one is not. */
static int measure(int progress, int orders)
{
	struct moment first, before, after;
	double rate, expected, measured;
	CUstream stream;
	bool right;

	driver_attach();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	first = record_moment(stream);
	rate = measure_rate(stream);
	before = record_moment(stream);
	report(progress);
	ordered(orders, true);
	after = record_moment(stream);
	measured = elapsed_ns(&before, &after);
	expected = (middle(&after) - middle(&before)) * rate;
	right = measured - expected < slack(&before, &after, measured) &&
		expected - measured < slack(&before, &after, measured);
	fprintf(stderr, "%.1f us apart after %.1f ms, readings open by %.1f us, rate 1%+.2e\n",
		(measured - expected) / 1e3, measured / 1e6,
		(slack(&before, &after, measured) - TOLERANCE_NS) / 1e3, rate - 1);
	/* Also of two events of the executor that is gone, and of the new one's. */
	right &= elapsed_ns(&first, &before) > 0 && elapsed_ns(&after, &before) < 0;
	return right && fabs(rate - 1) < 1e-3 ? 0 : 2;
}

static void isolate(const struct child *child)
{
	char number[24], text[400], *answer = NULL;
	const char *argument = number;
	const struct wire_names arguments = {&argument, 1};
	json_t *root;

	snprintf(number, sizeof(number), "%lld", status_session(&service, child->pid));
	ck_assert_msg(!ask_with(service.socket, "isolate", &arguments, 60, &answer, text, sizeof(text)), "%s",
		text);
	root = json_loads(answer, 0, NULL);
	ck_assert_msg(json_is_true(json_object_get(root, "moved")), "%s", answer);
	json_decref(root);
	free(answer);
}

static int fault(int progress, int orders)
{
	driver_open();
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	return cuCtxSynchronize() == CUDA_SUCCESS ? 2 : 0;
}

static void let_somebody_fault(void)
{
	struct child child = child_start(fault);

	child_wait(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	while (!status_counter(&service, "culprits"))
		pass_time(1);
}

START_TEST(time_in_one_executor)
{
	struct child child = child_start(measure);

	child_wait(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}
END_TEST

TEST(timing, time_over_the_death_of_an_executor)
{
	struct child child = child_start(measure);

	child_wait(&child, 1);
	ck_assert(service_kill_active(&service));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(status_counter(&service, "promotions"), 1);
}

TEST(timing, time_over_a_move)
{
	struct child child = child_start(measure);

	child_wait(&child, 1);
	isolate(&child);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(timing, time_over_the_fault_of_another)
{
	struct child child = child_start(measure);

	child_wait(&child, 1);
	let_somebody_fault();
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

int main(void)
{
	Suite *suite = suite_create("timing");
	TCase *tests = suite_case(suite, "timing");

	if (is_native()) {
		tcase_add_test(tests, time_in_one_executor);
		return suite_run(suite);
	}
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "timing");
	tcase_add_test(tests, time_in_one_executor);
	return suite_run(suite);
}
