// An executor that contains faults: what the daemon makes of what it says. The test is keeper,
// executors and clients.

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "server/fault/evidence.h"
#include "server/fault/halt.h"
#include "server/fault/kernel_log.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/fault_history.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[2];
static uint32_t faults; /* that the executor has counted */

static void boot(void)
{
	faults = 0;
	fake = fake_new(1);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	first->worker->contains = second->worker->contains = true;
	for (unsigned i = 0; i < 2; i++)
		fake_join(fake, &clients[i], first, second);
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < 2; i++)
		fake_leave(fake, &clients[i]);
	fake_free(fake);
}

static uint32_t state_of(unsigned index)
{
	return word_acquire(&clients[index].view.server->state);
}

static void say(enum wire_type type, uint64_t session)
{
	struct wire_message message = {.type = type,
		.session = session,
		.trouble = {.code = 700, .text = "bad_kernel", .number = faults}};

	fake_send(fake, first->socket, &message, NULL, 0);
}

/* What the executor does to the culprit. */
static void mark_first_session(void)
{
	*first->words = (struct last_words){.code = 700,
		.session = fake_session(fake, 0)->number,
		.fault = ++faults,
		.kernel = "bad_kernel",
		.magic = LAST_WORDS_MAGIC};
	word_release(&fake_session(fake, 0)->view.server->state, SHM_SESSION_FAULTED);
}

/* It says so as well. */
static void fault_first_session(void)
{
	mark_first_session();
	say(WIRE_FAULT, fake_session(fake, 0)->number);
}

TEST(contained, everybody_else_goes_on)
{
	boot();
	for (int i = 0; i < 2; i++) {
		fault_first_session();
		ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
		fake_expect_nothing(fake, first->socket);
	}
	ck_assert_uint_eq(state_of(1), SHM_SESSION_RUNNING);
	/* Of one session: the second is the rest of the same grid. */
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_uint_eq(fake->daemon.counters.faults, 1);
	ck_assert_ptr_nonnull(
		strstr(fake_domain(fake)->promotion.verdict_text, "kernel bad_kernel, code 700"));
	end();
}

/* Warps of both grids fault in each round, until all of both have ended. */
TEST(contained, two_grids_that_fault_in_turn_are_two_faults)
{
	boot();
	fake->config.quarantine_faults = 3;
	for (unsigned i = 0; i < 6; i++)
		say(WIRE_FAULT, fake_session(fake, i % 2)->number);
	ck_assert_uint_eq(fake->daemon.counters.faults, 2);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 2);
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!fault_history_is_quarantined(
			&fake->daemon, fake_session(fake, i)->uid, fake_session(fake, i)->identity));
	end();
}

/* They cost nobody an executor, so a program can have one after the other. */
TEST(contained, faults_of_one_user_do_not_fill_the_log)
{
	boot();
	for (unsigned i = 0; i < 700; i++)
		say(WIRE_FAULT, 1000 + i);
	ck_assert_uint_eq(fake->daemon.counters.faults, 700);
	ck_assert_uint_eq(fake->daemon.counters.log_lines_left_out, 100);
	end();
}

/* The fault comes out while the executor is halted for a sign of it, and is the reason for the next
 * one. */
static void replace(void)
{
	say(WIRE_SUSPECT, 0);
	fake_serve(fake, first, WIRE_HALT);
	fault_first_session();
	FAKE_RUN_WHILE(fake, !first->killed);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_NOTHING);
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
}

static uint64_t ask_for_memory(void)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY,
		.range = {.address = clients[1].window_base, .bytes = UINT64_C(2) << 20}};

	return fake_request(fake, &clients[1], &map, -1);
}

static void expect_success(uint64_t id)
{
	fake_expect(fake, clients[1].socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, id);
	ck_assert_int_eq(fake->message.reply.code, CUDA_SUCCESS);
}

/* It has it mapped until it ends. */
TEST(contained, freed_memory_that_the_former_executor_still_has_mapped_is_waited_for)
{
	struct fake_child *keeper;
	struct wire_message unmap = {.type = WIRE_UNMAP_MEMORY, .range = {.bytes = UINT64_C(2) << 20}};
	uint64_t id;

	boot();
	keeper = &fake->children[0];
	id = ask_for_memory();
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, first, WIRE_MAP_MEMORY);
	expect_success(id);
	fake_serve(fake, second, WIRE_MAP_MEMORY);
	replace();
	unmap.range.address = clients[1].window_base;
	id = fake_request(fake, &clients[1], &unmap, -1);
	fake_serve(fake, second, WIRE_UNMAP_MEMORY);
	expect_success(id);
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	id = ask_for_memory();
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_expect_nothing(fake, clients[1].socket);
	fake_reap(fake, first, SIGKILL);
	fake_make_chunk(fake, keeper, 6);
	fake_serve(fake, second, WIRE_MAP_MEMORY);
	expect_success(id);
	end();
}

/* The second session has just had something on the device; what is left of the first is there. */
static void work(void)
{
	struct session *session = fake_session(fake, 1);
	struct timespec now;

	fake_issue(&fake_session(fake, 0)->view, 5);
	clock_gettime(CLOCK_MONOTONIC, &now);
	fake_issue(&session->view, 5);
	word_release(&shm_view_timeline(&session->view, first->worker->generation)->stream[3].done, 5);
	word_set(&session->view.server->active, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

/* What becomes of the second session when the executor is lost, and what is said of it. */
static void expect_end(enum session_recover recover, unsigned counted)
{
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.at[0], fake_session(fake, 1)->number);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], recover);
	ck_assert_ptr_null(strstr(fake->message.activate.reason, "bad_kernel"));
	fake_reply(fake, second->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	ck_assert_uint_eq(fake->daemon.counters.faults, counted);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "nobody is proved guilty"));
}

/* It contains faults, and has seen no sign of another: what is done is done, whoever was at work
 * last. */
TEST(contained, a_silence_is_nobodys_doing)
{
	boot();
	fault_first_session();
	promote_silent(fake_domain(fake), first->worker);
	work();
	FAKE_RUN_WHILE(fake, !first->killed);
	expect_end(SESSION_RECOVER_NOTHING, 1);
	end();
}

/* The words of the first fault say nothing of that one, and a mark that came since proves
 * nothing. */
TEST_LOOP(contained, a_silence_in_the_middle_of_a_fault_is_told, 0, 2)
{
	boot();
	fault_first_session();
	promote_silent(fake_domain(fake), first->worker);
	work();
	word_release(&fake_session(fake, 1)->view.server->doubtful,
		SHM_DOUBT | (_i ? SHM_DOUBT_FAULT | SHM_DOUBT_WORKED : SHM_DOUBT_WORKED));
	FAKE_RUN_WHILE(fake, !first->killed);
	expect_end(SESSION_RECOVER_UNSURE, 2);
	end();
}

/* So is one that is killed there. */
TEST(contained, a_death_in_the_middle_of_a_fault_is_told)
{
	boot();
	fault_first_session();
	work();
	word_release(&fake_session(fake, 1)->view.server->doubtful, SHM_DOUBT | SHM_DOUBT_WORKED);
	expect_end(SESSION_RECOVER_UNSURE, 2);
	end();
}

/* Nor do the words, or a line of the kernel log, explain a death for which somebody else was the
 * reason. */
TEST_LOOP(contained, a_death_behind_a_contained_fault_is_nobodys_doing, 0, 2)
{
	boot();
	evidence_take_xid(
		first->worker, &(struct xid){.number = 13, .pid = 1, .code = 716, .text = "Xid 13"});
	fault_first_session();
	if (_i)
		evidence_take_xid(
			first->worker, &(struct xid){.number = 13, .pid = 1, .code = 716, .text = "Xid 13"});
	work();
	expect_end(SESSION_RECOVER_NOTHING, 1);
	end();
}

/* It was told of in the middle of a halt: nothing else says whose fault that was. */
TEST(contained, a_fault_that_comes_out_while_it_is_halted_is_the_reason)
{
	boot();
	work();
	replace();
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_ptr_nonnull(
		strstr(fake_domain(fake)->promotion.verdict_text, "kernel bad_kernel, code 700"));
	fake_reap(fake, first, SIGKILL);
	end();
}

/* Somebody's work ends: it is alive, whatever keeps it from answering. */
TEST(contained, one_whose_work_goes_on_has_more_time)
{
	struct shm_view *view;
	uint64_t begin_us, done = 0;

	boot();
	view = &fake_session(fake, 1)->view;
	promote_silent(fake_domain(fake), first->worker);
	begin_us = timer_now_us();
	fake_issue(view, UINT64_C(1) << 40);
	do {
		word_release(&shm_view_timeline(view, first->worker->generation)->stream[3].done, ++done);
		fake_turn(fake);
		sched_yield();
	} while (timer_now_us() - begin_us < 1000000);
	ck_assert(!first->killed);
	FAKE_RUN_WHILE(fake, !first->killed);
	end();
}

TEST(contained, a_sign_of_its_own_halts_it)
{
	boot();
	say(WIRE_SUSPECT, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(state_of(1), SHM_SESSION_HELD);
	fake_expect(fake, first->socket, WIRE_HALT);
	end();
}

TEST(contained, a_later_fault_goes_the_ordinary_way)
{
	boot();
	fault_first_session();
	say(WIRE_LOST, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	fake_expect(fake, first->socket, WIRE_HALT);
	ck_assert_int_eq(fake_domain(fake)->promotion.cause, PROMOTE_SIGN);
	end();
}

TEST(contained, a_held_session_that_faulted_stays_so)
{
	boot();
	word_release(&fake_session(fake, 0)->view.server->state, SHM_SESSION_FAULTED);
	session_hold(fake_session(fake, 0));
	session_hold(fake_session(fake, 1));
	ck_assert_uint_eq(state_of(0), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(state_of(1), SHM_SESSION_HELD);
	end();
}

int main(void)
{
	Suite *suite = suite_create("contained");
	TCase *tests;

	fake_prepare();
	tests = suite_case(suite, "contained");
	suite_add(tests, "contained");
	return suite_run(suite);
}
