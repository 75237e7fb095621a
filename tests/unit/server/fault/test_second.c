// Something else happens while a fault is being dealt with: at each step of a promotion, each thing
// that can come in between. Whatever it is, the one whose fault it was is told, the other one goes
// on, and the domain serves again.

#include <signal.h>
#include <string.h>
#include <time.h>

#include "server/fault/evidence.h"
#include "server/fault/kernel_log.h"
#include "server/fault/promote.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;
static struct fake_child *first, *second;
static struct fake_client clients[2];
static uint32_t orders[2]; /* recover codes of the latest Activate, by session */

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	fake->config.fault_patience_ms = 2000;
	fake->config.fault_stall_ms = 10;
	first = &fake->children[1];
	second = &fake->children[2];
	for (unsigned i = 0; i < 2; i++)
		fake_join(fake, &clients[i], first, second);
	memset(orders, 0xff, sizeof(orders));
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < 2; i++)
		fake_leave(fake, &clients[i]);
	fake_free(fake);
}

static void say(struct fake_child *child, enum wire_type type, int32_t code)
{
	struct wire_message message = {.type = type, .trouble = {.code = code, .text = "a sign"}};

	if (child->worker)
		fake_send(fake, child->socket, &message, NULL, 0);
}

static void issue(unsigned index)
{
	struct session *session = fake_session(fake, index);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fake_issue(&session->view, 5);
	word_set(&session->view.server->active, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void finish(unsigned index)
{
	struct session *session = fake_session(fake, index);

	word_release(&shm_view_timeline(&session->view, 1)->stream[3].done, 5);
}

static void note_orders(void)
{
	for (uint32_t i = 0; i < fake->message.activate.sessions.count; i++)
		for (unsigned k = 0; k < 2; k++)
			if (fake->message.activate.sessions.at[i] == fake_session(fake, k)->number)
				orders[k] = fake->message.activate.recover.at[i];
}

/* One message of a child is answered as by one that is well. Return: whether there was one. */
static bool serve(struct fake_child *child)
{
	packet_close_fds(&fake->packet);
	if (packet_receive(child->socket, &fake->packet))
		return false;
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	if (fake->message.type == WIRE_ACTIVATE)
		note_orders();
	if (fake->message.id)
		fake_reply(fake, child->socket, fake->message.id, 0, NULL, 0);
	return true;
}

/* Everybody does what is expected until the domain serves again. */
static void go_on(void)
{
	bool ready[FAKE_CHILDREN_MAX] = {true, true, true};

	for (int i = 0; !domain_serving(fake_domain(fake)) || fake_domain(fake)->active == first->worker;
		i++) {
		ck_assert_int_lt(i, 20000);
		uv_run(&fake->loop, UV_RUN_NOWAIT);
		for (unsigned n = 1; n < fake->child_count; n++) {
			struct fake_child *child = &fake->children[n];

			if (child->worker && child->killed)
				fake_reap(fake, child, SIGKILL);
			if (!child->worker)
				continue;
			if (!ready[n])
				fake_ready(fake, child);
			ready[n] = true;
			while (serve(child))
				;
		}
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
}

/* Steps of the promotion after the fault of session 0, session 1 at work. */
enum step { HALT_SENT, HALTED, QUIET_UNNAMED, FENCED, ACTIVATE_SENT, STEPS };

static void name_culprit(void)
{
	*first->words = (struct last_words){.code = 700,
		.session = fake_session(fake, 0)->number,
		.kernel = "bad_kernel",
		.magic = LAST_WORDS_MAGIC};
}

static void reach(enum step step)
{
	issue(0);
	issue(1);
	say(first, WIRE_SUSPECT, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	if (step == HALT_SENT)
		return;
	fake_serve(fake, first, WIRE_HALT);
	if (step == HALTED)
		return;
	if (step == FENCED) {
		name_culprit();
		worker_terminate(first->worker, "a test");
		fake_turn(fake);
		ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
		return;
	}
	finish(1);
	if (step == QUIET_UNNAMED)
		return;
	name_culprit();
	FAKE_RUN_WHILE(fake, !first->killed);
	ck_assert(incident_is_activating(fake_domain(fake)->promotion.state));
}

/* What comes in between. */
enum event { SECOND_SIGN, DRIVERS_WORD, CONTEXT_LOST, ACTIVE_DIES, STANDBY_DIES, EVENTS };

static void happen(enum event event)
{
	struct worker *active = fake_domain(fake)->active;
	const struct xid xid = {.number = 43, .pid = 1, .code = 719, .text = "Xid 43"};

	switch (event) {
	case SECOND_SIGN:
		say(first, WIRE_SUSPECT, 0);
		break;
	case DRIVERS_WORD:
		if (active)
			evidence_take_xid(active, &xid);
		break;
	case CONTEXT_LOST:
		say(first, WIRE_LOST, 719);
		break;
	case ACTIVE_DIES:
		name_culprit();
		fake_reap(fake, first, SIGKILL);
		break;
	case STANDBY_DIES:
		fake_reap(fake, second, SIGKILL);
		break;
	case EVENTS:
		break;
	}
}

TEST_LOOP(second, the_promotion_comes_to_its_end, 0, (STEPS * EVENTS))
{
	enum step step = (enum step)(_i / EVENTS);

	boot();
	reach(step);
	happen((enum event)(_i % EVENTS));
	/* A dump takes its time. */
	if (first->worker)
		name_culprit();
	finish(1);
	go_on();
	ck_assert_uint_eq(orders[0], SESSION_RECOVER_CULPRIT);
	ck_assert_msg(orders[1] == SESSION_RECOVER_NOTHING || orders[1] == SESSION_RECOVER_BY_POLICY, "%u",
		orders[1]);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 1);
	ck_assert_ptr_nonnull(
		strstr(fake_domain(fake)->promotion.verdict_text, "kernel bad_kernel, code 700"));
	end();
}

int main(void)
{
	Suite *suite = suite_create("second");
	TCase *cases;

	fake_prepare();
	cases = suite_case(suite, "second");
	suite_add(cases, "second");
	return suite_run(suite);
}
