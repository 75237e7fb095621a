// The promotion's state machine, with the test in the place of keeper, executors and clients.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/daemon/children.h"
#include "server/fault/attribute.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/incident/incident.h"
#include "server/loop/timer.h"
#include "server/service.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB (UINT64_C(1) << 20)

static struct fake *fake;
static struct fake_child *keeper, *first, *second;

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	keeper = &fake->children[0];
	first = &fake->children[1];
	second = &fake->children[2];
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

/* What an executor would note: commands issued on stream 3. */
static void issue(struct session *session, uint64_t issued)
{
	fake_issue(&session->view, issued);
}

static void say_lost(struct fake_child *child, int32_t code)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = code, .text = "it broke"}};

	fake_send(fake, child->socket, &lost, NULL, 0);
}

/* A client that holds 2 MiB; everybody is told. */
static void map_memory(struct fake_client *client, struct fake_child *active, struct fake_child *standby)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = client->window_base, .bytes = 2 * MIB}};
	uint64_t id = fake_request(fake, client, &map, -1);

	fake_make_chunk(fake, keeper, 77);
	ck_assert_uint_eq(fake->message.chunk.bytes, 2 * MIB);
	fake_expect_nothing(fake, client->socket);
	fake_expect(fake, active->socket, WIRE_MAP_MEMORY);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert_uint_eq(fake->message.range.address, client->window_base);
	fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
	fake_expect(fake, client->socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, id);
	ck_assert_int_eq(fake->message.reply.code, 0);
	if (standby) {
		fake_expect(fake, standby->socket, WIRE_MAP_MEMORY);
		ck_assert_uint_eq(fake->packet.fd_count, 1);
		fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
	}
}

TEST(promote, first_executor_is_activated_when_it_is_warm)
{
	fake = fake_new(1);
	fake_ready(fake, &fake->children[0]);
	fake_ready(fake, &fake->children[1]);
	ck_assert_int_ne(fake->daemon.phase, DAEMON_STARTS);
	fake_serve(fake, &fake->children[1], WIRE_PING);
	fake_expect(fake, fake->children[1].socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.generation, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 0);
	ck_assert_ptr_null(domain_serving(fake_domain(fake)));
	fake_reply(fake, fake->children[1].socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), fake->children[1].worker);
	fake_warm(fake, &fake->children[2]);
	fake_expect_nothing(fake, fake->children[2].socket);
	end();
}

/* It is halted, what runs there does not end, and it is asked to leave the device and answers. */
static void leave_device(struct fake_child *child, int32_t code)
{
	fake_serve(fake, child, WIRE_HALT);
	FAKE_RUN_WHILE(fake, !fake_domain(fake)->promotion.fence_until_us);
	fake_expect(fake, child->socket, WIRE_HALT);
	ck_assert(fake->message.halt.fence);
	fake_reply(fake, child->socket, fake->message.id, code, NULL, 0);
}

TEST(promote, client_waits_for_the_first_executor)
{
	struct fake_client client;

	fake = fake_new(1);
	fake_hello(fake, &client);
	fake_expect_nothing(fake, client.socket);
	fake_boot(fake);
	fake_open(fake, &fake->children[1]);
	fake_welcome(fake, &client);
	fake_leave(fake, &client);
	end();
}

TEST_LOOP(promote, culprit_is_named_and_survivor_goes_on, 0, 2)
{
	struct fake_client culprit, survivor;

	boot();
	fake_join(fake, &culprit, first, second);
	fake_join(fake, &survivor, first, second);
	map_memory(&survivor, first, second);
	issue(fake_session(fake, 0), 5);
	issue(fake_session(fake, 1), 2);
	first->words->session = fake_session(fake, 0)->number;
	first->words->code = 700;
	strcpy(first->words->kernel, "bad_kernel");
	first->words->magic = LAST_WORDS_MAGIC;
	say_lost(first, 719);

	/* Before the fence: halted, clients held, nothing else. */
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&culprit.view.server->state), SHM_SESSION_HELD);
	ck_assert_uint_eq(word_acquire(&survivor.view.server->state), SHM_SESSION_HELD);
	fake_expect_nothing(fake, second->socket);
	ck_assert(!first->killed);
	leave_device(first, _i ? CUDA_ERROR_UNKNOWN : 0);
	ck_assert(first->killed);
	if (_i) {
		/* Nothing is certain before its end. */
		ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
		fake_expect_nothing(fake, second->socket);
		fake_reap(fake, first, SIGKILL);
	}
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.generation, 2);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	ck_assert_uint_eq(fake->message.activate.recover.at[1], SESSION_RECOVER_BY_POLICY);
	ck_assert_int_eq(fake->message.activate.code, 700);
	ck_assert_ptr_nonnull(strstr(fake->message.activate.reason, "bad_kernel"));
	/* The standby for the next time is started before this one is done, but not beside the old
	 * one. */
	ck_assert_uint_eq(fake->child_count, _i ? 4 : 3);
	if (!_i)
		fake_reap(fake, first, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 1);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text,
		"kernel bad_kernel, code 700 CUDA_ERROR_ILLEGAL_ADDRESS, named by"));

	/* And is told everything. */
	fake_ready(fake, &fake->children[3]);
	fake_serve(fake, &fake->children[3], WIRE_OPEN_SESSION);
	fake_serve(fake, &fake->children[3], WIRE_OPEN_SESSION);
	fake_expect(fake, fake->children[3].socket, WIRE_MAP_MEMORY);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	fake_reply(fake, fake->children[3].socket, fake->message.id, 0, NULL, 0);
	fake_serve(fake, &fake->children[3], WIRE_PING);
	ck_assert_int_eq(fake->children[3].worker->state, WORKER_WARM);
	fake_leave(fake, &culprit);
	fake_leave(fake, &survivor);
	end();
}

TEST(promote, nothing_in_doubt_needs_no_recovery)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	issue(fake_session(fake, 0), 2);
	word_set(&shm_view_timeline(&fake_session(fake, 0)->view, 1)->stream[3].done, 2);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_NOTHING);
	fake_leave(fake, &client);
	end();
}

TEST(promote, request_of_a_dead_executor_is_answered_by_the_next)
{
	struct fake_client client;
	struct wire_message find = {.type = WIRE_QUERY_MEMORY};
	const uint64_t values[2] = {7, 9};
	uint64_t id;

	boot();
	fake_join(fake, &client, first, second);
	id = fake_request(fake, &client, &find, -1);
	fake_expect(fake, first->socket, WIRE_QUERY_MEMORY);
	fake_reap(fake, first, SIGSEGV);
	fake_serve(fake, second, WIRE_ACTIVATE);
	fake_expect(fake, second->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, second->socket, fake->message.id, 0, values, 2);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.id, id);
	ck_assert_uint_eq(fake->message.reply.values.at[1], 9);
	fake_leave(fake, &client);
	end();
}

/* Who else has work on the device has nothing to do with it; unless it was a kernel, which has
 * nothing to do with the request. */
TEST_LOOP(promote, request_that_crashes_two_executors_is_not_made_again, 0, 2)
{
	struct fake_client guilty, busy;
	struct wire_message find = {.type = WIRE_QUERY_MEMORY};
	bool kernel = _i != 0;

	boot();
	fake_join(fake, &guilty, first, second);
	fake_join(fake, &busy, first, second);
	issue(fake_session(fake, 1), 5);
	fake_request(fake, &guilty, &find, -1);
	fake_expect(fake, first->socket, WIRE_QUERY_MEMORY);
	if (kernel)
		*first->words = (struct last_words){
			.code = 700, .session = fake_session(fake, 1)->number, .magic = LAST_WORDS_MAGIC};
	fake_reap(fake, first, SIGSEGV);
	ck_assert_int_eq(
		fake_domain(fake)->promotion.verdict.ground, kernel ? JUDGE_LAST_WORDS : JUDGE_NO_FAULT);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 0);
	fake_serve(fake, second, WIRE_ACTIVATE);
	fake_expect(fake, second->socket, WIRE_QUERY_MEMORY);
	fake_reap(fake, second, SIGSEGV);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, !kernel);
	ck_assert_uint_eq(fake->daemon.counters.culprits, kernel);
	if (!kernel) {
		fake_expect_hangup(fake, guilty.socket);
		ck_assert_uint_eq(word_acquire(&guilty.view.server->state), SHM_SESSION_CLOSED);
	}
	fake_leave(fake, &guilty);
	fake_leave(fake, &busy);
	end();
}

TEST(promote, answer_of_a_lost_context_is_not_passed_on)
{
	struct fake_client client;
	struct wire_message find = {.type = WIRE_QUERY_MEMORY};

	boot();
	fake_join(fake, &client, first, second);
	fake_request(fake, &client, &find, -1);
	fake_expect(fake, first->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, first->socket, fake->message.id, 700, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	fake_serve(fake, first, WIRE_HALT);
	FAKE_RUN_WHILE(fake, !first->killed);
	fake_expect_nothing(fake, client.socket);
	fake_serve(fake, second, WIRE_ACTIVATE);
	fake_serve(fake, second, WIRE_QUERY_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_leave(fake, &client);
	end();
}

TEST(promote, without_a_standby_clients_wait_for_one)
{
	struct fake_client client;

	fake = fake_new(0);
	fake_boot(fake);
	first = &fake->children[1];
	fake_join(fake, &client, first, NULL);
	fake_reap(fake, first, SIGABRT);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_HELD);
	second = &fake->children[2];
	fake_warm_with(fake, second, 1);
	fake_serve(fake, second, WIRE_ACTIVATE);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	fake_leave(fake, &client);
	end();
}

TEST(promote, loss_while_activating_starts_over)
{
	struct fake_client client;
	struct fake_child *third;

	boot();
	fake_join(fake, &client, first, second);
	issue(fake_session(fake, 0), 1);
	first->words->session = fake_session(fake, 0)->number;
	first->words->magic = LAST_WORDS_MAGIC;
	fake_reap(fake, first, SIGSEGV);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	fake_reap(fake, second, SIGKILL);
	third = &fake->children[3];
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	/* Nothing else would ever tell the operator. */
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "culprit is process"));
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text,
		"the executor that took over failed before it served everybody"));
	fake_warm_with(fake, third, 1);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.generation, 3);
	/* The verdict of the first loss is not forgotten. */
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	fake_leave(fake, &client);
	end();
}

/* What a standby does when it takes a session over: commands up to `done` are known done, later
 * ones are issued again. */
static void take_over(struct session *session, uint64_t done)
{
	uint32_t generation = fake_domain(fake)->active->generation;

	word_set(&shm_view_timeline(&session->view, generation)->stream[3].done, done);
	word_release(&session->view.server->generation, generation);
	word_release(&session->view.server->state, SHM_SESSION_RUNNING);
}

static void set_done(struct session *session, uint64_t done)
{
	word_release(&shm_view_timeline(&session->view, word_acquire(&session->view.server->generation))
			      ->stream[3]
			      .done,
		done);
}

/* An executor is lost to a fault that nobody can be proved guilty of, and reaped. */
static void lose(struct fake_child *active)
{
	say_lost(active, 700);
	fake_reap(fake, active, SIGKILL);
}

/* The standby, told of `sessions`, is warm; the one behind it is returned and has not said
 * anything. */
static struct fake_child *warm_next(unsigned sessions)
{
	struct fake_child *next = &fake->children[fake->child_count - 1];

	fake_warm_with(fake, next, sessions);
	return next;
}

TEST(promote, busy_survivor_of_many_losses_is_not_blamed)
{
	struct fake_client clients[2];
	struct fake_child *active, *standby;

	boot();
	for (unsigned i = 0; i < 2; i++)
		fake_join(fake, &clients[i], first, second);
	active = first;
	standby = second;
	/* Two busy sessions, in doubt at every loss, each time with later commands. */
	for (uint64_t round = 1; round <= 6; round++) {
		for (unsigned i = 0; i < 2; i++) {
			issue(fake_session(fake, i), 10 * round + 5);
			set_done(fake_session(fake, i), 10 * round);
		}
		lose(active);
		fake_expect(fake, standby->socket, WIRE_ACTIVATE);
		ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
		ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_BY_POLICY);
		for (unsigned i = 0; i < 2; i++)
			take_over(fake_session(fake, i), 10 * round);
		fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
		active = standby;
		standby = warm_next(2);
	}
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(
			word_acquire(&fake_session(fake, i)->view.server->state), SHM_SESSION_RUNNING);
		ck_assert_uint_eq(fake_session(fake, i)->evidence.losses, 1);
	}
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 6);
	for (unsigned i = 0; i < 2; i++)
		fake_leave(fake, &clients[i]);
	end();
}

TEST(promote, commands_in_doubt_at_three_losses_are_not_repeated_again)
{
	struct fake_client stuck, busy;
	struct fake_child *active, *standby;

	boot();
	fake_join(fake, &stuck, first, second);
	fake_join(fake, &busy, first, second);
	active = first;
	standby = second;
	for (uint64_t round = 1; round <= 3; round++) {
		issue(fake_session(fake, 0), 7);
		issue(fake_session(fake, 1), 10 * round + 5);
		set_done(fake_session(fake, 1), 10 * round - 5);
		lose(active);
		fake_expect(fake, standby->socket, WIRE_ACTIVATE);
		ck_assert_uint_eq(fake->message.activate.sessions.count, round < 3 ? 2 : 1);
		if (round < 3)
			take_over(fake_session(fake, 0), 0);
		take_over(fake_session(fake, 1), 10 * round - 5);
		fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
		active = standby;
		standby = warm_next(2);
	}
	ck_assert_uint_eq(word_acquire(&fake_session(fake, 0)->view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_acquire(&fake_session(fake, 1)->view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "nobody is proved guilty"));
	ck_assert_ptr_nonnull(strstr(fake_domain(fake)->promotion.verdict_text, "told an error: session 1 "));
	fake_leave(fake, &stuck);
	fake_leave(fake, &busy);
	end();
}

/* Each executor that is to take the session over ends before it has reached it, or says that it
 * has. */
TEST(promote, session_at_whose_takeover_executors_end_is_not_repeated_for_ever)
{
	struct fake_client stuck, idle;
	struct fake_child *standby;

	boot();
	fake_join(fake, &stuck, first, second);
	fake_join(fake, &idle, first, second);
	issue(fake_session(fake, 0), 7);
	fake_reap(fake, first, SIGKILL);
	standby = second;
	for (unsigned losses = 1; losses < ATTRIBUTE_LOSSES_MAX; losses++) {
		fake_expect(fake, standby->socket, WIRE_ACTIVATE);
		ck_assert_uint_eq(fake->message.activate.sessions.count, 2);
		ck_assert_uint_eq(fake_session(fake, 0)->evidence.losses, losses);
		fake_reap(fake, standby, SIGSEGV);
		standby = warm_next(2);
	}
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.sessions.at[0], fake_session(fake, 1)->number);
	take_over(fake_session(fake, 1), 0);
	fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
	ck_assert_uint_eq(word_acquire(&fake_session(fake, 0)->view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_acquire(&fake_session(fake, 1)->view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_leave(fake, &stuck);
	fake_leave(fake, &idle);
	end();
}

TEST(promote, session_that_the_lost_executor_did_not_serve_is_not_its_culprit)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	issue(fake_session(fake, 0), 7);
	/* Killed: no fault, and what is in doubt is to be repeated. */
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	/* The next one breaks before it has reached the session. */
	lose(second);
	ck_assert_uint_eq(fake_domain(fake)->promotion.verdict.culprit, 0);
	ck_assert_int_eq(fake_domain(fake)->promotion.verdict.ground, JUDGE_UNKNOWN);
	ck_assert_int_eq(fake_session(fake, 0)->evidence.recover, SESSION_RECOVER_BY_POLICY);
	fake_leave(fake, &client);
	end();
}

TEST(promote, user_without_programs_gives_its_executors_back)
{
	struct domain_refusal refusal;
	struct fake_client client;
	struct domain *other;

	boot();
	fake->config.domain_idle_seconds = 1;
	fake_join(fake, &client, first, second);
	fake_leave(fake, &client);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert(timer_running(fake_domain(fake)->idle));
	/* The only domain stays warm. */
	FAKE_RUN_WHILE(fake, timer_running(fake_domain(fake)->idle));
	ck_assert_int_ne(fake_domain(fake)->life, DOMAIN_RETIRES);

	/* Another user's executors are up: the first user's go. */
	other = domain_of(&fake->daemon, &(struct identity){.uid = getuid() + 1}, NULL, false, &refusal);
	fake_warm(fake, &fake->children[3]);
	fake_serve(fake, &fake->children[3], WIRE_ACTIVATE);
	ck_assert_ptr_nonnull(domain_serving(other));
	timer_stop(other->idle); /* as if it had a client */
	FAKE_RUN_WHILE(fake, fake_domain(fake)->life != DOMAIN_RETIRES);
	ck_assert(first->killed && second->killed);
	fake_reap(fake, first, SIGKILL);
	fake_reap(fake, second, SIGKILL);
	ck_assert_ptr_eq(fake_domain(fake), other);
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
	ck_assert_uint_eq(fake->child_count, 5);
	end();
}

TEST(promote, user_with_a_program_keeps_its_executors)
{
	struct fake_client client;

	boot();
	fake->config.domain_idle_seconds = 1;
	fake_join(fake, &client, first, second);
	fake_leave(fake, &client);
	fake_serve(fake, first, WIRE_CLOSE_SESSION);
	fake_serve(fake, second, WIRE_CLOSE_SESSION);
	ck_assert(timer_running(fake_domain(fake)->idle));
	fake_join(fake, &client, first, second);
	ck_assert(!timer_running(fake_domain(fake)->idle));
	fake_leave(fake, &client);
	end();
}

TEST(promote, standby_that_dies_is_replaced)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	fake_reap(fake, second, SIGKILL);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_leave(fake, &client);
	end();
}

TEST(promote, standby_that_crashes_at_what_it_is_told_comes_back_later)
{
	struct fake_client client;
	struct fake_child *third, *fourth;

	boot();
	third = &fake->children[3];
	fourth = &fake->children[4];
	fake_join(fake, &client, first, second);
	fake_reap(fake, second, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_ready(fake, third);
	fake_reap(fake, third, SIGSEGV);
	ck_assert_uint_eq(fake->child_count, 4);
	ck_assert_uint_eq(fake_domain(fake)->start_failures, 1);
	FAKE_RUN_WHILE(fake, fake->child_count == 4);
	fake_ready(fake, fourth);
	ck_assert_uint_eq(fake_domain(fake)->start_failures, 1);
	fake_serve(fake, fourth, WIRE_OPEN_SESSION);
	fake_serve(fake, fourth, WIRE_PING);
	ck_assert_uint_eq(fake_domain(fake)->start_failures, 0);
	fake_leave(fake, &client);
	end();
}

/* Modules are answered behind the Ping: one that crashes at them was never warm. */
TEST(promote, standby_that_crashes_behind_the_ping_comes_back_later)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 4096}};
	struct fake_client client;
	struct fake_child *third;
	int fd = fake_memfd(4096, 14);

	boot();
	third = &fake->children[3];
	fake_join(fake, &client, first, second);
	fake_request(fake, &client, &load, fd);
	close(fd);
	fake_serve(fake, first, WIRE_LOAD_MODULE);
	fake_reap(fake, second, SIGKILL);
	fake_ready(fake, third);
	fake_serve(fake, third, WIRE_OPEN_SESSION);
	fake_expect(fake, third->socket, WIRE_LOAD_MODULE);
	fake_serve(fake, third, WIRE_PING);
	fake_reap(fake, third, SIGSEGV);
	ck_assert_uint_eq(fake->child_count, 4);
	ck_assert_uint_eq(fake_domain(fake)->start_failures, 1);
	FAKE_RUN_WHILE(fake, fake->child_count == 4);
	fake_leave(fake, &client);
	end();
}

/* The client's variable has another address on the standby. */
static void join_differing(struct fake_client *client)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 4096}};
	struct wire_message find = {.type = WIRE_FIND_GLOBAL, .symbol = {.module = 1, .name = "g"}};
	const uint64_t here[2] = {0x1000, 8}, there[2] = {0x2000, 8};
	int fd = fake_memfd(4096, 14);

	boot();
	fake_join(fake, client, first, second);
	fake_request(fake, client, &load, fd);
	close(fd);
	fake_serve(fake, first, WIRE_LOAD_MODULE);
	fake_serve(fake, second, WIRE_LOAD_MODULE);
	fake_expect(fake, client->socket, WIRE_REPLY);
	fake_request(fake, client, &find, -1);
	fake_expect(fake, first->socket, WIRE_FIND_GLOBAL);
	fake_reply(fake, first->socket, fake->message.id, 0, here, 2);
	fake_expect(fake, second->socket, WIRE_FIND_GLOBAL);
	fake_reply(fake, second->socket, fake->message.id, 0, there, 2);
}

TEST(promote, session_that_differs_on_the_standby_is_not_moved)
{
	struct fake_client client;

	join_differing(&client);
	fake_reap(fake, first, SIGABRT);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 0);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_ne(word_relaxed(&client.view.server->error), 0);
	fake_leave(fake, &client);
	end();
}

TEST(promote, standby_with_open_answers_is_not_promoted_yet)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, NULL);
	fake_reap(fake, first, SIGABRT);
	fake_expect(fake, second->socket, WIRE_OPEN_SESSION);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	fake_reply(fake, second->socket, fake->message.id, 0, NULL, 0);
	fake_serve(fake, second, WIRE_ACTIVATE);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), second->worker);
	fake_leave(fake, &client);
	end();
}

static void answer_close(struct fake_child *child, uint64_t drained)
{
	fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, child->socket, fake->message.id, 0, &drained, 1);
}

TEST(promote, memory_goes_back_when_every_executor_has_let_go)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	map_memory(&client, first, second);
	fake_leave(fake, &client);
	answer_close(first, 1);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	answer_close(second, 1);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	ck_assert_uint_eq(fake->message.chunk.handle, 77);
	fake_reply(fake, keeper->socket, fake->message.id, 0, NULL, 0);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	end();
}

TEST(promote, who_cannot_be_moved_counts_until_it_is_gone)
{
	struct fake_client client;

	join_differing(&client);
	ck_assert_uint_eq(second->worker->immovable_count, 1);
	fake_leave(fake, &client);
	answer_close(first, 1);
	answer_close(second, 1);
	ck_assert_uint_eq(second->worker->immovable_count, 0);
	end();
}

TEST(promote, orphan_is_replaced_when_survivors_are_quiet)
{
	struct fake_client orphan, survivor;
	struct session *session;

	boot();
	fake_join(fake, &orphan, first, second);
	fake_join(fake, &survivor, first, second);
	session = fake_session(fake, 1);
	issue(session, 4);
	fake_leave(fake, &orphan);
	answer_close(second, 1);
	answer_close(first, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&survivor.view.server->state), SHM_SESSION_HELD);
	fake_serve(fake, first, WIRE_HALT);
	ck_assert(!first->killed);
	/* The survivor's work ends; the next look sees it. Nobody waits for the old executor's
	 * end. */
	word_release(&shm_view_timeline(&session->view, 1)->stream[3].done, 4);
	FAKE_RUN_WHILE(fake, !first->killed);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_NOTHING);
	ck_assert_uint_eq(fake->daemon.counters.orphans, 1);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	fake_leave(fake, &survivor);
	end();
}

/* What the next executor issues again begins anew: the end of that one is none of its. */
TEST(promote, limit_of_a_lost_executor_does_not_count_for_the_next)
{
	struct fake_client culprit, survivor;
	struct fake_child *third;

	boot();
	fake_join(fake, &culprit, first, second);
	fake_join(fake, &survivor, first, second);
	issue(fake_session(fake, 1), 4);
	promote_over_limit(fake_domain(fake), fake_session(fake, 1));
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	first->words->session = fake_session(fake, 0)->number;
	first->words->magic = LAST_WORDS_MAGIC;
	fake_reap(fake, first, SIGSEGV);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	ck_assert_uint_eq(fake->message.activate.recover.at[1], SESSION_RECOVER_BY_POLICY);
	fake_reap(fake, second, SIGKILL);
	third = &fake->children[3];
	fake_warm_with(fake, third, 2);
	fake_expect(fake, third->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	ck_assert_uint_eq(fake->message.activate.recover.at[1], SESSION_RECOVER_BY_POLICY);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
	fake_leave(fake, &culprit);
	fake_leave(fake, &survivor);
	end();
}

/* It is known before the executor serves, and no standby comes that would be an occasion. */
TEST(promote, orphan_of_a_promotion_is_replaced_when_that_is_over)
{
	struct fake_client orphan, survivor;
	uint64_t activation;

	fake = fake_new(0);
	fake_boot(fake);
	first = &fake->children[1];
	fake_join(fake, &orphan, first, NULL);
	fake_join(fake, &survivor, first, NULL);
	fake_reap(fake, first, SIGKILL);
	second = &fake->children[2];
	fake_warm_with(fake, second, 2);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	activation = fake->message.id;
	fake_leave(fake, &orphan);
	answer_close(second, 0);
	ck_assert(incident_is_activating(fake_domain(fake)->promotion.state));
	fake_reply(fake, second->socket, activation, 0, NULL, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(fake->daemon.counters.orphans, 1);
	fake_leave(fake, &survivor);
	end();
}

/* Nor does it stand in the way of a promotion. */
TEST(promote, loss_of_the_keeper_ends_nobody)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	fake_reap(fake, keeper, SIGKILL);
	ck_assert_int_eq(fake->children[3].role, ROLE_KEEPER);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert(!first->killed && !second->killed);
	fake_expect_nothing(fake, client.socket);
	fake_reap(fake, first, SIGKILL);
	fake_expect(fake, second->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	fake_leave(fake, &client);
	end();
}

TEST(promote, who_comes_before_the_next_keeper_waits_for_it)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client client;

	boot();
	fake_reap(fake, keeper, SIGKILL);
	fake_reap(fake, first, SIGKILL);
	fake_reap(fake, second, SIGKILL);
	fake_warm(fake, &fake->children[4]);
	fake_serve(fake, &fake->children[4], WIRE_ACTIVATE);
	fake_join(fake, &client, &fake->children[4], NULL);
	map.range.address = client.window_base;
	map.range.bytes = 2 * MIB;
	fake_request(fake, &client, &map, -1);
	fake_expect_nothing(fake, client.socket);
	fake_ready(fake, &fake->children[3]);
	fake_expect(fake, fake->children[3].socket, WIRE_CREATE_CHUNK);
	fake_leave(fake, &client);
	end();
}

TEST(promote, service_that_never_came_up_ends_with_an_error)
{
	fake = fake_new(1);
	fake_ready(fake, &fake->children[0]);
	fake_reap(fake, &fake->children[1], 0);
	ck_assert_int_eq(fake->daemon.exit_code, 1);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_LEAVES);
	end();
}

/* An executor's Ready in the turn in which the service has failed, and in a later one while the
 * children leave. */
TEST(promote, service_that_has_failed_does_not_become_ready)
{
	struct wire_message ready = {.type = WIRE_READY, .ready = {.driver_version = 13000}};
	struct packet packet = {0};

	fake = fake_new(2);
	fake_ready(fake, &fake->children[0]);
	daemon_fail(&fake->daemon, "a test ends the service");
	children_message(fake->children[1].worker, &ready, &packet);
	ck_assert(fake->daemon.device_known);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_STARTS);
	fake_turn(fake);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_LEAVES);
	fake_ready(fake, &fake->children[2]);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_LEAVES);
	end();
}

TEST(promote, clients_are_refused_when_executors_do_not_start)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	fake->refuse_start = true;
	fake_reap(fake, second, SIGKILL);
	fake_domain(fake)->start_failures = DOMAIN_START_FAILURES;
	fake_reap(fake, first, SIGKILL);
	fake_leave(fake, &client);
	fake_hello(fake, &client);
	fake_expect(fake, client.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, 807);
	fake_expect_hangup(fake, client.socket);
	fake_leave(fake, &client);
	end();
}

TEST(promote, stop_waits_for_clients)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	daemon_stop(&fake->daemon);
	fake_expect_nothing(fake, client.socket);
	ck_assert_int_ne(fake->daemon.phase, DAEMON_LEAVES);
	fake_leave(fake, &client);
	answer_close(first, 1);
	answer_close(second, 1);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_LEAVES);
	fake_expect(fake, first->socket, WIRE_SHUTDOWN);
	fake_expect(fake, second->socket, WIRE_SHUTDOWN);
	fake_expect(fake, keeper->socket, WIRE_SHUTDOWN);
	end();
}

TEST(promote, second_stop_closes_clients)
{
	struct fake_client client;

	boot();
	fake_join(fake, &client, first, second);
	daemon_stop(&fake->daemon);
	daemon_stop(&fake->daemon);
	fake_expect_hangup(fake, client.socket);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_CLOSED);
	fake_leave(fake, &client);
	end();
}

int main(void)
{
	Suite *suite = suite_create("promote");
	TCase *tests = suite_case(suite, "promote");

	fake_prepare();
	suite_add(tests, "promote");
	return suite_run(suite);
}
