// Faults of the device itself, and processes that were killed and do not end: who is told what, who
// goes on, and that nothing is started again. The test is keeper, executors and programs.

#include "server/daemon/device.h"

#include <signal.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/fault/kernel_log.h"
#include "server/fault/promote.h"
#include "server/incident/incident.h"
#include "server/loop/timer.h"
#include "server/loop/turn_end.h"
#include "server/service.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/reap.h"
#include "server/worker/worker.h"
#include "tests/unit/server/session/fixture.h"

static const struct xid fell_off = {
	.number = 79, .scope = XID_OF_DEVICE, .code = CUDA_ERROR_DEVICE_UNAVAILABLE, .text = "Xid 79"};
static const struct xid contained = {
	.number = 94, .scope = XID_CONTAINED, .code = CUDA_ERROR_ECC_UNCORRECTABLE, .text = "Xid 94"};

static void look(struct fake_child *child, unsigned times)
{
	/* It is killed first. */
	turn_end_now(fake->daemon.turn_end);
	while (times--)
		reap_look(child->worker);
	fake_turn(fake);
}

static void expect_told(const struct fake_client *program, uint32_t code, const char *reason)
{
	ck_assert_uint_eq(word_acquire(&program->view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_relaxed(&program->view.server->error), code);
	ck_assert_msg(
		strstr(program->view.server->reason, reason) != NULL, "%s", program->view.server->reason);
}

static void expect_refused(int32_t code)
{
	struct fake_client late;

	fake_hello(fake, &late);
	fake_expect(fake, late.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, code);
	close(late.socket);
}

static void forget(struct fake_client *program)
{
	fake_leave(fake, program);
	end();
}

/*
 * Xids
 */

TEST(xids, a_device_that_fails_ends_all_sessions_and_nothing_is_started)
{
	join();
	device_take_xid(&fake->daemon, &fell_off);
	fake_turn(fake);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_FAILED);
	expect_told(&client, CUDA_ERROR_DEVICE_UNAVAILABLE, "the device has failed: Xid 79");
	fake_expect_hangup(fake, client.socket);
	ck_assert(active->killed && standby->killed && !keeper->killed);
	expect_refused(CUDA_ERROR_DEVICE_UNAVAILABLE);
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	fake_reap(fake, keeper, SIGKILL);
	domain_prewarm(&fake->daemon);
	ck_assert_uint_eq(fake->child_count, 3);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert(!timer_running(fake->daemon.keeper_timer));
	/* Nobody is blamed, and the first reason stays. */
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
	device_fail(&fake->daemon, CUDA_ERROR_UNKNOWN, "another one");
	expect_refused(CUDA_ERROR_DEVICE_UNAVAILABLE);
	forget(&client);
}

/* Who waits to be opened, and whose request is under way. */
TEST(xids, whoever_waits_when_the_device_fails_waits_no_more)
{
	struct wire_message wish = {.type = WIRE_QUERY_MEMORY};
	struct fake_client waiting;

	join();
	fake_request(fake, &client, &wish, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	fake_hello(fake, &waiting);
	fake_turn(fake);
	device_take_xid(&fake->daemon, &fell_off);
	fake_turn(fake);
	fake_expect(fake, waiting.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_DEVICE_UNAVAILABLE);
	close(waiting.socket);
	fake_expect_hangup(fake, client.socket);
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	forget(&client);
}

TEST(lives, a_failed_device_stays_so_when_the_daemon_dies)
{
	fake_with_records = true;
	join();
	device_take_xid(&fake->daemon, &fell_off);
	fake_turn(fake);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_FAILED);
	ck_assert_int_eq(fake->daemon.health.code, CUDA_ERROR_DEVICE_UNAVAILABLE);
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 3);
	expect_refused(CUDA_ERROR_DEVICE_UNAVAILABLE);
	forget(&client);
}

TEST_LOOP(xids_2, a_contained_fault_costs_the_domain_of_its_executor, 0, 2)
{
	struct domain_refusal refusal;
	struct xid xid = contained;
	struct domain *other;

	join();
	other = domain_of(&fake->daemon, &(struct identity){.uid = getuid() + 1}, NULL, false, &refusal);
	xid.pid = (_i ? standby : active)->worker->pid;
	device_take_xid(&fake->daemon, &xid);
	fake_turn(fake);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	expect_told(&client, CUDA_ERROR_ECC_UNCORRECTABLE, "a fault of the device in an executor: Xid 94");
	ck_assert(active->killed && standby->killed);
	ck_assert(other->life != DOMAIN_RETIRES);
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_ptr_eq(fake_domain(fake), other);
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
	fake_leave(fake, &client);
	/* The next program of that user gets a new executor. */
	ck_assert_uint_eq(fake->child_count, 4);
	fake_hello(fake, &client);
	fake_turn(fake);
	ck_assert_uint_eq(fake->child_count, 5);
	fake_warm(fake, &fake->children[4]);
	fake_serve(fake, &fake->children[4], WIRE_ACTIVATE);
	fake_open(fake, &fake->children[4]);
	fake_welcome(fake, &client);
	forget(&client);
}

/* Said by the driver itself, also in the answer to a request. */
TEST_LOOP(xids_2, a_context_that_the_hardware_ends_is_no_programs_fault, 0, 2)
{
	const int32_t code = CUDA_ERROR_ECC_UNCORRECTABLE;
	const struct wire_message lost = {
		.type = WIRE_LOST, .trouble = {.code = code, .text = "a call failed"}};
	struct wire_message wish = {.type = WIRE_QUERY_MEMORY};

	join();
	fake_issue(&TAILQ_FIRST(&fake->daemon.sessions)->view, 5);
	if (_i) {
		fake_request(fake, &client, &wish, -1);
		fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
		fake_reply(fake, active->socket, fake->message.id, code, NULL, 0);
	} else {
		fake_send(fake, active->socket, &lost, NULL, 0);
	}
	fake_turn(fake);
	expect_told(&client, CUDA_ERROR_ECC_UNCORRECTABLE, "a fault of the device in an executor");
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 0);
	ck_assert(TAILQ_EMPTY(&fake->daemon.fault_histories));
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	forget(&client);
}

static const int32_t at_start[] = {
	CUDA_ERROR_NO_DEVICE, CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_ECC_UNCORRECTABLE};

/* While somebody is served it is tried again. */
TEST_LOOP(xids_2, an_executor_that_finds_no_device_is_the_last_one, 0, sizeof(at_start) / sizeof(at_start[0]))
{
	const struct wire_message lost = {
		.type = WIRE_LOST, .trouble = {.code = at_start[_i], .text = "cannot open the device"}};

	join();
	fake_reap(fake, standby, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_send(fake, fake->children[3].socket, &lost, NULL, 0);
	fake_reap(fake, &fake->children[3], SIGKILL);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert(timer_running(fake_domain(fake)->respawn));
	fake_reap(fake, active, SIGKILL);
	FAKE_RUN_WHILE(fake, fake->child_count == 4);
	fake_send(fake, fake->children[4].socket, &lost, NULL, 0);
	fake_turn(fake);
	expect_told(&client, (uint32_t)at_start[_i], "the device has failed: cannot open the device");
	expect_refused(at_start[_i]);
	for (unsigned i = 4; i < fake->child_count; i++)
		fake_reap(fake, &fake->children[i], SIGKILL);
	ck_assert_uint_le(fake->child_count, 6);
	forget(&client);
}

TEST(xids_2, an_executor_that_cannot_start_for_other_reasons_is_tried_again)
{
	const struct wire_message lost = {.type = WIRE_LOST,
		.trouble = {.code = CUDA_ERROR_OUT_OF_MEMORY, .text = "cannot open the device"}};

	join();
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	fake_send(fake, fake->children[3].socket, &lost, NULL, 0);
	fake_reap(fake, &fake->children[3], 0);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	ck_assert(timer_running(fake_domain(fake)->respawn));
	fake_leave(fake, &client);
	end();
}

TEST(xids_2, a_contained_fault_of_somebody_else_has_no_consequence)
{
	struct xid xid = contained;

	join();
	xid.pid = 1;
	device_take_xid(&fake->daemon, &xid);
	fake_turn(fake);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert(!active->killed && !standby->killed);
	part();
}

/* Whose it is is not known, or everybody's memory is hurt. */
TEST_LOOP(xids_2, a_contained_fault_without_a_process_is_everybodys, 0, 2)
{
	struct xid xid = contained;

	join();
	xid.pid = _i ? keeper->worker->pid : 0;
	device_take_xid(&fake->daemon, &xid);
	fake_turn(fake);
	expect_told(&client, CUDA_ERROR_ECC_UNCORRECTABLE, "the device has failed: Xid 94");
	forget(&client);
}

/*
 * Processes that do not end
 */

/* Whatever holds it may be its user's own: others go on, and his next program gets another one. */
TEST(ends, an_executor_that_does_not_end_costs_its_domain)
{
	struct fake_client other, late;

	join();
	fake_hello_as(fake, &other, 4242);
	fake_warm(fake, &fake->children[3]);
	fake_serve(fake, &fake->children[3], WIRE_ACTIVATE);
	fake_open(fake, &fake->children[3]);
	fake_welcome(fake, &other);
	active->seen = standby->seen = true;
	worker_terminate(active->worker, "a test");
	turn_end_now(fake->daemon.turn_end);
	ck_assert(timer_running(active->worker->reap_timer));
	look(active, REAP_LOOKS - 1);
	/* It is still at something. */
	active->vitals.is_ending = true;
	active->vitals.processor_ms++;
	look(active, REAP_LOOKS - 1);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_HELD);
	look(active, 1);
	expect_told(&client, CUDA_ERROR_DEVICE_UNAVAILABLE, "was killed and does not end");
	ck_assert(standby->killed);
	look(active, REAP_LOOKS);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	ck_assert_uint_eq(word_acquire(&other.view.server->state), SHM_SESSION_RUNNING);
	fake_hello(fake, &late);
	ck_assert_uint_eq(fake->child_count, 6);
	fake_ready(fake, &fake->children[5]);
	close(late.socket);
	fake_leave(fake, &other);
	forget(&client);
}

/* It asks the firmware again and again, which does not answer. */
TEST(ends, an_executor_with_a_thread_that_is_held_does_nothing_useful)
{
	join();
	active->seen = standby->seen = true;
	worker_terminate(active->worker, "a test");
	for (unsigned i = 0; i < REAP_LOOKS; i++) {
		active->vitals.processor_ms += 1000;
		look(active, 1);
	}
	expect_told(&client, CUDA_ERROR_DEVICE_UNAVAILABLE, "was killed and does not end");
	forget(&client);
}

/* The timer itself. */
TEST(ends, an_executor_that_was_killed_is_looked_at)
{
	join();
	active->seen = true;
	worker_terminate(active->worker, "a test");
	FAKE_RUN_WHILE(fake, active->worker->still < 2);
	forget(&client);
}

/* It runs as a user of the machine, who may have written that himself. */
TEST(ends, an_executor_of_a_user_does_not_say_that_there_is_no_device)
{
	const struct wire_message lost = {
		.type = WIRE_LOST, .trouble = {.code = CUDA_ERROR_NO_DEVICE, .text = "said"}};

	boot();
	fake->heritage.run_as = RUN_AS_PROGRAM;
	fake_reap(fake, standby, SIGKILL);
	fake_reap(fake, active, SIGKILL);
	FAKE_SKIP_WHILE(fake, fake->child_count == 3);
	fake_send(fake, fake->children[3].socket, &lost, NULL, 0);
	ck_assert(fake->children[3].killed);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	end();
}

/* Sessions that go on elsewhere wait for nobody. */
TEST(ends, an_executor_that_nobody_waits_for_may_take_its_time)
{
	join();
	active->seen = standby->seen = true;
	worker_terminate(standby->worker, "a test");
	look(standby, 10 * REAP_LOOKS);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	/* But it is in the way when the other one goes as well, and nobody can be started in its
	 * place. */
	fake->config.standbys = 0;
	fake_reap(fake, active, SIGKILL);
	ck_assert(incident_is_waiting(fake_domain(fake)->promotion.state));
	look(standby, 1);
	expect_told(&client, CUDA_ERROR_DEVICE_UNAVAILABLE, "was killed and does not end");
	forget(&client);
}

TEST(ends, a_keeper_that_does_not_end_is_the_devices_failure)
{
	join();
	keeper->seen = true;
	worker_terminate(keeper->worker, "a test");
	look(keeper, REAP_LOOKS);
	expect_told(&client, CUDA_ERROR_DEVICE_UNAVAILABLE, "keeper");
	ck_assert(active->killed);
	forget(&client);
}

TEST(ends, a_service_leaves_behind_who_does_not_end)
{
	boot();
	keeper->seen = active->seen = standby->seen = true;
	daemon_leave(&fake->daemon);
	fake_reap(fake, keeper, 0);
	fake_reap(fake, standby, 0);
	worker_terminate(active->worker, "does not leave");
	ck_assert(!TAILQ_EMPTY(&fake_domain(fake)->workers));
	turn_end_now(fake->daemon.turn_end);
	for (unsigned i = 0; i < REAP_LOOKS; i++)
		reap_look(TAILQ_FIRST(&fake_domain(fake)->workers));
	active->worker = NULL;
	close(active->socket);
	fake_turn(fake);
	ck_assert(TAILQ_EMPTY(&fake_domain(fake)->workers));
	end();
}

int main(void)
{
	Suite *suite = suite_create("device");
	TCase *xids = suite_case(suite, "xids"), *ends = suite_case(suite, "ends");
	/* What the dead daemon had open is not the next one's. */
	TCase *lives = tcase_create("lives");

	fake_prepare();
	suite_add(xids, "xids");
	suite_add(lives, "lives");
	suite_add_tcase(suite, lives);
	suite_add(xids, "xids_2");
	suite_add(ends, "ends");
	return suite_run(suite);
}
