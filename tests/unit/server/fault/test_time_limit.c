// When a session's oldest command has been on the device for too long, by the words that device and
// executor write.

#include <stdlib.h>

#include "server/fault/evidence.h"
#include "server/fault/time_limit.h"
#include "server/session/session.h"
#include "tests/lib/suite.h"

#define LIMIT 1000000u

static struct session session;

static void open_session(void)
{
	session.view.server = calloc(1, sizeof(*session.view.server));
	session.view.states = calloc(SHM_STREAMS, sizeof(*session.view.states));
	session.view.timelines = calloc(SHM_TIMELINES, sizeof(*session.view.timelines));
}

static void close_session(void)
{
	session_evidence_forget_looks(&session.evidence);
	free(session.view.server);
	free(session.view.states);
	free(session.view.timelines);
}

static void issue(uint64_t issued, uint64_t done)
{
	word_set(&session.view.server->streams, 4);
	word_set(&session.view.states[3].issued, issued);
	word_set(&session.view.states[3].marked, issued);
	word_set(&session.view.timelines[0].stream[3].done, done);
}

static void stand_still(bool still)
{
	word_set(&session.view.server->doubtful, still);
}

TEST(time_limit, the_oldest_command_counts)
{
	issue(5, 2);
	ck_assert(!time_limit_is_over(&session, 10, LIMIT));
	ck_assert(!time_limit_is_over(&session, 10 + LIMIT - 1, LIMIT));
	ck_assert(time_limit_is_over(&session, 10 + LIMIT, LIMIT));
	issue(5, 3);
	ck_assert(!time_limit_is_over(&session, 20 + LIMIT, LIMIT));
	issue(5, 5);
	ck_assert(!time_limit_is_over(&session, 30 + 3 * LIMIT, LIMIT));
	issue(6, 5);
	ck_assert(!time_limit_is_over(&session, 40 + 5 * LIMIT, LIMIT));
	ck_assert(time_limit_is_over(&session, 40 + 6 * LIMIT, LIMIT));
}

/* Kernels that are halted while a fault is looked at have not run for that long. */
TEST(time_limit, no_time_passes_while_the_device_stands_still)
{
	issue(5, 2);
	ck_assert(!time_limit_is_over(&session, 10, LIMIT));
	stand_still(true);
	ck_assert(!time_limit_is_over(&session, LIMIT, LIMIT));
	ck_assert(!time_limit_is_over(&session, 3 * LIMIT, LIMIT));
	stand_still(false);
	ck_assert(!time_limit_is_over(&session, 4 * LIMIT - 1, LIMIT));
	ck_assert(time_limit_is_over(&session, 4 * LIMIT, LIMIT));
}

/* It was held meanwhile, and what it had in flight is issued again. */
TEST(time_limit, no_time_passes_from_one_executor_to_the_next)
{
	word_set(&session.view.server->generation, 1);
	word_set(&session.view.timelines[1].stream[3].done, 2);
	word_set(&session.view.timelines[2].stream[3].done, 2);
	issue(5, 2);
	ck_assert(!time_limit_is_over(&session, 10, LIMIT));
	word_set(&session.view.server->generation, 2);
	ck_assert(!time_limit_is_over(&session, 3 * LIMIT, LIMIT));
	ck_assert(!time_limit_is_over(&session, 4 * LIMIT - 1, LIMIT));
	ck_assert(time_limit_is_over(&session, 4 * LIMIT, LIMIT));
}

/* What is too long is the kernel that writes there. */
TEST(time_limit, a_word_beyond_the_marks_gains_no_time)
{
	issue(5, 2);
	word_set(&session.view.states[3].marked, 2);
	ck_assert(!time_limit_is_over(&session, 10, LIMIT));
	word_set(&session.view.timelines[0].stream[3].done, 4);
	ck_assert(!time_limit_is_over(&session, LIMIT / 2, LIMIT));
	word_set(&session.view.timelines[0].stream[3].done, UINT64_MAX);
	ck_assert(time_limit_is_over(&session, 10 + LIMIT, LIMIT));
}

int main(void)
{
	Suite *suite = suite_create("time_limit");
	TCase *tests = tcase_create("time_limit");

	tcase_add_checked_fixture(tests, open_session, close_session);
	suite_add(tests, "time_limit");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
