// Work that does not end: the daemon has it ended in the living executor, and replaces that only
// where it cannot be. The test is keeper, executors and clients.

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "server/fault/endless.h"
#include "server/fault/evidence.h"
#include "server/fault/time_limit.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[2];
static uint64_t asked; /* number of the latest EndKernels */

/* Two programs, of which the first has work that does not end. */
static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	for (unsigned i = 0; i < 2; i++)
		fake_join(fake, &clients[i], first, second);
	fake_issue(&fake_session(fake, 0)->view, 4);
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

static uint32_t state_of(unsigned index)
{
	return word_acquire(&clients[index].view.server->state);
}

static void expect_question(struct fake_child *child, uint64_t session)
{
	const struct wire_message *question = fake_expect(fake, child->socket, WIRE_END_KERNELS);

	asked = question->id;
	ck_assert_uint_eq(question->session, session);
	ck_assert_int_eq(question->trouble.code, CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(question->trouble.text, "max_kernel_seconds"));
}

static void ask(void)
{
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_turn(fake);
	expect_question(first, fake_session(fake, 0)->number);
}

/* What an executor does to the session first of all. */
static void end_session(struct session *session, int32_t code)
{
	word_set(&session->view.server->error, (uint32_t)code);
	word_release(&session->view.server->state, SHM_SESSION_FAULTED);
}

static void answer(struct fake_child *child, int32_t code)
{
	struct wire_message reply = {.type = WIRE_REPLY, .id = asked};

	reply.reply = (struct wire_reply){.code = code, .text = code ? "its work goes on" : "loop_kernel"};
	fake_send(fake, child->socket, &reply, NULL, 0);
}

static void answer_close(struct fake_child *child, uint64_t drained, uint64_t bytes, uint64_t ended)
{
	const uint64_t values[3] = {drained, bytes, ended};

	fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, child->socket, fake->message.id, 0, values, 3);
}

static void expect_halt(void)
{
	fake_expect(fake, first->socket, WIRE_HALT);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 0);
}

static void leave_all(void)
{
	for (unsigned i = 0; i < 2; i++)
		fake_leave(fake, &clients[i]);
}

TEST(endless, a_program_over_its_limit_ends_alone)
{
	boot();
	ask();
	/* It is asked once. */
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_turn(fake);
	fake_expect_nothing(fake, first->socket);
	end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	answer(first, 0);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	fake_expect_nothing(fake, first->socket);
	fake_expect_nothing(fake, second->socket);
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 1);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 0);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text,
		"kernel loop_kernel, code 702 CUDA_ERROR_LAUNCH_TIMEOUT, over the limit of time; told an "
		"error "
		"beside it: nobody; nobody waits; ended "));
	leave_all();
	end();
}

static const int32_t failures[] = {
	CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_READY, CUDA_ERROR_INVALID_CONTEXT};

TEST_LOOP(endless, an_executor_that_cannot_end_it_is_replaced, 0, 3)
{
	boot();
	ask();
	if (failures[_i] == CUDA_ERROR_NOT_READY)
		end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	answer(first, failures[_i]);
	expect_halt();
	fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
	FAKE_RUN_WHILE(fake, incident_is_halting(fake_domain(fake)->promotion.state));
	fake_take_all_over(fake, second);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "over the limit of time"));
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 1);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	leave_all();
	end();
}

TEST(endless, an_executor_that_does_not_answer_is_replaced)
{
	boot();
	ask();
	fake_session(fake, 0)->evidence.endless.asked_us -= 4000000;
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	fake_session(fake, 0)->evidence.endless.asked_us -= 1000000;
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_turn(fake);
	expect_halt();
	/* It comes too late to be of use. */
	end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	answer(first, CUDA_ERROR_NOT_READY);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	leave_all();
	end();
}

TEST(endless, the_next_executor_is_asked_anew)
{
	boot();
	ask();
	fake_reap(fake, first, SIGKILL);
	fake_take_all_over(fake, second);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_turn(fake);
	expect_question(second, fake_session(fake, 0)->number);
	end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	answer(second, 0);
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 1);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 1);
	leave_all();
	end();
}

/* No kernel of it was on the device, and somebody else's was. */
TEST(endless, the_time_of_a_program_that_waits_for_others_begins_anew)
{
	boot();
	ask();
	answer(first, 0);
	ck_assert_uint_eq(state_of(0), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 0);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert_str_eq(fake_domain(fake)->promotion.verdict_text, "");
	/* It is asked once more, and nobody replaces the executor. */
	ask();
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	leave_all();
	end();
}

/* A program that is told an error ends, as a rule before its kernels have. */
TEST_LOOP(endless, the_program_is_gone_before_the_answer, 0, 2)
{
	boot();
	ask();
	end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	fake_leave(fake, &clients[0]);
	answer(first, _i ? CUDA_ERROR_NOT_READY : 0);
	fake_expect(fake, first->socket, WIRE_CLOSE_SESSION);
	if (_i) {
		expect_halt();
		fake_reply(fake, first->socket, fake->message.id, 0, NULL, 0);
		FAKE_RUN_WHILE(fake, incident_is_halting(fake_domain(fake)->promotion.state));
		fake_expect(fake, second->socket, WIRE_CLOSE_SESSION);
		fake_take_all_over(fake, second);
		ck_assert_ptr_nonnull(
			strstr(fake_domain(fake)->promotion.verdict_text, "over the limit of time"));
		ck_assert_uint_eq(fake->daemon.counters.orphans, 0);
	} else {
		ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
		ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 1);
		ck_assert_ptr_nonnull(
			strstr(fake_domain(fake)->promotion.verdict_text, "kernel loop_kernel, code 702"));
	}
	fake_leave(fake, &clients[1]);
	end();
}

TEST(endless, a_fault_of_the_program_comes_first)
{
	boot();
	ask();
	end_session(fake_session(fake, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	answer(first, 0);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 0);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert_str_eq(fake_domain(fake)->promotion.verdict_text, "");
	leave_all();
	end();
}

TEST(endless, a_promotion_that_is_under_way_is_not_disturbed)
{
	boot();
	ask();
	fake_reap(fake, first, SIGKILL);
	ck_assert(incident_is_activating(fake_domain(fake)->promotion.state));
	endless_over_limit(fake_domain(fake), fake_session(fake, 0));
	fake_take_all_over(fake, second);
	fake_expect_nothing(fake, second->socket);
	leave_all();
	end();
}

TEST(endless, kernels_of_a_program_that_is_gone_were_ended)
{
	boot();
	fake_leave(fake, &clients[0]);
	answer_close(second, 1, 0, 0);
	answer_close(first, 1, 0, 1);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 1);
	ck_assert_uint_eq(fake->daemon.counters.orphans, 0);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "its kernels were ended"));
	/* Nothing stays pinned, so nothing more is asked. */
	fake_expect_nothing(fake, first->socket);
	fake_leave(fake, &clients[1]);
	end();
}

static void wait_for_question(void)
{
	struct pollfd poller = {.fd = first->socket, .events = POLLIN};

	FAKE_RUN_WHILE(fake, poll(&poller, 1, 0) == 0);
	expect_question(first, fake_session(fake, 0)->number);
}

/* The first question is that of a daemon that has died since: nobody knows of it. */
TEST(endless, the_limit_leads_there_until_the_work_is_done)
{
	boot();
	fake->config.max_kernel_seconds = 1;
	time_limit_watch(fake_domain(fake));
	wait_for_question();
	end_session(fake_session(fake, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
	fake_session(fake, 0)->evidence.endless = (struct session_endless){0};
	wait_for_question();
	answer(first, 0);
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 1);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	leave_all();
	end();
}

/* Its other kernels go on behind a fault of one, for as long as the program stays. */
TEST(endless, the_limit_holds_for_a_program_that_has_faulted)
{
	boot();
	fake->config.max_kernel_seconds = 1;
	time_limit_watch(fake_domain(fake));
	end_session(fake_session(fake, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 2; i++) {
		wait_for_question();
		answer(first, 0);
	}
	ck_assert_uint_eq(fake->daemon.counters.kernels_ended, 0);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	leave_all();
	end();
}

/* Who does not wait may come last. */
TEST(endless, everybody_over_the_limit_is_asked)
{
	struct pollfd poller;

	boot();
	fake_issue(&fake_session(fake, 1)->view, 4);
	fake->config.max_kernel_seconds = 1;
	time_limit_watch(fake_domain(fake));
	poller = (struct pollfd){.fd = first->socket, .events = POLLIN};
	FAKE_RUN_WHILE(fake, poll(&poller, 1, 0) == 0);
	expect_question(first, fake_session(fake, 0)->number);
	FAKE_RUN_WHILE(fake, poll(&poller, 1, 0) == 0);
	expect_question(first, fake_session(fake, 1)->number);
	leave_all();
	end();
}

TEST(endless, a_program_leaves_while_it_is_looked_at)
{
	boot();
	ask();
	fake_leave(fake, &clients[0]);
	answer_close(second, 1, 0, 0);
	answer_close(first, 1, 0, 0);
	answer(first, CUDA_ERROR_INVALID_CONTEXT);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_leave(fake, &clients[1]);
	end();
}

TEST(endless, who_waits_for_others_is_asked_once_in_the_time_of_the_limit)
{
	uint64_t answered_us;

	boot();
	fake->config.max_kernel_seconds = 1;
	time_limit_watch(fake_domain(fake));
	wait_for_question();
	answer(first, 0);
	answered_us = timer_now_us();
	wait_for_question();
	ck_assert_uint_ge(timer_now_us() - answered_us, 900000);
	leave_all();
	end();
}

int main(void)
{
	Suite *suite;
	TCase *tests;

	fake_prepare();
	suite = suite_create("endless");
	tests = suite_case(suite, "endless");
	suite_add(tests, "endless");
	return suite_run(suite);
}
