// Which hits in a guard move a session into an executor of its own, and how many at a time. The
// test is keeper, executors and clients.

#include <signal.h>
#include <string.h>

#include "server/fault/promote.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define PROGRAMS   6u
#define APART_MOST 4u /* as separate.c has it */

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client programs[PROGRAMS];
static struct session *sessions[PROGRAMS];
static struct domain *crowd;

static void boot(void)
{
	struct session *session;
	unsigned i = 0;

	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	for (unsigned j = 0; j < PROGRAMS; j++)
		fake_join(fake, &programs[j], first, second);
	crowd = TAILQ_FIRST(&fake->daemon.domains);
	TAILQ_FOREACH (session, &crowd->sessions, domain_link)
		sessions[i++] = session;
	ck_assert_uint_eq(fake->child_count, 3);
	/* From now on, so that nobody asks for sinks. */
	fake->config.guard = CONFIG_GUARD_ERROR;
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < PROGRAMS; i++)
		fake_leave(fake, &programs[i]);
	fake_free(fake);
}

static void hit_in(struct fake_child *executor, unsigned owner, uint64_t culprit)
{
	struct wire_message stray = {.type = WIRE_STRAY,
		.session = sessions[owner]->number,
		.stray = {.culprit = culprit, .text = "3 words changed"}};

	fake_send(fake, executor->socket, &stray, NULL, 0);
}

/* Whose author nobody knows. */
static void hit(unsigned owner)
{
	hit_in(first, owner, 0);
}

static void expect_said(const char *text)
{
	ck_assert_msg(strstr(crowd->promotion.verdict_text, text) != NULL, "%s is not in: %s", text,
		crowd->promotion.verdict_text);
}

static void reap_what_is_killed(void)
{
	for (unsigned i = 0; i < fake->child_count; i++)
		if (fake->children[i].worker && fake->children[i].killed)
			fake_reap(fake, &fake->children[i], SIGKILL);
}

/* Its own executor is there and knows it; the old one is asked to let it go. */
static struct fake_child *tell(unsigned child)
{
	struct fake_child *own = &fake->children[child];

	fake_warm(fake, own);
	fake_serve(fake, own, WIRE_ACTIVATE);
	fake_serve(fake, own, WIRE_OPEN_SESSION);
	fake_expect(fake, first->socket, WIRE_DETACH_SESSION);
	return own;
}

START_TEST(a_hit_without_an_author_moves_the_owner)
{
	struct fake_child *own;

	boot();
	hit(2);
	ck_assert_uint_eq(fake->child_count, 4);
	expect_said("nobody is proved guilty");
	expect_said("moves to an executor of its own");
	own = tell(3);
	ck_assert_uint_eq(fake->message.session, sessions[2]->number);
	fake_reply(fake, first->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
	ck_assert_ptr_eq(sessions[2]->domain, own->worker->domain);
	ck_assert_str_eq(sessions[2]->domain->reason, "its guard was hit while other programs ran");
	fake_serve(fake, own, WIRE_ACTIVATE);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->daemon.counters.sessions_moved, 1);
	hit_in(own, 2, 0);
	ck_assert_ptr_nonnull(strstr(sessions[2]->domain->promotion.verdict_text, "it is alone already"));
	ck_assert_uint_eq(fake->child_count, 4);
	end();
}
END_TEST

START_TEST(other_hits_move_nobody)
{
	struct wire_message stray = {.type = WIRE_STRAY, .session = 4711, .stray.text = "3 words changed"};

	boot();
	hit_in(first, 2, sessions[2]->number);
	hit_in(first, 2, sessions[1]->number);
	fake_send(fake, first->socket, &stray, NULL, 0);
	fake->config.guard = CONFIG_GUARD_WARN;
	hit(2);
	expect_said("stays where it is: no program gets an error for a hit (guard = warn)");
	ck_assert_uint_eq(fake->child_count, 3);
	ck_assert_uint_eq(fake->daemon.counters.guard_hits, 2);
	ck_assert_uint_eq(fake->daemon.counters.guard_hits_unproved, 2);
	end();
}
END_TEST

START_TEST(a_few_have_executors_of_their_own_at_a_time)
{
	boot();
	for (unsigned i = 0; i < PROGRAMS; i++) {
		hit(i);
		/* One after the other starts. */
		if (i < APART_MOST)
			fake_ready(fake, &fake->children[3 + i]);
	}
	ck_assert_uint_eq(fake->child_count, 3 + APART_MOST);
	expect_said("stays where it is: enough programs of its user");
	fake_leave(fake, &programs[0]);
	reap_what_is_killed();
	hit(PROGRAMS - 1);
	ck_assert_uint_eq(fake->child_count, 3 + APART_MOST + 1);
	ck_assert_ptr_nonnull(sessions[PROGRAMS - 1]->move);
	ck_assert_ptr_null(sessions[PROGRAMS - 2]->move);
	end();
}
END_TEST

/* Each try takes memory for a context for as long as it lasts. */
START_TEST(a_try_that_fails_is_not_repeated_at_once)
{
	boot();
	hit(2);
	fake_reap(fake, first, SIGKILL);
	ck_assert_ptr_null(sessions[2]->move);
	reap_what_is_killed();
	fake_take_all_over(fake, second);
	first = second;
	hit(2);
	expect_said("stays where it is: a move was tried a moment ago");
	ck_assert_ptr_null(sessions[2]->move);
	sessions[2]->apart_us -= 120000000;
	hit(2);
	ck_assert_ptr_nonnull(sessions[2]->move);
	end();
}
END_TEST

/* It would be held up again for as long as that lasts. */
START_TEST(own_work_must_end_before_the_next_try)
{
	boot();
	hit(2);
	tell(3);
	fake_issue(&sessions[2]->view, 5);
	fake_reply(fake, first->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	reap_what_is_killed();
	sessions[2]->apart_us = 0;
	hit(2);
	expect_said("stays where it is: its own work does not end");
	ck_assert_uint_eq(fake->child_count, 4);
	word_release(&shm_view_timeline(&sessions[2]->view, first->worker->generation)->stream[3].done, 5);
	hit(2);
	ck_assert_uint_eq(fake->child_count, 5);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("separate");
	TCase *cases;

	fake_prepare();
	cases = suite_case(suite, "separate");
	tcase_add_test(cases, a_hit_without_an_author_moves_the_owner);
	tcase_add_test(cases, other_hits_move_nobody);
	tcase_add_test(cases, a_few_have_executors_of_their_own_at_a_time);
	tcase_add_test(cases, a_try_that_fails_is_not_repeated_at_once);
	tcase_add_test(cases, own_work_must_end_before_the_next_try);
	return suite_run(suite);
}
