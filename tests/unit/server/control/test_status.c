// What an operator is told, and who is told what.

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/control/turn.h"
#include "server/fault/promote.h"
#include "server/door/guests.h"
#include "server/control/events.h"
#include "server/control/caller.h"
#include "server/control/seen.h"
#include "server/control/status.h"
#include "server/loop/timer.h"
#include "server/loop/shared_fd.h"
#include "server/session/session.h"
#include "server/session/domain.h"
#include "server/door/visitor.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static struct fake *fake;

static json_t *status_of(uid_t uid)
{
	char *text = status_json(&fake->daemon, uid);
	json_t *root;

	ck_assert_ptr_nonnull(text);
	root = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(root);
	free(text);
	return root;
}

static json_t *faults_of(uid_t uid)
{
	char *text = faults_json(&fake->daemon, uid);
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;

	ck_assert_ptr_nonnull(root);
	free(text);
	return root;
}

static long long number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	ck_assert_msg(json_is_integer(value), "%s is not a number", key);
	return json_integer_value(value);
}

static const char *string(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	ck_assert_msg(value != NULL, "%s is not a text", key);
	return value;
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

TEST(status, service_without_clients_is_described)
{
	json_t *root, *domain, *executors;

	fake = fake_new(1);
	root = status_of(0);
	ck_assert(json_is_false(json_object_get(root, "ready")));
	json_decref(root);
	fake_boot(fake);
	fake->children[1].worker->contains = true;
	root = status_of(0);
	ck_assert(json_is_true(json_object_get(root, "ready")));
	ck_assert_str_eq(string(root, "backend"), "fake");
	ck_assert_str_eq(string(json_object_get(root, "device"), "name"), "fake device");
	ck_assert_str_eq(string(json_object_get(root, "keeper"), "state"), "serving");
	ck_assert_uint_eq(json_array_size(json_object_get(root, "domains")), 1);
	domain = json_array_get(json_object_get(root, "domains"), 0);
	ck_assert(json_is_null(json_object_get(domain, "uid")));
	executors = json_object_get(domain, "executors");
	ck_assert_uint_eq(json_array_size(executors), 2);
	ck_assert_str_eq(string(json_array_get(executors, 0), "role"), "active");
	ck_assert(json_is_true(json_object_get(json_array_get(executors, 0), "contains")));
	ck_assert_str_eq(string(json_array_get(executors, 1), "state"), "warm");
	ck_assert(json_is_false(json_object_get(json_array_get(executors, 1), "contains")));
	json_decref(root);
	end();
}

static json_t *seen_by(uid_t uid, pid_t pid)
{
	char *text = seen_json(&fake->daemon, uid, pid);
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return root;
}

/* A process sees its own limit and memory, and programs of its user alone. */
TEST(status, what_a_process_sees_is_its_own)
{
	struct fake_client client;
	json_t *root;

	fake = fake_new(1);
	ck_assert_ptr_null(seen_by(getuid(), getpid()));
	fake_boot(fake);
	fake->daemon.device.total_bytes = 1000;
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	fake_session(fake, 0)->terms.memory_limit = 300;
	fake_session(fake, 0)->holdings.memory_bytes = 7;
	root = seen_by(fake_session(fake, 0)->uid, fake_session(fake, 0)->pid);
	ck_assert_int_eq(number(root, "total_bytes"), 300);
	ck_assert_int_eq(number(root, "used_bytes"), 7);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "processes")), 1);
	json_decref(root);
	/* Another process of the user: what it would get, and what all of his have. */
	fake->daemon.memory_default = 200;
	root = seen_by(fake_session(fake, 0)->uid, 1);
	ck_assert_int_eq(number(root, "total_bytes"), 200);
	ck_assert_int_eq(number(root, "used_bytes"), 7);
	json_decref(root);
	/* Another user: nothing of it. */
	root = seen_by(getuid() + 4711, 1);
	ck_assert_int_eq(number(root, "used_bytes"), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "processes")), 0);
	json_decref(root);
	fake_session(fake, 0)->holdings.memory_bytes = 0;
	fake_leave(fake, &client);
	end();
}

/* Whether faults of kernels are contained was found out before the daemon was there. */
TEST(status, the_proof_is_described)
{
	json_t *root, *proof;

	fake = fake_new(1);
	root = status_of(0);
	ck_assert(json_is_null(json_object_get(root, "proof")));
	json_decref(root);
	fake->heritage.proof = (struct proof){.state = PROOF_GOOD, .ms = 42};
	root = status_of(0);
	proof = json_object_get(root, "proof");
	ck_assert(json_is_true(json_object_get(proof, "proved")));
	ck_assert_int_eq(json_integer_value(json_object_get(proof, "ms")), 42);
	ck_assert_ptr_null(json_object_get(proof, "reason"));
	json_decref(root);
	fake->heritage.proof = (struct proof){.state = PROOF_FAILED, .why = "no kernel begins"};
	root = status_of(0);
	proof = json_object_get(root, "proof");
	ck_assert(json_is_false(json_object_get(proof, "proved")));
	ck_assert_str_eq(string(proof, "reason"), "no kernel begins");
	ck_assert_str_eq(string(json_object_get(root, "run_as"), "who"), "service");
	ck_assert_ptr_null(json_object_get(json_object_get(root, "run_as"), "reason"));
	json_decref(root);
	strcpy(fake->heritage.run_as_why, "/dev/nvidia0 is not open to every user");
	root = status_of(0);
	ck_assert_str_eq(string(json_object_get(root, "run_as"), "reason"), fake->heritage.run_as_why);
	json_decref(root);
	end();
}

/* A path is any bytes. */
TEST(status, service_at_a_socket_that_is_no_text_is_described)
{
	json_t *root;

	fake = fake_new(1);
	strcpy(fake->config.socket, "/tmp/caf\xe9/frmps.sock");
	root = status_of(0);
	ck_assert_str_eq(string(root, "socket"), "/tmp/caf?/frmps.sock");
	json_decref(root);
	end();
}

TEST(status, client_is_described)
{
	struct fake_client client;
	struct session *session;
	json_t *root, *one;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	word_set(&session->view.server->streams, 10);
	word_set(&session->view.states[0].journaled, 40);
	word_set(&session->view.states[9].journaled, 2);
	root = status_of(0);
	one = json_array_get(
		json_object_get(json_array_get(json_object_get(root, "domains"), 0), "clients"), 0);
	ck_assert_int_eq(number(one, "pid"), getpid());
	ck_assert_str_eq(string(one, "program"), "fake");
	ck_assert_str_eq(string(one, "state"), "running");
	ck_assert_str_eq(string(one, "recovery"), "fail");
	ck_assert_int_eq(number(one, "commands"), 42);
	ck_assert_int_eq(number(one, "memory_bytes"), 0);
	ck_assert_int_eq(number(one, "staging_bytes"), (long long)SHM_ARENA_BYTES);
	ck_assert_int_eq(number(one, "sink_bytes"), 0);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "sessions_opened"), 1);
	json_decref(root);
	fake_leave(fake, &client);
	end();
}

static void load(struct fake_client *client, uint32_t module, uint64_t reason)
{
	struct wire_message load = {
		.type = WIRE_LOAD_MODULE, .load_module = {.module = module, .bytes = 4096}};
	const uint64_t values[] = {1, 0, WIRE_CODE_OF_DRIVER, 0, reason};
	struct fake_child *active = &fake->children[1];
	int fd = fake_memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);

	fake_request(fake, client, &load, fd);
	close(fd);
	fake_expect(fake, active->socket, WIRE_LOAD_MODULE);
	fake_reply(fake, active->socket, fake->message.id, CUDA_SUCCESS, values, 5);
	fake_expect(fake, client->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_SUCCESS);
}

TEST(status, what_the_driver_loads_is_counted_by_reason)
{
	struct fake_client client;
	json_t *root, *loads;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	load(&client, 1, LOAD_REASON_NONE);
	load(&client, 2, LOAD_REASON_LAUNCHES);
	load(&client, 3, LOAD_REASON_LAUNCHES);
	load(&client, 4, UINT64_MAX); /* of a later version */
	root = status_of(0);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "modules_loaded"), 4);
	/* A load needs a file. */
	ck_assert_int_eq(number(json_object_get(root, "counters"), "requests"), 4 * 2);
	loads = json_object_get(root, "driver_loads");
	ck_assert_uint_eq(json_object_size(loads), 1);
	ck_assert_int_eq(number(loads, load_reason_text(LOAD_REASON_LAUNCHES)), 2);
	json_decref(root);
	fake_leave(fake, &client);
	/* Also those of programs that have ended. */
	root = status_of(0);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "requests"), 4 * 2);
	json_decref(root);
	end();
}

/* The one client's entry. */
static json_t *client_of(json_t *root)
{
	return json_array_get(
		json_object_get(json_array_get(json_object_get(root, "domains"), 0), "clients"), 0);
}

static void expect_bytes(long long memory, long long host)
{
	json_t *root = status_of(0);

	ck_assert_int_eq(number(client_of(root), "memory_bytes"), memory);
	ck_assert_int_eq(number(client_of(root), "host_bytes"), host);
	json_decref(root);
}

/* A request about a range, carried out by the active executor and the standby. */
static void change(struct fake_client *client, enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct wire_message message = {.type = type, .range = {.address = address, .bytes = bytes}};
	struct wire_message chunk = {.type = WIRE_REPLY};
	uint64_t handle = address;
	int fd = fake_memfd(4096, 0);

	fake_request(fake, client, &message, -1);
	if (type == WIRE_MAP_MEMORY) {
		chunk.id = fake_expect(fake, fake->children[0].socket, WIRE_CREATE_CHUNK)->id;
		chunk.reply.values = (struct wire_u64s){&handle, 1};
		fake_send(fake, fake->children[0].socket, &chunk, &fd, 1);
	}
	close(fd);
	fake_serve(fake, &fake->children[1], type);
	fake_serve(fake, &fake->children[2], type);
	fake_expect(fake, client->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	if (type == WIRE_UNMAP_MEMORY)
		fake_serve(fake, &fake->children[0], WIRE_RELEASE_CHUNK);
}

TEST(status, memory_is_what_is_mapped_now)
{
	const uint64_t mib = 1 << 20, device_bytes = UINT64_C(192) << 30;
	struct fake_client client;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	change(&client, WIRE_MAP_MEMORY, client.window_base, 4 * mib);
	change(&client, WIRE_MAP_MEMORY, client.window_base + 8 * mib, 2 * mib);
	change(&client, WIRE_MAP_HOST, client.window_base + device_bytes, 3 * mib);
	expect_bytes(6 << 20, 3 << 20);
	change(&client, WIRE_UNMAP_MEMORY, client.window_base, 4 * mib);
	expect_bytes(2 << 20, 3 << 20);
	change(&client, WIRE_UNMAP_HOST, client.window_base + device_bytes, 3 * mib);
	change(&client, WIRE_UNMAP_MEMORY, client.window_base + 8 * mib, 2 * mib);
	expect_bytes(0, 0);
	fake_leave(fake, &client);
	end();
}

TEST(status, promotion_is_counted_and_its_verdict_shown)
{
	struct fake_client client;
	struct session *session;
	json_t *root;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	root = status_of(0);
	ck_assert(json_is_null(
		json_object_get(json_array_get(json_object_get(root, "domains"), 0), "verdict")));
	ck_assert_int_eq(number(json_object_get(root, "counters"), "promotions"), 0);
	json_decref(root);

	fake_issue(&session->view, 2);
	fake_reap(fake, &fake->children[1], SIGSEGV);
	/* The standby ends the culprit, as it would. */
	word_set(&session->view.server->error, 719);
	word_release(&session->view.server->state, SHM_SESSION_FAULTED);
	fake_serve(fake, &fake->children[2], WIRE_ACTIVATE);
	root = status_of(0);
	ck_assert_ptr_nonnull(strstr(string(json_array_get(json_object_get(root, "domains"), 0), "verdict"),
		"nobody is proved guilty"));
	ck_assert_int_gt(number(json_array_get(json_object_get(root, "domains"), 0), "verdict_ms"), 0);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "promotions"), 1);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "faults"), 1);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "culprits"), 0);
	ck_assert_int_eq(number(json_object_get(root, "counters"), "sessions_opened"), 1);
	ck_assert_str_eq(string(client_of(root), "state"), "faulted");
	ck_assert_int_eq(number(json_object_get(client_of(root), "error"), "code"), 719);
	json_decref(root);
	root = faults_of(0);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "faults")), 1);
	json_decref(root);
	fake_leave(fake, &client);
	end();
}

TEST(status, others_see_only_their_own)
{
	struct fake_client client;
	json_t *root;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	root = status_of(getuid() + 4711);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "domains")), 0);
	json_decref(root);
	TAILQ_FIRST(&fake->daemon.domains)->identity.uid = getuid() + 4711;
	root = status_of(getuid() + 4711);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "domains")), 1);
	json_decref(root);
	fake_leave(fake, &client);
	end();
}

TEST(status, name_that_is_not_utf8_is_no_reason_to_fail)
{
	struct fake_client client;
	json_t *root;

	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	strcpy(TAILQ_FIRST(&fake->daemon.sessions)->program, "a\xff\xfe");
	root = status_of(0);
	ck_assert_uint_eq(json_array_size(json_object_get(
				  json_array_get(json_object_get(root, "domains"), 0), "clients")),
		1);
	json_decref(root);
	fake_leave(fake, &client);
	end();
}

/* Names of kernels are in it, which a program chooses. */
TEST(status, a_verdict_cannot_speak_to_a_terminal)
{
	const json_t *domain;
	json_t *root;

	fake = fake_new(1);
	fake_boot(fake);
	strcpy(TAILQ_FIRST(&fake->daemon.domains)->promotion.verdict_text,
		"kernel \x1b]0;k\n\xc3\xa4\xc2\x9b[");
	root = status_of(0);
	domain = json_array_get(json_object_get(root, "domains"), 0);
	ck_assert_str_eq(string(domain, "verdict"), "kernel ?]0;k?\xc3\xa4??[");
	json_decref(root);
	end();
}

/* @ret_service: the service's end */
static int connect_operator_to(int *ret_service)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	*ret_service = pair[0];
	return pair[1];
}

static int connect_operator(void)
{
	int service;

	return connect_operator_to(&service);
}

static void order(int socket, const char *command, const char *const *arguments, unsigned count)
{
	struct wire_message admin = {.type = WIRE_ADMIN,
		.id = 3,
		.admin = {.command = command, .arguments = {.at = arguments, .count = count}}};

	fake_send(fake, socket, &admin, NULL, 0);
}

static void say(int socket, const char *command)
{
	order(socket, command, NULL, 0);
}

static void expect_refusal(int socket, const char *reason)
{
	json_t *json;

	fake_expect(fake, socket, WIRE_ADMIN_REPLY);
	ck_assert_int_ne(fake->message.admin_reply.code, 0);
	json = json_loads(fake->message.admin_reply.json, 0, NULL);
	ck_assert_msg(strstr(string(json, "reason"), reason) != NULL, "%s", string(json, "reason"));
	json_decref(json);
}

TEST(status, refusals_say_why)
{
	static const struct {
		const char *command, *arguments[2], *reason;
	} refused[] = {
		{"isolate", {"7"}, "there is no session 7 (frmpsctl status lists them)"},
		{"isolate", {"\x1b]"}, "there is no session ?]"},
		{"isolate", {NULL}, "isolate takes one session"},
		{"pause", {"7"}, "there is no session 7"},
		{"resume", {NULL}, "resume takes one session"},
		{"recovery", {"7", "fail"}, "there is no session 7"},
		{"recovery", {"1", "maybe"}, "and fail or replay"},
		{"quarantine", {"lift", "7"}, "there is no program number 7"},
		{"quarantine", {"raise", "7"}, "lift and a number"},
	};
	int caller;

	fake = fake_new(1);
	caller = connect_operator();
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const char *const *arguments = refused[i].arguments;

		order(caller, refused[i].command, arguments, (arguments[0] != NULL) + (arguments[1] != NULL));
		expect_refusal(caller, refused[i].reason);
	}
	close(caller);
	end();
}

/* No executor knows it, so it is gone at once. */
TEST(status, operator_ends_a_session_that_waits_for_an_executor)
{
	struct fake_client client;
	int caller;

	fake = fake_new(0);
	fake_hello(fake, &client);
	caller = connect_operator();
	order(caller, "terminate", (const char *const[]){"1", NULL}, 1);
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_int_eq(fake->message.admin_reply.code, 0);
	fake_expect(fake, client.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_MPS_CLIENT_TERMINATED);
	ck_assert(TAILQ_EMPTY(&fake->daemon.sessions));
	close(caller);
	close(client.socket);
	end();
}

TEST(status, what_ends_already_cannot_be_ended)
{
	struct fake_client client;
	int caller;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	caller = connect_operator();
	shutdown(client.socket, SHUT_RDWR);
	fake_expect(fake, fake->children[1].socket, WIRE_CLOSE_SESSION);
	order(caller, "terminate", (const char *const[]){"1", NULL}, 1);
	expect_refusal(caller, "session 1 ends already");
	close(caller);
	fake_leave(fake, &client);
	end();
}

TEST(status, operator_ends_a_session)
{
	struct fake_client client, other;
	int caller;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	fake_join(fake, &other, &fake->children[1], NULL);
	caller = connect_operator();
	order(caller, "terminate", (const char *const[]){"1", NULL}, 1);
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_int_eq(fake->message.admin_reply.code, 0);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(word_acquire(&client.view.server->error), CUDA_ERROR_MPS_CLIENT_TERMINATED);
	fake_expect(fake, fake->children[1].socket, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->message.session, 1);
	ck_assert_uint_eq(fake->message.close_session.patience_ms, 0);
	fake_reply(fake, fake->children[1].socket, fake->message.id, 0, NULL, 0);
	ck_assert_uint_eq(word_acquire(&other.view.server->state), SHM_SESSION_RUNNING);
	order(caller, "terminate", (const char *const[]){"1", NULL}, 1);
	expect_refusal(caller, "there is no session 1");
	order(caller, "terminate", NULL, 0);
	expect_refusal(caller, "terminate takes one session");
	close(caller);
	fake_leave(fake, &client);
	fake_leave(fake, &other);
	end();
}

/* The program can have it so that whoever rings waits for ever. */
static void spoil_doorbell(int doorbell)
{
	const uint64_t full = UINT64_MAX - 1;

	ck_assert_int_eq(fcntl(doorbell, F_SETFL, 0), 0);
	ck_assert_int_eq(write(doorbell, &full, sizeof(full)), sizeof(full));
}

/* Only the word that executors read changes, and they are told to look. */
TEST(status, operator_pauses_a_session_and_resumes_it)
{
	struct fake_client client;
	int caller;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	spoil_doorbell(TAILQ_FIRST(&fake->daemon.sessions)->doorbell_fd->fd);
	caller = connect_operator();
	for (int i = 0; i < 4; i++) {
		const char *command = i < 2 ? "pause" : "resume";

		order(caller, command, (const char *const[]){"1", NULL}, 1);
		fake_expect(fake, caller, WIRE_ADMIN_REPLY);
		ck_assert_int_eq(fake->message.admin_reply.code, 0);
		fake_serve(fake, &fake->children[1], WIRE_PING);
		ck_assert_uint_eq(word_acquire(&client.view.server->share), i < 2 ? SHM_SHARE_PAUSED : 0);
		ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	}
	close(caller);
	fake_leave(fake, &client);
	end();
}

static void expect_order(int caller, const char *command, const char *refusal)
{
	order(caller, command, (const char *const[]){"1", NULL}, 1);
	if (refusal) {
		expect_refusal(caller, refusal);
		return;
	}
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_int_eq(fake->message.admin_reply.code, 0);
	fake_serve(fake, &fake->children[1], WIRE_PING);
}

TEST(status, what_the_services_operator_has_paused_its_user_does_not_resume)
{
	const uid_t user = getuid() + 4711;
	struct fake_client client;
	struct session *session;
	struct guest *guest;
	int caller;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	session->uid = user;
	caller = connect_operator();
	expect_order(caller, "pause", NULL);
	guest = TAILQ_FIRST(&fake->daemon.operators);
	guest->uid = user;
	expect_order(caller, "resume", "was paused by the service's operator");
	expect_order(caller, "pause", NULL);
	expect_order(caller, "resume", "was paused by the service's operator");
	ck_assert_uint_eq(word_acquire(&client.view.server->share), SHM_SHARE_PAUSED);
	guest->uid = getuid();
	expect_order(caller, "resume", NULL);
	guest->uid = user;
	expect_order(caller, "pause", NULL);
	expect_order(caller, "resume", NULL);
	ck_assert_uint_eq(word_acquire(&client.view.server->share), 0);
	/* A daemon that died while it paused for the operator had said so in its record only. */
	session->pause_is_ours = true;
	expect_order(caller, "pause", NULL);
	expect_order(caller, "resume", NULL);
	guest->uid = session->uid = getuid();
	close(caller);
	fake_leave(fake, &client);
	end();
}

/* Return: the answer's code */
static int take_step(int caller, const char *pid, const char *step)
{
	order(caller, "process", (const char *const[]){pid, step, NULL}, 2);
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	return fake->message.admin_reply.code;
}

TEST(status, tools_act_on_programs_of_their_user)
{
	const uid_t user = getuid() + 4711;
	struct fake_client client;
	struct session *session;
	struct guest *guest;
	int caller;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	session->uid = user;
	session->pid = 4712;
	caller = connect_operator();
	expect_order(caller, "pause", NULL);
	ck_assert_int_eq(take_step(caller, "4712", "state"), CUDA_SUCCESS);
	ck_assert_str_eq(fake->message.admin_reply.json, "{\"state\":1}");
	ck_assert_int_eq(take_step(caller, "4713", "state"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(take_step(caller, "4712x", "state"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(take_step(caller, "4712", "stat"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(take_step(caller, "4712", "lock"), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(take_step(caller, "4712", "restore"), CUDA_ERROR_ILLEGAL_STATE);
	guest = TAILQ_FIRST(&fake->daemon.operators);
	guest->uid = user;
	ck_assert_int_eq(take_step(caller, "4712", "unlock"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(take_step(caller, "4712", "state"), CUDA_SUCCESS);
	guest->uid = user + 1;
	ck_assert_int_eq(take_step(caller, "4712", "state"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(take_step(caller, "4712", "lock"), CUDA_ERROR_NOT_PERMITTED);
	guest->uid = getuid();
	ck_assert_int_eq(take_step(caller, "4712", "unlock"), CUDA_SUCCESS);
	ck_assert_uint_eq(word_acquire(&client.view.server->share), 0);
	session->uid = getuid();
	close(caller);
	fake_leave(fake, &client);
	end();
}

TEST(status, operator_asks_as_often_as_he_likes)
{
	int caller;

	fake = fake_new(1);
	caller = connect_operator();
	say(caller, "ping");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_uint_eq(fake->message.id, 3);
	/* No executor has said anything of the device yet. */
	ck_assert_ptr_nonnull(
		strstr(fake->message.admin_reply.json, "\"GPU-01020300-0000-0000-0000-000000000000\""));
	say(caller, "status");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_ptr_nonnull(strstr(fake->message.admin_reply.json, "\"version\""));
	say(caller, "nonsense");
	expect_refusal(caller, "does not know the command nonsense");
	close(caller);
	end();
}

TEST(status, operators_of_a_user_are_bounded)
{
	int sockets[OPERATORS_PER_USER + 1];

	fake = fake_new(1);
	fake_boot(fake);
	for (unsigned i = 0; i <= OPERATORS_PER_USER; i++) {
		sockets[i] = connect_operator();
		say(sockets[i], "ping");
		if (i < OPERATORS_PER_USER)
			fake_expect(fake, sockets[i], WIRE_ADMIN_REPLY);
	}
	expect_refusal(sockets[OPERATORS_PER_USER], "as many connections of frmpsctl as there may be");
	fake_expect_hangup(fake, sockets[OPERATORS_PER_USER]);
	/* Whoever is there goes on, and whoever leaves makes room. */
	say(sockets[0], "ping");
	fake_expect(fake, sockets[0], WIRE_ADMIN_REPLY);
	close(sockets[1]);
	fake_turn(fake);
	close(sockets[OPERATORS_PER_USER]);
	sockets[1] = connect_operator();
	say(sockets[1], "ping");
	fake_expect(fake, sockets[1], WIRE_ADMIN_REPLY);
	for (unsigned i = 0; i < OPERATORS_PER_USER; i++)
		close(sockets[i]);
	fake_turn(fake);
	end();
}

TEST(status, operator_may_not_become_a_client)
{
	struct wire_message hello = {.type = WIRE_HELLO, .id = 1};
	int caller;

	fake = fake_new(1);
	caller = connect_operator();
	say(caller, "ping");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	fake_send(fake, caller, &hello, NULL, 0);
	fake_expect_hangup(fake, caller);
	close(caller);
	end();
}

/* Programs enough for a status that fits no packet. */
#define CROWD 400
static struct fake_client crowd[CROWD];

static void gather(int count)
{
	struct session *session;

	fake = fake_new(0);
	fake->config.clients_max = 448;
	fake_boot(fake);
	for (int i = 0; i < count; i++)
		fake_join(fake, &crowd[i], &fake->children[1], NULL);
	TAILQ_FOREACH (session, &fake->daemon.sessions, link)
		strcpy(session->program, "a program with a longer name");
}

static void disperse(int count)
{
	for (int i = 0; i < count; i++)
		fake_leave(fake, &crowd[i]);
}

TEST(status, long_status_comes_as_a_file)
{
	struct stat status;
	char *text;
	int caller;
	json_t *root;

	gather(CROWD);
	caller = connect_operator();
	say(caller, "status");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_uint_eq(strlen(fake->message.admin_reply.json), 0);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert_int_eq(fstat(fake->packet.fds[0], &status), 0);
	text = calloc(1, (size_t)status.st_size + 1);
	ck_assert_int_eq(pread(fake->packet.fds[0], text, (size_t)status.st_size, 0), status.st_size);
	root = json_loads(text, 0, NULL);
	ck_assert_uint_eq(json_array_size(json_object_get(
				  json_array_get(json_object_get(root, "domains"), 0), "clients")),
		CROWD);
	json_decref(root);
	free(text);
	disperse(CROWD);
	close(caller);
	end();
}

static unsigned count_files(int caller, unsigned answers)
{
	unsigned files = 0;

	for (unsigned i = 0; i < answers; i++) {
		fake_expect(fake, caller, WIRE_ADMIN_REPLY);
		ck_assert(
			fake->packet.fd_count || fake->message.admin_reply.code == CUDA_ERROR_OUT_OF_MEMORY);
		files += fake->packet.fd_count;
	}
	return files;
}

/* Its memory is the service's until it is taken. */
TEST(status, files_that_nobody_takes_are_bounded)
{
	int caller;

	gather(CROWD);
	caller = connect_operator();
	for (int i = 0; i < 20; i++)
		say(caller, "status");
	/* All are answered. */
	FAKE_RUN_WHILE(fake, timer_running(fake->daemon.turns->timer));
	ck_assert_uint_eq(count_files(caller, 20), OPERATOR_FILES_MAX);
	for (int i = 0; i < 20; i++) {
		say(caller, "status");
		ck_assert_uint_eq(count_files(caller, 1), 1);
	}
	disperse(CROWD);
	close(caller);
	end();
}

/* He would wait for it. */
TEST(status, whose_answer_cannot_be_sent_is_sent_away)
{
	const int programs = 32, least = 1;
	int caller, service;

	gather(programs);
	caller = connect_operator_to(&service);
	say(caller, "ping");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	ck_assert_int_eq(setsockopt(service, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
	say(caller, "ping");
	fake_expect(fake, caller, WIRE_ADMIN_REPLY);
	say(caller, "status");
	FAKE_RUN_WHILE(fake, !TAILQ_EMPTY(&fake->daemon.operators));
	fake_expect_hangup(fake, caller);
	disperse(programs);
	close(caller);
	end();
}

TEST(status, who_asks_on_and_reads_nothing_is_sent_away)
{
	struct wire_message ping = {.type = WIRE_ADMIN, .id = 3, .admin = {.command = "ping"}};
	int caller, patient;
	fake = fake_new(1);
	patient = connect_operator();
	caller = connect_operator();
	say(caller, "ping");
	while (!TAILQ_EMPTY(&fake->daemon.operators)) {
		message_send(caller, &ping, NULL, 0);
		fake_turn(fake);
	}
	say(patient, "ping");
	fake_expect(fake, patient, WIRE_ADMIN_REPLY);
	close(patient);
	close(caller);
	fake_turn(fake);
	end();
}

/* One turn of the loop, in which timers fire. Return: how many of these operators have got an
 * answer */
static unsigned answered_in_a_round(const int *sockets, unsigned count, int *ret_latest)
{
	unsigned answers = 0;

	uv_run(&fake->loop, UV_RUN_NOWAIT);
	for (unsigned i = 0; i < count; i++) {
		packet_close_fds(&fake->packet);
		if (packet_receive(sockets[i], &fake->packet))
			continue;
		*ret_latest = (int)i;
		answers++;
	}
	return answers;
}

#define ASKERS 6u

static unsigned user_of(unsigned asker, unsigned users)
{
	return asker * users / ASKERS;
}

static void connect_askers(int *sockets, unsigned users)
{
	for (unsigned i = 0; i < ASKERS; i++) {
		sockets[i] = connect_operator();
		TAILQ_LAST(&fake->daemon.visitors, visitor_list)->peer.uid = 1001 + user_of(i, users);
	}
}

static void ask_all(const int *sockets, const char *command)
{
	struct wire_message admin = {.type = WIRE_ADMIN, .id = 3, .admin = {.command = command}};

	for (unsigned i = 0; i < ASKERS; i++)
		ck_assert_int_eq(message_send(sockets[i], &admin, NULL, 0), 0);
}

static void leave_askers(const int *sockets)
{
	for (unsigned i = 0; i < ASKERS; i++)
		close(sockets[i]);
	fake_turn(fake);
}

/* What programs ask is read in every round of the loop, and one operator is answered in it at
 * most. */
TEST(status, operators_take_turns)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct pollfd request = {.events = POLLIN};
	int sockets[ASKERS], latest = 0;
	struct fake_client client;
	unsigned answers, sum = 0;

	fake = fake_new(0);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], NULL);
	request.fd = fake->children[1].socket;
	connect_askers(sockets, 3);
	ask_all(sockets, "ping");
	query.id = client.next_id++;
	ck_assert_int_eq(message_send(client.socket, &query, NULL, 0), 0);
	while (sum < ASKERS) {
		answers = answered_in_a_round(sockets, ASKERS, &latest);
		ck_assert_uint_le(answers, 1);
		/* One user after the other. */
		if (answers)
			ck_assert_uint_eq(user_of((unsigned)latest, 3), sum % 3);
		sum += answers;
		/* The executor has the program's request before a second operator has an answer.
		 * The loop does not turn meanwhile: the next operator's turn may be due already. */
		if (sum == 1 && answers)
			ck_assert_int_eq(poll(&request, 1, 0), 1);
	}
	fake_serve(fake, &fake->children[1], WIRE_QUERY_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	leave_askers(sockets);
	fake_leave(fake, &client);
	end();
}

TEST(status, one_document_answers_all_of_a_user_who_wait_for_it)
{
	int sockets[ASKERS], latest = 0;
	unsigned answers;

	fake = fake_new(0);
	fake_boot(fake);
	connect_askers(sockets, 2);
	ask_all(sockets, "status");
	for (unsigned user = 0; user < 2; user++) {
		while (!(answers = answered_in_a_round(sockets, ASKERS, &latest)))
			continue;
		ck_assert_uint_eq(answers, ASKERS / 2);
		ck_assert_uint_eq(user_of((unsigned)latest, 2), user);
	}
	/* However short a turn was, a rest follows, in which nobody is answered. */
	ck_assert(timer_running(fake->daemon.turns->timer));
	leave_askers(sockets);
	end();
}

TEST(status, who_leaves_gives_its_turn_up)
{
	int sockets[ASKERS], latest = 0;

	fake = fake_new(0);
	fake_boot(fake);
	connect_askers(sockets, 1);
	ask_all(sockets, "ping");
	while (!answered_in_a_round(sockets, ASKERS, &latest))
		continue;
	leave_askers(sockets);
	ck_assert(TAILQ_EMPTY(&fake->daemon.operators));
	FAKE_RUN_WHILE(fake, timer_running(fake->daemon.turns->timer));
	end();
}

int main(void)
{
	Suite *suite = suite_create("status");
	TCase *tests = suite_case(suite, "status");

	fake_prepare();
	suite_add(tests, "status");
	return suite_run(suite);
}
