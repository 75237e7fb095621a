// How much of the device a session may have: paused sessions. Time is the fixture's.

#include "server/executor/clock.h"
#include "server/executor/drain.h"
#include "server/executor/hold.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

/* As the daemon does. */
static void set_share(uint32_t share)
{
	word_release(&fixture.tenant->view.server->share, share);
}

/* ---- pauses ---- */

START_TEST(a_paused_session_issues_nothing_until_it_is_resumed)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(1, 0, 2);
	fixture_launch(2, 0, 3);
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	/* It stays on the ring, and nobody has to look. */
	ck_assert_uint_eq(word_acquire(&fixture.client.states[1].journaled), 1);
	fake_arrive();
	fixture_pass(1000);
	ck_assert_uint_eq(serve_next_look(fixture.tenant, fixture.now), UINT64_MAX);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 3);
}
END_TEST

START_TEST(what_a_paused_session_has_on_the_device_is_known_to_end)
{
	fixture_launch(1, 0, 1);
	ck_assert(serve_turn(fixture.tenant, fixture.now));
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	set_share(SHM_SHARE_PAUSED);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 1);
}
END_TEST

START_TEST(what_waits_in_software_waits_on)
{
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 2);
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	word_release(&fixture.client.client->host[1].done, 1);
	fixture_pass(1000);
	ck_assert_uint_eq(fixture_done(1), 0);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}
END_TEST

START_TEST(a_next_executor_finds_it_paused)
{
	fixture_launch(1, 0, 1);
	fixture_put(FRMPS_OP_HOST_FUNCTION, 1, 0, NULL, 0);
	fixture_launch(1, 0, 3);
	fixture_turn();
	fake_arrive();
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(2, 0, 4);
	word_release(&fixture.client.client->host[1].done, 2);
	ck_assert_int_eq(fixture_take_over(TAKEOVER_NOTHING), TAKEOVER_CLEAN);
	fake_reset();
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	set_share(0);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 2);
}
END_TEST

START_TEST(a_paused_session_answers_the_main_thread)
{
	fixture_launch(1, 0, 1);
	fixture_turn();
	set_share(SHM_SHARE_PAUSED);
	fixture_launch(1, 0, 2);
	word_release(&fixture.tenant->asked, 1);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.tenant->answered), 1);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *pauses = tcase_create("pauses");

	tcase_add_checked_fixture(pauses, fixture_open_default, fixture_close);
	tcase_add_test(pauses, a_paused_session_issues_nothing_until_it_is_resumed);
	tcase_add_test(pauses, what_a_paused_session_has_on_the_device_is_known_to_end);
	tcase_add_test(pauses, what_waits_in_software_waits_on);
	tcase_add_test(pauses, a_next_executor_finds_it_paused);
	tcase_add_test(pauses, a_paused_session_answers_the_main_thread);
	suite_add_tcase(suite, pauses);
	return suite_run(suite);
}
