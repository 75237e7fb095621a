// Streams with a part of their session's multiprocessors: where their kernels run, what waits until
// the part is ready, and what becomes of parts when the session moves.

#include "server/executor/cap.h"
#include "tests/unit/server/executor/fixture.h"

#define GRANULE 8u
#define UNITS	15u
#define ALL	132 /* 12 outside of all units */
#define OUTSIDE (UINT64_C(1) << UNITS)

static void open_device(void)
{
	fixture_open_default();
	fixture.executor.device.sm_granule = GRANULE;
	fixture.executor.device.sm_units = UNITS;
	fixture.executor.device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = ALL;
}

/* As the program does before the stream's first command. */
static void set_part(uint32_t stream, uint64_t part)
{
	shm_view_entry(&fixture.client, stream)->part = part;
}

/* As the module thread does in a gap. */
static void make_wanted(void)
{
	ck_assert(cap_waits(&fixture.executor));
	cap_make_wanted(&fixture.executor);
}

static void set_sms(uint32_t count)
{
	word_release(&fixture.tenant->view.server->share, count << SHM_SHARE_SMS_SHIFT);
	cap_look(fixture.tenant);
	make_wanted();
	cap_look(fixture.tenant);
}

static uint64_t latest_sms(void)
{
	return fake_call(FAKE_STREAM_CREATE, fake_count(FAKE_STREAM_CREATE) - 1)->value;
}

/* Launches in a stream with that part, which may have to be made ready. Return: where it runs */
static uint64_t run(uint32_t stream, uint64_t part)
{
	set_part(stream, part);
	fixture_launch(stream, 0, 1);
	fixture_turn();
	if (cap_waits(&fixture.executor))
		make_wanted();
	fixture_pass(1000);
	return latest_sms();
}

TEST(part, the_stream_waits_until_its_part_is_ready_and_others_go_on)
{
	set_part(1, BACKEND_SMS(2, 3));
	fixture_launch(1, 0, 1);
	fixture_launch(2, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(latest_sms(), 0);
	make_wanted();
	ck_assert_uint_eq(fake_call(FAKE_SMS_MAKE, 0)->value, BACKEND_SMS(2, 3));
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(2, 3));
	fixture_launch(1, 0, 3);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_STREAM_CREATE), 2);
}

TEST(part, parts_are_of_what_the_session_has)
{
	ck_assert_uint_eq(run(1, BACKEND_SMS(0, 2) | OUTSIDE), BACKEND_SMS(0, 2) | OUTSIDE);
	word_release(&fixture.tenant->view.server->partition, BACKEND_SMS(9, 4));
	set_sms(4 * GRANULE);
	ck_assert_uint_eq(run(2, BACKEND_SMS(1, 2)), BACKEND_SMS(10, 2));
	/* A stream that is there moves along; there is nothing outside of a session's units. */
	ck_assert_uint_eq(run(1, BACKEND_SMS(0, 2) | OUTSIDE), BACKEND_SMS(9, 2));
}

TEST(part, a_part_that_is_everything_or_nothing_is_the_session)
{
	ck_assert_uint_eq(run(1, BACKEND_SMS(0, UNITS) | OUTSIDE), 0);
	ck_assert_uint_eq(run(2, UINT64_MAX), 0);
	ck_assert_uint_eq(run(3, BACKEND_SMS(20, 2)), 0);
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 0);
	set_sms(2 * GRANULE);
	ck_assert_uint_eq(run(4, BACKEND_SMS(0, 3)), BACKEND_SMS(0, 2));
	ck_assert_uint_eq(run(5, BACKEND_SMS(2, 3)), BACKEND_SMS(0, 2));
}

TEST(part, without_units_there_are_no_parts)
{
	fixture.executor.device.sm_granule = fixture.executor.device.sm_units = 0;
	ck_assert_uint_eq(run(1, 1), 0);
	ck_assert_uint_eq(fake_count(FAKE_SMS_MAKE), 0);
}

static uint64_t open_part(uint32_t stream, uint64_t part)
{
	set_part(stream, part);
	fixture_put(FRMPS_OP_STREAM_OPEN, stream, FRMPS_CMD_MARK, NULL, 0);
	fixture_turn();
	if (cap_waits(&fixture.executor))
		make_wanted();
	fixture_pass(1000);
	return fixture_done(stream);
}

/* A program makes its parts ready before it gives them work, which may run for long. */
TEST(part, opening_a_stream_makes_it_ready)
{
	ck_assert_uint_eq(open_part(1, BACKEND_SMS(0, 1)), 1);
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(0, 1));
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 0);
}

TEST(part, a_part_that_is_refused_is_an_error_and_its_stream_runs_with_the_session)
{
	fake_let_fail(FAKE_SMS_MAKE, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(open_part(1, BACKEND_SMS(0, 1)), 1);
	ck_assert_uint_eq(latest_sms(), 0);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_error), CUDA_ERROR_OUT_OF_MEMORY);
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

/* Caps and partitions have places left. */
TEST(part, programs_cannot_take_all_groups)
{
	for (uint32_t i = 1; i <= CAP_PART_GROUPS; i++)
		ck_assert_uint_eq(open_part(i, i), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 0);
	ck_assert_uint_eq(open_part(CAP_PART_GROUPS + 1, CAP_PART_GROUPS + 1), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(latest_sms(), 0);
	set_sms(13 * GRANULE);
	ck_assert_uint_eq(word_relaxed(&fixture.tenant->sms), BACKEND_SMS(0, 13));
	/* Nor are those counted that are for lent units: an offline session leaves a part free. */
	word_release(&fixture.tenant->view.server->share, SHM_SHARE_OFFLINE);
	cap_look(fixture.tenant);
	make_wanted();
}

/* As the program does with a stream of another part in the same slot. */
TEST(part, a_slot_that_is_used_again_has_its_own_part)
{
	ck_assert_uint_eq(run(1, BACKEND_SMS(0, 1)), BACKEND_SMS(0, 1));
	fixture_put(FRMPS_OP_STREAM_DESTROY, 1, FRMPS_CMD_MARK, NULL, 0);
	fixture_turn();
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(run(1, BACKEND_SMS(3, 1)), BACKEND_SMS(3, 1));
}

TEST(part, a_next_executor_makes_parts_ready_when_it_takes_over)
{
	ck_assert_uint_eq(run(1, BACKEND_SMS(1, 2)), BACKEND_SMS(1, 2));
	fixture_kill();
	fixture.executor.device.sm_granule = GRANULE;
	fixture.executor.device.sm_units = UNITS;
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_REPLAY, CUDA_SUCCESS, ""), TAKEOVER_REPEATS);
	make_wanted();
	fixture_pass(1000);
	ck_assert_uint_eq(latest_sms(), BACKEND_SMS(1, 2));
}

int main(void)
{
	Suite *suite = suite_create("part");
	TCase *tests = tcase_create("part");

	tcase_add_checked_fixture(tests, open_device, fixture_close);
	suite_add(tests, "part");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
