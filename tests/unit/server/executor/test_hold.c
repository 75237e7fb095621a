// Waits: those that the device does (events, joins) and those that are held in software. Time is
// the fixture's.

#include "server/executor/hold.h"

#include <string.h>

#include "server/clock.h"
#include "server/executor/serve.h"
#include "server/executor/timing.h"
#include "tests/unit/server/executor/fixture.h"

static const uint64_t host_word = FIXTURE_WINDOW + FIXTURE_DEVICE;

static uint64_t wait_value(uint32_t stream, uint64_t address, uint64_t value, uint32_t bytes, uint32_t flags)
{
	struct frmps_wait_value body = {.address = address, .value = value, .bytes = bytes, .flags = flags};

	return fixture_put(FRMPS_OP_WAIT_VALUE, stream, 0, &body, sizeof(body));
}

static uint64_t record_event(uint32_t stream, uint32_t event, uint32_t flags)
{
	struct frmps_event_record body = {.event = event, .flags = flags};

	return fixture_put(FRMPS_OP_EVENT_RECORD, stream, FRMPS_CMD_MARK, &body, sizeof(body));
}

/* ---- host functions ---- */

TEST(in_software, a_host_function_waits_for_what_is_before_and_holds_what_is_behind)
{
	struct shm_stream_state *state = &fixture.client.states[1];

	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 3);
	fixture_launch(2, 0, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(word_acquire(&state->host_ready), 0);
	ck_assert_uint_eq(word_acquire(&state->journaled), 3);
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&state->host_ready), 2);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(fixture_done(1), 1);
	/* Nobody polls while the function runs: the client rings. */
	fixture_pass(100);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	ck_assert(!hold_is_ready(fixture.tenant));
	word_release(&fixture.client.client->host[1].done, 2);
	ck_assert(hold_is_ready(fixture.tenant));
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 2);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
}

/* The kernel before it faults in the middle of a turn: the sign, its mark, and later whose it
 * was. */
TEST_LOOP(in_software, a_host_function_does_not_begin_behind_a_kernel_that_faulted, 0, 2)
{
	struct shm_server_header *server = fixture.tenant->view.server;
	word64 *ready = &fixture.client.states[1].host_ready;

	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_turn();
	word_release(&server->doubtful, SHM_DOUBT);
	fake_arrive();
	hold_turn(fixture.tenant);
	ck_assert_uint_eq(word_acquire(ready), 0);
	/* It was another program's. */
	if (_i == 0) {
		word_release(&server->doubtful, 0);
		hold_turn(fixture.tenant);
		ck_assert_uint_eq(word_acquire(ready), 2);
		return;
	}
	word_release(&server->state, SHM_SESSION_FAULTED);
	word_release(&server->doubtful, 0);
	hold_turn(fixture.tenant);
	ck_assert_uint_eq(word_acquire(ready), 0);
}

TEST(in_software, host_functions_in_a_row)
{
	for (int i = 0; i < 3; i++)
		fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].host_ready), 1);
	for (uint64_t seq = 1; seq <= 3; seq++) {
		word_release(&fixture.client.client->host[1].done, seq);
		fixture_turn();
		ck_assert_uint_eq(fixture_done(1), seq);
	}
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 0);
}

/* ---- words ---- */

static const struct {
	uint32_t bytes, flags;
	uint64_t want, value;
	bool fulfils;
} conditions[] = {
	{4, CU_STREAM_WAIT_VALUE_GEQ, 5, 5, true},
	{4, CU_STREAM_WAIT_VALUE_GEQ, 5, 4, false},
	{4, CU_STREAM_WAIT_VALUE_GEQ, UINT32_MAX, 1, true},
	{4, CU_STREAM_WAIT_VALUE_GEQ, 1, UINT32_MAX, false},
	{4, CU_STREAM_WAIT_VALUE_GEQ, 5, UINT64_C(7) << 32, false},
	{8, CU_STREAM_WAIT_VALUE_GEQ, 5, UINT64_C(7) << 32, true},
	{8, CU_STREAM_WAIT_VALUE_GEQ, UINT64_MAX, 0, true},
	{4, CU_STREAM_WAIT_VALUE_EQ, 5, 5, true},
	{4, CU_STREAM_WAIT_VALUE_EQ, 5, 6, false},
	{4, CU_STREAM_WAIT_VALUE_AND, 6, 2, true},
	{4, CU_STREAM_WAIT_VALUE_AND, 6, 1, false},
	{4, CU_STREAM_WAIT_VALUE_NOR, UINT32_MAX, 0, false},
	{4, CU_STREAM_WAIT_VALUE_NOR, 1, 2, true},
	{8, CU_STREAM_WAIT_VALUE_NOR, UINT32_MAX, UINT32_MAX, true},
	{4, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, 5, 5, true},
};

TEST_LOOP(in_software, condition, 0, sizeof(conditions) / sizeof(conditions[0]))
{
	struct frmps_wait_value wait = {
		.bytes = conditions[_i].bytes, .flags = conditions[_i].flags, .value = conditions[_i].want};

	ck_assert_int_eq(hold_fulfils(&wait, conditions[_i].value), conditions[_i].fulfils);
}

TEST(in_software, a_host_word)
{
	wait_value(1, host_word, 7, 4, CU_STREAM_WAIT_VALUE_EQ);
	fixture_launch(1, 0, 2);
	fixture_turn();
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
	ck_assert_uint_le(serve_next_look(fixture.tenant, fixture.now), fixture.now + CLOCK_MS);
	fixture.host[0] = 7;
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

TEST(in_software, a_device_word_is_looked_at_by_copies)
{
	fixture_launch(1, 0, 1);
	wait_value(1, FIXTURE_WINDOW, 9, 8, CU_STREAM_WAIT_VALUE_GEQ);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
	fake_arrive();
	fake.copies_pend = true;
	fixture_pass(100);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	ck_assert(!hold_is_quiet(fixture.tenant));
	fixture_pass(100);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	fake.copies_pend = false;
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(1), 1);
	fake.device_word = 9;
	fixture_pass(1000);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(1), 2);
	ck_assert_uint_gt(fake_count(FAKE_COPY), 1);
}

TEST(in_software, the_interval_grows)
{
	unsigned early, late;

	wait_value(1, FIXTURE_WINDOW, 9, 4, CU_STREAM_WAIT_VALUE_EQ);
	for (int i = 0; i < 200; i++)
		fixture_pass(1);
	early = fake_count(FAKE_COPY);
	ck_assert_uint_le(early, 11);
	ck_assert_uint_ge(early, 8);
	for (int i = 0; i < 100; i++)
		fixture_pass(1000);
	late = fake_count(FAKE_COPY);
	fake.count = 0;
	for (int i = 0; i < 10000; i++)
		fixture_pass(1);
	ck_assert_uint_le(fake_count(FAKE_COPY), 11);
	ck_assert_uint_gt(late, early);
}

TEST(in_software, a_word_that_is_unmapped_meanwhile)
{
	wait_value(1, host_word, 7, 4, CU_STREAM_WAIT_VALUE_EQ);
	fixture_turn();
	range_set_remove(&fixture.tenant->host, host_word, 4096);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_offences(), 1);
}

/* ---- waits between streams ---- */

TEST(on_the_device, a_wait_for_an_event_is_the_devices)
{
	uint64_t seq;

	fixture_launch(1, 0, 1);
	seq = record_event(1, 5, 0);
	fixture_launch(1, 0, 1);
	fixture_depend(2, 1, seq, 5);
	fixture_launch(2, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_RECORD), 1);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 1);
	ck_assert_ptr_eq(fake_call(FAKE_WAIT, 0)->object, fake_call(FAKE_RECORD, 0)->object);
	ck_assert_ptr_eq(fake_call(FAKE_WAIT, 0)->stream, fake_call(FAKE_LAUNCH, 2)->stream);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	/* The mark is in front of the event: whoever passed the wait can find it. */
	ck_assert_int_lt(fake_position(FAKE_MARK, 0), fake_position(FAKE_RECORD, 0));
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, seq);
}

TEST(on_the_device, a_wait_without_an_event_makes_one_join)
{
	uint64_t seq = fixture_launch(1, 0, 1);

	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_depend(3, 1, seq, FRMPS_NO_EVENT);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_RECORD), 1);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 2);
	ck_assert_int_lt(fake_position(FAKE_MARK, 0), fake_position(FAKE_RECORD, 0));
	seq = fixture_launch(1, 0, 1);
	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_RECORD), 2);
	ck_assert_uint_eq(fake_count(FAKE_EVENT_CREATE), 1);
}

TEST(on_the_device, a_wait_for_what_is_done_is_nothing)
{
	uint64_t seq = fixture_launch(1, FRMPS_CMD_MARK, 1);

	fixture_turn();
	fake_arrive();
	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_depend(2, 2, 1, FRMPS_NO_EVENT);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(2), 2);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 0);
}

TEST(on_the_device, an_event_that_was_recorded_again)
{
	uint64_t seq;

	fixture_launch(1, 0, 1);
	seq = record_event(1, 5, 0);
	fixture_launch(3, 0, 1);
	record_event(3, 5, 0);
	fixture_depend(2, 1, seq, 5);
	fixture_turn();
	/* Its latest record is another command: a join of the right stream takes its place. */
	ck_assert_uint_eq(fake_count(FAKE_RECORD), 3);
	ck_assert_ptr_eq(fake_call(FAKE_WAIT, 0)->object, fake_call(FAKE_RECORD, 2)->object);
	ck_assert_ptr_eq(fake_call(FAKE_RECORD, 2)->stream, fake_call(FAKE_RECORD, 0)->stream);
}

TEST(in_software, a_wait_for_a_held_command_is_held)
{
	uint64_t seq;

	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	seq = fixture_launch(1, 0, 1);
	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_launch(2, 0, 2);
	fixture_depend(3, 2, 2, FRMPS_NO_EVENT);
	fixture_launch(3, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 2);
	for (uint8_t i = 0; i < 3; i++)
		ck_assert_uint_eq(fake_call(FAKE_LAUNCH, i)->value, i + 1u);
}

/* Others wait for its serving thread, however many streams are let go at a time. */
TEST(in_software, who_lets_many_streams_go_takes_no_longer_turns)
{
	uint64_t seq;

	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	seq = fixture_launch(1, 0, 1);
	for (uint32_t slot = 2; slot < 42; slot++) {
		fixture_depend(slot, 1, seq, FRMPS_NO_EVENT);
		for (int i = 0; i < 50; i++)
			fixture_launch(slot, 0, 2);
	}
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	word_release(&fixture.client.client->host[1].done, 1);
	for (unsigned count = 0; count < 1 + 40 * 50; count = fake_count(FAKE_LAUNCH)) {
		ck_assert(serve_turn(fixture.tenant, fixture.now));
		ck_assert_uint_gt(fake_count(FAKE_LAUNCH), count);
		ck_assert_uint_le(fake_count(FAKE_LAUNCH), count + 64);
	}
}

TEST(on_the_device, an_event_on_an_idle_stream_costs_nothing)
{
	record_event(1, 5, 0);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(fake.count, 0);
	record_event(1, 6, FRMPS_EVENT_TIMING);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_RECORD), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	ck_assert_uint_eq(fixture_done(1), 2);
}

/* Such a record is done before the device has come to it. What waits for it must not begin before
 * its time, or the time between the two would be less than none. */
TEST(on_the_device, what_waits_for_a_timed_event_comes_behind_its_time)
{
	fake.time_code = CUDA_ERROR_NOT_READY;
	record_event(1, 6, FRMPS_EVENT_TIMING);
	fixture_depend(2, 1, 1, 6);
	fixture_depend(3, 1, 1, FRMPS_NO_EVENT);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 2);
	fake.time_code = CUDA_SUCCESS;
	fixture_depend(4, 1, 1, 6);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 2);
	ck_assert_uint_eq(fixture_done(4), 1);
}

static uint64_t place_of_time(uint32_t event)
{
	return word_acquire(&fixture.client.times[event].record);
}

TEST(on_the_device, times_are_published_when_records_are_done)
{
	fake.time_code = CUDA_ERROR_NOT_READY;
	fixture_launch(1, 0, 1);
	record_event(1, 1, FRMPS_EVENT_TIMING);
	record_event(1, 2, 0);
	fixture_turn();
	fake_arrive();
	/* The mark is there, the event is not: the device writes it behind the mark. */
	fixture_turn();
	ck_assert_uint_eq(place_of_time(1), 0);
	fake.time_code = CUDA_SUCCESS;
	fixture_turn();
	ck_assert_uint_eq(place_of_time(1), shm_place(1, 2));
	ck_assert_uint_eq(word_acquire(&fixture.client.times[1].epoch), 1);
	ck_assert_uint_eq(place_of_time(2), 0);
	fixture_launch(1, 0, 1);
	record_event(1, 2, FRMPS_EVENT_TIMING);
	fixture_turn();
	fixture_put(FRMPS_OP_EVENT_DESTROY, 1, 0, &(struct frmps_event_record){.event = 2}, 8);
	fixture_turn();
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(place_of_time(2), 0);
	/* One more for slot 2, which changed its kind. */
	ck_assert_uint_eq(fake_count(FAKE_EVENT_DESTROY), 2);
}

/* An executor that sleeps looks again by itself while a time is owed, and only so long. */
TEST(on_the_device, a_time_that_is_owed_is_looked_after)
{
	fake.time_code = CUDA_ERROR_NOT_READY;
	record_event(1, 1, FRMPS_EVENT_TIMING);
	fixture_turn();
	ck_assert_uint_le(timing_next_look(fixture.tenant, fixture.now), fixture.now + CLOCK_MS);
	fake.time_code = CUDA_SUCCESS;
	fixture_turn();
	ck_assert_uint_eq(place_of_time(1), shm_place(1, 1));
	ck_assert_uint_eq(timing_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

/* Of a record that the driver refused nobody waits for the time. */
TEST(on_the_device, a_record_that_fails_has_no_time)
{
	fake.fails[FAKE_RECORD] = CUDA_ERROR_INVALID_VALUE;
	record_event(1, 1, FRMPS_EVENT_TIMING);
	fixture_turn();
	ck_assert_uint_eq(place_of_time(1), shm_place(1, 1));
	ck_assert_uint_eq(word_acquire(&fixture.client.times[1].epoch), 0);
}

/* ---- ends ---- */

TEST(in_software, a_slot_is_used_again)
{
	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_STREAM_DESTROY, 1, 0, NULL, 0);
	fixture_launch(1, FRMPS_CMD_MARK, 3);
	fixture_turn();
	/* The new stream's marks go into the same word: nothing of it before the old one is
	 * drained. */
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_DESTROY), 0);
	fake_arrive();
	fixture_pass(100);
	ck_assert_uint_eq(fixture_done(1), 2);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_DESTROY), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 2);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 3);
}

TEST(on_the_device, a_word_is_written_between_two_marks)
{
	struct frmps_write_value body = {.address = FIXTURE_WINDOW, .value = 5, .bytes = 8};

	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_int_lt(fake_position(FAKE_MARK, 0), fake_position(FAKE_WRITE, 0));
	ck_assert_int_lt(fake_position(FAKE_WRITE, 0), fake_position(FAKE_MARK, 1));
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, 1);
	ck_assert_uint_eq(fake_call(FAKE_MARK, 1)->value, 2);
}

int main(void)
{
	Suite *suite = suite_create("hold");
	TCase *software = suite_case(suite, "in software"), *device = suite_case(suite, "on the device");

	tcase_add_checked_fixture(software, fixture_open_default, fixture_close);
	suite_add(software, "in_software");
	tcase_add_checked_fixture(device, fixture_open_default, fixture_close);
	suite_add(device, "on_the_device");
	return suite_run(suite);
}
