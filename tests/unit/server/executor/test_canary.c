// The canary: when the device is asked for a beat, and when one that does not come is told.

#include "server/executor/canary.h"

#include "protocol/socket.h"
#include "server/clock.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

#define PATIENCE_MS 4000u

static void open_canary(void)
{
	fixture_open_default();
	canary_begin(&fixture.executor, PATIENCE_MS);
}

static void close_canary(void)
{
	canary_end(&fixture.executor);
	fixture_close();
}

static unsigned beats(void)
{
	unsigned count = 0;

	for (unsigned n = 0; n < fake_count(FAKE_MARK); n++)
		count += fake_call(FAKE_MARK, n)->word == (void *)&fixture.executor.scratch[0];
	return count;
}

/* What the executor's threads do, for so long. Return: when the canary wants to be called again. */
static uint64_t live(unsigned ms)
{
	uint64_t next = 0;

	for (unsigned i = 0; i < ms; i++) {
		fixture_pass(1000);
		next = canary_step(&fixture.executor, fixture.now);
	}
	return next;
}

/* Number of suspicions told since the last call. */
static unsigned told(void)
{
	static struct packet packet;
	struct wire_message message;
	unsigned count = 0;

	while (!packet_receive(fixture.control[1], &packet)) {
		ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
		count += message.type == WIRE_SUSPECT;
	}
	return count;
}

TEST(canary, nobody_waits_and_nothing_is_asked)
{
	ck_assert_uint_eq(live(500), UINT64_MAX);
	fake.immediate = true;
	for (unsigned i = 0; i < 200; i++) {
		fixture_launch(3, 0, 1);
		live(1);
	}
	ck_assert_uint_eq(live(200), UINT64_MAX);
	ck_assert_uint_eq(beats(), 0);
}

TEST(canary, short_work_and_programs_that_launch_ask_for_nothing)
{
	for (unsigned i = 0; i < 20; i++) {
		fixture_launch(3, 0, 1);
		live(40);
		fake_arrive();
	}
	/* Each has its command on the device all the time. */
	for (unsigned i = 0; i < 100; i++) {
		fixture_launch(3, 0, 1);
		live(10);
	}
	ck_assert_uint_eq(beats(), 0);
}

TEST(canary, a_beat_that_comes_is_followed_by_the_next)
{
	fixture_launch(3, 0, 1);
	live(60);
	ck_assert_uint_eq(beats(), 1);
	for (unsigned i = 2; i < 60; i++) {
		const struct fake_call *beat = fake_call(FAKE_MARK, fake_count(FAKE_MARK) - 1);

		ck_assert_ptr_eq(beat->word, &fixture.executor.scratch[0]);
		word_release((word64 *)beat->word, beat->value);
		live(100);
		ck_assert_uint_eq(beats(), i);
	}
	ck_assert_uint_eq(told(), 0);
	/* And when nobody waits any more, it rests. */
	fake_arrive();
	fake.immediate = true;
	ck_assert_uint_eq(live(300), UINT64_MAX);
}

TEST(canary, a_beat_that_does_not_come_is_told_once)
{
	fixture_launch(3, 0, 1);
	live(4000);
	ck_assert_uint_eq(told(), 0);
	live(300);
	ck_assert_uint_eq(told(), 1);
	live(3000);
	ck_assert_uint_eq(told(), 0);
	ck_assert_uint_eq(beats(), CANARY_STREAMS);
}

/* One queue is stuck, another is not. */
TEST(canary, a_beat_on_another_stream_will_do)
{
	const struct fake_call *beat = NULL;

	fixture_launch(3, 0, 1);
	live(600);
	ck_assert_uint_gt(beats(), 3);
	for (unsigned i = 0; i < 30; i++) {
		beat = fake_call(FAKE_MARK, fake_count(FAKE_MARK) - 1);
		word_release((word64 *)beat->word, beat->value);
		live(100);
	}
	ck_assert_uint_eq(told(), 0);
	/* And it stays there. */
	ck_assert_ptr_eq(fake_call(FAKE_MARK, fake_count(FAKE_MARK) - 1)->stream, beat->stream);
}

TEST(canary, while_anything_ends_the_device_lives)
{
	for (unsigned i = 0; i < 30; i++)
		fixture_launch(3, FRMPS_CMD_MARK, 1);
	for (unsigned i = 0; i < 30; i++) {
		live(200);
		ck_assert(fake_arrive_one());
	}
	ck_assert_uint_eq(told(), 0);
	/* The last one was the session's; now only the beat is out, and nobody waits. */
	live(6000);
	ck_assert_uint_eq(told(), 0);
}

TEST(canary, a_fault_that_is_looked_at_stops_the_clock)
{
	fixture_launch(3, 0, 1);
	live(500);
	fixture.executor.contain.phase = CONTAIN_STOPPED;
	live(9000);
	ck_assert_uint_eq(told(), 0);
	fixture.executor.contain.phase = CONTAIN_CLEAR;
	live(3800);
	ck_assert_uint_eq(told(), 0);
	live(500);
	ck_assert_uint_eq(told(), 1);
}

TEST(canary, without_patience_there_is_none)
{
	canary_begin(&fixture.executor, 0);
	fixture_launch(3, 0, 1);
	ck_assert_uint_eq(live(3000), UINT64_MAX);
	ck_assert_uint_eq(beats(), 0);
}

int main(void)
{
	Suite *suite = suite_create("canary");
	TCase *cases = suite_case(suite, "canary");

	tcase_add_checked_fixture(cases, open_canary, close_canary);
	suite_add(cases, "canary");
	return suite_run(suite);
}
