// Halting: what survivors have on the device ends before their executor does. The test is keeper,
// executors and clients.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/fault/evidence.h"
#include "server/fault/kernel_log.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[3];

/* A service that halts executors, with so many clients. */
static void boot(unsigned count)
{
	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	for (unsigned i = 0; i < count; i++)
		fake_join(fake, &clients[i], first, second);
}

static void end(unsigned count)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < count; i++)
		fake_leave(fake, &clients[i]);
	fake_free(fake);
}

/* What an executor would note: commands issued on stream 3, a moment ago. */
static void issue(unsigned index, uint64_t issued)
{
	struct session *session = fake_session(fake, index);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fake_issue(&session->view, issued);
	word_set(&session->view.server->active, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void finish(unsigned index, uint64_t done)
{
	struct session *session = fake_session(fake, index);

	word_release(&shm_view_timeline(&session->view, word_acquire(&session->view.server->generation))
			      ->stream[3]
			      .done,
		done);
}

static void speak(struct fake_child *child, unsigned slot, uint64_t session)
{
	child->words[slot].session = session;
	child->words[slot].code = 700;
	strcpy(child->words[slot].kernel, "bad_kernel");
	child->words[slot].magic = LAST_WORDS_MAGIC;
}

static void say(struct fake_child *child, enum wire_type type, int32_t code)
{
	struct wire_message message = {.type = type, .trouble = {.code = code, .text = "a sign"}};

	fake_send(fake, child->socket, &message, NULL, 0);
}

/* What an executor writes at a sign, and when it gives up on the fault. */
static void doubt(unsigned index, uint32_t doubt)
{
	word_release(&fake_session(fake, index)->view.server->doubtful, SHM_DOUBT | doubt);
}

static void run_until_killed(struct fake_child *child)
{
	FAKE_SKIP_WHILE(fake, !child->killed);
}

/* The standby's orders: one recover code per session. */
static void expect_activate(const uint32_t *recover, uint32_t count)
{
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, count);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(fake->message.activate.recover.at[i], recover[i]);
}

TEST(halt, survivors_finish_and_nobody_waits_for_the_old_process)
{
	const uint32_t recover[] = {SESSION_RECOVER_CULPRIT, SESSION_RECOVER_NOTHING};

	boot(2);
	issue(0, 5);
	issue(1, 2);
	say(first, WIRE_SUSPECT, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&clients[1].view.server->state), SHM_SESSION_HELD);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	fake_expect_nothing(fake, second->socket);
	ck_assert(!first->killed);
	finish(1, 2);
	run_until_killed(first);
	/* Not reaped, and the culprit's work not done. */
	expect_activate(recover, 2);
	ck_assert_int_eq(fake->message.activate.code, 700);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	/* The dying process still has its place. */
	ck_assert_uint_eq(fake->child_count, 3);
	fake_reap(fake, first, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	end(2);
}

/* One of its threads may have looked whether it is halted, and answered behind that. */
TEST(halt, an_answer_that_comes_behind_the_hand_over_is_asked_for_again)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};
	uint64_t asked;

	boot(2);
	map.range =
		(struct wire_range){.address = clients[1].window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &clients[1], &map, -1);
	asked = fake_expect(fake, first->socket, WIRE_MAP_HOST)->id;
	issue(0, 5);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	run_until_killed(first);
	fake_take_all_over(fake, second);
	fake_reply(fake, first->socket, asked, 0, NULL, 0);
	/* The executor that serves now must have it. */
	fake_serve(fake, second, WIRE_MAP_HOST);
	fake_expect(fake, clients[1].socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_reap(fake, first, SIGKILL);
	end(2);
}

/* The context is dead, and a survivor's work will not end. */
static void stall(void)
{
	issue(0, 5);
	issue(1, 2);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	say(first, WIRE_LOST, 700);
	FAKE_SKIP_WHILE(fake, !fake_domain(fake)->promotion.fence_until_us);
	fake_expect(fake, first->socket, WIRE_HALT);
	ck_assert(fake->message.halt.fence);
	fake_expect_nothing(fake, second->socket);
	ck_assert(!first->killed);
}

TEST_LOOP(halt, what_does_not_end_is_cut_and_nobody_waits_for_the_old_process, 0, 2)
{
	const uint32_t recover[] = {SESSION_RECOVER_CULPRIT, SESSION_RECOVER_BY_POLICY};

	boot(2);
	stall();
	/* Another sign changes nothing. */
	say(first, WIRE_SUSPECT, 0);
	fake_expect_nothing(fake, second->socket);
	/* What was marked until then counts. */
	if (_i)
		finish(1, 2);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	ck_assert(first->killed);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], recover[0]);
	ck_assert_uint_eq(
		fake->message.activate.recover.at[1], _i ? (uint32_t)SESSION_RECOVER_NOTHING : recover[1]);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	fake_reap(fake, first, SIGKILL);
	end(2);
}

TEST_LOOP(halt, one_that_does_not_leave_the_device_is_fenced_by_its_end, 0, 2)
{
	const uint32_t recover[] = {SESSION_RECOVER_CULPRIT, SESSION_RECOVER_BY_POLICY};

	boot(2);
	stall();
	if (_i)
		fake_reply(fake, first->socket, fake->message.id, CUDA_ERROR_UNKNOWN, NULL, 0);
	else
		run_until_killed(first); /* it says nothing */
	ck_assert(first->killed);
	fake_expect_nothing(fake, second->socket);
	fake_reap(fake, first, SIGKILL);
	expect_activate(recover, 2);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	end(2);
}

TEST(halt, a_session_lives_until_the_old_process_is_reaped)
{
	boot(2);
	issue(0, 5);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	run_until_killed(first);
	fake_serve(fake, second, WIRE_ACTIVATE);
	fake_leave(fake, &clients[0]);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->daemon.session_count, 2);
	fake_reap(fake, first, SIGKILL);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	clients[0] = clients[1];
	end(1);
}

/* A call of the driver on behalf of one that is gone does not come back. That is nobody's fault,
 * and what the others have on the device ends before the executor does. */
TEST(halt, one_that_does_not_let_go_of_a_session_is_halted)
{
	const uint32_t recover[] = {SESSION_RECOVER_NOTHING};
	uint64_t gone;

	boot(2);
	gone = fake_session(fake, 0)->number;
	issue(1, 2);
	fake->config.orphan_seconds = 0;
	fake_leave(fake, &clients[0]);
	fake_expect(fake, first->socket, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->message.session, gone);
	fake_expect(fake, second->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){1}, 1);
	FAKE_SKIP_WHILE(fake, incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert(!first->killed);
	/* It was silent for so long that it was asked whether it lives. */
	fake_serve(fake, first, WIRE_PING);
	fake_serve(fake, first, WIRE_HALT);
	finish(1, 2);
	run_until_killed(first);
	expect_activate(recover, 1);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_reap(fake, first, SIGKILL);
	fake_leave(fake, &clients[1]);
	fake_free(fake);
}

static void answer_close(struct fake_child *child, uint64_t drained)
{
	fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, child->socket, fake->message.id, 0, &drained, 1);
}

/* Behind a fault everybody's kernels have the time that they have behind every fault, once. */
TEST(halt, a_fault_beside_an_orphan_gives_more_time)
{
	const uint64_t patience_us = 600000000, begin_us = timer_now_us();
	uint64_t until_us;

	boot(2);
	fake->config.fault_patience_ms = patience_us / 1000;
	issue(1, 2);
	fake_leave(fake, &clients[0]);
	answer_close(second, 1);
	answer_close(first, 0);
	ck_assert_int_eq(fake_domain(fake)->promotion.cause, PROMOTE_ORPHAN);
	ck_assert_uint_lt(fake_domain(fake)->promotion.halt_until_us, begin_us + patience_us);
	fake_serve(fake, first, WIRE_HALT);
	say(first, WIRE_SUSPECT, 0);
	until_us = fake_domain(fake)->promotion.halt_until_us;
	ck_assert_uint_ge(until_us, begin_us + patience_us);
	ck_assert_str_eq(fake_domain(fake)->promotion.sign, "a sign");
	say(first, WIRE_SUSPECT, 0);
	ck_assert_uint_eq(fake_domain(fake)->promotion.halt_until_us, until_us);
	finish(0, 2);
	run_until_killed(first);
	expect_activate((uint32_t[]){SESSION_RECOVER_NOTHING}, 1);
	fake_leave(fake, &clients[1]);
	fake_free(fake);
}

TEST(halt, what_does_not_end_is_fenced)
{
	const uint32_t recover[] = {SESSION_RECOVER_CULPRIT, SESSION_RECOVER_BY_POLICY};

	boot(2);
	fake->config.fault_patience_ms = 20;
	issue(0, 5);
	issue(1, 2);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	run_until_killed(first);
	ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
	fake_expect_nothing(fake, second->socket);
	fake_reap(fake, first, SIGKILL);
	expect_activate(recover, 2);
	end(2);
}

TEST(halt, a_dead_context_is_not_waited_for)
{
	boot(2);
	fake->config.fault_patience_ms = 600000;
	fake->config.fault_stall_ms = 10;
	issue(0, 5);
	issue(1, 2);
	say(first, WIRE_LOST, 719);
	ck_assert(!first->killed);
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed(first);
	ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
	fake_reap(fake, first, SIGKILL);
	end(2);
}

/* It was on the device at the first sign: its mark may be that of the kernel that faulted. Nobody
 * waits for the rest. */
TEST(halt, without_a_culprit_everybody_who_worked_is_told_at_once)
{
	const uint32_t recover[] = {SESSION_RECOVER_UNSURE, SESSION_RECOVER_UNSURE, SESSION_RECOVER_NOTHING};

	boot(3);
	fake->config.fault_patience_ms = fake->config.fault_stall_ms = 600000;
	issue(0, 5);
	issue(1, 2);
	doubt(0, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	doubt(1, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	doubt(2, SHM_DOUBT_FAULT);
	say(first, WIRE_SUSPECT, 0);
	finish(0, 5);
	fake_serve(fake, first, WIRE_HALT);
	fake_expect(fake, first->socket, WIRE_HALT);
	ck_assert(fake->message.halt.fence);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	ck_assert(first->killed);
	expect_activate(recover, 3);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	fake_reap(fake, first, SIGKILL);
	end(3);
}

/* It was never said what the sign was of, or of one that faulted later: a mark that came since
 * proves nothing. */
TEST_LOOP(halt, what_is_still_in_doubt_at_the_end_is_not_believed, 0, 2)
{
	const uint32_t recover[] = {
		_i ? SESSION_RECOVER_CULPRIT : SESSION_RECOVER_UNSURE, SESSION_RECOVER_UNSURE};

	boot(2);
	issue(0, 5);
	issue(1, 2);
	doubt(0, SHM_DOUBT_WORKED);
	doubt(1, SHM_DOUBT_WORKED);
	say(first, WIRE_SUSPECT, 0);
	if (_i)
		speak(first, 0, fake_session(fake, 0)->number);
	fake_serve(fake, first, WIRE_HALT);
	finish(0, 5);
	finish(1, 2);
	run_until_killed(first);
	expect_activate(recover, 2);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_uint_eq(fake->daemon.counters.faults, 1);
	end(2);
}

/* It stands still for milliseconds, and then it is known whose it was: nobody else's work is cut
 * for that. */
TEST(halt, a_fault_that_is_looked_at_while_it_is_halted_has_its_time)
{
	const uint32_t recover[] = {SESSION_RECOVER_CULPRIT, SESSION_RECOVER_NOTHING};

	boot(3);
	issue(1, 5);
	issue(2, 2);
	fake_leave(fake, &clients[0]);
	answer_close(second, 1);
	answer_close(first, 0);
	doubt(0, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	doubt(1, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	fake_serve(fake, first, WIRE_HALT);
	fake_expect_nothing(fake, first->socket);
	speak(first, 0, fake_session(fake, 0)->number);
	for (unsigned i = 0; i < 2; i++)
		word_release(&fake_session(fake, i)->view.server->doubtful, 0);
	finish(1, 2);
	run_until_killed(first);
	expect_activate(recover, 2);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	fake_reap(fake, first, SIGKILL);
	fake_leave(fake, &clients[1]);
	fake_leave(fake, &clients[2]);
	fake_free(fake);
}

/* The executor knows of no exception: what is done is done. */
TEST(halt, without_an_exception_marks_count)
{
	const uint32_t recover[] = {SESSION_RECOVER_NOTHING, SESSION_RECOVER_BY_POLICY};

	boot(2);
	first->worker->contains = true;
	fake->config.fault_stall_ms = 10;
	issue(0, 5);
	finish(0, 5);
	issue(1, 2);
	say(first, WIRE_LOST, 719);
	fake_serve(fake, first, WIRE_HALT);
	FAKE_SKIP_WHILE(fake, !fake_domain(fake)->promotion.fence_until_us);
	fake_expect(fake, first->socket, WIRE_HALT);
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	expect_activate(recover, 2);
	ck_assert_int_eq(fake->message.activate.code, 719);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	end(2);
}

TEST(halt, a_culprit_who_is_gone_clears_the_others)
{
	const uint32_t recover[] = {SESSION_RECOVER_NOTHING};

	boot(1);
	issue(0, 5);
	finish(0, 5);
	say(first, WIRE_SUSPECT, 0);
	speak(first, 0, 4711);
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed(first);
	expect_activate(recover, 1);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	end(1);
}

TEST(halt, two_who_fault_at_once_are_both_named)
{
	const uint32_t recover[] = {
		SESSION_RECOVER_CULPRIT, SESSION_RECOVER_NOTHING, SESSION_RECOVER_CULPRIT};

	boot(3);
	issue(0, 5);
	issue(1, 2);
	finish(1, 2);
	issue(2, 9);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 1, fake_session(fake, 2)->number);
	speak(first, 0, fake_session(fake, 0)->number);
	run_until_killed(first);
	expect_activate(recover, 3);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_nonnull(
		strstr(fake_domain(fake)->promotion.verdict_text, "and at the same time session"));
	end(3);
}

/* One of the kernels that faulted is nobody's, as far as is known: its mark may have come, too. The
 * other is that of a session, or of one that is gone. */
TEST_LOOP(halt, a_fault_of_nobody_knows_whom_beside_a_known_one_leaves_others_unsure, 0, 2)
{
	const uint32_t recover[] = {_i ? SESSION_RECOVER_UNSURE : SESSION_RECOVER_CULPRIT,
		SESSION_RECOVER_UNSURE, SESSION_RECOVER_NOTHING};

	boot(3);
	issue(0, 5);
	issue(1, 2);
	finish(1, 2);
	doubt(0, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	doubt(1, SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
	first->words[0].fault = 1;
	speak(first, 0, _i ? 4711 : fake_session(fake, 0)->number);
	first->words[1].fault = 2;
	speak(first, 1, 0);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	finish(0, 5);
	run_until_killed(first);
	fake_reap(fake, first, SIGKILL);
	expect_activate(recover, 3);
	ck_assert_uint_eq(fake->daemon.counters.culprits, !_i);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert(_i || strstr(fake_domain(fake)->promotion.verdict_text,
				"and others that nobody can be named for"));
	end(3);
}

TEST(halt, an_executor_that_dies_while_it_is_halted_is_fenced)
{
	const uint32_t recover[] = {
		SESSION_RECOVER_UNSURE, SESSION_RECOVER_BY_POLICY, SESSION_RECOVER_NOTHING};

	boot(3);
	issue(0, 5);
	finish(0, 5);
	issue(1, 2);
	doubt(0, SHM_DOUBT_WORKED);
	say(first, WIRE_SUSPECT, 0);
	fake_reap(fake, first, SIGSEGV);
	expect_activate(recover, 3);
	end(3);
}

TEST(halt, a_fault_of_the_standby_that_is_activated_halts_it)
{
	struct fake_child *third;

	boot(2);
	issue(0, 5);
	say(first, WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	speak(first, 0, fake_session(fake, 0)->number);
	run_until_killed(first);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	say(second, WIRE_LOST, 719);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	fake_serve(fake, second, WIRE_HALT);
	run_until_killed(second);
	fake_reap(fake, second, SIGKILL);
	third = &fake->children[3];
	fake_warm_with(fake, third, 2);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	/* The verdict of the first loss is not forgotten. */
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	ck_assert_uint_eq(fake->message.activate.recover.at[1], SESSION_RECOVER_NOTHING);
	end(2);
}

/* It has not looked up what the sessions have looked up: their launches would name nothing
 * there. */
TEST(halt, a_standby_is_not_activated_before_all_its_answers_are_in)
{
	struct fake_child *third;
	uint64_t open;

	boot(1);
	fake_reap(fake, second, SIGKILL);
	fake_reap(fake, first, SIGKILL);
	third = &fake->children[3];
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	fake_ready(fake, third);
	open = fake_expect(fake, third->socket, WIRE_OPEN_SESSION)->id;
	fake_serve(fake, third, WIRE_PING);
	fake_expect_nothing(fake, third->socket);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	fake_reply(fake, third->socket, open, 0, NULL, 0);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	end(1);
}

TEST(halt, a_standby_that_shows_a_sign_is_replaced)
{
	boot(1);
	say(second, WIRE_LOST, 719);
	ck_assert(second->killed);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	fake_reap(fake, second, SIGKILL);
	end(1);
}

TEST(halt, the_drivers_log_does_not_halt_and_its_code_is_second_to_the_executors)
{
	const uint32_t recover[] = {SESSION_RECOVER_UNSURE};

	boot(1);
	issue(0, 5);
	evidence_take_xid(first->worker, &(struct xid){.code = 715, .text = "Xid 13"});
	ck_assert(!first->killed);
	say(first, WIRE_LOST, 716);
	fake_serve(fake, first, WIRE_HALT);
	run_until_killed(first);
	fake_reap(fake, first, SIGKILL);
	expect_activate(recover, 1);
	ck_assert_int_eq(fake->message.activate.code, 716);
	end(1);
}

TEST(halt, answers_of_a_halted_executor_that_are_no_success_do_not_count)
{
	struct wire_message find = {.type = WIRE_QUERY_MEMORY};
	uint64_t id;

	boot(1);
	fake_request(fake, &clients[0], &find, -1);
	fake_expect(fake, first->socket, WIRE_QUERY_MEMORY);
	id = fake->message.id;
	say(first, WIRE_SUSPECT, 0);
	fake_expect(fake, first->socket, WIRE_HALT);
	fake_reply(fake, first->socket, id, 2, NULL, 0);
	fake_expect_nothing(fake, clients[0].socket);
	end(1);
}

int main(void)
{
	Suite *suite = suite_create("halt");
	TCase *tests = tcase_create("halt");

	fake_prepare();
	tcase_set_timeout(tests, 60);
	suite_add(tests, "halt");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
