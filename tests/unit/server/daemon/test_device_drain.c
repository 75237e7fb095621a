// A device that is drained and refilled, interrupted behind each single message and look by the
// death of everything that can die. The test is keeper, executors and clients. Two sessions: one
// has memory, the other one has none.

#include "server/daemon/device_drain.h"

#include <signal.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/device.h"
#include "server/incident/incident.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define BYTES  (UINT64_C(130) << 20) /* several requests of the executor */
#define CHUNKS 2u		     /* of the first session */
#define SINKS  2u		     /* of both */
#define STEPS  70		     /* messages and looks of a drain or a refill, and some */

enum kind { DAEMON, ACTIVE, STANDBY, KEEPER, CLIENT, KINDS };

static struct fake *fake;
static struct fake_client clients[2];
static bool is_here[2]; /* the clients */
static unsigned mapped[FAKE_CHILDREN_MAX];
static bool no_device;	/* executors that start cannot open it */
static bool is_endless; /* the work of the first session */
/* Orders, by their numbers: the latest, how many before it were answered, its own answer. */
static uintptr_t latest_order;
static int overtaken, code;
static bool is_answered;
static char text[1400];

static void on_done(void *context, int32_t result, const char *reason)
{
	if ((uintptr_t)context != latest_order) {
		overtaken++;
		ck_assert_int_ne(result, 0);
		return;
	}
	ck_assert(!is_answered);
	is_answered = true;
	code = result;
	snprintf(text, sizeof(text), "%s", reason);
}

/*
 * The children
 */

/* Nothing was on the device. */
static void expect_nothing_to_recover(void)
{
	const struct wire_activate *wish = &fake->message.activate;

	for (uint32_t i = 0; i < wish->sessions.count; i++)
		ck_assert_uint_eq(wish->recover.at[i], SESSION_RECOVER_NOTHING);
}

/* Out of HERE the executor waits for the session's work, whatever it is asked for then. Return:
 * true if that work does not end */
static bool refuses_to_carry(const struct fake_child *child)
{
	const struct wire_message answer = {.type = WIRE_REPLY,
		.id = fake->message.id,
		.reply = {.code = CUDA_ERROR_NOT_READY, .text = "its work on the device does not end"}};
	const bool refuses = is_endless && !fake->message.carry.into && fake->message.session == 1;

	if (refuses)
		fake_send(fake, child->socket, &answer, NULL, 0);
	return refuses;
}

static void answer(unsigned index)
{
	struct fake_child *child = &fake->children[index];

	switch (fake->message.type) {
	case WIRE_CARRY_MEMORY:
		if (refuses_to_carry(child))
			return;
		break;
	case WIRE_MAP_MEMORY:
		mapped[index]++;
		break;
	case WIRE_UNMAP_MEMORY:
		mapped[index] -= mapped[index] > 0;
		break;
	case WIRE_ACTIVATE:
		expect_nothing_to_recover();
		break;
	case WIRE_CLOSE_SESSION:
		mapped[index] = fake->message.session == 1 ? 0 : mapped[index];
		break;
	default:
		break;
	}
	fake_play_answer(fake, child);
}

static void start_up(struct fake_child *child)
{
	struct wire_message lost = {
		.type = WIRE_LOST, .trouble = {.code = CUDA_ERROR_NO_DEVICE, .text = "no device"}};

	if (!no_device || child->role == ROLE_KEEPER) {
		fake_ready(fake, child);
		return;
	}
	fake_send(fake, child->socket, &lost, NULL, 0);
	if (child->worker)
		fake_reap(fake, child, child->killed ? SIGKILL : 0);
}

static struct fake_play play = {.mapped = mapped, .start = start_up, .answer = answer};

/* Return: whether some child had something to do */
static bool serve_one(void)
{
	return fake_play_one(fake, &play);
}

static void serve_all(void)
{
	fake_play_all(fake, &play);
}

/* Time passes where nobody has anything to do. */
#define AWAIT(condition)                                                                                     \
	while (!(condition))                                                                                 \
		if (!serve_one() && !(condition))                                                            \
	fake_skip(fake)

/*
 * The sessions
 */

static void map(unsigned place)
{
	struct wire_message message = {.type = WIRE_MAP_MEMORY,
		.range = {.address = clients[0].window_base + place * 2 * BYTES, .bytes = BYTES}};

	fake_request(fake, &clients[0], &message, -1);
	serve_all();
	fake_expect(fake, clients[0].socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void boot(void)
{
	memset(mapped, 0, sizeof(mapped));
	memset(play.started, 0, sizeof(play.started));
	memset(play.latest, 0, sizeof(play.latest));
	no_device = is_endless = false;
	latest_order = 0;
	overtaken = 0;
	fake_with_records = true;
	fake = fake_new(1);
	fake->config.guard = CONFIG_GUARD_ERROR;
	fake->daemon.rules.general.swap_host_bytes = UINT64_C(1) << 40;
	serve_all();
	for (int i = 0; i < 2; i++) {
		fake_hello(fake, &clients[i]);
		serve_all();
		fake_welcome(fake, &clients[i]);
		is_here[i] = true;
	}
	for (unsigned i = 0; i < CHUNKS; i++)
		map(i);
	serve_all();
	ck_assert_uint_eq(fake->handles, CHUNKS + SINKS);
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	for (int i = 0; i < 2; i++)
		if (is_here[i])
			fake_leave(fake, &clients[i]);
	serve_all();
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

static unsigned count_children(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < fake->child_count; i++)
		count += fake->children[i].worker != NULL;
	return count;
}

static void expect_drained(void)
{
	const struct session *session;

	ck_assert_int_eq(fake->daemon.health.state, DEVICE_DRAINED);
	ck_assert_uint_eq(count_children(), 0);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	TAILQ_FOREACH (session, &fake->daemon.sessions, link) {
		const struct holding *entry;

		ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
		ck_assert_ptr_null(session->sink);
		TAILQ_FOREACH (entry, &session->holdings.entries, link)
			ck_assert(!entry->chunk || !entry->chunk->fd);
	}
}

static bool is_all_here(void)
{
	const struct session *session;

	TAILQ_FOREACH (session, &fake->daemon.sessions, link)
		if (session->memory != SESSION_MEMORY_HERE)
			return false;
	return domain_serving(fake_domain(fake));
}

static void expect_here(void)
{
	struct worker *worker;

	serve_all();
	ck_assert(is_all_here());
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	TAILQ_FOREACH (worker, &fake_domain(fake)->workers, link)
		for (unsigned i = 0; i < fake->child_count; i++)
			if (fake->children[i].worker == worker)
				ck_assert_uint_eq(mapped[i], is_here[0] ? CHUNKS : 0);
}

/* @order: device_drain_begin(), device_drain_refill() */
static void begin(void (*order)(struct daemon *daemon, device_drain_done_fn *done, void *context))
{
	is_answered = false;
	order(&fake->daemon, on_done, (void *)++latest_order);
}

static void drain(void)
{
	begin(device_drain_begin);
	AWAIT(is_answered);
}

static void refill(void)
{
	begin(device_drain_refill);
	AWAIT(is_answered);
}

TEST(drain, all_go_and_come_back)
{
	boot();
	for (int i = 0; i < 2; i++) {
		drain();
		ck_assert_int_eq(code, 0);
		expect_drained();
		/* Twice is fine. */
		drain();
		ck_assert_int_eq(code, 0);
		refill();
		ck_assert_int_eq(code, 0);
		expect_here();
	}
	refill();
	ck_assert_int_eq(code, 0);
	ck_assert_uint_eq(fake->daemon.counters.promotions, 0);
	ck_assert_uint_eq(fake->daemon.counters.keepers_lost, 0);
	ck_assert_uint_eq(fake->daemon.counters.events[EVENT_lost], 0);
	end();
}

TEST(drain, requests_wait_meanwhile)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	boot();
	drain();
	for (int i = 0; i < 2; i++)
		fake_request(fake, &clients[i], &query, -1);
	serve_all();
	fake_expect_nothing(fake, clients[0].socket);
	fake_expect_nothing(fake, clients[1].socket);
	refill();
	serve_all();
	for (int i = 0; i < 2; i++)
		fake_expect(fake, clients[i].socket, WIRE_REPLY);
	end();
}

/* Also of a session that has not begun to leave. */
TEST(drain, requests_wait_from_the_beginning)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	boot();
	begin(device_drain_begin);
	fake_request(fake, &clients[1], &query, -1);
	ck_assert_int_eq(fake_session(fake, 1)->memory, SESSION_MEMORY_HERE);
	ck_assert_int_eq(fake_session(fake, 1)->request->place, REQUEST_HERE);
	AWAIT(is_answered);
	fake_expect_nothing(fake, clients[1].socket);
	refill();
	serve_all();
	fake_expect(fake, clients[1].socket, WIRE_REPLY);
	/* And go on if it is called off. */
	is_endless = true;
	begin(device_drain_begin);
	fake_request(fake, &clients[1], &query, -1);
	AWAIT(is_answered);
	ck_assert_int_ne(code, 0);
	serve_all();
	fake_expect(fake, clients[1].socket, WIRE_REPLY);
	end();
}

/* A request that a worker has is answered before its session leaves; a later one waits. */
TEST(drain, a_request_under_way_ends_first)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	boot();
	fake_request(fake, &clients[1], &query, -1);
	ck_assert_int_eq(fake_session(fake, 1)->request->place, REQUEST_AT_WORKER);
	begin(device_drain_begin);
	fake_skip(fake);
	fake_turn(fake);
	ck_assert_int_eq(fake_session(fake, 1)->memory, SESSION_MEMORY_HERE);
	AWAIT(is_answered);
	expect_drained();
	fake_expect(fake, clients[1].socket, WIRE_REPLY);
	refill();
	end();
}

TEST(drain, newcomers_are_refused)
{
	struct fake_client late;

	boot();
	drain();
	fake_hello(fake, &late);
	AWAIT(fake->daemon.counters.sessions_refused);
	fake_expect(fake, late.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_MPS_SERVER_NOT_READY);
	ck_assert_str_eq(fake->message.refuse.text, DEVICE_DRAIN_REFUSAL);
	fake_leave(fake, &late);
	refill();
	end();
}

TEST(drain, what_does_not_fit_on_the_host_is_found_first)
{
	boot();
	fake->daemon.rules.general.swap_host_bytes = CHUNKS * BYTES - 1;
	drain();
	ck_assert_int_eq(code, CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_nonnull(strstr(text, "swap_host_bytes"));
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_SERVING);
	ck_assert_uint_eq(fake->daemon.counters.sessions_suspended, 0);
	end();
}

/* What a kernel has left in the context would be lost. */
TEST(drain, residue_is_found_first)
{
	boot();
	word_set(&fake_session(fake, 1)->view.server->ran[3], 1);
	drain();
	ck_assert_int_eq(code, CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_nonnull(strstr(text, "session 2 (process"));
	ck_assert_ptr_null(strstr(text, "session 1 (process"));
	ck_assert_uint_eq(fake->daemon.counters.sessions_suspended, 0);
	/* The kernel comes while memory leaves: what has left comes back. On a slow machine both
	 * leave at once, so the kernel comes before the first has left. */
	word_set(&fake_session(fake, 1)->view.server->ran[3], 0);
	begin(device_drain_begin);
	AWAIT(fake_session(fake, 0)->memory == SESSION_MEMORY_LEAVES);
	word_set(&fake_session(fake, 1)->view.server->ran[3], 1);
	AWAIT(is_answered);
	ck_assert_int_eq(code, CUDA_ERROR_NOT_SUPPORTED);
	AWAIT(is_all_here());
	expect_here();
	end();
}

TEST(drain, endless_work_calls_it_off)
{
	boot();
	is_endless = true;
	drain();
	ck_assert_int_eq(code, CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_nonnull(strstr(text, "session 1 (process"));
	ck_assert_ptr_nonnull(strstr(text, "does not end"));
	AWAIT(is_all_here());
	expect_here();
	end();
}

TEST(drain, the_latest_order_counts)
{
	boot();
	begin(device_drain_begin);
	AWAIT(fake_session(fake, 0)->memory == SESSION_MEMORY_AWAY);
	refill();
	ck_assert_int_eq(overtaken, 1);
	ck_assert_int_eq(code, 0);
	expect_here();
	drain();
	begin(device_drain_refill);
	serve_one();
	drain();
	ck_assert_int_eq(code, 0);
	expect_drained();
	refill();
	expect_here();
	/* Nobody waits any more. */
	begin(device_drain_begin);
	device_drain_forget(&fake->daemon, (void *)latest_order);
	AWAIT(!count_children());
	ck_assert(!is_answered);
	refill();
	end();
}

/* Nobody loses anything where the device is not there yet. */
TEST(drain, without_a_device_it_stays_drained)
{
	boot();
	drain();
	no_device = true;
	refill();
	ck_assert_int_eq(code, CUDA_ERROR_DEVICE_UNAVAILABLE);
	ck_assert_str_eq(text, "no device");
	AWAIT(!count_children());
	expect_drained();
	no_device = false;
	refill();
	ck_assert_int_eq(code, 0);
	expect_here();
	end();
}

/* What an executor says of the device at its end concerns nobody any more. */
TEST(drain, the_device_may_fail)
{
	struct wire_message lost = {.type = WIRE_LOST,
		.trouble = {.code = CUDA_ERROR_ECC_UNCORRECTABLE, .text = "a bit is lost"}};

	boot();
	begin(device_drain_begin);
	AWAIT(fake->daemon.health.state == DEVICE_DRAINED);
	fake_send(fake, fake_find_executor(fake, true)->socket, &lost, NULL, 0);
	AWAIT(is_answered);
	ck_assert_int_eq(code, 0);
	expect_drained();
	refill();
	expect_here();
	/* Before, it is everybody's. */
	begin(device_drain_begin);
	AWAIT(fake_session(fake, 0)->memory == SESSION_MEMORY_LEAVES);
	device_fail(&fake->daemon, CUDA_ERROR_DEVICE_UNAVAILABLE, "it fell off");
	AWAIT(is_answered);
	ck_assert_int_eq(code, CUDA_ERROR_DEVICE_UNAVAILABLE);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_FAILED);
	AWAIT(TAILQ_EMPTY(&fake->daemon.sessions));
	drain();
	ck_assert_int_eq(code, CUDA_ERROR_DEVICE_UNAVAILABLE);
	ck_assert_int_eq(fake->daemon.health.state, DEVICE_FAILED);
	end();
}

/*
 * Kills
 */

static void reap(struct fake_child *child)
{
	if (!child)
		return;
	mapped[child - fake->children] = 0;
	fake_reap(fake, child, SIGKILL);
}

static void strike(enum kind kind)
{
	switch (kind) {
	case DAEMON:
		ck_assert_int_eq(fake_come_back(fake), 0);
		break;
	case ACTIVE:
		reap(fake_find_executor(fake, true));
		break;
	case STANDBY:
		reap(fake_find_executor(fake, false));
		break;
	case KEEPER:
		reap(fake_child_of(fake, fake->daemon.keeper));
		break;
	case CLIENT:
		fake_leave(fake, &clients[0]);
		is_here[0] = false;
		break;
	case KINDS:
		break;
	}
}

/* Goes on for so many messages and looks, or until the order is answered. */
static void go(int steps)
{
	for (int i = 0; i < steps && !is_answered; i++)
		if (!serve_one() && !is_answered)
			fake_skip(fake);
}

/* Wherever it is: all the way out, and back. */
static void expect_both_ways(void)
{
	drain();
	/* The executor may have been lost in between. */
	while (code) {
		ck_assert_msg(strstr(text, "try again") || strstr(text, "is being replaced") ||
				      strstr(text, "has ended"),
			"%s", text);
		drain();
	}
	expect_drained();
	refill();
	ck_assert_int_eq(code, 0);
	expect_here();
}

START_TEST(whatever_dies_on_the_way_out)
{
	boot();
	begin(device_drain_begin);
	go(_i % STEPS);
	strike((enum kind)(_i / STEPS));
	expect_both_ways();
	end();
}
END_TEST

START_TEST(whatever_dies_on_the_way_back)
{
	boot();
	drain();
	expect_drained();
	begin(device_drain_refill);
	go(_i % STEPS);
	strike((enum kind)(_i / STEPS));
	/* Without another order as well. */
	AWAIT(is_all_here());
	expect_here();
	expect_both_ways();
	end();
}
END_TEST

TEST(drain, the_steps_are_enough)
{
	boot();
	begin(device_drain_begin);
	go(STEPS - 1);
	ck_assert(is_answered);
	begin(device_drain_refill);
	go(STEPS - 1);
	ck_assert(is_answered);
	end();
}

int main(void)
{
	Suite *suite;
	TCase *tests, *kills, *deaths;

	fake_prepare();
	suite = suite_create("device_drain");
	tests = suite_case(suite, "drain");
	suite_add(tests, "drain");
	/* What a dead daemon had open stays so here. */
	deaths = tcase_create("deaths of the daemon");
	suite_add_tcase(suite, deaths);
	kills = suite_case(suite, "kills");
	for (int kind = DAEMON; kind < KINDS; kind++) {
		suite_add_sweep(kind ? kills : deaths, whatever_dies_on_the_way_out, kind, STEPS);
		suite_add_sweep(kind ? kills : deaths, whatever_dies_on_the_way_back, kind, STEPS);
	}
	return suite_run(suite);
}
