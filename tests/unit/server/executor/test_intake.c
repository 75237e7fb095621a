// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The ring's reader against clients that follow the rules and clients that do not: whatever lies on the ring, the
// answer is commands or one offence, never more than one, and never anything else.

#include "server/executor/intake.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/clock.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

/* ---- well-behaved ---- */

START_TEST(launches_reach_the_backend_in_order)
{
	for (uint8_t i = 1; i <= 100; i++)
		fixture_launch(i % 3, 0, i);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 100);
	for (unsigned i = 0; i < 100; i++)
		ck_assert_uint_eq(fake_call(FAKE_LAUNCH, i)->value, i + 1);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 3);
	ck_assert_uint_eq(fixture_offences(), 0);
}
END_TEST

START_TEST(marks_follow_the_rules)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	fixture_launch(1, FRMPS_CMD_MARK, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, 2);
	for (int i = 0; i < 31; i++)
		fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 2);
	fixture_launch(1, 0, 4);
	fixture_turn();
	fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
	fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 3);
	fixture_launch(2, 0, 5);
	fixture_turn();
	fixture_pass(19);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 3);
	fixture_pass(1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 4);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 35);
	ck_assert_uint_eq(fixture_done(2), 1);
}
END_TEST

START_TEST(a_busy_ring_does_not_leave_a_stream_unmarked)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	for (int i = 0; i < 19; i++) {
		fixture_launch(2, FRMPS_CMD_MARK, 1);
		fixture_pass(10);
	}
	ck_assert_uint_eq(fake_count(FAKE_MARK), 19);
	fixture_launch(2, FRMPS_CMD_MARK, 1);
	fixture_pass(10);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 21);
}
END_TEST

START_TEST(the_journal_keeps_what_is_not_done)
{
	struct shm_stream_state *state = &fixture.client.states[4];

	fixture_launch(4, 0, 1);
	fixture_launch(4, FRMPS_CMD_MARK, 2);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&state->journaled), 2);
	ck_assert_uint_eq(word_acquire(&state->issued), 2);
	ck_assert_uint_eq(word_acquire(&state->marked), 2);
	ck_assert_uint_eq(
		word_acquire(&fixture.client.server->head), word_acquire(&fixture.client.client->tail));
}
END_TEST

START_TEST(a_ring_that_wraps)
{
	/* Sizes that leave 16 bytes at the end of the ring once in a while. */
	for (int i = 0; i < 60000; i++) {
		fixture_launch(1, 0, (uint8_t)i);
		if (i % 7 == 0)
			fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
		if (i % 64 == 0) {
			fixture_turn();
			fake_arrive();
			fake.count = 0;
		}
	}
	ck_assert_uint_eq(fixture_offences(), 0);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
}
END_TEST

START_TEST(credit_holds_and_lets_go)
{
	for (unsigned i = 0; i < SHM_STREAM_CREDIT; i++) {
		fixture_launch(1, 0, 1);
		fixture_turn();
	}
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), STREAM_ISSUE_CREDIT);
	fixture_launch(2, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), STREAM_ISSUE_CREDIT + 1);
	for (int i = 0; i < 100; i++) {
		fake_arrive();
		fixture_pass(50);
	}
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), SHM_STREAM_CREDIT);
	ck_assert_uint_eq(fixture_offences(), 0);
}
END_TEST

static void count_wakes(uint32_t *ret)
{
	*ret = word_acquire(&fixture.client.server->wake);
}

START_TEST(sleepers_are_woken_once_it_is_done)
{
	struct frmps_wake wake = {.seq = fixture_launch(3, 0, 1)};
	uint32_t before, after;

	fixture_direct(FRMPS_OP_WAKE, 3, &wake, sizeof(wake));
	fixture_turn();
	count_wakes(&before);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fixture_pass(100);
	count_wakes(&after);
	ck_assert_uint_eq(before, after);
	ck_assert_uint_le(serve_next_look(fixture.session, fixture.now), fixture.now + CLOCK_MS);
	fake_arrive();
	fixture_pass(100);
	count_wakes(&after);
	ck_assert_uint_eq(before + 1, after);
	ck_assert_uint_eq(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
}
END_TEST

START_TEST(more_sleepers_than_are_remembered)
{
	struct frmps_wake wake = {.seq = fixture_launch(3, 0, 1)};
	uint32_t before, after;

	for (unsigned i = 0; i < SESSION_WAKES + 10; i++)
		fixture_direct(FRMPS_OP_WAKE, 3, &wake, sizeof(wake));
	fixture_turn();
	count_wakes(&before);
	fixture_pass(1000);
	count_wakes(&after);
	ck_assert_uint_gt(after, before);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(fixture.session->wake_count, 0);
	ck_assert_uint_eq(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
}
END_TEST

START_TEST(an_idle_session_needs_no_look)
{
	ck_assert_uint_eq(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	/* Not done yet, but nobody waits. */
	ck_assert_uint_eq(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
}
END_TEST

START_TEST(a_refused_launch_is_a_late_error)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	fake.fails[FAKE_LAUNCH] = CUDA_ERROR_INVALID_VALUE;
	fixture_launch(1, FRMPS_CMD_MARK, 2);
	fixture_turn();
	fake.fails[FAKE_LAUNCH] = 0;
	fixture_launch(1, FRMPS_CMD_MARK, 3);
	fixture_turn();
	fake_arrive();
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fixture_done(1), 3);
	ck_assert_uint_eq(fixture_offences(), 0);
}
END_TEST

START_TEST(a_refused_first_command_is_done_at_once)
{
	fake.fails[FAKE_STREAM_CREATE] = CUDA_ERROR_OUT_OF_MEMORY;
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
}
END_TEST

START_TEST(a_failed_mark_is_tried_again)
{
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].marked), 0);
	ck_assert_uint_lt(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
	fake.fails[FAKE_MARK] = 0;
	fixture_pass(1000);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 1);
}
END_TEST

START_TEST(a_lost_context_stops_everything)
{
	struct last_words words = {0};

	backend_last_words = &words;
	fixture_launch(1, 0, 1);
	fixture_launch(1, FRMPS_CMD_MARK, 2);
	fixture_turn();
	fake.fails[FAKE_LAUNCH] = CUDA_ERROR_ILLEGAL_ADDRESS;
	fixture_launch(2, 0, 3);
	fixture_launch(1, FRMPS_CMD_MARK, 4);
	fixture_turn();
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(words.magic, LAST_WORDS_MAGIC);
	ck_assert_int_eq(words.code, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(words.session, 77);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
	backend_last_words = NULL;
}
END_TEST

/* ---- ill-behaved ---- */

static struct frmps_copy plain_copy(uint64_t dst, uint64_t src, uint64_t bytes, uint32_t kind)
{
	return (struct frmps_copy){.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1, .kind = kind};
}

static void put_copy(struct frmps_copy copy)
{
	fixture_put(FRMPS_OP_COPY, 1, 0, &copy, sizeof(copy));
}

static void put_raw(struct frmps_head head, uint32_t bytes)
{
	uint8_t *at = ring_reserve(&fixture.ring, bytes);

	memset(at, 0, bytes);
	memcpy(at, &head, sizeof(head));
	ring_publish(&fixture.ring, bytes);
}

static const uint64_t mapped = FIXTURE_WINDOW, end = FIXTURE_WINDOW + FIXTURE_DEVICE / 2;
static const uint64_t host = FIXTURE_WINDOW + FIXTURE_DEVICE;

/* Each of these must be an offence. */
static void misbehave(int how)
{
	struct frmps_copy copy = plain_copy(mapped, mapped + 4096, 64, 0);
	struct frmps_launch launch = {.function = 1, .argument_bytes = 8};
	struct frmps_wake wake = {.seq = 1};
	struct frmps_write_value value = {.address = mapped, .bytes = 4};
	struct frmps_set set = {.dst = mapped, .width = 4, .height = 1, .element_bytes = 4};
	struct frmps_event_record event = {.event = 0};
	struct frmps_head head = {.size = 32, .op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1};

	switch (how) {
	case 0: put_copy(plain_copy(end - 10, mapped, 11, 0)); return;
	case 1: put_copy(plain_copy(mapped, end - 10, 11, 0)); return;
	case 2: put_copy(plain_copy(UINT64_MAX - 10, mapped, 64, 0)); return;
	case 3: put_copy(plain_copy(mapped, 4096, 64, 0)); return;
	case 4: put_copy(plain_copy(mapped, 0, UINT64_MAX, FRMPS_COPY_SRC_ARENA)); return;
	case 5: put_copy(plain_copy((1u << 20) - 10, mapped, 11, FRMPS_COPY_DST_ARENA)); return;
	case 6: put_copy(plain_copy(UINT64_MAX, mapped, 64, FRMPS_COPY_DST_ARENA)); return;
	case 7: put_copy(plain_copy(host + 4096, mapped, 1, FRMPS_COPY_DST_HOST)); return;
	case 8: put_copy(plain_copy(mapped, mapped, 1, FRMPS_COPY_DST_HOST)); return;
	case 9: put_copy(plain_copy(host, mapped, 1, 0)); return;
	case 10: put_copy(plain_copy(mapped, mapped, 0, 0)); return;
	case 11: copy.height = 2; put_copy(copy); return;
	case 12: copy.height = UINT64_MAX; copy.dst_pitch = copy.src_pitch = 64; put_copy(copy); return;
	case 13: copy.depth = 2; copy.dst_pitch = copy.src_pitch = 64; put_copy(copy); return;
	case 14: copy.kind = 16; put_copy(copy); return;
	case 15: copy.kind = FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST; put_copy(copy); return;
	case 16: copy.reserved = 1; put_copy(copy); return;
	case 17: fixture_put(FRMPS_OP_LAUNCH, 1, 0, &launch, sizeof(launch)); return;
	case 18: launch.argument_bytes = 0; fixture_put(FRMPS_OP_LAUNCH, 1, 0, &launch, sizeof(launch)); return;
	case 19: launch.attribute_count = UINT32_MAX; fixture_put(FRMPS_OP_LAUNCH, 1, 0, &launch, sizeof(launch)); return;
	case 20: fixture_direct(FRMPS_OP_WAKE, 1, &wake, sizeof(wake)); return;
	case 21: fixture_depend(1, 2, 1, FRMPS_NO_EVENT); return;
	case 22: fixture_depend(1, 1, 1, FRMPS_NO_EVENT); return;
	case 23: fixture_depend(1, SHM_STREAMS, 0, FRMPS_NO_EVENT); return;
	case 24: fixture_depend(1, 2, 0, SHM_EVENTS); return;
	case 25: value.address = mapped + 2; fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &value, sizeof(value)); return;
	case 26: value.bytes = 2; fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &value, sizeof(value)); return;
	case 27: value.address = end; fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &value, sizeof(value)); return;
	case 28: value.address = 8; fixture_put(FRMPS_OP_WAIT_VALUE, 1, 0, &value, sizeof(value)); return;
	case 29: set.element_bytes = 3; fixture_put(FRMPS_OP_SET, 1, 0, &set, sizeof(set)); return;
	case 30: set.width = UINT64_MAX / 2; fixture_put(FRMPS_OP_SET, 1, 0, &set, sizeof(set)); return;
	case 31: set.dst = mapped + 1; fixture_put(FRMPS_OP_SET, 1, 0, &set, sizeof(set)); return;
	case 32: event.event = SHM_EVENTS; fixture_put(FRMPS_OP_EVENT_RECORD, 1, 0, &event, sizeof(event)); return;
	case 33: event.flags = 2; fixture_put(FRMPS_OP_EVENT_RECORD, 1, 0, &event, sizeof(event)); return;
	case 34: head.op = 0; put_raw(head, 32); return;
	case 35: head.op = 99; put_raw(head, 32); return;
	case 36: head.op = 65535; put_raw(head, 32); return;
	case 37: head.seq = 2; put_raw(head, 32); return;
	case 38: head.seq = 0; put_raw(head, 32); return;
	case 39: head.stream = SHM_STREAMS; put_raw(head, 32); return;
	case 40: head.reserved = 1; put_raw(head, 32); return;
	case 41: head.flags = 4; put_raw(head, 32); return;
	case 42: head.flags = FRMPS_CMD_COOPERATIVE; put_raw(head, 32); return;
	case 43: head.size = 48; put_raw(head, 48); return;
	case 44: head.size = 64; put_raw(head, 32); return;
	case 45: head.op = FRMPS_OP_MARK; put_raw(head, 32); return;
	case 46: fixture_launch(1, 0, 1); fixture.seq[1] = 0; fixture_launch(1, 0, 1); return;
	case 47: fixture.seq[1] = 7; fixture_launch(1, 0, 1); return;
	default: word_release(&fixture.client.client->tail, 3); return;
	}
}

#define MISBEHAVIOURS 49

START_TEST(every_offence_is_one)
{
	misbehave(_i);
	fixture_turn();
	fixture_launch(1, 0, 1);
	fixture_turn();
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_offences(), 1);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(
		word_relaxed(&fixture.client.server->error), CUDA_ERROR_MPS_CLIENT_TERMINATED);
	ck_assert_uint_eq(fake_count(FAKE_COPY) + fake_count(FAKE_SET) + fake_count(FAKE_WRITE), 0);
	ck_assert_uint_le(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
}
END_TEST

START_TEST(too_many_waiting_commands)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	for (unsigned i = 0; i < 2 * SHM_STREAM_CREDIT; i++) {
		fixture_launch(1, 0, 1);
		fixture_turn();
	}
	ck_assert_uint_eq(fixture_offences(), 0);
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fixture_offences(), 1);
}
END_TEST

/* Mostly valid values with some that are not, so that records get past the first checks. */
static uint64_t some_number(void)
{
	static const uint64_t numbers[] = {0, 1, 2, 4, 8, 63, 64, 4095, 4096, UINT32_MAX, UINT64_MAX, FIXTURE_WINDOW,
		FIXTURE_WINDOW + FIXTURE_DEVICE / 2 - 8, FIXTURE_WINDOW + FIXTURE_DEVICE,
		FIXTURE_WINDOW + FIXTURE_DEVICE + 4088, SHM_STREAMS, SHM_EVENTS};

	return rand() % 4 ? numbers[(unsigned)rand() % (sizeof(numbers) / sizeof(numbers[0]))] : (uint64_t)rand();
}

static void put_random(void)
{
	uint32_t words = 2 + 2 * ((uint32_t)rand() % 8), stream = (uint32_t)rand() % 4;
	struct frmps_head head = {.size = words * 8 + 16, .op = (uint16_t)(rand() % 16), .stream = stream};
	uint64_t body[18];

	for (unsigned i = 0; i < 18; i++)
		body[i] = some_number();
	if (head.op < FRMPS_OP_MARK && head.op != FRMPS_OP_PAD)
		head.seq = ++fixture.seq[stream];
	if (rand() % 50 == 0)
		head.flags = (uint16_t)rand();
	if (rand() % 200 == 0)
		head.seq = some_number();
	if (rand() % 200 == 0)
		head.size = (uint32_t)rand();
	uint8_t *at = ring_reserve(&fixture.ring, words * 8 + 16);
	ck_assert_ptr_nonnull(at);
	memcpy(at, body, words * 8 + 16);
	memcpy(at, &head, sizeof(head));
	ring_publish(&fixture.ring, words * 8 + 16);
}

START_TEST(random_records)
{
	unsigned offences = 0;

	srand(2024);
	fixture_open_default();
	for (int i = 0; i < 20000; i++) {
		put_random();
		fixture_turn();
		if (rand() % 4 == 0)
			fake_arrive();
		if (!fixture.session->stopped)
			continue;
		ck_assert_uint_eq(fixture_offences(), 1);
		offences++;
		fixture_close();
		fixture_open_default();
	}
	ck_assert_uint_gt(offences, 100);
	fixture_close();
}
END_TEST

START_TEST(random_bytes)
{
	srand(5);
	for (int round = 0; round < 300; round++) {
		fixture_open_default();
		for (uint64_t i = 0; i < fixture.client.shape.ring_bytes / 64; i++)
			fixture.client.ring[(unsigned)rand() % fixture.client.shape.ring_bytes] = (uint8_t)rand();
		word_release(&fixture.client.client->tail, round % 3 ? 65536 : (uint64_t)rand());
		fixture_turn();
		ck_assert_uint_eq(fixture_offences(), 1);
		fixture_close();
	}
}
END_TEST

/* ---- journal pressure ---- */

static void open_few_blocks(void)
{
	fixture_open(4);
}

START_TEST(a_full_journal_waits_and_hurts_nobody_else)
{
	/* Streams 1 … 4 each hold a block behind a host function; stream 5 finds none. */
	for (uint32_t slot = 1; slot <= 4; slot++)
		fixture_put(FRMPS_OP_HOST_FUNCTION, slot, 0, NULL, 0);
	fixture_launch(5, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	ck_assert(fixture.session->choked);
	ck_assert_uint_lt(serve_next_look(fixture.session, fixture.now), UINT64_MAX);
	word_release(&fixture.client.client->host[2].done, 1);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(2), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert(!fixture.session->choked);
	ck_assert_uint_eq(fixture_offences(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("intake");
	TCase *good = suite_case(suite, "well-behaved"), *bad = suite_case(suite, "ill-behaved");
	TCase *random = suite_case(suite, "random"), *full = suite_case(suite, "full journal");

	tcase_add_checked_fixture(good, fixture_open_default, fixture_close);
	tcase_add_test(good, launches_reach_the_backend_in_order);
	tcase_add_test(good, marks_follow_the_rules);
	tcase_add_test(good, a_busy_ring_does_not_leave_a_stream_unmarked);
	tcase_add_test(good, the_journal_keeps_what_is_not_done);
	tcase_add_test(good, a_ring_that_wraps);
	tcase_add_test(good, credit_holds_and_lets_go);
	tcase_add_test(good, sleepers_are_woken_once_it_is_done);
	tcase_add_test(good, more_sleepers_than_are_remembered);
	tcase_add_test(good, an_idle_session_needs_no_look);
	tcase_add_test(good, a_refused_launch_is_a_late_error);
	tcase_add_test(good, a_refused_first_command_is_done_at_once);
	tcase_add_test(good, a_failed_mark_is_tried_again);
	tcase_add_test(good, a_lost_context_stops_everything);
	tcase_add_checked_fixture(bad, fixture_open_default, fixture_close);
	tcase_add_loop_test(bad, every_offence_is_one, 0, MISBEHAVIOURS);
	tcase_add_test(bad, too_many_waiting_commands);
	tcase_add_test(random, random_records);
	tcase_add_test(random, random_bytes);
	tcase_add_checked_fixture(full, open_few_blocks, fixture_close);
	tcase_add_test(full, a_full_journal_waits_and_hurts_nobody_else);
	return suite_run(suite);
}
