// One executor dies, the next takes the session over: what is in doubt, what is done about it, and
// that nothing is lost or run twice that must not be.

#include "server/executor/takeover.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

static const uint64_t x = FIXTURE_WINDOW, y = FIXTURE_WINDOW + 4096;

static void let_replay(void)
{
	fixture.tenant->replays = true;
}

static enum takeover_verdict take_over_replaying(void)
{
	uint32_t generation = word_acquire(&fixture.client.server->generation) + 1;

	fixture_kill();
	let_replay();
	return takeover_tenant(
		fixture.tenant, generation, TAKEOVER_BY_POLICY, CUDA_ERROR_LAUNCH_FAILED, "a fault");
}

TEST(doubt, nothing_happened_yet)
{
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->generation), 2);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 1);
}

/* Whether or not something of the session was under way, and the first executor is one of them. */
TEST(doubt, every_executor_that_serves_is_counted)
{
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->servings), 1);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->servings), 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_NOTHING), TAKEOVER_CLEAN);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->servings), 3);
}

TEST(doubt, what_is_done_stays_done)
{
	for (int i = 0; i < 100; i++)
		fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_launch(9, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fixture_done(1), 100);
	ck_assert_uint_eq(fixture_done(9), 1);
	fake.count = 0;
	fixture_turn();
	ck_assert_uint_eq(fake.count, 0);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 101);
}

TEST(doubt, a_kernel_in_doubt_is_a_fault_that_names_it)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->error), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "kernel scale"));
	/* Nothing is claimed to be done that is not. */
	ck_assert_uint_eq(fixture_done(1), 0);
}

TEST(doubt, a_kernel_in_doubt_is_repeated_if_the_client_vouches)
{
	for (uint8_t i = 1; i <= 3; i++)
		fixture_launch(1, 0, i);
	fixture_turn();
	ck_assert_int_eq(take_over_replaying(), TAKEOVER_REPEATS);
	fake.count = 0;
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	for (uint8_t i = 0; i < 3; i++)
		ck_assert_uint_eq(fake_call(FAKE_LAUNCH, i)->value, i + 1u);
	fixture_pass(100);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 3);
}

/* Rounds of upload, kernel, fetch without a wait between them: marks keep one round in doubt at a
 * time. */
TEST(doubt, rounds_are_repeated_if_the_client_vouches)
{
	let_replay();
	for (uint8_t i = 1; i <= 5; i++) {
		fixture_copy(1, x, 0, 64, FRMPS_COPY_SRC_ARENA);
		fixture_launch(1, 0, i);
		fixture_launch(1, 0, i);
		fixture_copy(1, FIXTURE_WINDOW + FIXTURE_DEVICE, y, 64, FRMPS_COPY_DST_HOST);
	}
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 4);
	fake_arrive_one();
	ck_assert_uint_eq(fixture_done(1), 4);
	ck_assert_int_eq(take_over_replaying(), TAKEOVER_REPEATS);
	fake.count = 0;
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 8);
	ck_assert_uint_eq(fake_call(FAKE_LAUNCH, 0)->value, 2);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 8);
}

TEST(doubt, copies_are_repeated)
{
	fixture_copy(1, x, y, 64, 0);
	fixture_set(2, FIXTURE_WINDOW + 8192, 64);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	ck_assert_uint_eq(fake_count(FAKE_SET), 2);
}

/* The same two, were it not that any address may be any memory. */
TEST(doubt, memory_at_two_addresses_may_be_any)
{
	fixture_copy(1, x, y, 64, 0);
	fixture_set(2, FIXTURE_WINDOW + 8192, 64);
	fixture_turn();
	fixture_kill();
	fixture.tenant->aliased = true;
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, CUDA_ERROR_ILLEGAL_ADDRESS, "a fault"),
		TAKEOVER_FAULTED);
}

TEST(doubt, a_copy_whose_source_may_be_gone_is_a_fault)
{
	fixture_copy(1, x, y, 64, 0);
	fixture_set(1, y + 32, 64);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "copy"));
}

TEST(doubt, a_mark_that_did_not_arrive_bounds_the_doubt)
{
	/* The copy has a mark behind it that did not arrive: the fill of its source cannot have
	 * begun. */
	fixture_copy(1, x, y, 64, 0);
	fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
	fixture_set(1, y, 64);
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	fake.count = 0;
	fixture_turn();
	ck_assert_int_lt(fake_position(FAKE_COPY, 0), fake_position(FAKE_SET, 0));
	ck_assert_int_lt(fake_position(FAKE_SET, 0), fake_position(FAKE_LAUNCH, 0));
	ck_assert_int_ge(fake_position(FAKE_COPY, 0), 0);
}

TEST(doubt, a_wait_that_did_not_pass_bounds_the_doubt)
{
	uint64_t seq = fixture_copy(1, x, y, 64, 0);

	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_launch(2, 0, 7);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	/* The kernel waits for a copy that is not done: it cannot have begun. */
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	fake.count = 0;
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

TEST(doubt, the_awaited_mark_came_and_the_kernel_is_in_doubt)
{
	uint64_t seq = fixture_copy(1, x, y, 64, 0);

	fixture_depend(2, 1, seq, FRMPS_NO_EVENT);
	fixture_launch(2, 0, 7);
	fixture_turn();
	ck_assert(fake_arrive_one());
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
}

TEST(doubt, waiting_commands_are_simply_issued)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 2);
	fixture_launch(1, FRMPS_CMD_MARK, 3);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	word_release(&fixture.client.client->host[1].started, 1);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 3);
}

TEST(doubt, streams_without_a_command_cost_nothing)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	ck_assert_uint_eq(shm_view_used(&fixture.tenant->view), 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fixture.tenant->known, 2);
}

TEST(doubt, a_host_function_proves_what_is_before_it)
{
	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_turn();
	fake_arrive();
	fixture_pass(100);
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].host_ready), 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fixture_done(1), 1);
}

TEST(doubt, a_satisfied_wait_is_not_repeated)
{
	struct frmps_wait_value wait = {.address = FIXTURE_WINDOW + FIXTURE_DEVICE,
		.value = 1,
		.bytes = 4,
		.flags = CU_STREAM_WAIT_VALUE_EQ};

	fixture_put(FRMPS_OP_WAIT_VALUE, 1, 0, &wait, sizeof(wait));
	fixture_turn();
	/* Died between "it goes on" and "it is done"; the word has changed again since. */
	word_release(&fixture.tenant->view.states[1].issued, 1);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fixture_done(1), 1);
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

TEST(doubt, a_signal_in_doubt_is_a_fault)
{
	struct frmps_write_value body = {.address = x, .value = 5, .bytes = 8};

	fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
}

TEST(doubt, a_signal_behind_a_copy_that_is_not_done_did_not_happen)
{
	struct frmps_write_value body = {.address = x + 8192, .value = 5, .bytes = 8};

	fixture_copy(1, x, y, 64, 0);
	fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
}

TEST(doubt, the_culprit_is_faulted)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_CULPRIT), TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->error), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(rest, a_record_that_is_in_journal_and_ring_runs_once)
{
	uint64_t head;

	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_turn();
	head = word_relaxed(&fixture.tenant->view.server->head);
	fixture_launch(1, 0, 2);
	fixture_launch(1, 0, 3);
	fixture_turn();
	/* Died before the ring's head was published. */
	word_release(&fixture.tenant->view.server->head, head);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_launch(1, 0, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	ck_assert_uint_eq(fixture_offences(), 0);
	for (uint8_t i = 0; i < 3; i++)
		ck_assert_uint_eq(fake_call(FAKE_LAUNCH, i)->value, i + 2u);
}

TEST(rest, what_lies_on_the_ring_is_served)
{
	fixture_launch(1, 0, 1);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

TEST(rest, a_second_death_in_the_middle_of_a_promotion)
{
	fixture_copy(1, x, y, 64, 0);
	fixture_copy(1, x + 8192, y, 64, 0);
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	/* The generation was published, the rest not: issued still says what the first executor
	 * said. */
	word_release(&fixture.tenant->view.states[1].issued, 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	fake.count = 0;
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	fixture_pass(100);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 2);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->generation), 3);
}

TEST(rest, timelines_of_dead_generations_do_not_count)
{
	for (int i = 0; i < 10; i++) {
		fixture_launch(1, FRMPS_CMD_MARK, 1);
		fixture_turn();
		fake_arrive();
		ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
		ck_assert_uint_eq(fixture_done(1), (unsigned)i + 1);
	}
}

static const struct frmps_event_record timed = {.event = 1, .flags = FRMPS_EVENT_TIMING};

/* What the client can read. */
static const struct shm_time *time_of_event(void)
{
	return &fixture.client.times[1];
}

TEST(rest, a_time_outlives_the_executor)
{
	fake.time = (struct backend_time){.local = 500, .device = 70500};
	fake.time_code = CUDA_ERROR_NOT_READY;
	fixture_put(FRMPS_OP_EVENT_RECORD, 1, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), 0);
	fake.time_code = CUDA_SUCCESS;
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(1, 1));
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(1, 1));
	ck_assert_uint_eq(word_acquire(&time_of_event()->epoch), 1);
	ck_assert_uint_eq(word_acquire(&time_of_event()->local), 500);
	ck_assert_uint_eq(word_acquire(&time_of_event()->device), 70500);
	/* A wait for it passes all the same. */
	fixture_depend(2, 1, 1, 1);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(2), 1);
	/* The next one counts on the next executor's clock. */
	fixture_put(FRMPS_OP_EVENT_RECORD, 1, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_turn();
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(1, 2));
	ck_assert_uint_eq(
		word_acquire(&time_of_event()->epoch), word_acquire(&fixture.client.server->generation));
}

/* The executor died between the mark and its own look: the client learns that nobody knows the
 * time. */
TEST(rest, a_time_that_nobody_wrote_is_said_to_be_lost)
{
	fake.time_code = CUDA_ERROR_NOT_READY;
	fixture_put(FRMPS_OP_EVENT_RECORD, 1, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].untimed), 0);
	fake_arrive();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), 0);
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].untimed), 1);
}

/* It was not done: the next executor records it again, and knows when. */
TEST(rest, a_record_that_is_repeated_has_a_time)
{
	fake.time = (struct backend_time){.local = 1, .device = 2};
	fixture_copy(1, x, y, 64, 0);
	fixture_put(FRMPS_OP_EVENT_RECORD, 1, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_turn();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_REPEATS);
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].untimed), 0);
	fake.count = 0; /* its marks went with the first executor */
	fixture_turn();
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(1, 2));
	ck_assert_uint_eq(word_acquire(&time_of_event()->epoch), 2);
}

/* The program recorded it again elsewhere, and that was over; what its first stream comes to
 * afterwards nobody asks for. */
TEST(rest, the_time_of_another_record_is_not_told)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_put(FRMPS_OP_EVENT_RECORD, 1, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_put(FRMPS_OP_EVENT_RECORD, 2, FRMPS_CMD_MARK, &timed, sizeof(timed));
	fixture_turn();
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(2, 1));
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	word_release(&fixture.client.client->host[1].started, 1);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_turn();
	fake_arrive();
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 2);
	/* Whoever asks for the one in the second stream does not get that of the first. */
	ck_assert_uint_eq(word_acquire(&time_of_event()->record), shm_place(1, 2));
}

TEST(rest, a_stray_write_into_the_timeline_is_not_believed)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	word_release(&fixture.tenant->timeline->stream[1].done, 1000000);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
}

TEST(rest, a_broken_journal_is_a_fault)
{
	fixture_launch(1, 0, 1);
	fixture_launch(1, 0, 2);
	fixture_turn();
	word_release(&fixture.tenant->view.states[1].head_block, 5000);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "journal"));
}

TEST(rest, a_long_backlog_is_issued_in_turns)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	for (unsigned i = 0; i < 1000; i++) {
		fixture_launch(1, 0, (uint8_t)i);
		fixture_turn();
	}
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	word_release(&fixture.client.client->host[1].done, 1);
	for (int i = 0; i < 100; i++) {
		fixture_pass(100);
		fake_arrive();
	}
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1000);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_uint_eq(fake_call(FAKE_LAUNCH, i)->value, (uint8_t)i);
	ck_assert_uint_eq(fixture_done(1), 1001);
}

/* Whatever ran may have written there; where nothing did, the images are as they were. */
TEST(rest, variables_that_were_lost_are_a_fault_if_anything_ran)
{
	range_set_add(&fixture.tenant->globals, 0x7000, 16);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	range_set_add(&fixture.tenant->globals, 0x7000, 16);
	fixture_kill();
	range_set_add(&fixture.tenant->globals, 0x7000, 16);
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 4, TAKEOVER_BY_POLICY, CUDA_ERROR_ILLEGAL_ADDRESS, "a fault"),
		TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->error), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "in its modules' variables"));
}

static jmp_buf killed;

/* The device gets the mark and writes it; the executor is killed before it is back from the
 * driver. */
static CUresult mark_and_die(struct backend_stream *stream, void *word, uint64_t value)
{
	(void)stream;
	word_release((word64 *)word, value);
	longjmp(killed, 1);
}

/* The program has seen it, and uses the piece of arena again. */
TEST(doubt, what_the_program_has_seen_done_is_done)
{
	static struct backend_ops ops;

	ops = fake_ops;
	ops.mark = mark_and_die;
	fixture.executor.ops = &ops;
	fixture_copy(1, x, 0, 64, FRMPS_COPY_SRC_ARENA);
	fixture_direct(FRMPS_OP_MARK, 1, NULL, 0);
	if (!setjmp(killed))
		fixture_turn();
	fixture.executor.ops = &fake_ops;
	ck_assert_uint_eq(shm_view_done(&fixture.client, 1), 1);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_BY_POLICY), TAKEOVER_CLEAN);
	ck_assert_uint_eq(shm_view_done(&fixture.client, 1), 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
}

TEST(doubt, a_session_that_the_daemon_has_ended_is_not_served)
{
	fixture_kill();
	word_release(&fixture.tenant->view.server->state, SHM_SESSION_CLOSED);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, ""), TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(word_relaxed(&fixture.tenant->generation), 0);
}

/* The sign came when it was not served here. */
TEST(doubt, a_session_is_as_doubtful_as_those_that_were_there)
{
	fixture_kill();
	fixture.executor.contain.phase = CONTAIN_SUSPECTED;
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, ""), TAKEOVER_CLEAN);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->doubtful), SHM_DOUBT);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
}

/* ---- several sessions ---- */

#define NEIGHBOUR UINT64_C(78)

static struct tenant *neighbour;
static uint32_t neighbour_woken;
static unsigned looks;

/* A serving thread that only gets its orders. */
static void open_pool(void)
{
	struct serve_thread *thread = aligned_alloc(SHM_LINE, sizeof(*thread));

	memset(thread, 0, sizeof(*thread));
	thread->epoll = -1;
	thread->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	STAILQ_INIT(&thread->orders);
	pthread_mutex_init(&thread->lock, NULL);
	fixture.executor.pool = (struct serve_pool){.threads = thread, .count = 1};
}

/* A session of which nothing is known yet, beside one that has done something and has a
 * constant. */
static void open_neighbours(void)
{
	static const struct constant constant = {
		{FIXTURE_WINDOW, FIXTURE_WINDOW + 64}, UINT64_C(0x7000000000), 1};
	struct wire_shape shape;
	int client_fd, server_fd;

	fixture_open_default();
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	fixture_kill();
	fake.immediate = true;
	open_pool();
	ck_assert_int_eq(variable_open(&fixture.executor), CUDA_SUCCESS);
	ck_assert_int_eq(constant_add(fixture.tenant, &constant), CUDA_SUCCESS);
	shm_shape_init(&shape, 1u << 20, 1u << 20, 64);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
	neighbour = tenant_new(&fixture.executor, NEIGHBOUR);
	ck_assert_int_eq(shm_view_map(&neighbour->view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	close(client_fd);
	close(server_fd);
	takeover_prepare(neighbour);
	TAILQ_INSERT_TAIL(&fixture.executor.tenants, neighbour, link);
	neighbour_woken = word_acquire(&neighbour->view.server->wake);
	looks = 0;
}

static void close_neighbours(void)
{
	serve_pool_deinit(&fixture.executor);
	variable_close(&fixture.executor);
	TAILQ_REMOVE(&fixture.executor.tenants, neighbour, link);
	shm_view_unmap(&neighbour->view);
	tenant_unref(neighbour);
	fixture_close();
}

/* Activate of both, the neighbour first. */
static void activate_both(void)
{
	const uint64_t sessions[] = {NEIGHBOUR, fixture.tenant->id};
	struct job *job = job_new(&fixture.executor);
	static struct packet packet;
	struct wire_message reply;

	job->message.type = WIRE_ACTIVATE;
	job->message.activate =
		(struct wire_activate){.generation = 2, .sessions = {sessions, 2}, .reason = ""};
	takeover_handle(job);
	ck_assert_int_eq(message_receive(fixture.control[1], &packet, &reply), 0);
	ck_assert_int_eq(reply.type, WIRE_REPLY);
	ck_assert_int_eq(reply.reply.code, CUDA_SUCCESS);
	ck_assert_uint_eq(reply.reply.values.count, 2);
	ck_assert_uint_eq(reply.reply.values.at[0], TAKEOVER_CLEAN);
	ck_assert_uint_eq(reply.reply.values.at[1], TAKEOVER_CLEAN);
}

/* The constant of the second session: the first one is taken over, and waits. */
static CUresult copy_and_look(struct backend_stream *stream, const struct backend_copy *copy)
{
	looks++;
	ck_assert_uint_eq(word_relaxed(&neighbour->generation), 2);
	ck_assert_ptr_null(neighbour->thread);
	ck_assert_uint_eq(word_relaxed(&neighbour->served), 0);
	ck_assert_uint_eq(word_acquire(&neighbour->view.server->wake), neighbour_woken);
	return fake_ops.copy(stream, copy);
}

TEST(several, nobody_is_served_before_all_are_taken_over)
{
	static struct backend_ops ops;

	ops = fake_ops;
	ops.copy = copy_and_look;
	fixture.executor.ops = &ops;
	activate_both();
	ck_assert_uint_eq(looks, 1);
	ck_assert_ptr_nonnull(neighbour->thread);
	ck_assert_ptr_nonnull(fixture.tenant->thread);
	ck_assert_uint_ne(word_acquire(&neighbour->view.server->wake), neighbour_woken);
}

TEST(several, a_session_is_served_once_however_often_it_is_activated)
{
	activate_both();
	activate_both();
	ck_assert_uint_eq(fixture.executor.pool.threads->load, 2);
}

int main(void)
{
	Suite *suite = suite_create("takeover");
	TCase *doubt = suite_case(suite, "doubt"), *rest = suite_case(suite, "rest"),
	      *several = suite_case(suite, "several");

	tcase_add_checked_fixture(doubt, fixture_open_default, fixture_close);
	suite_add(doubt, "doubt");
	tcase_add_checked_fixture(rest, fixture_open_default, fixture_close);
	suite_add(rest, "rest");
	tcase_add_checked_fixture(several, open_neighbours, close_neighbours);
	suite_add(several, "several");
	return suite_run(suite);
}
