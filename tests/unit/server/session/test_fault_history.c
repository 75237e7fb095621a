// Programs that fault again and again: which of them share nothing any more, for how long, and who
// can change that.

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/control/caller.h"
#include "server/control/quarantine.h"
#include "server/daemon/handshake.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/fault_history.h"
#include "server/session/session.h"
#include "server/door/visitor.h"
#include "tests/unit/server/session/fixture.h"

#define PYTHON "/usr/bin/python3.11 "
#define A      PYTHON "/srv/a.py"
#define B      PYTHON "/srv/b.py"
#define OTHER  (getuid() + 4711)

/* A program of a user has so many faults. */
static void fault(uid_t uid, const char *identity, unsigned times)
{
	struct session one = {.uid = uid};

	snprintf(one.identity, sizeof(one.identity), "%s", identity);
	for (unsigned i = 0; i < times; i++)
		fault_history_note(&fake->daemon, &one);
}

static bool is_quarantined(uid_t uid, const char *identity)
{
	return fault_history_is_quarantined(&fake->daemon, uid, identity);
}

static unsigned count(uid_t uid)
{
	const struct fault_history *history;
	unsigned count = 0;

	TAILQ_FOREACH (history, &fake->daemon.fault_histories, link)
		count += history->uid == uid;
	return count;
}

TEST(history, another_script_of_the_same_interpreter_is_another_program)
{
	boot();
	fault(getuid(), A, 3);
	ck_assert(is_quarantined(getuid(), A));
	ck_assert(!is_quarantined(getuid(), B));
	ck_assert(!is_quarantined(OTHER, A));
	end();
}

/* The first waits for nothing, and nobody waits for another user's. */
TEST(history, executors_because_of_faults_come_one_after_the_other)
{
	uint64_t wait_ms;

	boot();
	fault(getuid(), A, 3);
	fault(getuid(), B, 3);
	fault(OTHER, A, 3);
	ck_assert_uint_eq(fault_history_pace(&fake->daemon, getuid(), A), 0);
	wait_ms = fault_history_pace(&fake->daemon, getuid(), B);
	ck_assert_uint_gt(wait_ms, 0);
	ck_assert_uint_le(wait_ms, FAULT_HISTORY_PACE_MS);
	wait_ms = fault_history_pace(&fake->daemon, getuid(), A);
	ck_assert_uint_gt(wait_ms, FAULT_HISTORY_PACE_MS);
	ck_assert_uint_le(wait_ms, 2 * FAULT_HISTORY_PACE_MS);
	ck_assert_uint_eq(fault_history_pace(&fake->daemon, OTHER, A), 0);
	TAILQ_FIRST(&fake->daemon.fault_histories)->started_us = 1;
	ck_assert_uint_eq(fault_history_pace(&fake->daemon, OTHER, A), 0);
	end();
}

/* Its program waits meanwhile, and no other domain of the user. */
TEST(history, a_domain_has_its_executor_when_it_is_its_turn)
{
	const struct identity identity = {.uid = OTHER};
	const struct subject subject = {.uid = OTHER};
	struct domain_refusal refusal;
	struct domain *domains[3];

	boot();
	fault(OTHER, A, 3);
	for (int i = 0; i < 3; i++)
		domains[i] = domain_for(&fake->daemon, &identity, &subject, i < 2 ? A : B, NULL, &refusal);
	ck_assert_uint_ge(domain_executors_there(domains[0]), 1);
	ck_assert(!timer_running(domains[0]->respawn));
	ck_assert(timer_running(domains[1]->respawn));
	ck_assert_uint_eq(domain_executors_there(domains[1]), 0);
	ck_assert(!timer_running(domains[2]->respawn));
	end();
}

/* What Hello says is what counts, not the name. */
TEST(history, a_program_is_known_by_what_it_says_it_is)
{
	struct wire_hello hello = {.program = "python3", .identity = A "\n"};
	char identity[SESSION_IDENTITY_MAX];
	struct session *session;

	join();
	handshake_identity(identity, &hello);
	ck_assert_str_eq(identity, A "?");
	hello.identity = "";
	handshake_identity(identity, &hello);
	ck_assert_str_eq(identity, "python3");
	session = TAILQ_FIRST(&fake->daemon.sessions);
	ck_assert_str_eq(session->identity, "fake");
	part();
}

TEST(history, a_fault_is_forgotten_after_a_day)
{
	struct fault_history *history;

	boot();
	fault(getuid(), A, 3);
	history = TAILQ_FIRST(&fake->daemon.fault_histories);
	history->latest_us -= (FAULT_HISTORY_SECONDS - 60) * UINT64_C(1000000);
	ck_assert(is_quarantined(getuid(), A));
	history->latest_us -= 60 * UINT64_C(1000000);
	ck_assert(!is_quarantined(getuid(), A));
	ck_assert(TAILQ_EMPTY(&fake->daemon.fault_histories));
	/* It counts anew. */
	fault(getuid(), A, 2);
	ck_assert(!is_quarantined(getuid(), A));
	end();
}

TEST(history, one_user_pushes_only_its_own_programs_out)
{
	char name[32];

	boot();
	fault(OTHER, A, 3);
	fault(getuid(), A, 3);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "/tmp/%u", i);
		fault(getuid(), name, 1);
	}
	ck_assert_uint_eq(count(getuid()), FAULT_HISTORIES_PER_USER);
	ck_assert(!is_quarantined(getuid(), A));
	ck_assert(is_quarantined(OTHER, A));
	end();
}

/*
 * Operators
 */

static json_t *list(uid_t uid)
{
	char *text = quarantine_json(&fake->daemon, uid);
	json_t *root = json_loads(text, 0, NULL);

	ck_assert_ptr_nonnull(root);
	free(text);
	return root;
}

static size_t listed(uid_t uid)
{
	json_t *root = list(uid);
	size_t programs = json_array_size(json_object_get(root, "programs"));

	json_decref(root);
	return programs;
}

TEST(history, a_user_sees_its_own_programs)
{
	json_t *root, *one;

	boot();
	fault(OTHER, A, 3);
	fault(OTHER, B, 1);
	fault(OTHER + 1, A, 1);
	ck_assert_uint_eq(listed(getuid()), 3);
	ck_assert_uint_eq(listed(OTHER + 2), 0);
	root = list(OTHER);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "programs")), 2);
	one = json_array_get(json_object_get(root, "programs"), 1);
	ck_assert_str_eq(json_string_value(json_object_get(one, "program")), A);
	ck_assert_int_eq(json_integer_value(json_object_get(one, "faults")), 3);
	ck_assert(json_is_true(json_object_get(one, "quarantined")));
	ck_assert_int_le(json_integer_value(json_object_get(one, "expires_seconds")), FAULT_HISTORY_SECONDS);
	one = json_array_get(json_object_get(root, "programs"), 0);
	ck_assert(json_is_false(json_object_get(one, "quarantined")));
	json_decref(root);
	end();
}

/* Return: what the service answers */
static int32_t lift(uid_t uid, const char *number)
{
	const char *arguments[] = {"lift", number};
	struct wire_message admin = {
		.type = WIRE_ADMIN, .id = 3, .admin = {.command = "quarantine", .arguments = {arguments, 2}}};
	int32_t code;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	TAILQ_LAST(&fake->daemon.visitors, visitor_list)->peer.uid = uid;
	fake_send(fake, pair[1], &admin, NULL, 0);
	code = fake_expect(fake, pair[1], WIRE_ADMIN_REPLY)->admin_reply.code;
	close(pair[1]);
	fake_turn(fake);
	return code;
}

TEST(history, a_user_lifts_its_own_and_an_operator_all)
{
	boot();
	fault(OTHER, A, 3);
	fault(OTHER, B, 3);
	ck_assert_int_eq(lift(OTHER + 1, "1"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(lift(OTHER, "3"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(lift(OTHER, "1x"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(lift(OTHER, ""), CUDA_ERROR_NOT_FOUND);
	ck_assert(is_quarantined(OTHER, A));
	ck_assert_int_eq(lift(OTHER, "1"), 0);
	ck_assert(!is_quarantined(OTHER, A));
	ck_assert(is_quarantined(OTHER, B));
	ck_assert_int_eq(lift(getuid(), "2"), 0);
	ck_assert(!is_quarantined(OTHER, B));
	end();
}

/*
 * Another life of the daemon
 */

TEST(lives, a_daemon_that_comes_back_knows_them)
{
	const struct fault_history *first;

	fake_with_records = true;
	boot();
	fault(OTHER, A, 3);
	fault(OTHER, B, 2);
	/* The older one is the later one now. */
	fault(OTHER, A, 1);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(is_quarantined(OTHER, A));
	ck_assert(!is_quarantined(OTHER, B));
	first = TAILQ_FIRST(&fake->daemon.fault_histories);
	ck_assert_str_eq(first->program, A);
	ck_assert_uint_eq(first->faults, 4);
	fault(OTHER, "/new", 1);
	ck_assert_uint_eq(TAILQ_FIRST(&fake->daemon.fault_histories)->number, 3);
	/* What is lifted stays so. */
	ck_assert_int_eq(lift(OTHER, "1"), 0);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(!is_quarantined(OTHER, A));
	ck_assert_uint_eq(count(OTHER), 2);
	end();
}

TEST(lives, a_session_keeps_what_it_is)
{
	fake_with_records = true;
	join();
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_str_eq(TAILQ_FIRST(&fake->daemon.sessions)->identity, "fake");
	part();
}

int main(void)
{
	Suite *suite = suite_create("history");
	TCase *tests = suite_case(suite, "history");
	/* A daemon that died has not closed anything: descriptors are not counted. */
	TCase *lives = tcase_create("lives");

	fake_prepare();
	suite_add_tcase(suite, lives);
	suite_add(tests, "history");
	suite_add(lives, "lives");
	return suite_run(suite);
}
