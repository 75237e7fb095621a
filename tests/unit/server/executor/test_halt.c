// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Halt: nothing is issued any more, what was issued is marked, and the daemon hears of both.

#include <string.h>

#include "protocol/socket.h"
#include "server/executor/clock.h"
#include "server/executor/halt.h"
#include "server/executor/lost.h"
#include "server/executor/retire.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

static struct serve_thread thread;

static void open_thread(void)
{
	fixture_open_default();
	thread = (struct serve_thread){.executor = &fixture.executor};
	TAILQ_INIT(&thread.sessions);
	TAILQ_INSERT_TAIL(&thread.sessions, fixture.session, served_link);
	fixture.executor.pool = (struct serve_pool){.threads = &thread, .count = 1};
}

static void close_thread(void)
{
	fixture.executor.pool = (struct serve_pool){0};
	fixture_close();
}

static void order_halt(void)
{
	struct job *job = job_new(&fixture.executor);

	job->message = (struct wire_message){.type = WIRE_HALT, .id = 9};
	ck_assert_int_eq(executor_handle(&fixture.executor, job), 0);
}

static void step(void)
{
	job_board_step(&fixture.executor.board, clock_now());
}

/* Return: whether a message of that type was there. */
static bool heard(enum wire_type type)
{
	static struct packet packet;
	struct wire_message message;

	if (packet_receive(fixture.control[1], &packet))
		return false;
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
	ck_assert_int_eq(message.type, type);
	ck_assert_uint_eq(message.id, type == WIRE_REPLY ? 9 : 0);
	return true;
}

START_TEST(nothing_is_issued_and_everything_is_marked)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	order_halt();
	step();
	ck_assert(!heard(WIRE_REPLY));
	fixture_launch(3, 0, 2);
	fixture_turn();
	halt_look(&thread);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(fake_call(FAKE_MARK, 0)->value, 1);
	step();
	ck_assert(heard(WIRE_REPLY));
	/* For good. */
	fixture_pass(1000000);
	halt_look(&thread);
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.states[3].issued), 1);
}
END_TEST

START_TEST(a_lost_context_gets_no_marks_and_is_halted_all_the_same)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	lost_report(&fixture.executor, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert(heard(WIRE_LOST));
	order_halt();
	halt_look(&thread);
	step();
	ck_assert(heard(WIRE_REPLY));
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
}
END_TEST

START_TEST(a_halted_executor_finds_out_that_its_context_is_lost)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	order_halt();
	halt_look(&thread);
	step();
	ck_assert(heard(WIRE_REPLY));
	fake.query = CUDA_ERROR_LAUNCH_FAILED;
	step();
	ck_assert(heard(WIRE_LOST));
	ck_assert_uint_eq(word_acquire(&fixture.executor.lost), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

/* Otherwise a busy program would always have a command in doubt. */
START_TEST(a_command_that_a_lost_context_refuses_was_not_issued)
{
	fixture_launch(3, 0, 1);
	fixture_turn();
	fake.fails[FAKE_LAUNCH] = CUDA_ERROR_LAUNCH_FAILED;
	fixture_launch(3, 0, 2);
	fixture_turn();
	ck_assert_uint_eq(word_acquire(&fixture.client.states[3].issued), 1);
	ck_assert(heard(WIRE_LOST));
}
END_TEST

START_TEST(a_suspect_is_told_whatever_its_policy)
{
	fixture.session->replays = true;
	ck_assert_int_eq(fixture_take_over(TAKEOVER_SUSPECT), TAKEOVER_FAULTED);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture.client.server->reason, "cannot be believed"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("halt");
	TCase *tests = tcase_create("halt");

	tcase_add_checked_fixture(tests, open_thread, close_thread);
	tcase_add_test(tests, nothing_is_issued_and_everything_is_marked);
	tcase_add_test(tests, a_lost_context_gets_no_marks_and_is_halted_all_the_same);
	tcase_add_test(tests, a_halted_executor_finds_out_that_its_context_is_lost);
	tcase_add_test(tests, a_command_that_a_lost_context_refuses_was_not_issued);
	tcase_add_test(tests, a_suspect_is_told_whatever_its_policy);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
