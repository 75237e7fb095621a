// What has happened: which events there are, who sees them, how long they stay, and who waits for
// them.

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/control/events.h"
#include "server/control/caller.h"
#include "server/control/turn.h"
#include "server/daemon/life.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/fault_history.h"
#include "server/session/session.h"
#include "server/door/visitor.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define ONE   (getuid() + 4711)
#define OTHER (ONE + 1)

static struct fake *fake;

static void note(uid_t uid, enum event_kind kind, const char *text)
{
	const struct event_about about = {.uid = uid};

	events_note(&fake->daemon, kind, LOG_LEVEL_DEBUG, &about, "%s", text);
}

static void note_many(uid_t uid, enum event_kind kind, unsigned count)
{
	char text[24];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(text, sizeof(text), "%u", i);
		note(uid, kind, text);
	}
}

static json_t *load(char *text)
{
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;

	ck_assert_ptr_nonnull(root);
	free(text);
	return root;
}

static json_t *events_of(uid_t uid, uint64_t after)
{
	return load(events_json(&fake->daemon, uid, after));
}

static long long number(const json_t *object, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(object, key)), "%s is not a number", key);
	return json_integer_value(json_object_get(object, key));
}

static const char *string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	ck_assert_msg(text != NULL, "%s is not a text", key);
	return text;
}

/* Those of a document of a kind. @ret_latest: the latest of them, the document's; may be NULL */
static unsigned count(const json_t *root, const char *kind, const json_t **ret_latest)
{
	const json_t *event;
	unsigned count = 0;
	size_t i;

	json_array_foreach (json_object_get(root, "events"), i, event) {
		if (*kind && strcmp(string(event, "kind"), kind))
			continue;
		count++;
		if (ret_latest)
			*ret_latest = event;
	}
	return count;
}

static unsigned count_of(uid_t uid, const char *kind)
{
	json_t *root = events_of(uid, 0);
	unsigned number_of = count(root, kind, NULL);

	json_decref(root);
	return number_of;
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

/*
 * The list
 */

TEST(events, an_event_says_when_who_and_what)
{
	const struct event_about about = {ONE, 7, 4712, "kern\x1b[el"};
	const json_t *event;
	json_t *root;
	int64_t time_ms;

	fake = fake_new(1);
	time_ms = events_note(
		&fake->daemon, EVENT_limit, LOG_LEVEL_DEBUG, &about, "session %d gets\n no memory", 7);
	note((uid_t)-1, EVENT_device, "of nobody");
	root = events_of(0, 0);
	ck_assert_int_eq(number(root, "latest"), 2);
	ck_assert_int_eq(number(root, "noted"), 2);
	event = json_array_get(json_object_get(root, "events"), 0);
	ck_assert_int_eq(number(event, "number"), 1);
	ck_assert_int_eq(number(event, "time_ms"), time_ms);
	ck_assert_int_gt(time_ms, INT64_C(1700000000000));
	ck_assert_str_eq(string(event, "kind"), "limit");
	ck_assert_int_eq(number(event, "uid"), ONE);
	ck_assert_int_eq(number(event, "session"), 7);
	ck_assert_int_eq(number(event, "pid"), 4712);
	ck_assert_str_eq(string(event, "program"), "kern?[el");
	ck_assert_str_eq(string(event, "text"), "session 7 gets? no memory");
	event = json_array_get(json_object_get(root, "events"), 1);
	ck_assert(json_is_null(json_object_get(event, "uid")));
	ck_assert(json_is_null(json_object_get(event, "session")));
	ck_assert(json_is_null(json_object_get(event, "pid")));
	ck_assert(json_is_null(json_object_get(event, "program")));
	json_decref(root);
	end();
}

TEST(events, others_see_only_their_own)
{
	json_t *root;

	fake = fake_new(1);
	note(ONE, EVENT_lost, "of one");
	note(OTHER, EVENT_lost, "of the other");
	note((uid_t)-1, EVENT_lost, "of nobody");
	note(ONE, EVENT_lost, "of one once more");
	ck_assert_uint_eq(count_of(0, "lost"), 4);
	ck_assert_uint_eq(count_of(ONE, "lost"), 2);
	root = events_of(ONE, 1);
	ck_assert_uint_eq(count(root, "lost", NULL), 1);
	/* How many others have had is not his to know. */
	ck_assert_int_eq(number(root, "noted"), 2);
	json_decref(root);
	ck_assert_uint_eq(count_of(ONE + 100, ""), 0);
	ck_assert(events_has_later(&fake->daemon, ONE, 1));
	ck_assert(!events_has_later(&fake->daemon, OTHER, 2));
	end();
}

/* A user who does something again and again hides neither what others did nor his own fault. */
TEST(events, what_is_frequent_does_not_drive_out_what_is_rare)
{
	const json_t *latest;
	json_t *root;

	fake = fake_new(1);
	note(ONE, EVENT_verdict, "culprit is one");
	note(OTHER, EVENT_lost, "of the other");
	note_many(ONE, EVENT_lost, 2 * EVENTS_MAX);
	root = events_of(0, 0);
	ck_assert_uint_eq(count(root, "", &latest), EVENTS_MAX);
	ck_assert_str_eq(string(latest, "text"), "2000");
	ck_assert_uint_eq(count(root, "verdict", NULL), 1);
	ck_assert_int_eq(number(root, "noted"), 2 * EVENTS_MAX + 2);
	json_decref(root);
	ck_assert_uint_eq(count_of(OTHER, "lost"), 1);
	root = events_of(ONE, 0);
	ck_assert_uint_eq(count(root, "lost", NULL), EVENTS_MAX - 2);
	/* The oldest went. */
	ck_assert_str_eq(string(json_array_get(json_object_get(root, "events"), 1), "text"), "1003");
	json_decref(root);
	/* Who comes new takes of whoever has most. */
	note_many(OTHER, EVENT_lost, EVENTS_MAX);
	ck_assert_uint_eq(count_of(ONE, "verdict"), 1);
	ck_assert_uint_eq(count_of(ONE, "lost"), EVENTS_MAX / 2 - 1);
	end();
}

TEST(events, there_is_a_bound_for_all_users_together)
{
	fake = fake_new(1);
	for (unsigned i = 0; i < 2 * EVENTS_MAX; i++)
		note(ONE + i, EVENT_lost, "one of each");
	ck_assert_uint_eq(count_of(0, ""), EVENTS_MAX);
	ck_assert_uint_eq(fake->daemon.events.count, EVENTS_MAX);
	end();
}

TEST(events, faults_are_the_verdicts_the_latest_first)
{
	json_t *root, *list;

	fake = fake_new(1);
	note(ONE, EVENT_verdict, "the first");
	note(ONE, EVENT_lost, "no verdict");
	note(OTHER, EVENT_verdict, "kernel \x1b[");
	note((uid_t)-1, EVENT_verdict, "nobody's");
	root = load(faults_json(&fake->daemon, 0));
	list = json_object_get(root, "faults");
	ck_assert_uint_eq(json_array_size(list), 3);
	ck_assert(json_is_null(json_object_get(json_array_get(list, 0), "uid")));
	ck_assert_str_eq(string(json_array_get(list, 1), "verdict"), "kernel ?[");
	ck_assert_int_eq(number(json_array_get(list, 2), "uid"), ONE);
	ck_assert_int_gt(number(json_array_get(list, 2), "time_ms"), INT64_C(1700000000000));
	json_decref(root);
	root = load(faults_json(&fake->daemon, ONE));
	ck_assert_uint_eq(json_array_size(json_object_get(root, "faults")), 1);
	json_decref(root);
	end();
}

/* Of those that a program can cause as often as it likes. */
TEST(events, what_is_beyond_the_bound_is_counted)
{
	fake = fake_new(1);
	note_many(ONE, EVENT_limit, 100);
	ck_assert_uint_eq(count_of(ONE, "limit"), 20);
	ck_assert_uint_eq(fake->daemon.counters.events[EVENT_limit], 100);
	ck_assert_uint_eq(fake->daemon.counters.log_lines_left_out, 80);
	end();
}

/*
 * Who waits
 */

static int connect_operator(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	return pair[1];
}

static void ask(int socket, const char *after)
{
	struct wire_message admin = {.type = WIRE_ADMIN,
		.id = 3,
		.admin = {.command = "events", .arguments = {&after, after != NULL}}};

	fake_send(fake, socket, &admin, NULL, 0);
}

/* The answer, in the packet or in its file. */
static json_t *answer(int socket)
{
	struct stat status;
	char *text;

	fake_expect(fake, socket, WIRE_ADMIN_REPLY);
	ck_assert_int_eq(fake->message.admin_reply.code, 0);
	if (!fake->packet.fd_count)
		return load(strdup(fake->message.admin_reply.json));
	ck_assert_int_eq(fstat(fake->packet.fds[0], &status), 0);
	text = calloc(1, (size_t)status.st_size + 1);
	ck_assert_int_eq(pread(fake->packet.fds[0], text, (size_t)status.st_size, 0), status.st_size);
	return load(text);
}

/* Long enough for a turn to come. */
static void expect_no_answer(int socket)
{
	FAKE_RUN_WHILE(fake, timer_running(fake->daemon.turns->timer));
	fake_expect_nothing(fake, socket);
}

TEST(events, who_waits_is_answered_when_something_happens)
{
	json_t *root;
	int caller;

	fake = fake_new(1);
	note(ONE, EVENT_lost, "the first");
	caller = connect_operator();
	ask(caller, NULL);
	root = answer(caller);
	ck_assert_uint_eq(count(root, "lost", NULL), 1);
	json_decref(root);
	ask(caller, "1");
	expect_no_answer(caller);
	note(ONE, EVENT_lost, "the second");
	root = answer(caller);
	ck_assert_uint_eq(count(root, "lost", NULL), 1);
	ck_assert_int_eq(number(root, "latest"), 2);
	json_decref(root);
	/* What has happened before he asks is answered at once. */
	ask(caller, "1");
	json_decref(answer(caller));
	/* Whoever hangs up waits for nothing. */
	ask(caller, "2");
	expect_no_answer(caller);
	close(caller);
	fake_turn(fake);
	ck_assert(TAILQ_EMPTY(&fake->daemon.operators));
	note(ONE, EVENT_lost, "the third");
	end();
}

TEST(events, events_of_others_wake_nobody)
{
	json_t *root;
	int caller;

	fake = fake_new(1);
	note(ONE, EVENT_lost, "the first");
	caller = connect_operator();
	ask(caller, NULL);
	json_decref(answer(caller));
	TAILQ_FIRST(&fake->daemon.operators)->uid = ONE;
	ask(caller, "1");
	expect_no_answer(caller);
	note(OTHER, EVENT_lost, "the other's");
	expect_no_answer(caller);
	note(ONE, EVENT_lost, "his");
	root = answer(caller);
	ck_assert_uint_eq(count(root, "", NULL), 1);
	ck_assert_int_eq(number(root, "noted"), 2);
	json_decref(root);
	close(caller);
	end();
}

/* Of a service before this one, which had more events: who follows would else wait until there are
 * as many again. */
TEST(events, who_knows_more_than_there_is_gets_all)
{
	json_t *root;
	int caller;

	fake = fake_new(1);
	note(ONE, EVENT_lost, "the first");
	caller = connect_operator();
	ask(caller, "500");
	root = answer(caller);
	ck_assert_uint_eq(count(root, "lost", NULL), 1);
	ck_assert_int_eq(number(root, "latest"), 1);
	json_decref(root);
	close(caller);
	end();
}

/* One that waits and does not read costs the service one answer, however much happens; he learns
 * how much he has missed. */
TEST(events, an_idle_reader_costs_one_answer)
{
	long long noted;
	json_t *root;
	int caller;

	fake = fake_new(1);
	note(ONE, EVENT_lost, "the first");
	caller = connect_operator();
	ask(caller, NULL);
	root = answer(caller);
	noted = number(root, "noted");
	json_decref(root);
	ask(caller, "1");
	expect_no_answer(caller);
	for (unsigned i = 0; i < 3; i++) {
		note_many(ONE, EVENT_lost, EVENTS_MAX);
		FAKE_RUN_WHILE(fake, timer_running(fake->daemon.turns->timer));
		ck_assert_uint_eq(
			connection_behind(caller_of(TAILQ_FIRST(&fake->daemon.operators))->connection), 0);
	}
	root = answer(caller);
	ck_assert_int_eq(number(root, "latest"), 1 + EVENTS_MAX);
	json_decref(root);
	fake_expect_nothing(fake, caller);
	ask(caller, "1");
	root = answer(caller);
	ck_assert_uint_eq(count(root, "", NULL), EVENTS_MAX);
	ck_assert_int_eq(number(root, "noted") - noted, 3 * EVENTS_MAX);
	json_decref(root);
	close(caller);
	end();
}

TEST(events, wrong_numbers_are_refused)
{
	static const char *const wrong[] = {"", "x", "1x"};
	int caller;

	fake = fake_new(1);
	caller = connect_operator();
	for (unsigned i = 0; i < 3; i++) {
		ask(caller, wrong[i]);
		fake_expect(fake, caller, WIRE_ADMIN_REPLY);
		ck_assert_int_eq(fake->message.admin_reply.code, CUDA_ERROR_INVALID_VALUE);
	}
	close(caller);
	end();
}

/*
 * What is an event
 */

/* The latest event of a kind is about this session of the test's own process. */
static void expect_about(const char *kind, long long session, const char *text)
{
	json_t *root = events_of(0, 0);
	const json_t *event = NULL;

	count(root, kind, &event);
	ck_assert_msg(event != NULL, "no event %s", kind);
	ck_assert_int_eq(number(event, "session"), session);
	ck_assert_int_eq(number(event, "pid"), getpid());
	ck_assert_int_eq(number(event, "uid"), getuid());
	ck_assert_str_eq(string(event, "program"), "fake");
	ck_assert_msg(strstr(string(event, "text"), text) != NULL, "%s", string(event, "text"));
	json_decref(root);
}

TEST(events, a_loss_has_its_verdict_and_its_successor)
{
	struct fake_client client;
	struct session *session;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	fake_issue(&session->view, 2);
	fake_reap(fake, &fake->children[1], SIGSEGV);
	ck_assert_uint_eq(count_of(0, "lost"), 1);
	ck_assert_uint_eq(count_of(0, "verdict"), 0);
	word_set(&session->view.server->error, 719);
	word_release(&session->view.server->state, SHM_SESSION_FAULTED);
	fake_serve(fake, &fake->children[2], WIRE_ACTIVATE);
	ck_assert_uint_eq(count_of(getuid(), "verdict"), 1);
	ck_assert_uint_eq(count_of(getuid(), "switch"), 1);
	ck_assert_uint_eq(fake->daemon.counters.events[EVENT_switch], 1);
	fake_leave(fake, &client);
	end();
}

TEST(events, a_session_that_is_ended_is_an_event)
{
	struct fake_client client;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	session_terminate(TAILQ_FIRST(&fake->daemon.sessions), "an operator has terminated it");
	expect_about("terminated", 1, "an operator has terminated it");
	fake_expect(fake, fake->children[1].socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, fake->children[1].socket, fake->message.id, 0, NULL, 0);
	/* It is to be found behind its end. */
	ck_assert(TAILQ_EMPTY(&fake->daemon.sessions));
	expect_about("terminated", 1, "an operator has terminated it");
	fake_leave(fake, &client);
	end();
}

TEST(events, a_program_that_is_refused_is_an_event)
{
	struct fake_client client;
	json_t *root;
	const json_t *event = NULL;

	fake = fake_new(0);
	fake->config.clients_max = 0;
	fake_boot(fake);
	fake_hello(fake, &client);
	fake_expect(fake, client.socket, WIRE_REFUSE);
	root = events_of(0, 0);
	ck_assert_uint_eq(count(root, "refused", &event), 1);
	ck_assert_int_eq(number(event, "uid"), getuid());
	ck_assert_int_eq(number(event, "pid"), getpid());
	ck_assert_ptr_nonnull(strstr(string(event, "text"), "as many programs as clients_max allows"));
	json_decref(root);
	close(client.socket);
	end();
}

static void refuse_4_mib(const struct fake_client *client, enum wire_type type, uint64_t address)
{
	struct fake_client asks = *client;
	struct wire_message message = {.type = type, .range = {.address = address, .bytes = 4 << 20}};

	fake_request(fake, &asks, &message, -1);
	fake_expect(fake, client->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
}

/* The first session of two asks. */
static void expect_refusal(
	const struct fake_client *client, enum wire_type type, uint64_t address, const char *limit)
{
	refuse_4_mib(client, type, address);
	expect_about("limit", 1, limit);
}

/* Libraries ask once more, for less or when they have given something back. */
TEST(events, a_limit_that_is_hit_again_at_once_is_no_event)
{
	struct wire_message granted = {.type = WIRE_MAP_HOST, .range = {.bytes = 4 << 20}};
	const uint64_t *events;
	struct fake_client client;
	struct session *session;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	granted.range.address = client.window_base + WINDOW_DEVICE_BYTES;
	events = &fake->daemon.counters.events[EVENT_limit];
	session = fake_session(fake, 0);
	session->terms.memory_limit = session->terms.pinned_limit = 2 << 20;
	refuse_4_mib(&client, WIRE_MAP_MEMORY, client.window_base);
	refuse_4_mib(&client, WIRE_MAP_MEMORY, client.window_base);
	ck_assert_uint_eq(*events, 1);
	refuse_4_mib(&client, WIRE_MAP_HOST, client.window_base + WINDOW_DEVICE_BYTES);
	ck_assert_uint_eq(*events, 2);
	/* A request that is granted ends it. */
	session->terms.memory_limit = session->terms.pinned_limit = 4 << 20;
	fake_request(fake, &client, &granted, -1);
	fake_serve(fake, &fake->children[1], WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	refuse_4_mib(&client, WIRE_MAP_HOST, client.window_base + WINDOW_DEVICE_BYTES + (4 << 20));
	ck_assert_uint_eq(*events, 3);
	fake_leave(fake, &client);
	end();
}

TEST(events, a_limit_that_is_hit_is_an_event)
{
	struct fake_client client, other;
	struct terms *terms;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	fake_join(fake, &other, &fake->children[1], NULL);
	terms = &fake_session(fake, 0)->terms;
	terms->memory_limit = terms->pinned_limit = 2 << 20;
	expect_refusal(&client, WIRE_MAP_MEMORY, client.window_base, "refused (memory_limit)");
	expect_refusal(
		&client, WIRE_MAP_HOST, client.window_base + WINDOW_DEVICE_BYTES, "refused (pinned_limit)");
	terms->memory_limit = 0;
	fake_session(fake, 1)->terms.memory_guarantee = fake->daemon.device.total_bytes;
	fake_session(fake, 1)->terms.memory_policy = CONFIG_MEMORY_POLICY_REFUSE;
	expect_refusal(&client, WIRE_MAP_MEMORY, client.window_base, "refused (memory_guarantee of others)");
	fake_leave(fake, &client);
	fake_leave(fake, &other);
	end();
}

TEST(events, a_quarantine_is_an_event)
{
	struct fake_client client;
	struct session *session;

	fake = fake_new(0);
	fake_boot(fake);
	fake->config.quarantine_faults = 2;
	fake_join(fake, &client, &fake->children[1], NULL);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	fault_history_note(&fake->daemon, session);
	ck_assert_uint_eq(count_of(0, "quarantine"), 0);
	fault_history_note(&fake->daemon, session);
	expect_about("quarantine", 1, "has had 2 faults");
	fault_history_lift(&fake->daemon, TAILQ_FIRST(&fake->daemon.fault_histories));
	ck_assert_uint_eq(count_of(getuid(), "quarantine"), 2);
	fake_leave(fake, &client);
	end();
}

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tests = suite_case(suite, "events");

	fake_prepare();
	suite_add(tests, "events");
	return suite_run(suite);
}
