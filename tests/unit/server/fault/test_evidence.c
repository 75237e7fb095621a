// What a line of the kernel log that names an executor does to it. The test is keeper, executors
// and clients.

#include <signal.h>
#include <string.h>

#include "server/fault/evidence.h"
#include "server/fault/kernel_log.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *active, *standby;
static struct fake_client client;

/* An exception of a multiprocessor, and what follows where it is the channel's. */
static const struct xid exception = {
	.number = 13, .pid = 1, .code = 716, .text = "Xid 13, Misaligned Address"};
static const struct xid stopped = {.number = 43, .pid = 1, .code = 719, .text = "Xid 43"};

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	active = &fake->children[1];
	standby = &fake->children[2];
	fake_join(fake, &client, active, standby);
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_leave(fake, &client);
	fake_free(fake);
}

static void expect_nothing_happened(void)
{
	fake_expect_nothing(fake, active->socket);
	ck_assert(!active->killed && !standby->killed);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
}

/* Starting, warming, warm: it runs nothing that could have faulted. */
TEST(evidence, one_that_serves_nobody_goes_on)
{
	struct fake_child *next;

	boot();
	evidence_take_xid(standby->worker, &exception);
	evidence_take_xid(standby->worker, &stopped);
	expect_nothing_happened();
	fake_reap(fake, standby, SIGKILL);
	next = &fake->children[3];
	evidence_take_xid(next->worker, &exception);
	fake_ready(fake, next);
	evidence_take_xid(next->worker, &stopped);
	ck_assert(!next->killed);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_serve(fake, next, WIRE_OPEN_SESSION);
	fake_serve(fake, next, WIRE_PING);
	ck_assert_int_eq(next->worker->state, WORKER_WARM);
	end();
}

/* The exception of another process is a line in the log here. */
TEST(evidence, a_sign_alone_costs_nothing)
{
	boot();
	evidence_take_xid(active->worker, &exception);
	expect_nothing_happened();
	/* Its end for another reason, later, is none for that fault. */
	active->worker->evidence->reported_us -= 60000000;
	ck_assert(!evidence_is_reported(active->worker));
	fake_reap(fake, active, SIGKILL);
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	ck_assert_int_ne(fake->message.activate.code, 716);
	ck_assert_uint_eq(fake->daemon.counters.faults, 0);
	fake_reply(fake, standby->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	end();
}

/* The executor speaks of its faults itself. */
TEST_LOOP(evidence, an_executor_is_not_ended_by_the_log, 0, 2)
{
	boot();
	active->worker->contains = _i & 1;
	evidence_take_xid(active->worker, &stopped);
	expect_nothing_happened();
	end();
}

/* What it said in particular counts where something else shows that there is a fault. */
TEST(evidence, a_line_of_the_log_is_the_code_of_an_executor_that_crashes)
{
	boot();
	evidence_take_xid(active->worker, &exception);
	evidence_take_xid(active->worker, &stopped);
	fake_reap(fake, active, SIGSEGV);
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	ck_assert_int_eq(fake->message.activate.code, 716);
	fake_reply(fake, standby->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	end();
}

/* It ended before it wrote who had work on the device. What was done by then proves nothing, unless
 * it sees exceptions. */
TEST_LOOP(evidence, who_had_work_behind_a_line_of_the_log_is_told, 0, 2)
{
	struct session *session;

	boot();
	active->worker->contains = _i != 0;
	session = fake_session(fake, 0);
	fake_issue(&session->view, 5);
	word_release(&session->view.server->active, timer_now_us() * 1000);
	word_release(&shm_view_timeline(&session->view, active->worker->generation)->stream[3].done, 5);
	evidence_take_xid(active->worker, &exception);
	fake_reap(fake, active, SIGKILL);
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(
		fake->message.activate.recover.at[0], _i ? SESSION_RECOVER_NOTHING : SESSION_RECOVER_UNSURE);
	fake_reply(fake, standby->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	end();
}

int main(void)
{
	Suite *suite = suite_create("evidence");
	TCase *tests;

	fake_prepare();
	tests = suite_case(suite, "evidence");
	suite_add(tests, "evidence");
	return suite_run(suite);
}
