// Sessions at which executors die that are being made ready. The test is keeper, executors and
// clients.

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/sink_make.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/move.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client well, ill;
static struct session *session;
static uint32_t modules;

static void boot(unsigned standbys)
{
	fake = fake_new(standbys);
	fake_boot(fake);
	first = &fake->children[1];
	second = &fake->children[2];
	fake_join(fake, &well, first, second);
	fake_join(fake, &ill, first, second);
	session = fake_session(fake, 1);
	modules = 0;
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_leave(fake, &well);
	fake_leave(fake, &ill);
	fake_free(fake);
}

/* The executor that serves has loaded it, and standbys are told. */
static void load_module(struct fake_client *client)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.bytes = 64}};
	int fd = fake_memfd(64, SEALS);

	load.load_module.module = ++modules;
	fake_request(fake, client, &load, fd);
	close(fd);
	fake_serve(fake, first, WIRE_LOAD_MODULE);
	fake_expect(fake, client->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_tell(fake);
}

/* It is started when the pause is over, if there is one, and is ready. */
static struct fake_child *await(unsigned index)
{
	FAKE_SKIP_WHILE(fake, fake->child_count <= index);
	fake_ready(fake, &fake->children[index]);
	return &fake->children[index];
}

static void tell_both(struct fake_child *child)
{
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	ck_assert_uint_eq(fake->message.session, session->number);
}

static void tell_well_alone(struct fake_child *child)
{
	fake_serve(fake, child, WIRE_OPEN_SESSION);
	ck_assert_uint_eq(fake->message.session, fake_session(fake, 0)->number);
	fake_serve(fake, child, WIRE_PING);
	ck_assert_uint_eq(child->worker->immovable_count, 1);
	ck_assert(worker_is_immovable(child->worker, session->number));
}

/* The standby that was warm has died at a module, and the one behind it does. */
static void die_twice(void)
{
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	tell_both(await(3));
	fake_expect(fake, fake->children[3].socket, WIRE_LOAD_MODULE);
	fake_reap(fake, &fake->children[3], SIGSEGV);
}

TEST(leave_out, the_others_have_a_standby_again)
{
	struct fake_child *third;
	uint64_t asked;

	boot(1);
	die_twice();
	ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
	third = await(4);
	tell_well_alone(third);
	ck_assert_int_eq(third->worker->state, WORKER_WARM);
	/* It is served, of nothing that it does a standby hears, and of the other's it does. */
	ck_assert_uint_eq(word_acquire(&ill.view.server->state), SHM_SESSION_RUNNING);
	load_module(&ill);
	fake_expect_nothing(fake, third->socket);
	load_module(&well);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	/* A request of it is under way when its executor is lost. */
	asked = fake_request(fake, &ill, &(struct wire_message){.type = WIRE_QUERY_MEMORY}, -1);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.at[0], fake_session(fake, 0)->number);
	ck_assert_uint_eq(word_acquire(&ill.view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_ne(word_relaxed(&ill.view.server->error), 0);
	fake_reply(fake, third->socket, fake->message.id, 0, NULL, 0);
	/* As executors answer for a session that they do not know. */
	fake_expect(fake, third->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, third->socket, fake->message.id, CUDA_ERROR_INVALID_CONTEXT, NULL, 0);
	fake_expect(fake, ill.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, asked);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_INVALID_CONTEXT);
	end();
}

TEST(leave_out, its_end_takes_the_mark_along)
{
	struct fake_child *third, *fourth;

	boot(1);
	die_twice();
	third = await(4);
	tell_well_alone(third);
	fake_leave(fake, &ill);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_expect(fake, third->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, third->socket, fake->message.id, CUDA_ERROR_INVALID_CONTEXT, NULL, 0);
	ck_assert_uint_eq(third->worker->immovable_count, 0);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	fake_reap(fake, third, SIGKILL);
	fourth = await(5);
	fake_serve(fake, fourth, WIRE_OPEN_SESSION);
	fake_serve(fake, fourth, WIRE_PING);
	ck_assert_uint_eq(fourth->worker->immovable_count, 0);
	end();
}

/* Answers of modules come behind that of the Ping: only then it is known that it lives. */
TEST_LOOP(leave_out, one_that_dies_behind_the_ping_was_not_warm, 0, 2)
{
	uint64_t load;

	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	tell_both(await(3));
	fake_expect(fake, fake->children[3].socket, WIRE_LOAD_MODULE);
	load = fake->message.id;
	fake_serve(fake, &fake->children[3], WIRE_PING);
	ck_assert_int_eq(fake->children[3].worker->state, WORKER_WARM);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	if (_i) {
		fake_reply(fake, fake->children[3].socket, load, 0, NULL, 0);
		ck_assert_int_eq(session->mirroring, SESSION_MIRRORED);
	} else {
		fake_reap(fake, &fake->children[3], SIGSEGV);
		ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
		ck_assert_uint_eq(fake_domain(fake)->start_failures, 1);
	}
	end();
}

/* In between one was warm. */
TEST(leave_out, two_deaths_long_apart_are_none_of_its)
{
	struct fake_child *third;

	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	third = await(3);
	tell_both(third);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	fake_serve(fake, third, WIRE_PING);
	load_module(&ill);
	fake_reap(fake, third, SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	end();
}

TEST(leave_out, deaths_at_two_sessions_are_of_neither)
{
	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	await(3);
	fake_expect(fake, fake->children[3].socket, WIRE_OPEN_SESSION);
	fake_reap(fake, &fake->children[3], SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_MIRRORED);
	ck_assert_int_eq(fake_session(fake, 0)->mirroring, SESSION_SUSPECTED);
	end();
}

TEST(leave_out, a_death_at_nothing_says_nothing)
{
	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	fake_reap(fake, &fake->children[3], SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	tell_both(await(4));
	fake_reap(fake, &fake->children[4], SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
	end();
}

static void give_guard(void)
{
	fake->config.guard = CONFIG_GUARD_ERROR;
	sink_request(session);
	fake_make_chunk(fake, &fake->children[0], 5);
}

static void lose_context(struct fake_child *child)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = CUDA_ERROR_LAUNCH_FAILED}};

	lost.trouble.text = "the context is lost";
	fake_send(fake, child->socket, &lost, NULL, 0);
	ck_assert(child->killed);
	fake_reap(fake, child, SIGKILL);
}

/* Nobody is blamed for one that was killed. One that has lost its context has died by itself. */
TEST_LOOP(leave_out, what_counts_as_a_death, 0, 4)
{
	static const enum session_mirroring becomes[] = {
		SESSION_MIRRORED, SESSION_SUSPECTED, SESSION_SUSPECTED, SESSION_MIRRORED};

	boot(1);
	load_module(&ill);
	switch (_i) {
	case 0:
		fake_reap(fake, second, SIGKILL);
		break;
	case 1:
		lose_context(second);
		break;
	case 2: /* it has ended with a status */
		fake_reap(fake, second, 0);
		break;
	case 3: /* the one that serves does not count */
		fake_serve(fake, second, WIRE_LOAD_MODULE);
		give_guard();
		fake_expect(fake, first->socket, WIRE_OPEN_GUARD);
		fake_serve(fake, second, WIRE_OPEN_GUARD);
		fake_reap(fake, first, SIGSEGV);
		break;
	}
	ck_assert_int_eq(session->mirroring, becomes[_i]);
	end();
}

TEST(leave_out, a_session_that_has_ended_is_not_suspected)
{
	boot(1);
	load_module(&ill);
	fake_leave(fake, &ill);
	fake_turn(fake);
	ck_assert_int_eq(session->state, SESSION_CLOSING);
	fake_reap(fake, second, SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_MIRRORED);
	ck_assert_int_eq(fake_session(fake, 0)->mirroring, SESSION_MIRRORED);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	end();
}

TEST(leave_out, it_does_not_get_an_executor_of_its_own)
{
	boot(1);
	die_twice();
	ck_assert_ptr_nonnull(
		strstr(move_begin(session, MOVE_ORDER, "said so", 1000, NULL, NULL), "executors die at"));
	ck_assert_ptr_null(session->move);
	end();
}

/* In its new domain no executor has died at it. */
TEST(leave_out, a_suspect_that_moves_is_none)
{
	const uint64_t gone = 1;
	struct fake_child *own;

	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	ck_assert_ptr_null(move_begin(session, MOVE_ORDER, "said so", 20000, NULL, NULL));
	/* One after the other. */
	fake_ready(fake, &fake->children[3]);
	own = &fake->children[4];
	fake_warm(fake, own);
	fake_serve(fake, own, WIRE_ACTIVATE);
	fake_serve(fake, own, WIRE_OPEN_SESSION);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	fake_serve(fake, own, WIRE_LOAD_MODULE);
	fake_expect(fake, first->socket, WIRE_DETACH_SESSION);
	fake_reply(fake, first->socket, fake->message.id, 0, &gone, 1);
	ck_assert_ptr_eq(session->domain, own->worker->domain);
	ck_assert_int_eq(session->mirroring, SESSION_MIRRORED);
	fake_serve(fake, own, WIRE_ACTIVATE);
	end();
}

/* Two standbys, and the second death is that of the third executor. */
TEST(leave_out, a_standby_that_knows_it_is_told_on)
{
	struct fake_child *third, *fourth;

	boot(2);
	third = &fake->children[3];
	tell_both(third);
	load_module(&ill);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	fake_reap(fake, second, SIGSEGV);
	fourth = await(4);
	tell_both(fourth);
	/* That one of them answers something says nothing of the other one. */
	load_module(&well);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	fake_reap(fake, fourth, SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
	load_module(&ill);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
	end();
}

/* Nobody serves: with it nobody ever would. */
TEST(leave_out, the_others_are_served_again)
{
	boot(1);
	die_twice();
	fake_reap(fake, first, SIGSEGV);
	tell_well_alone(await(4));
	fake_expect(fake, fake->children[4].socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(word_acquire(&ill.view.server->state), SHM_SESSION_FAULTED);
	end();
}

/* Executors die at its guard; then nobody is told of that either. */
static void die_twice_of_a_guard(void)
{
	give_guard();
	fake_serve(fake, first, WIRE_OPEN_GUARD);
	fake_expect(fake, second->socket, WIRE_OPEN_GUARD);
	fake_reap(fake, second, SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_SUSPECTED);
	tell_both(await(3));
	fake_expect(fake, fake->children[3].socket, WIRE_OPEN_GUARD);
	fake_reap(fake, &fake->children[3], SIGSEGV);
	ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
	tell_well_alone(await(4));
	fake_expect_nothing(fake, fake->children[4].socket);
}

TEST(leave_out, a_guard_is_a_part_of_it)
{
	boot(1);
	die_twice_of_a_guard();
	end();
}

/* Executors that know a session are told of its guard again. */
TEST(another_life, the_next_daemon_tells_of_no_guard)
{
	fake_with_records = true;
	boot(1);
	die_twice_of_a_guard();
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_serve(fake, first, WIRE_OPEN_GUARD);
	fake_expect_nothing(fake, fake->children[4].socket);
	end();
}

TEST(another_life, the_next_daemon_does_not_suspect_it_any_more)
{
	struct fake_child *third;

	fake_with_records = true;
	boot(1);
	load_module(&ill);
	fake_reap(fake, second, SIGSEGV);
	third = await(3);
	tell_both(third);
	fake_serve(fake, third, WIRE_LOAD_MODULE);
	fake_serve(fake, third, WIRE_PING);
	ck_assert_int_eq(fake_come_back(fake), 0);
	session = fake_session(fake, 1);
	ck_assert_int_eq(session->mirroring, SESSION_MIRRORED);
	end();
}

TEST(another_life, the_next_daemon_knows_it)
{
	fake_with_records = true;
	boot(1);
	die_twice();
	tell_well_alone(await(4));
	ck_assert_int_eq(fake_come_back(fake), 0);
	session = fake_session(fake, 1);
	ck_assert_int_eq(session->mirroring, SESSION_LEFT_OUT);
	ck_assert(worker_is_immovable(fake->children[4].worker, session->number));
	load_module(&ill);
	fake_expect_nothing(fake, fake->children[4].socket);
	fake_reap(fake, &fake->children[4], SIGKILL);
	tell_well_alone(await(5));
	end();
}

int main(void)
{
	Suite *suite;
	TCase *tests;

	fake_prepare();
	suite = suite_create("leave_out");
	tests = suite_case(suite, "leave_out");
	suite_add(tests, "leave_out");
	/* A daemon that died has not closed anything: descriptors are not counted. */
	tests = tcase_create("another life");
	suite_add_tcase(suite, tests);
	suite_add(tests, "another_life");
	return suite_run(suite);
}
