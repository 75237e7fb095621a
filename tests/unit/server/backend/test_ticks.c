// The arithmetic of times, with a device and a driver of our own: a device's timer that the test
// turns, events that take its value, and a driver that says how far apart two are as a binary32 of
// milliseconds.

#include <stdlib.h>
#include <string.h>

#include "server/backend/ticks.h"
#include "tests/lib/suite.h"

#define MS     INT64_C(1000000)
#define SECOND (1000 * MS)
#define HOUR   (3600 * SECOND)

struct backend_event {
	int64_t at;
	bool there;
};

static struct {
	int64_t device;	   /* what its timer says */
	int64_t record_ns; /* what a record takes, a stamp three times as long */
	int64_t stamp;
	uint64_t boot; /* the host's clock is another one */
	struct backend_event ours[TICKS_EVENTS];
	bool stuck; /* a base that is recorded does not come */
	bool full;  /* nor does a stamp */
	bool stampless;
	unsigned stamps, records;
} world;

static struct ticks ticks;

static uint64_t host(void)
{
	return (uint64_t)world.device + world.boot;
}

static void put(enum ticks_event event, bool there)
{
	world.device += world.record_ns;
	world.ours[event] = (struct backend_event){world.device, there};
	world.records++;
}

static CUresult record(enum ticks_event event)
{
	put(event, !world.stuck);
	return CUDA_SUCCESS;
}

static CUresult stamp(void)
{
	if (world.stampless)
		return CUDA_ERROR_NOT_SUPPORTED;
	put(TICKS_EVENT_BEFORE, !world.full);
	world.device += world.record_ns * 2;
	world.stamp = world.device;
	put(TICKS_EVENT_BEHIND, !world.full);
	world.stamps++;
	return CUDA_SUCCESS;
}

static uint64_t stamped(void)
{
	return (uint64_t)world.stamp;
}

static CUresult apart(const struct backend_event *from, const struct backend_event *to, float *ret_ms)
{
	if (!from->there || !to->there)
		return CUDA_ERROR_NOT_READY;
	*ret_ms = (float)((double)(to->at - from->at) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult between(enum ticks_event from, enum ticks_event to, float *ret_ms)
{
	return apart(&world.ours[from], &world.ours[to], ret_ms);
}

static CUresult since(enum ticks_event from, struct backend_event *to, float *ret_ms)
{
	return apart(&world.ours[from], to, ret_ms);
}

static const struct ticks_source source = {record, stamp, stamped, between, since};

/* Of an executor. */
static void start(void)
{
	ticks_init(&ticks, &source);
	ticks_note(&ticks, host());
	ck_assert_int_eq(ticks_settle(&ticks), CUDA_SUCCESS);
}

static void begin(void)
{
	memset(&world, 0, sizeof(world));
	world.device = 123 * HOUR + 456789;
	world.record_ns = 700;
	world.boot = 987654321;
	start();
}

/* A program records an event and asks for its time when it is done. */
static struct backend_time time_now(int64_t *ret_at)
{
	struct backend_event event;
	struct backend_time time;

	world.device += 500;
	event = (struct backend_event){world.device, true};
	*ret_at = event.at;
	ticks_note(&ticks, host());
	world.device += 20000;
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &time), CUDA_SUCCESS);
	return time;
}

static int64_t off_by(struct backend_time time, int64_t at)
{
	return llabs(time.device - at);
}

TEST(ticks, times_of_one_executor_are_exact)
{
	int64_t first, at;
	struct backend_time from = time_now(&first), time;

	for (int i = 0; i < 10000; i++) {
		world.device += rand() % (3 * MS);
		time = time_now(&at);
		ck_assert_int_eq(time.local - from.local, at - first);
		ck_assert_int_lt(off_by(time, at), 10000);
	}
	/* And nearly as cheap as before. */
	ck_assert_uint_lt(world.records, 5000);
	ck_assert_uint_eq(world.stamps, 1);
}

/* A program that times itself once a second, for a day and longer: a driver that counts from the
 * first event alone would be wrong by 4 ms. */
TEST(ticks, a_day_does_not_add_up)
{
	int64_t at, worst = 0;

	for (int i = 0; i < 30 * 3600; i++) {
		struct backend_time time;

		world.device += SECOND + rand() % 1000;
		time = time_now(&at);
		if (off_by(time, at) > worst)
			worst = off_by(time, at);
	}
	ck_assert_int_lt(worst, 10000);
	ck_assert_uint_lt(world.stamps, 30 * 3600 / 10);
}

static const int64_t pauses[] = {1 * SECOND, 20 * SECOND, HOUR, 24 * HOUR, 24 * 30 * HOUR};

/* A standby that becomes the active executor long after it was started, or a program that slept: a
 * short time is exact behind it, and the device's timer is found again. */
TEST_LOOP(ticks, a_pause_costs_nothing, 0, sizeof(pauses) / sizeof(pauses[0]))
{
	int64_t begun, ended, before;
	struct backend_time from, to;

	time_now(&before);
	world.device += pauses[_i];
	from = time_now(&begun);
	world.device += 12345;
	to = time_now(&ended);
	ck_assert_int_eq(to.local - from.local, ended - begun);
	ck_assert_int_lt(off_by(from, begun), 10000);
	ck_assert_int_lt(off_by(to, ended), 10000);
}

/* Two processes: nothing is common but the device's timer. */
TEST(ticks, two_executors_agree)
{
	int64_t begun, ended;
	struct backend_time from = time_now(&begun), to;

	world.device += 90 * MS;
	world.boot += 12345678; /* the host's clock goes as it wants */
	start();
	to = time_now(&ended);
	ck_assert_int_lt(llabs((to.device - from.device) - (ended - begun)), 10000);
}

/* A busy device: the kernel that reads the timer came late. */
TEST(ticks, a_wide_stamp_does_not_replace_a_tight_one)
{
	int64_t at;
	struct backend_time time;

	world.record_ns = 2 * MS;
	world.device += SECOND;
	ck_assert_int_eq(ticks_stamp(&ticks, host()), CUDA_SUCCESS);
	ck_assert_int_eq(ticks_settle(&ticks), CUDA_SUCCESS);
	world.record_ns = 700;
	time = time_now(&at);
	ck_assert_int_lt(off_by(time, at), 10000);
}

TEST(ticks, the_tightest_of_several_counts)
{
	struct backend_time time;
	int64_t at;

	world.record_ns = 2 * MS;
	start();
	ck_assert(!ticks_is_known(&ticks));
	for (int i = 0; i < 10; i++) {
		world.record_ns = i == 4 ? 300 : 2 * MS;
		ck_assert_int_eq(ticks_stamp(&ticks, host()), CUDA_SUCCESS);
		ck_assert_int_eq(ticks_settle(&ticks), CUDA_SUCCESS);
	}
	world.record_ns = 300;
	time = time_now(&at);
	ck_assert_int_lt(off_by(time, at), 1000);
}

/* Our stream shares a queue with a kernel that runs for long: times of recent bases are given,
 * those that would be rounded too much wait. */
TEST(ticks, a_base_that_does_not_come)
{
	struct backend_event event;
	struct backend_time time;

	world.stuck = true;
	world.device += 10 * MS;
	ticks_note(&ticks, host());
	event = (struct backend_event){world.device, true};
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &time), CUDA_SUCCESS);
	ck_assert_int_lt(off_by(time, event.at), 10000);
	world.device += 100 * SECOND;
	event.at = world.device;
	ticks_note(&ticks, host());
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &time), CUDA_ERROR_NOT_READY);
	world.ours[TICKS_EVENT_A].there = world.ours[TICKS_EVENT_B].there = true;
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &time), CUDA_SUCCESS);
}

TEST(ticks, an_event_that_is_not_there_has_no_time)
{
	struct backend_event event = {0};
	struct backend_time time;

	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &time), CUDA_ERROR_NOT_READY);
}

/* A driver that cannot compile: the chain is there, the device's timer is not. */
TEST(ticks, without_stamps)
{
	int64_t first, second;
	struct backend_time from, to;

	world.stampless = true;
	start();
	from = time_now(&first);
	to = time_now(&second);
	ck_assert_int_eq(to.local - from.local, second - first);
	ck_assert_int_eq(from.device, 0);
	ck_assert_int_eq(to.device, 0);
}

/* Kernels without end fill the device when the chain has become too long: times are known here, and
 * not beyond. */
TEST(ticks, a_stamp_that_does_not_come)
{
	struct backend_event event;
	struct backend_time first, second;

	world.full = true;
	world.device += HOUR;
	event = (struct backend_event){world.device, true};
	ticks_note(&ticks, host());
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &first), CUDA_ERROR_NOT_READY);
	world.device += SECOND;
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &first), CUDA_SUCCESS);
	ck_assert_int_eq(first.device, 0);
	event.at += 3 * MS;
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &second), CUDA_SUCCESS);
	ck_assert_int_eq(second.local - first.local, 3 * MS);
	/* It does at last. */
	world.full = false;
	world.ours[TICKS_EVENT_BEFORE].there = world.ours[TICKS_EVENT_BEHIND].there = true;
	event.at = world.device;
	ticks_note(&ticks, host());
	ck_assert_int_eq(ticks_time(&ticks, &event, host(), &second), CUDA_SUCCESS);
	ck_assert_int_lt(off_by(second, event.at), 10000);
}

int main(void)
{
	Suite *suite = suite_create("server/backend/ticks");
	TCase *tests = suite_case(suite, "ticks");

	tcase_add_checked_fixture(tests, begin, NULL);
	suite_add(tests, "ticks");
	return suite_run(suite);
}
