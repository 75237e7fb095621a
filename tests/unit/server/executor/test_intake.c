// The ring's reader against clients that follow the rules and clients that do not: whatever lies on
// the ring, the answer is commands or one offence, never more than one, and never anything else.

#include "server/executor/intake.h"

#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "server/executor/lost.h"
#include "server/executor/retire.h"
#include "server/executor/sentry.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

/* ---- well-behaved ---- */

TEST(good, launches_reach_the_backend_in_order)
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

TEST(good, marks_follow_the_rules)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	fixture_launch(1, FRMPS_CMD_MARK, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, 2);
	for (unsigned i = 1; i < RETIRE_UNMARKED; i++)
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
	ck_assert_uint_eq(fixture_done(1), 2 + RETIRE_UNMARKED + 1);
	ck_assert_uint_eq(fixture_done(2), 1);
}

TEST(good, a_busy_ring_does_not_leave_a_stream_unmarked)
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

/* The device is behind: further marks would only stand between its kernels, but for those that are
 * asked for. */
TEST(good, nobody_needs_a_mark_behind_one_that_is_under_way)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_launch(1, 0, 2);
	fixture_turn();
	for (int i = 0; i < 10; i++)
		fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 2);
	fixture_launch(1, 0, 3);
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 2);
	fake_arrive();
	fixture_pass(20);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 3);
}

TEST(good, the_journal_keeps_what_is_not_done)
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

TEST(good, a_ring_that_wraps)
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

TEST(good, credit_holds_and_lets_go)
{
	for (unsigned i = 0; i < SHM_STREAM_CREDIT; i++) {
		fixture_launch(1, 0, 1);
		fixture_turn();
	}
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), STREAM_ISSUE_CREDIT);
	/* Not polled as if somebody waited: what is on the device takes longer. */
	ck_assert_uint_ge(serve_next_look(fixture.tenant, fixture.now), fixture.now + 100 * CLOCK_US);
	ck_assert_uint_lt(serve_next_look(fixture.tenant, fixture.now),
		fixture.now + STREAM_ISSUE_CREDIT * CLOCK_US / 2);
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

static void count_wakes(uint32_t *ret)
{
	*ret = word_acquire(&fixture.client.server->wake);
}

TEST(good, sleepers_are_woken_once_it_is_done)
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
	ck_assert_uint_le(serve_next_look(fixture.tenant, fixture.now), fixture.now + CLOCK_MS);
	fake_arrive();
	fixture_pass(100);
	count_wakes(&after);
	ck_assert_uint_eq(before + 1, after);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

TEST(good, a_sleeper_behind_many_commands_is_looked_after_later)
{
	struct frmps_wake wake;

	for (unsigned i = 0; i < STREAM_ISSUE_CREDIT; i++)
		wake.seq = fixture_launch(3, 0, 1);
	fixture_direct(FRMPS_OP_WAKE, 3, &wake, sizeof(wake));
	fixture_turn();
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), fixture.now + 100 * CLOCK_US);
	while (fixture_done(3) + RETIRE_UNMARKED < wake.seq)
		ck_assert(fake_arrive_one());
	fixture_turn();
	ck_assert_uint_lt(serve_next_look(fixture.tenant, fixture.now), fixture.now + 50 * CLOCK_US);
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(fixture.tenant->wake_count, 0);
}

TEST(good, more_sleepers_than_are_remembered)
{
	struct frmps_wake wake = {.seq = fixture_launch(3, 0, 1)};
	uint32_t before, after;

	for (unsigned i = 0; i < TENANT_WAKES + 10; i++)
		fixture_direct(FRMPS_OP_WAKE, 3, &wake, sizeof(wake));
	fixture_turn();
	count_wakes(&before);
	fixture_pass(1000);
	count_wakes(&after);
	ck_assert_uint_gt(after, before);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(fixture.tenant->wake_count, 0);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

/* Those on the list are done before the one that is not. */
TEST(good, a_sleeper_that_is_not_remembered_is_woken_all_the_same)
{
	struct frmps_wake wake = {.seq = fixture_launch(3, 0, 1)}, late;
	uint32_t before, after;

	for (unsigned i = 0; i < TENANT_WAKES; i++)
		fixture_direct(FRMPS_OP_WAKE, 3, &wake, sizeof(wake));
	fixture_turn();
	late.seq = fixture_launch(4, FRMPS_CMD_MARK, 1);
	fixture_direct(FRMPS_OP_WAKE, 4, &late, sizeof(late));
	fixture_direct(FRMPS_OP_MARK, 3, NULL, 0);
	fixture_turn();
	ck_assert(fixture.tenant->wakes_overflow);
	/* Marks arrive in the order in which they were put. */
	fixture.tenant->timeline->stream[3].done = wake.seq;
	fixture_pass(1000);
	ck_assert_uint_eq(fixture.tenant->wake_count, 0);
	ck_assert_uint_le(serve_next_look(fixture.tenant, fixture.now), fixture.now + CLOCK_MS);
	fake_arrive();
	count_wakes(&before);
	fixture_pass(1000);
	count_wakes(&after);
	ck_assert_uint_gt(after, before);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

TEST(good, an_idle_session_needs_no_look)
{
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	/* Not done yet: the context is watched, seldom. */
	ck_assert_uint_ge(serve_next_look(fixture.tenant, fixture.now), fixture.now + 200 * CLOCK_US);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

TEST(good, a_fault_is_seen_though_nobody_issues)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	for (int i = 0; i < 1000; i++)
		fixture_pass(100);
	ck_assert_uint_ge(fake.queries, 90);
	ck_assert_uint_le(fake.queries, 300);
	ck_assert(!executor_is_lost(&fixture.executor));
	fake.query = CUDA_ERROR_ILLEGAL_ADDRESS;
	fixture_pass(2000);
	ck_assert(executor_is_lost(&fixture.executor));
}

/* Another session, whose marks the driver takes, has just heard that the context is well. */
TEST(good, who_waits_beside_others_seldom_asks)
{
	const unsigned ms = 100;

	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	for (unsigned i = 0; i < ms * 10; i++) {
		word_set(&fixture.executor.heard_at, fixture.now + 100 * CLOCK_US);
		fixture_pass(100);
	}
	ck_assert_uint_ge(fake.queries, ms / 5 - 2);
	ck_assert_uint_le(fake.queries, ms / 5 + 2);
	fake.query = CUDA_ERROR_ILLEGAL_ADDRESS;
	fixture_pass(SENTRY_OWN_NS / CLOCK_US);
	ck_assert(executor_is_lost(&fixture.executor));
}

/* A ring that has been empty for long, and a backlog that goes to the device as the marks come. */
TEST(good, who_issues_from_the_journal_does_not_ask)
{
	for (unsigned i = 0; i < SHM_STREAM_CREDIT; i++) {
		fixture_launch(1, 0, 1);
		fixture_turn();
	}
	while (fake_count(FAKE_LAUNCH) < SHM_STREAM_CREDIT) {
		unsigned launches = fake_count(FAKE_LAUNCH);

		ck_assert(fake_arrive_one());
		fixture_pass(150);
		ck_assert_uint_gt(fake_count(FAKE_LAUNCH), launches);
	}
	ck_assert_uint_eq(fake.queries, 0);
}

TEST(good, a_context_that_fails_without_saying_why)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake.query = CUDA_ERROR_UNKNOWN;
	for (int i = 0; i < 50; i++)
		fixture_pass(1000);
	ck_assert(!executor_is_lost(&fixture.executor));
	for (int i = 0; i < 60; i++)
		fixture_pass(1000);
	ck_assert(executor_is_lost(&fixture.executor));
}

TEST(good, a_held_session_is_left_alone_and_marked)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	word_release(&fixture.tenant->view.server->state, SHM_SESSION_HELD);
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	word_release(&fixture.tenant->view.server->state, SHM_SESSION_RUNNING);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
}

TEST(good, a_refused_launch_is_a_late_error)
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

/* Its module was unloaded meanwhile. Another one may have the number: function 1 has arguments. */
TEST_LOOP(good, a_launch_of_what_is_not_there_is_a_late_error, 0, 3)
{
	static const uint32_t numbers[] = {1, 2, FUNCTION_MAX};
	const struct frmps_launch launch = {.function = numbers[_i]};

	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_LAUNCH, 1, FRMPS_CMD_MARK, &launch, sizeof(launch));
	fixture_launch(1, FRMPS_CMD_MARK, 3);
	fixture_turn();
	fake_arrive();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fixture_done(1), 3);
	ck_assert_uint_eq(fixture_offences(), 0);
}

TEST(good, a_refused_first_command_is_done_at_once)
{
	fake.fails[FAKE_STREAM_CREATE] = CUDA_ERROR_OUT_OF_MEMORY;
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
}

TEST(good, a_failed_mark_is_tried_again)
{
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].marked), 0);
	ck_assert_uint_lt(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	fake.fails[FAKE_MARK] = 0;
	fixture_pass(1000);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 1);
}

TEST(good, a_lost_context_stops_everything)
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
	/* Whose kernel it was the backend knows, if anybody. */
	ck_assert_uint_eq(words.session, 0);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
	backend_last_words = NULL;
}

/* ---- ill-behaved ---- */

#define MAPPED FIXTURE_WINDOW
#define END    (FIXTURE_WINDOW + FIXTURE_DEVICE / 2)
#define HOST   (FIXTURE_WINDOW + FIXTURE_DEVICE)
#define ARENA  (1u << 20) /* bytes */

#define LINE(to, of, bytes, how)                                                                             \
	{                                                                                                    \
		.dst = to, .src = of, .width = bytes, .height = 1, .depth = 1, .kind = how                   \
	}

static const struct frmps_copy bad_copies[] = {
	LINE(END - 10, MAPPED, 11, 0),
	LINE(MAPPED, END - 10, 11, 0),
	LINE(UINT64_MAX - 10, MAPPED, 64, 0),
	LINE(MAPPED, 4096, 64, 0),
	LINE(MAPPED, 0, UINT64_MAX, FRMPS_COPY_SRC_ARENA),
	LINE(ARENA - 10, MAPPED, 11, FRMPS_COPY_DST_ARENA),
	LINE(UINT64_MAX, MAPPED, 64, FRMPS_COPY_DST_ARENA),
	LINE(HOST + 4096, MAPPED, 1, FRMPS_COPY_DST_HOST),
	LINE(MAPPED, MAPPED, 1, FRMPS_COPY_DST_HOST),
	LINE(HOST, MAPPED, 1, 0),
	LINE(MAPPED, MAPPED, 0, 0),
	LINE(MAPPED, MAPPED, 64, 16),
	LINE(MAPPED, MAPPED, 64, FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST),
	{.dst = MAPPED, .src = MAPPED, .width = 64, .height = 1, .depth = 1, .reserved = 1},
	{.dst = MAPPED, .src = MAPPED, .width = 64, .height = 2, .depth = 1},
	{.dst = MAPPED,
		.src = MAPPED,
		.width = 64,
		.height = UINT64_MAX,
		.depth = 1,
		.dst_pitch = 64,
		.src_pitch = 64},
	{.dst = MAPPED,
		.src = MAPPED,
		.width = 64,
		.height = 1,
		.depth = 2,
		.dst_pitch = 64,
		.src_pitch = 64},
};

/* Bodies of one op that break its rules. A WAKE is a directive. */
static const struct {
	uint16_t op;
	uint32_t bytes;
	union {
		struct frmps_launch launch;
		struct frmps_wake wake;
		struct frmps_write_value value;
		struct frmps_set set;
		struct frmps_event_record event;
		struct frmps_depend depend;
	} body;
} bad_bodies[] = {
	{FRMPS_OP_LAUNCH, 40, {.launch = {.function = 1, .argument_bytes = 8}}},
	{FRMPS_OP_LAUNCH, 40, {.launch = {.function = 1, .attribute_count = UINT32_MAX}}},
	{FRMPS_OP_WAKE, 8, {.wake = {1}}},
	{FRMPS_OP_DEPEND, 16, {.depend = {.stream = 2, .seq = 1, .event = FRMPS_NO_EVENT}}},
	{FRMPS_OP_DEPEND, 16, {.depend = {.stream = 1, .seq = 1, .event = FRMPS_NO_EVENT}}},
	{FRMPS_OP_DEPEND, 16, {.depend = {.stream = SHM_STREAMS, .event = FRMPS_NO_EVENT}}},
	{FRMPS_OP_DEPEND, 16, {.depend = {.stream = 2, .event = SHM_EVENTS}}},
	{FRMPS_OP_WRITE_VALUE, 24, {.value = {.address = MAPPED + 2, .bytes = 4}}},
	{FRMPS_OP_WRITE_VALUE, 24, {.value = {.address = MAPPED, .bytes = 2}}},
	{FRMPS_OP_WRITE_VALUE, 24, {.value = {.address = END, .bytes = 4}}},
	{FRMPS_OP_WRITE_VALUE, 24, {.value = {.address = MAPPED, .bytes = 4, .flags = 2}}},
	{FRMPS_OP_WAIT_VALUE, 24, {.value = {.address = 8, .bytes = 4}}},
	{FRMPS_OP_SET, 40, {.set = {.dst = MAPPED, .width = 4, .height = 1, .element_bytes = 3}}},
	{FRMPS_OP_SET, 40,
		{.set = {.dst = MAPPED, .width = UINT64_MAX / 2, .height = 1, .element_bytes = 4}}},
	{FRMPS_OP_SET, 40, {.set = {.dst = MAPPED + 1, .width = 4, .height = 1, .element_bytes = 4}}},
	{FRMPS_OP_EVENT_RECORD, 8, {.event = {.event = SHM_EVENTS}}},
	{FRMPS_OP_EVENT_RECORD, 8, {.event = {.flags = 2}}},
};

/* Heads, each with `size` 0 standing for the right one. */
static const struct frmps_head bad_heads[] = {
	{.op = 0, .stream = 1, .seq = 1},
	{.op = 99, .stream = 1, .seq = 1},
	{.op = 65535, .stream = 1, .seq = 1},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 2},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 0},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = SHM_STREAMS, .seq = 1},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .reserved = 1},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .flags = 4},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .flags = FRMPS_CMD_COOPERATIVE},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .size = 48},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .size = 128},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .size = 16},
	{.op = FRMPS_OP_HOST_FUNCTION, .stream = 1, .seq = 1, .size = 33},
	{.op = FRMPS_OP_MARK, .stream = 1, .seq = 1},
	{.op = FRMPS_OP_PAD, .size = FRMPS_RECORD_MAX + 16},
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define COPIES	     ((int)COUNT(bad_copies))
#define BODIES	     ((int)COUNT(bad_bodies))
#define HEADS	     ((int)COUNT(bad_heads))

static void put_head(struct frmps_head head)
{
	uint8_t *at = ring_reserve(&fixture.ring, 64);

	head.size = head.size ? head.size : 32;
	memset(at, 0, 64);
	memcpy(at, &head, sizeof(head));
	ring_publish(&fixture.ring, 64);
}

static void put_body(int row)
{
	uint16_t op = bad_bodies[row].op;

	if (op == FRMPS_OP_WAKE)
		fixture_direct(op, 1, &bad_bodies[row].body, bad_bodies[row].bytes);
	else
		fixture_put(op, 1, 0, &bad_bodies[row].body, bad_bodies[row].bytes);
}

static void repeat_a_seq(void)
{
	fixture_launch(1, 0, 1);
	fixture.seq[1] = 0;
	fixture_launch(1, 0, 1);
}

static void leave_a_gap(void)
{
	fixture.seq[1] = 7;
	fixture_launch(1, 0, 1);
}

static void publish_half_a_word(void)
{
	word_release(&fixture.client.client->tail, 3);
}

static void publish_more_than_a_ring(void)
{
	word_release(&fixture.client.client->tail, 1u << 21);
}

static void (*const others[])(void) = {
	repeat_a_seq, leave_a_gap, publish_half_a_word, publish_more_than_a_ring};

#define MISBEHAVIOURS (COPIES + BODIES + HEADS + (int)COUNT(others))

/* Each of these must be an offence. */
static void misbehave(int how)
{
	if (how < COPIES)
		fixture_put(FRMPS_OP_COPY, 1, 0, &bad_copies[how], sizeof(bad_copies[how]));
	else if (how < COPIES + BODIES)
		put_body(how - COPIES);
	else if (how < COPIES + BODIES + HEADS)
		put_head(bad_heads[how - COPIES - BODIES]);
	else
		others[how - COPIES - BODIES - HEADS]();
}

TEST_LOOP(bad, every_offence_is_one, 0, MISBEHAVIOURS)
{
	misbehave(_i);
	fixture_turn();
	fixture_launch(1, 0, 1);
	fixture_turn();
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_offences(), 1);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->error), CUDA_ERROR_MPS_CLIENT_TERMINATED);
	ck_assert_uint_eq(fake_count(FAKE_COPY) + fake_count(FAKE_SET) + fake_count(FAKE_WRITE), 0);
	ck_assert_uint_le(fake_count(FAKE_LAUNCH), 1);
	retire_mark_all(fixture.tenant);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
}

TEST(bad, what_the_program_has_been_told_stays)
{
	struct shm_server_header *server = fixture.tenant->view.server;

	/* By the daemon, while the executor finds another reason. */
	word_set(&server->error, CUDA_ERROR_LAUNCH_FAILED);
	word_release(&server->state, SHM_SESSION_FAULTED);
	tenant_offend(fixture.tenant, "it did something");
	ck_assert_uint_eq(fixture_offences(), 1);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->error), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(bad, too_many_waiting_commands)
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

/* Mostly valid values with some that are not, so that records get past the first checks. */
static uint64_t some_number(void)
{
	static const uint64_t numbers[] = {0, 1, 2, 4, 8, 63, 64, 4095, 4096, UINT32_MAX, UINT64_MAX,
		FIXTURE_WINDOW, FIXTURE_WINDOW + FIXTURE_DEVICE / 2 - 8, FIXTURE_WINDOW + FIXTURE_DEVICE,
		FIXTURE_WINDOW + FIXTURE_DEVICE + 4088, SHM_STREAMS, SHM_EVENTS};

	return rand() % 4 ? numbers[(unsigned)rand() % (sizeof(numbers) / sizeof(numbers[0]))]
			  : (uint64_t)rand();
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

/* The tables of streams and host functions are the client's to write, at any time. */
static void spoil_tables(void)
{
	unsigned slot = (unsigned)rand() % 8;

	fixture.client.client->streams[slot] = (struct shm_stream_entry){
		.flags = (uint32_t)some_number(), .priority = (int32_t)some_number(), .part = some_number()};
	word_release(&fixture.client.client->host[slot].started, some_number());
	word_release(&fixture.client.client->host[slot].done, some_number());
}

TEST(random, random_records)
{
	unsigned offences = 0;

	srand(2024);
	fixture_open_default();
	for (int i = 0; i < 4000; i++) {
		put_random();
		if (rand() % 8 == 0)
			spoil_tables();
		fixture_turn();
		if (rand() % 4 == 0)
			fake_arrive();
		if (!fixture.tenant->stopped)
			continue;
		ck_assert_uint_eq(fixture_offences(), 1);
		offences++;
		fixture_close();
		fixture_open_default();
	}
	ck_assert_uint_gt(offences, 100);
	fixture_close();
}

TEST(random, random_bytes)
{
	srand(5);
	for (int round = 0; round < 100; round++) {
		fixture_open_default();
		for (uint64_t i = 0; i < fixture.client.shape.ring_bytes / 64; i++)
			fixture.client.ring[(unsigned)rand() % fixture.client.shape.ring_bytes] =
				(uint8_t)rand();
		word_release(&fixture.client.client->tail, round % 3 ? 65536 : (uint64_t)rand());
		fixture_turn();
		ck_assert_uint_eq(fixture_offences(), 1);
		fixture_close();
	}
}

/* ---- journal pressure ---- */

static void open_few_blocks(void)
{
	fixture_open(4);
}

TEST(full_journal, a_full_journal_waits_and_hurts_nobody_else)
{
	/* Streams 1 … 4 each hold a block behind a host function; stream 5 finds none. */
	for (uint32_t slot = 1; slot <= 4; slot++)
		fixture_put(FRMPS_OP_HOST_FUNCTION, slot, 0, NULL, 0);
	fixture_launch(5, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	ck_assert(fixture.tenant->choked);
	ck_assert_uint_lt(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	word_release(&fixture.client.client->host[2].done, 1);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(2), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert(!fixture.tenant->choked);
	ck_assert_uint_eq(fixture_offences(), 0);
}

int main(void)
{
	Suite *suite = suite_create("intake");
	TCase *good = suite_case(suite, "well-behaved"), *bad = suite_case(suite, "ill-behaved");
	TCase *random = suite_case(suite, "random"), *full = suite_case(suite, "full journal");

	tcase_add_checked_fixture(good, fixture_open_default, fixture_close);
	suite_add(good, "good");
	tcase_add_checked_fixture(bad, fixture_open_default, fixture_close);
	suite_add(bad, "bad");
	/* Half a minute of processor time each, and more beside other tests. */
	tcase_set_timeout(random, 180);
	suite_add(random, "random");
	tcase_add_checked_fixture(full, open_few_blocks, fixture_close);
	suite_add(full, "full_journal");
	return suite_run(suite);
}
