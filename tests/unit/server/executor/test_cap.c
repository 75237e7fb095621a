// On which multiprocessors a session's kernels run: which group it gets, when it goes there, and in
// which order.

#include <pthread.h>
#include <sched.h>

#include "server/executor/cap.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

#define GRANULE 8u
#define UNITS	15u

static void have_units(void)
{
	fixture.executor.device.sm_granule = GRANULE;
	fixture.executor.device.sm_units = UNITS;
}

static void open_device(void)
{
	fixture_open_default();
	have_units();
}

/* As the daemon does. */
static void set_sms(uint32_t count)
{
	word_release(&fixture.tenant->view.server->share, count << SHM_SHARE_SMS_SHIFT);
}

/* As the module thread does in a gap. */
static void make_wanted(void)
{
	ck_assert(cap_waits(&fixture.executor));
	cap_make_wanted(&fixture.executor);
	ck_assert(!cap_waits(&fixture.executor));
}

/* Of the stream that was made last. */
static uint64_t latest_sms(void)
{
	return fake_call(FAKE_STREAM_CREATE, fake_count(FAKE_STREAM_CREATE) - 1)->value;
}

static uint64_t made(unsigned n)
{
	return fake_call(FAKE_SMS_MAKE, n)->value;
}

TEST(cap, without_a_cap_nothing_is_made)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert(!cap_waits(&fixture.executor));
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 0);
	ck_assert_uint_eq(latest_sms(), 0);
}

TEST(cap, a_session_stays_where_it_is_until_its_group_is_made)
{
	set_sms(4 * GRANULE);
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), 0);
	make_wanted();
	ck_assert_uint_eq(made(0), BACKEND_SMS(0, 4));
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 1);
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 2);
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 4));
	fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 2);
}

TEST(cap, a_stream_that_is_replaced_goes_on_in_order)
{
	const struct fake_call *record, *wait;
	void *before, *after;

	fixture_launch(1, 0, 1);
	fixture_turn();
	set_sms(GRANULE);
	fixture_turn();
	make_wanted();
	fixture_launch(1, 0, 2);
	fixture_turn();
	before = fake_call(FAKE_LAUNCH, 0)->stream;
	after = fake_call(FAKE_LAUNCH, 1)->stream;
	record = fake_call(FAKE_RECORD, 0);
	wait = fake_call(FAKE_WAIT, 0);
	ck_assert_ptr_ne(before, after);
	ck_assert_ptr_eq(record->stream, before);
	ck_assert_ptr_eq(wait->stream, after);
	ck_assert_ptr_eq(wait->object, record->object);
	/* What is done is known in the order of the stream: the mark comes before the event. */
	ck_assert_ptr_eq(fake_call(FAKE_MARK, 0)->stream, before);
	ck_assert_int_lt(fake_position(FAKE_MARK, 0), fake_position(FAKE_RECORD, 0));
	ck_assert_int_lt(fake_position(FAKE_RECORD, 0), fake_position(FAKE_WAIT, 0));
	ck_assert_int_lt(fake_position(FAKE_WAIT, 0), fake_position(FAKE_STREAM_DESTROY, 0));
	ck_assert_int_lt(fake_position(FAKE_WAIT, 0), fake_position(FAKE_LAUNCH, 1));
	ck_assert_ptr_eq(fake_call(FAKE_STREAM_DESTROY, 0)->object, before);
	fake_arrive();
	fixture_pass(1000);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 2);
}

/* The same with the priority that the program gives it. */
TEST(cap, a_stream_of_another_priority_goes_on_in_order)
{
	fixture.client.client->streams[1].priority = -1;
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_int_eq(fake.priority, -1);
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 1);
	fixture.client.client->streams[1].priority = -4;
	fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_int_eq(fake.priority, -4);
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 2);
	ck_assert_ptr_eq(fake_call(FAKE_WAIT, 0)->stream, fake_call(FAKE_LAUNCH, 2)->stream);
	ck_assert_ptr_ne(fake_call(FAKE_LAUNCH, 2)->stream, fake_call(FAKE_LAUNCH, 1)->stream);
	ck_assert_int_lt(fake_position(FAKE_WAIT, 0), fake_position(FAKE_LAUNCH, 2));
}

TEST(cap, a_stream_whose_work_is_done_waits_for_nothing)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	fake_arrive();
	set_sms(GRANULE);
	fixture_turn();
	make_wanted();
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 1));
	ck_assert_uint_eq(fake_count(FAKE_WAIT), 0);
}

TEST(cap, a_stream_that_cannot_be_replaced_stays)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	set_sms(GRANULE);
	fixture_turn();
	make_wanted();
	fake_let_fail(FAKE_WAIT, CUDA_ERROR_OUT_OF_MEMORY);
	fixture_launch(1, 0, 2);
	fixture_turn();
	/* The one that was to take its place is gone, and the command is where the one before
	 * is. */
	ck_assert_uint_eq(fake_count(FAKE_STREAM_DESTROY), 1);
	ck_assert_ptr_ne(fake_call(FAKE_STREAM_DESTROY, 0)->object, fake_call(FAKE_LAUNCH, 0)->stream);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_ptr_eq(fake_call(FAKE_LAUNCH, 1)->stream, fake_call(FAKE_LAUNCH, 0)->stream);
	fake_let_fail(FAKE_WAIT, CUDA_SUCCESS);
	fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
	ck_assert_ptr_ne(fake_call(FAKE_LAUNCH, 2)->stream, fake_call(FAKE_LAUNCH, 0)->stream);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 0);
}

TEST(cap, a_group_that_cannot_be_made_changes_nothing)
{
	set_sms(GRANULE);
	fixture_turn();
	fake_let_fail(FAKE_SMS_MAKE, CUDA_ERROR_OUT_OF_MEMORY);
	make_wanted();
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), 0);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	set_sms(2 * GRANULE);
	fixture_turn();
	fake_let_fail(FAKE_SMS_MAKE, CUDA_SUCCESS);
	make_wanted();
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 2));
}

/* A program that fills the device does not get rid of its cap, or another one's, for good. */
TEST(cap, a_group_that_was_refused_is_made_when_it_can_be)
{
	set_sms(GRANULE);
	fixture_turn();
	fake_let_fail(FAKE_SMS_MAKE, CUDA_ERROR_OUT_OF_MEMORY);
	make_wanted();
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), 0);
	/* For it alone no gap is made, and none is held up by it more than once. */
	ck_assert(!cap_waits(&fixture.executor));
	cap_make_wanted(&fixture.executor);
	ck_assert_uint_eq(fake_count_failed(FAKE_SMS_MAKE), 1);
	cap_make_all(&fixture.executor);
	ck_assert_uint_eq(fake_count_failed(FAKE_SMS_MAKE), 2);
	fake_let_fail(FAKE_SMS_MAKE, CUDA_SUCCESS);
	cap_make_all(&fixture.executor);
	ck_assert(!cap_waits(&fixture.executor));
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 1));
}

TEST(cap, a_next_executor_has_it_from_the_first_command_on)
{
	set_sms(3 * GRANULE);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	make_wanted();
	fake_arrive();
	fixture_kill();
	have_units();
	cap_look(fixture.tenant);
	make_wanted();
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_NOTHING, CUDA_SUCCESS, ""), TAKEOVER_CLEAN);
	fixture_launch(1, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 3));
}

/* ---- who gets which ---- */

struct other {
	struct shm_server_header server;
	struct tenant tenant;
};

static uint64_t place_of(struct other *other, uint32_t count)
{
	other->tenant.executor = &fixture.executor;
	other->tenant.view.server = &other->server;
	word_release(&other->server.share, count << SHM_SHARE_SMS_SHIFT);
	cap_look(&other->tenant);
	cap_make_wanted(&fixture.executor);
	cap_look(&other->tenant);
	return word_acquire(&other->tenant.sms);
}

static struct other others[4];

TEST(cap, sessions_do_not_meet_while_there_is_room)
{
	ck_assert_uint_eq(place_of(&others[0], 5 * GRANULE), BACKEND_SMS(0, 5));
	ck_assert_uint_eq(place_of(&others[1], 5 * GRANULE), BACKEND_SMS(5, 5));
	ck_assert_uint_eq(place_of(&others[2], 2 * GRANULE), BACKEND_SMS(10, 2));
	ck_assert_uint_eq(place_of(&others[3], 3 * GRANULE), BACKEND_SMS(12, 3));
	/* Room is found again. */
	cap_leave(&others[1].tenant);
	others[1] = (struct other){0};
	ck_assert_uint_eq(place_of(&others[1], GRANULE), BACKEND_SMS(5, 1));
}

/* Where a size does not divide the device, the last place overlaps the one before. */
TEST(cap, a_device_is_covered_to_its_end)
{
	ck_assert_uint_eq(place_of(&others[0], 8 * GRANULE), BACKEND_SMS(0, 8));
	ck_assert_uint_eq(place_of(&others[1], 8 * GRANULE), BACKEND_SMS(7, 8));
	ck_assert_uint_eq(place_of(&others[2], UNITS * GRANULE), BACKEND_SMS(0, 15));
	/* More than there is, less than a unit, and nothing. */
	ck_assert_uint_eq(place_of(&others[3], 1000), BACKEND_SMS(0, 15));
	ck_assert_uint_eq(place_of(&others[3], GRANULE - 1), 0);
	ck_assert_uint_eq(place_of(&others[3], 0), 0);
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 3);
}

TEST(cap, a_session_that_gets_less_leaves_what_it_had)
{
	ck_assert_uint_eq(place_of(&others[0], 10 * GRANULE), BACKEND_SMS(0, 10));
	ck_assert_uint_eq(place_of(&others[0], GRANULE), BACKEND_SMS(0, 1));
	ck_assert_uint_eq(place_of(&others[0], 0), 0);
	ck_assert_uint_eq(place_of(&others[1], 7 * GRANULE), BACKEND_SMS(0, 7));
	for (unsigned i = 0; i < UNITS; i++)
		ck_assert_uint_eq(fixture.executor.caps.sessions[i], i < 7);
}

/* ---- partitions ---- */

#define ALL BACKEND_SMS(0, UNITS)

/* A look at a time, ns. @partition: as the daemon does */
static uint64_t place_with(struct other *other, uint64_t partition, uint64_t now)
{
	word_release(&other->server.partition, partition);
	other->tenant.now = now;
	return place_of(
		other, (word_relaxed(&other->server.share) & SHM_SHARE_SMS_MASK) >> SHM_SHARE_SMS_SHIFT);
}

/* One with work at that time. */
static uint64_t place_busy(struct other *other, uint64_t partition, uint64_t now)
{
	other->tenant.busy_at = now;
	return place_with(other, partition, now);
}

TEST(cap, a_partition_keeps_others_off_while_it_has_work)
{
	const uint64_t partition = BACKEND_SMS(11, 4), rest = BACKEND_SMS(0, 11);

	ck_assert_uint_eq(place_with(&others[0], 0, 1), 0);
	ck_assert_uint_eq(place_busy(&others[1], partition, 1), partition);
	ck_assert(cap_is_due(&others[0].tenant));
	ck_assert_uint_eq(place_with(&others[0], 0, 1), rest);
	/* One more of the same partition. */
	ck_assert_uint_eq(place_busy(&others[2], partition, 1), partition);
	ck_assert(!cap_is_due(&others[0].tenant));
	cap_leave(&others[1].tenant);
	ck_assert(!cap_is_due(&others[0].tenant));
	cap_leave(&others[2].tenant);
	ck_assert_uint_eq(place_with(&others[0], 0, 1), 0);
}

TEST(cap, a_partition_is_lent_while_it_has_none)
{
	const uint64_t partition = BACKEND_SMS(11, 4), rest = BACKEND_SMS(0, 11);
	uint64_t now = 5 * CAP_LEND_NS;

	fixture_turn();
	word_release(&fixture.tenant->view.server->partition, partition);
	fixture.tenant->busy_at = fixture.tenant->now = now;
	cap_look(fixture.tenant);
	ck_assert_uint_eq(place_with(&others[0], 0, now), rest);
	ck_assert_uint_eq(cap_next_look(fixture.tenant), now + CAP_LEND_NS);
	cap_look(fixture.tenant);
	fixture.tenant->now = now + CAP_LEND_NS - 1;
	ck_assert(!cap_is_due(fixture.tenant));
	fixture.tenant->now = now + CAP_LEND_NS;
	ck_assert(cap_is_due(fixture.tenant));
	cap_look(fixture.tenant);
	ck_assert_uint_eq(cap_next_look(fixture.tenant), UINT64_MAX);
	ck_assert_uint_eq(place_with(&others[0], 0, now), 0);
	/* Its own place is what it was, and it comes back to that. */
	fixture.tenant->busy_at = fixture.tenant->now;
	ck_assert(cap_is_due(fixture.tenant));
	cap_look(fixture.tenant);
	ck_assert_uint_eq(place_with(&others[0], 0, now), rest);
	ck_assert_uint_eq(word_relaxed(&fixture.tenant->sms), partition);
}

TEST(cap, a_long_kernel_is_work)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	word_release(&fixture.tenant->view.server->partition, BACKEND_SMS(11, 4));
	fixture.tenant->busy_at = 1;
	fixture.tenant->now = 1 + CAP_LEND_NS;
	cap_look(fixture.tenant);
	ck_assert(!fixture.tenant->cap.keeps);
	fixture.tenant->busy_at = fixture.tenant->now;
	cap_look(fixture.tenant);
	ck_assert(fixture.tenant->cap.keeps);
	fixture.tenant->now += CAP_LEND_NS;
	cap_look(fixture.tenant);
	ck_assert(fixture.tenant->cap.keeps);
	ck_assert_uint_eq(cap_next_look(fixture.tenant), fixture.tenant->now + CAP_LEND_NS);
}

TEST(cap, a_partition_changes_and_goes)
{
	ck_assert_uint_eq(place_busy(&others[0], BACKEND_SMS(13, 2), 1), BACKEND_SMS(13, 2));
	/* Units need not follow each other. */
	ck_assert_uint_eq(place_busy(&others[1], BACKEND_SMS(10, 3), 1), BACKEND_SMS(10, 3));
	ck_assert_uint_eq(place_busy(&others[0], BACKEND_SMS(13, 2) | 1, 1), BACKEND_SMS(13, 2) | 1);
	ck_assert_uint_eq(place_with(&others[2], 0, 1), BACKEND_SMS(1, 9));
	ck_assert_uint_eq(place_busy(&others[0], 0, 1), BACKEND_SMS(0, 10) | BACKEND_SMS(13, 2));
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(place_with(&others[2], 0, 1), 0);
	ck_assert_uint_eq(place_with(&others[0], 0, 1), 0);
}

TEST(cap, caps_hold_within_a_partition_and_beside_it)
{
	const uint64_t partition = BACKEND_SMS(11, 4);

	word_release(&others[0].server.share, 2 * GRANULE << SHM_SHARE_SMS_SHIFT);
	word_release(&others[1].server.share, 2 * GRANULE << SHM_SHARE_SMS_SHIFT);
	word_release(&others[2].server.share, 12 * GRANULE << SHM_SHARE_SMS_SHIFT);
	ck_assert_uint_eq(place_busy(&others[0], partition, 1), BACKEND_SMS(11, 2));
	ck_assert_uint_eq(place_busy(&others[1], partition, 1), BACKEND_SMS(13, 2));
	ck_assert_uint_eq(place_with(&others[2], 0, 1), BACKEND_SMS(0, 11));
	/* What is for certain is no cap. */
	ck_assert_uint_eq(place_with(&others[3], 0, 1), BACKEND_SMS(0, 11));
	word_release(&others[3].server.share, 11 * GRANULE << SHM_SHARE_SMS_SHIFT | SHM_SHARE_LENT);
	cap_look(&others[3].tenant);
	ck_assert_uint_eq(cap_sms(&others[3].tenant, 0), BACKEND_SMS(0, 11));
	cap_leave(&others[0].tenant);
	cap_leave(&others[1].tenant);
	cap_look(&others[3].tenant);
	ck_assert_uint_eq(cap_sms(&others[3].tenant, 0), 0);
}

/* ---- classes ---- */

/* An offline session's place at that time. @more: bits of its share */
static uint64_t place_offline(struct other *other, uint32_t more, uint64_t now)
{
	other->tenant.executor = &fixture.executor;
	other->tenant.view.server = &other->server;
	other->tenant.now = now;
	word_release(&other->server.share, SHM_SHARE_OFFLINE | more);
	cap_look(&other->tenant);
	cap_make_wanted(&fixture.executor);
	cap_look(&other->tenant);
	return word_acquire(&other->tenant.sms);
}

TEST(cap, offline_sessions_leave_room_while_an_online_one_has_work)
{
	const uint64_t most = BACKEND_SMS(0, 12);
	uint64_t now = 5 * CAP_LEND_NS;

	word_set(&fixture.executor.sharing, 1);
	fixture.tenant->now = now;
	fixture.tenant->busy_at = 1;
	cap_look(fixture.tenant);
	ck_assert_uint_eq(place_offline(&others[0], 0, now), 0);
	/* Where it goes then is there before. */
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 1);
	ck_assert_uint_eq(made(0), most);
	fixture.tenant->busy_at = now;
	ck_assert(cap_is_due(fixture.tenant));
	cap_look(fixture.tenant);
	ck_assert_uint_eq(cap_sms(fixture.tenant, 0), 0);
	ck_assert(cap_is_due(&others[0].tenant));
	cap_look(&others[0].tenant);
	ck_assert_uint_eq(cap_sms(&others[0].tenant, 0), most);
	ck_assert(!cap_is_due(&others[0].tenant));
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 1);
	ck_assert_uint_eq(cap_next_look(fixture.tenant), now + CAP_LEND_NS);
	fixture.tenant->now = now + CAP_LEND_NS;
	cap_look(fixture.tenant);
	ck_assert_uint_eq(place_offline(&others[0], 0, now), 0);
}

TEST(cap, who_leaves_is_no_leader)
{
	word_set(&fixture.executor.sharing, 1);
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(place_busy(&others[2], 0, 1), 0);
	ck_assert_uint_eq(place_offline(&others[0], 0, 1), BACKEND_SMS(0, 12));
	cap_leave(&others[1].tenant);
	ck_assert(!cap_is_due(&others[0].tenant));
	/* Nor is one that becomes offline. */
	place_offline(&others[2], 0, 1);
	ck_assert_uint_eq(place_offline(&others[0], 0, 1), 0);
}

TEST(cap, offline_sessions_with_a_cap_or_a_partition_have_no_more)
{
	word_set(&fixture.executor.sharing, 1);
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(
		place_offline(&others[0], 6 * GRANULE << SHM_SHARE_SMS_SHIFT, 1), BACKEND_SMS(0, 6));
	ck_assert_uint_eq(
		place_offline(&others[2], 6 * GRANULE << SHM_SHARE_SMS_SHIFT, 1), BACKEND_SMS(6, 6));
	word_release(&others[3].server.partition, BACKEND_SMS(11, 4));
	ck_assert_uint_eq(place_offline(&others[3], 0, 1), BACKEND_SMS(11, 4));
}

/* What would be left free is not for it. */
TEST(cap, who_has_a_partition_is_no_leader)
{
	word_set(&fixture.executor.sharing, 1);
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(place_offline(&others[0], 0, 1), BACKEND_SMS(0, 12));
	place_busy(&others[1], BACKEND_SMS(11, 4), 1);
	ck_assert_uint_eq(place_offline(&others[0], 0, 1), BACKEND_SMS(0, 11));
}

/* There is nothing that could be left free. */
TEST_LOOP(cap, no_room_is_left_on_a_device_of_few_units, 0, SHM_SHARE_ONLINE_PART)
{
	fixture.executor.device.sm_units = (uint32_t)_i;
	fixture.executor.device.sm_granule = _i ? GRANULE : 0;
	word_set(&fixture.executor.sharing, 1);
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(place_offline(&others[0], 0, 1), 0);
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 0);
	ck_assert_uint_eq(fixture.executor.caps.count, 0);
}

/* Its own place is not taken by itself. */
TEST(cap, an_offline_session_that_stays_where_it_is_needs_no_second_group)
{
	word_set(&fixture.executor.sharing, 1);
	ck_assert_uint_eq(
		place_offline(&others[0], 6 * GRANULE << SHM_SHARE_SMS_SHIFT, 1), BACKEND_SMS(0, 6));
	ck_assert_uint_eq(fixture.executor.caps.count, 1);
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(
		place_offline(&others[0], 6 * GRANULE << SHM_SHARE_SMS_SHIFT, 1), BACKEND_SMS(0, 6));
	ck_assert_uint_eq(fixture.executor.caps.count, 1);
}

TEST(cap, without_offline_sessions_nobody_leads)
{
	ck_assert_uint_eq(place_busy(&others[1], 0, 1), 0);
	ck_assert_uint_eq(cap_next_look(&others[1].tenant), UINT64_MAX);
	ck_assert_uint_eq(word_relaxed(&fixture.executor.caps.leaders), 0);
}

/* What is on its way for a program in the region is no number that an executor trusts. */
TEST(cap, units_that_the_device_does_not_have_are_nobodys)
{
	ck_assert_uint_eq(place_busy(&others[0], UINT64_MAX << UNITS, 1), 0);
	ck_assert_uint_eq(place_busy(&others[0], UINT64_MAX, 1), 0);
	/* And nobody is without. */
	ck_assert_uint_eq(place_with(&others[1], 0, 1), 0);
	for (unsigned i = 0; i < BACKEND_SM_UNITS_MAX; i++)
		ck_assert_uint_eq(fixture.executor.caps.keepers[i], i < UNITS);
}

/* The fixture's session has a partition and work. Return: its units */
static uint64_t take_partition(void)
{
	const uint64_t partition = BACKEND_SMS(11, 4);

	word_release(&fixture.tenant->view.server->partition, partition);
	fixture.tenant->busy_at = fixture.now;
	fixture_turn();
	ck_assert(fixture.tenant->cap.keeps);
	ck_assert_uint_eq(place_with(&others[0], 0, 1), ALL & ~partition);
	return partition;
}

/* Its program may live on for as long as it likes, with an error. */
TEST(cap, a_session_that_was_ended_keeps_nobody_off)
{
	take_partition();
	tenant_end(fixture.tenant, SHM_SESSION_FAULTED, CUDA_ERROR_ILLEGAL_ADDRESS, "");
	ck_assert_uint_le(serve_next_look(fixture.tenant, fixture.now), fixture.now + CAP_LEND_NS);
	fixture_pass(CAP_LEND_NS / CLOCK_US);
	ck_assert(!fixture.tenant->cap.keeps);
	ck_assert_uint_eq(place_with(&others[0], 0, 1), 0);
}

TEST(cap, what_an_ended_session_has_on_the_device_is_work)
{
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	take_partition();
	tenant_end(fixture.tenant, SHM_SESSION_FAULTED, CUDA_ERROR_ILLEGAL_ADDRESS, "");
	fixture_pass(CAP_LEND_NS / CLOCK_US);
	ck_assert(fixture.tenant->cap.keeps);
	fake_arrive();
	fixture_pass(CAP_LEND_NS / CLOCK_US);
	ck_assert(!fixture.tenant->cap.keeps);
}

/* A next executor knows the session, as a standby does. Activate names those that it serves. */
static void activate_next(uint64_t *sessions, uint32_t count)
{
	static struct packet packet;
	struct job *job;

	fixture_kill();
	have_units();
	cap_look(fixture.tenant);
	/* Groups of others are chosen as for later. */
	ck_assert(fixture.tenant->cap.keeps);
	job = job_new(&fixture.executor);
	job->message.type = WIRE_ACTIVATE;
	job->message.activate = (struct wire_activate){.generation = 2,
		.code = CUDA_ERROR_ILLEGAL_ADDRESS,
		.sessions = {sessions, count},
		.reason = ""};
	takeover_handle(job);
	ck_assert_int_eq(packet_receive(fixture.control[1], &packet), 0);
}

/* It had its error before. */
TEST(cap, a_session_that_a_next_executor_does_not_serve_keeps_nobody_off)
{
	take_partition();
	activate_next(NULL, 0);
	ck_assert(!fixture.tenant->cap.keeps);
	ck_assert_uint_eq(word_relaxed(&fixture.executor.caps.kept), 0);
}

TEST(cap, a_session_that_ends_while_it_is_taken_over_keeps_nobody_off)
{
	take_partition();
	word_release(&fixture.tenant->view.server->state, SHM_SESSION_CLOSED);
	activate_next(&(uint64_t){fixture.tenant->id}, 1);
	ck_assert(!fixture.tenant->cap.keeps);
	ck_assert_uint_eq(word_relaxed(&fixture.executor.caps.kept), 0);
}

/* Each set of partitions with work leaves others another set of units. */
TEST(cap, programs_in_many_partitions_do_not_make_groups_without_end)
{
	static struct other members[10];
	const uint64_t rest = BACKEND_SMS(0, UNITS - 10);

	word_release(&others[0].server.rest, rest);
	for (unsigned round = 1; round < 1u << 10; round++) {
		/* One that comes or goes. */
		unsigned n = (unsigned)__builtin_ctz(round);
		uint64_t unit = BACKEND_SMS(UNITS - 1 - n, 1), kept, place;

		if (members[n].tenant.cap.keeps) {
			cap_leave(&members[n].tenant);
			members[n] = (struct other){0};
		} else {
			ck_assert_uint_eq(place_busy(&members[n], unit, 1), unit);
		}
		kept = word_relaxed(&fixture.executor.caps.kept);
		place = place_with(&others[0], 0, 1);
		place = place ? place : ALL;
		ck_assert_msg(!(place & kept), "round %u: %#jx of %#jx are kept", round, (uintmax_t)place,
			(uintmax_t)kept);
		ck_assert_uint_eq(place & rest, rest);
		if (fixture.executor.caps.count < CAP_LENT_GROUPS)
			ck_assert_uint_eq(place, ALL & ~kept);
	}
	/* Those of the partitions, and the rest. */
	ck_assert_uint_le(fake_count(FAKE_SMS_MAKE), CAP_LENT_GROUPS + 10 + 1);
}

/* ---- at any moment ---- */

#define ROUNDS 100u

static word32 round_said, round_done;

static uint32_t sms_of_round(uint32_t round)
{
	return 1 + round % 2;
}

/* The daemon says another number each time that the executor has seen the one before. */
static void *say_again_and_again(void *unused)
{
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		set_sms(sms_of_round(round) * GRANULE);
		word_release(&round_said, round);
		while (word_acquire(&round_done) != round)
			sched_yield();
	}
	return unused;
}

TEST(cap, what_is_said_while_a_session_is_looked_at_is_not_lost)
{
	struct tenant *tenant = fixture.tenant;
	pthread_t daemon;

	word_release(&tenant->view.server->partition, BACKEND_SMS(11, 4));
	ck_assert_int_eq(pthread_create(&daemon, NULL, say_again_and_again, NULL), 0);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		/* It lends its partition and takes it back, again and again, wherever the daemon
		 * interrupts it. */
		while (word_acquire(&round_said) != round) {
			tenant->now += CAP_LEND_NS;
			cap_look(tenant);
			tenant->busy_at = tenant->now;
			cap_look(tenant);
		}
		cap_look(tenant);
		ck_assert_uint_eq(BACKEND_SMS_UNITS(tenant->cap.group->sms), sms_of_round(round));
		word_release(&round_done, round);
	}
	ck_assert_int_eq(pthread_join(daemon, NULL), 0);
}

int main(void)
{
	Suite *suite = suite_create("cap");
	TCase *tests = tcase_create("cap");

	tcase_add_checked_fixture(tests, open_device, fixture_close);
	suite_add(tests, "cap");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
