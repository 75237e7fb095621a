// Sessions: who is let in, and how the bad ones are let out.

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/holder/store.h"
#include "server/service.h"
#include "server/session/domain.h"
#include "server/daemon/quota.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/door/visitor.h"
#include "server/session/window.h"
#include "server/worker/vitals.h"
#include "server/worker/worker.h"
#include "tests/unit/server/session/fixture.h"

/* Later executors may run as a user, who has power over them before they are ready. */
TEST(sessions, only_the_first_executor_describes_the_device)
{
	struct wire_message ready = {.type = WIRE_READY, .ready.device.name = "of a user"};

	const struct domain *domain;

	fake = fake_new(1);
	fake_ready(fake, &fake->children[0]);
	fake_ready(fake, &fake->children[1]);
	FAKE_RUN_WHILE(fake, !fake->daemon.device_known);
	fake_send(fake, fake->children[2].socket, &ready, NULL, 0);
	domain = TAILQ_FIRST(&fake->daemon.domains);
	FAKE_RUN_WHILE(fake, TAILQ_NEXT(TAILQ_FIRST(&domain->workers), link)->state == WORKER_STARTING);
	ck_assert_str_eq(fake->daemon.device.name, "fake device");
	ck_assert_uint_eq(fake->daemon.device.total_bytes, UINT64_C(1) << 36);
	end();
}

TEST(sessions, executors_start_one_after_the_other)
{
	fake = fake_new(2);
	fake_ready(fake, &fake->children[0]);
	fake_turn(fake);
	for (unsigned executors = 1; executors < 3; executors++) {
		ck_assert_uint_eq(fake->child_count, 1 + executors);
		fake_ready(fake, &fake->children[executors]);
		FAKE_RUN_WHILE(fake, fake->child_count == 1 + executors);
	}
	fake_ready(fake, &fake->children[3]);
	fake_serve(fake, &fake->children[3], WIRE_PING);
	ck_assert_uint_eq(fake->child_count, 4);
	end();
}

/* The first executor is ready, and describes a device whose multiprocessors can be shared out. */
static void ready_as_h100(void)
{
	static const int32_t attributes[] = {[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132};
	static const uint8_t uuid[16] = {1};
	const struct wire_device device = {.name = "as an H100",
		.uuid = {uuid, sizeof(uuid)},
		.attributes = {attributes, sizeof(attributes) / sizeof(attributes[0])},
		.sm_granule = 8,
		.sm_units = 15};
	const struct wire_message ready = {.type = WIRE_READY, .ready = {.device = device}};

	fake_send(fake, active->socket, &ready, NULL, 0);
}

/* Nobody knows yet what the device can give out. */
TEST(sessions, who_comes_before_the_device_is_known_is_capped_all_the_same)
{
	fake = fake_new(0);
	active = &fake->children[1];
	fake->daemon.rules.general.sm_percent = 50;
	fake_hello(fake, &client);
	fake_ready(fake, &fake->children[0]);
	ready_as_h100();
	fake_serve(fake, active, WIRE_PING);
	fake_serve(fake, active, WIRE_ACTIVATE);
	fake_open(fake, active);
	fake_welcome(fake, &client);
	ck_assert_uint_eq(session_sms(fake_session(fake, 0)), 64);
	ck_assert_uint_eq(word_acquire(&client.view.server->share), 64 << SHM_SHARE_SMS_SHIFT);
	part();
}

TEST(sessions, welcome_describes_device_and_window)
{
	boot();
	fake->config.spin_us = 77;
	fake->daemon.rules.general.memory_limit = 64 * MIB;
	fake_hello(fake, &client);
	fake_open(fake, active);
	fake_expect(fake, client.socket, WIRE_WELCOME);
	ck_assert_str_eq(fake->message.welcome.device.name, "fake device");
	ck_assert_int_eq(fake->message.welcome.driver_version, 13000);
	ck_assert_uint_eq(fake->message.welcome.spin_us, 77);
	ck_assert_uint_eq(fake->message.welcome.memory_limit, 64 * MIB);
	ck_assert_uint_eq(fake->message.welcome.device.total_bytes, 64 * MIB);
	ck_assert_uint_eq(fake->message.welcome.window_base, WINDOW_GRID_BASE);
	ck_assert_uint_eq(fake->message.welcome.shape.arena_bytes, SHM_ARENA_BYTES);
	part();
}

static const struct wire_description *expect_description(void)
{
	fake_expect(fake, client.socket, WIRE_DESCRIPTION);
	fake_expect_hangup(fake, client.socket);
	ck_assert_ptr_null(TAILQ_FIRST(&fake->daemon.sessions));
	ck_assert_uint_eq(fake->daemon.counters.sessions_opened, 0);
	return &fake->message.description;
}

/* On the terms that it would have, and nobody works for it. */
TEST(sessions, a_program_may_ask_before_it_chooses)
{
	const struct wire_description *description;
	unsigned children;

	boot();
	children = fake->child_count;
	fake->heritage.number = 2;
	fake->heritage.count = 4;
	fake->heritage.copy = 1;
	fake->daemon.rules.general.memory_limit = 64 * MIB;
	fake_describe = 1;
	fake_hello(fake, &client);
	description = expect_description();
	ck_assert_uint_eq(description->number, 2);
	ck_assert_uint_eq(description->count, 4);
	ck_assert_int_eq(description->driver_version, 13000);
	ck_assert_str_eq(description->device.name, "fake device");
	ck_assert_uint_eq(description->device.total_bytes, 64 * MIB);
	/* A logical device is not the same as the one before. */
	ck_assert_mem_ne(description->device.uuid.at, fake->daemon.device.uuid, 16);
	ck_assert_uint_eq(fake->child_count, children);
	fake_leave(fake, &client);
	fake_describe = 0;
	fake_hello(fake, &client);
	fake_open(fake, active);
	fake_expect(fake, client.socket, WIRE_WELCOME);
	part();
}

TEST(sessions, who_asks_a_service_with_one_device_gets_a_session)
{
	fake_describe = 1;
	boot();
	fake_hello(fake, &client);
	fake_open(fake, active);
	fake_welcome(fake, &client);
	part();
	fake_describe = 2;
	boot();
	fake_hello(fake, &client);
	ck_assert_uint_eq(expect_description()->count, 1);
	fake_leave(fake, &client);
	end();
	fake_describe = 0;
}

/* The CUDA runtime asks for the multiprocessors once, and before there is a session. */
TEST(sessions, who_asks_before_the_device_is_known_waits)
{
	fake = fake_new(0);
	active = &fake->children[1];
	fake->heritage.count = 2;
	fake->daemon.rules.general.sm_percent = 50;
	fake_describe = 1;
	fake_hello(fake, &client);
	fake_ready(fake, &fake->children[0]);
	fake_turn(fake);
	ready_as_h100();
	ck_assert_int_eq(
		expect_description()->device.attributes.at[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], 64);
	fake_describe = 0;
	fake_leave(fake, &client);
	end();
}

TEST(sessions, server_region_is_read_only_for_the_client)
{
	boot();
	fake_hello(fake, &client);
	fake_open(fake, active);
	fake_expect(fake, client.socket, WIRE_WELCOME);
	ck_assert_int_eq(fcntl(fake->packet.fds[1], F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_ptr_eq(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fake->packet.fds[1], 0), MAP_FAILED);
	part();
}

/* Another program is refused. */
static void expect_no_room(struct fake_client *late)
{
	fake_hello(fake, late);
	fake_expect(fake, late->socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
	fake_expect_hangup(fake, late->socket);
	fake_leave(fake, late);
}

TEST(sessions, full_service_refuses)
{
	struct fake_client late;

	join();
	fake->config.clients_max = 1;
	expect_no_room(&late);
	part();
}

TEST(sessions, a_user_has_bounded_clients)
{
	struct fake_client late;

	join();
	fake->config.clients_per_user_max = 1;
	expect_no_room(&late);
	TAILQ_FIRST(&fake->daemon.sessions)->owner++;
	fake_join(fake, &late, active, standby);
	fake_leave(fake, &late);
	part();
}

/* Programs of one user come until one is refused with this code. Return: how many got in */
static unsigned come(struct fake_client *programs, uid_t uid, int32_t code)
{
	unsigned count = 0, before = fake->daemon.session_count;

	for (;; count++) {
		fake_hello_as(fake, &programs[count], uid);
		if (fake->daemon.session_count == before + count)
			break;
	}
	fake_expect(fake, programs[count].socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, code);
	fake_leave(fake, &programs[count]);
	return count;
}

static void leave_programs(struct fake_client *programs, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		fake_leave(fake, &programs[i]);
}

#define FULL  CUDA_ERROR_MPS_MAX_CLIENTS_REACHED
#define OTHER (getuid() + 4711)

/* No executor is up: nobody is served yet, and everybody counts. */
TEST(sessions, a_user_leaves_as_much_as_it_takes)
{
	struct fake_client programs[65];
	unsigned count;

	fake = fake_new(0);
	fake->config.clients_max = 64;
	/* Two are kept for the operator: 31 here leave 31 for others. */
	count = come(programs, OTHER, FULL);
	ck_assert_uint_eq(count, 31);
	count += come(programs + count, OTHER + 1, FULL);
	ck_assert_uint_eq(count, 31 + 16);
	count += come(programs + count, OTHER + 2, FULL);
	ck_assert_uint_eq(count, 31 + 16 + 8);
	/* The service's own user has all the rest. */
	count += come(programs + count, getuid(), FULL);
	ck_assert_uint_eq(count, 64);
	leave_programs(programs, count);
	end();
}

TEST(sessions, an_operator_may_let_one_user_have_nearly_all)
{
	struct fake_client programs[65];
	unsigned count;

	fake = fake_new(0);
	fake->config.clients_max = 64;
	fake->config.clients_per_user_max = 64;
	count = come(programs, OTHER, FULL);
	ck_assert_uint_eq(count, 62);
	count += come(programs + count, getuid(), FULL);
	ck_assert_uint_eq(count, 64);
	leave_programs(programs, count);
	end();
}

/* A session takes eleven. */
TEST(sessions, a_user_leaves_as_many_descriptors_for_sessions_as_it_takes)
{
	struct fake_client programs[65];
	unsigned count;

	fake = fake_new(0);
	/* The daemon, 20 guests, keeper and executor of the first user, that of the second, 20
	 * sessions. */
	fake->daemon.fds_max = 64 + 20 + 3 * 8 + 20 * 11;
	ck_assert_uint_eq(quota_guests(&fake->daemon), 20);
	count = come(programs, OTHER, FULL);
	ck_assert_uint_eq(count, 10);
	count += come(programs + count, getuid(), FULL);
	ck_assert_uint_eq(count, 20);
	leave_programs(programs, count);
	end();
}

/* Each page of pinned memory is a file that the service keeps open. */
TEST(sessions, descriptors_are_left_for_others)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST};
	uint64_t host;
	int32_t code = 0;
	unsigned count = 0;

	join();
	host = client.window_base + WINDOW_DEVICE_BYTES;
	/* What the daemon, guests, the session and three children may need, and 16. */
	fake->daemon.fds_max = 64 + QUOTA_GUESTS_LEAST + 11 + 3 * 8 + 16;
	for (; !code && count < 16; count += !code) {
		map.range = (struct wire_range){.address = host + 4096 * count, .bytes = 4096};
		fake_request(fake, &client, &map, -1);
		if (count < 12) {
			fake_serve(fake, active, WIRE_MAP_HOST);
			fake_serve(fake, standby, WIRE_MAP_HOST);
		}
		fake_expect(fake, client.socket, WIRE_REPLY);
		code = fake->message.reply.code;
	}
	ck_assert_int_eq(code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(count, 12);
	unmap.range = (struct wire_range){.address = host, .bytes = 4096};
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_HOST);
	fake_serve(fake, standby, WIRE_UNMAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	part();
}

/* They are for answers of the keeper and the like. */
TEST(sessions, who_would_take_the_last_descriptors_is_refused)
{
	struct fake_client late;

	join();
	fake->daemon.fds_max = 64 + QUOTA_GUESTS_LEAST + 2 * 11 + 3 * 8 - 1;
	fake_hello(fake, &late);
	fake_expect(fake, late.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
	fake_expect_hangup(fake, late.socket);
	fake_leave(fake, &late);
	fake->daemon.fds_max++;
	fake_join(fake, &late, active, standby);
	fake_leave(fake, &late);
	part();
}

/* What a session has is recorded, in memory that all sessions share. */
TEST(sessions, records_are_left_for_others)
{
	char name[8000];
	struct wire_message load = {.type = WIRE_LOAD_MODULE};
	struct wire_message find = {.type = WIRE_FIND_FUNCTION};
	int32_t code = 0;
	unsigned count = 0;
	int fd = fake_memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);

	join();
	load.load_module = (struct wire_load_module){.module = 1, .bytes = 4096};
	fake_request(fake, &client, &load, fd);
	close(fd);
	fake_serve(fake, active, WIRE_LOAD_MODULE);
	fake_serve(fake, standby, WIRE_LOAD_MODULE);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	/* A quarter of this is one user's. */
	fake->daemon.records_max = 4 * 10 * store_share(sizeof(name) + sizeof(struct kept_holding));
	for (; !code && count < 20; count += !code) {
		find.symbol = (struct wire_symbol){.module = 1, .function = count + 1, .name = name};
		fake_request(fake, &client, &find, -1);
		if (count < 9) {
			fake_serve(fake, active, WIRE_FIND_FUNCTION);
			fake_serve(fake, standby, WIRE_FIND_FUNCTION);
		}
		fake_expect(fake, client.socket, WIRE_REPLY);
		code = fake->message.reply.code;
	}
	ck_assert_int_eq(code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(count, 9);
	part();
}

/* No executor knows them yet: their end has nobody to wait for. */
TEST(sessions, a_stop_ends_who_waits_for_an_executor)
{
	struct fake_client waiting[2];

	fake = fake_new(1);
	for (unsigned i = 0; i < 2; i++)
		fake_hello(fake, &waiting[i]);
	ck_assert_uint_eq(fake->daemon.session_count, 2);
	daemon_stop(&fake->daemon);
	ck_assert_uint_eq(fake->daemon.session_count, 2);
	daemon_stop(&fake->daemon);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	for (unsigned i = 0; i < 2; i++) {
		fake_expect(fake, waiting[i].socket, WIRE_REFUSE);
		fake_expect_hangup(fake, waiting[i].socket);
		fake_leave(fake, &waiting[i]);
	}
	end();
}

TEST(sessions, executor_that_cannot_take_a_client_refuses_it)
{
	boot();
	fake_hello(fake, &client);
	fake_expect(fake, active->socket, WIRE_OPEN_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 2, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, 2);
	fake_expect_nothing(fake, standby->socket);
	part();
}

TEST(sessions, client_that_leaves_while_opening_is_closed_everywhere)
{
	const uint64_t drained = 1;
	uint64_t id;

	boot();
	fake_hello(fake, &client);
	id = fake_expect(fake, active->socket, WIRE_OPEN_SESSION)->id;
	fake_leave(fake, &client);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, &drained, 1);
	fake_expect_nothing(fake, standby->socket);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	end();
}

/* What a client may not send once it is served. */
static const struct wire_message bad[] = {
	{.type = WIRE_HELLO, .id = 1},
	{.type = WIRE_ACTIVATE, .id = 1},
	{.type = WIRE_SHUTDOWN, .id = 1},
	{.type = WIRE_CREATE_CHUNK, .id = 1, .chunk = {.bytes = 1}},
	{.type = WIRE_QUERY_MEMORY, .id = 0},
	{.type = WIRE_MAP_MEMORY, .id = 1, .range = {.address = 4096, .bytes = 4096}},
	{.type = WIRE_LOAD_MODULE, .id = 1, .load_module = {.module = 1, .kind = 2, .bytes = 10}},
};

TEST_LOOP(sessions, bad_client_is_cut_off_and_nobody_else, 0, sizeof(bad) / sizeof(bad[0]))
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	fake_send(fake, client.socket, &bad[_i], NULL, 0);
	fake_expect_hangup(fake, client.socket);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 1);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_request(fake, &other, &query, -1);
	fake_serve(fake, active, WIRE_QUERY_MEMORY);
	fake_expect(fake, other.socket, WIRE_REPLY);
	fake_leave(fake, &other);
	part();
}

/* A client that numbers all its requests alike, and a daemon that dies while one is under way. */
TEST(sessions, a_request_that_was_under_way_is_never_taken_for_an_answered_one)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY, .id = 1};
	struct wire_message nonsense = {.type = WIRE_UNMAP_MEMORY, .id = 1};
	struct session *session;

	join();
	session = TAILQ_FIRST(&fake->daemon.sessions);
	session->adopted = true;
	session->answered = session->again.asked = 1;
	fake_send(fake, client.socket, &query, NULL, 0);
	fake_send(fake, client.socket, &nonsense, NULL, 0);
	fake_serve(fake, active, WIRE_QUERY_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_expect_hangup(fake, client.socket);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 1);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	part();
}

TEST(sessions, garbage_is_cut_off)
{
	uint8_t bytes[64];

	join();
	memset(bytes, 0xa5, sizeof(bytes));
	ck_assert_int_eq(send(client.socket, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
	fake_expect_hangup(fake, client.socket);
	part();
}

TEST(sessions, stranger_with_a_wrong_first_message_is_sent_away)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY, .id = 1};
	int pair[2];

	boot();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	fake_send(fake, pair[1], &query, NULL, 0);
	fake_expect_hangup(fake, pair[1]);
	ck_assert(TAILQ_EMPTY(&fake->daemon.visitors));
	close(pair[1]);
	end();
}

/* Says Hello as if it was connected by a process that started then. Return: its end */
static int greet_from(pid_t pid, uint64_t started)
{
	struct wire_message hello = {.type = WIRE_HELLO,
		.id = 1,
		.hello = {.major = FRMPS_PROTOCOL_MAJOR,
			.program = "fake",
			.window_base = WINDOW_GRID_BASE,
			.window_bytes = WINDOW_BYTES}};
	struct visitor *visitor;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	visitor = TAILQ_LAST(&fake->daemon.visitors, visitor_list);
	ck_assert_uint_eq(visitor->started, vitals_start(getpid()));
	ck_assert_uint_gt(visitor->started, 0);
	visitor->peer.pid = pid;
	visitor->started = started;
	fake_send(fake, pair[1], &hello, NULL, 0);
	return pair[1];
}

static void expect_no_session(int socket, const char *why)
{
	fake_expect(fake, socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_NOT_PERMITTED);
	ck_assert_ptr_nonnull(strstr(fake->message.refuse.text, why));
	close(socket);
}

/* Another process may have inherited the socket, of which nobody knows the control group. */
TEST(sessions, who_connected_and_has_ended_gets_no_session)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	boot();
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	expect_no_session(greet_from(pid, 0), "has ended");
	end();
}

/* Its number is another process's now, whose terms may be better. */
TEST(sessions, who_has_the_number_of_who_connected_gives_it_no_terms)
{
	boot();
	expect_no_session(greet_from(getpid(), vitals_start(getpid()) - 1), "has ended");
	end();
}

/* As in a container whose processes the service does not see. */
TEST_LOOP(sessions, whose_control_group_is_not_known_gets_no_session_where_it_matters, 0, 2)
{
	struct rules *rules;

	boot();
	rules = &fake->daemon.rules;
	rules->rules[rules->count++] =
		(struct rule){.kind = _i ? RULE_PROGRAM : RULE_CGROUP, .text = "/nowhere/*"};
	expect_no_session(greet_from(0, 0), "cannot be read");
	end();
}

/* A stranger that says nothing. Return: its end */
static int visit(uid_t uid)
{
	struct visitor *visitor;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	visitor = TAILQ_LAST(&fake->daemon.visitors, visitor_list);
	visitor->peer.uid = visitor->peer.owner = uid;
	return pair[1];
}

static int visit_as_operator(uid_t uid)
{
	struct wire_message ping = {.type = WIRE_ADMIN, .id = 3, .admin = {.command = "ping"}};
	int socket = visit(uid);

	fake_send(fake, socket, &ping, NULL, 0);
	fake_expect(fake, socket, WIRE_ADMIN_REPLY);
	return socket;
}

static void expect_sent_away(int *socket)
{
	fake_expect_hangup(fake, *socket);
	close(*socket);
	*socket = -1;
}

static void leave_all(const int *sockets, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (sockets[i] >= 0)
			close(sockets[i]);
	fake_turn(fake);
}

/* Each of these users is within his own bounds. */
TEST(sessions, strangers_of_many_users_take_nobodys_place)
{
	int guests[QUOTA_GUESTS_LEAST], late[4];
	struct fake_client program;

	join();
	/* The daemon, guests, two sessions, three children. */
	fake->daemon.fds_max = 64 + QUOTA_GUESTS_LEAST + 2 * 11 + 3 * 8;
	/* User 1 has six operators and four visitors, user 2 has six visitors. */
	for (unsigned i = 0; i < QUOTA_GUESTS_LEAST; i++)
		guests[i] = i < 6 ? visit_as_operator(1) : visit(i < 10 ? 1 : 2);
	/* The oldest that says nothing, of the one who has the most. */
	late[0] = visit(3);
	expect_sent_away(&guests[6]);
	late[1] = visit(1);
	expect_sent_away(&guests[7]);
	/* A program comes in, and makes room again. */
	fake_hello(fake, &program);
	expect_sent_away(&guests[8]);
	fake_open(fake, active);
	fake_welcome(fake, &program);
	fake_serve(fake, standby, WIRE_OPEN_SESSION);
	late[2] = visit(3);
	for (unsigned i = 9; i < QUOTA_GUESTS_LEAST; i++)
		fake_expect_nothing(fake, guests[i]);
	leave_all(guests, QUOTA_GUESTS_LEAST);
	leave_all(late, 3);
	fake_leave(fake, &program);
	part();
}

TEST(sessions, operators_of_many_users_take_nobodys_place)
{
	int guests[QUOTA_GUESTS_LEAST], late[2];

	boot();
	fake->daemon.fds_max = 0;
	for (unsigned i = 0; i < QUOTA_GUESTS_LEAST; i++)
		guests[i] = visit_as_operator(i < 9 ? 1 : 2);
	late[0] = visit(3);
	expect_sent_away(&guests[0]);
	late[1] = visit_as_operator(3);
	expect_sent_away(&guests[1]);
	leave_all(guests, QUOTA_GUESTS_LEAST);
	leave_all(late, 2);
	end();
}

/* One person with as many users as there is room. */
TEST(sessions, whoever_has_just_come_is_not_the_one_to_go)
{
	int guests[QUOTA_GUESTS_LEAST + 1];

	boot();
	fake->daemon.fds_max = 0;
	for (unsigned i = 0; i <= QUOTA_GUESTS_LEAST; i++)
		guests[i] = visit(i + 1);
	expect_sent_away(&guests[0]);
	for (unsigned i = 1; i <= QUOTA_GUESTS_LEAST; i++)
		fake_expect_nothing(fake, guests[i]);
	leave_all(guests, QUOTA_GUESTS_LEAST + 1);
	end();
}

TEST(sessions, offence_reported_by_the_executor_cuts_off)
{
	struct wire_message offence = {.type = WIRE_OFFENCE, .trouble = {.text = "it lied"}};

	join();
	offence.session = TAILQ_FIRST(&fake->daemon.sessions)->number;
	fake_send(fake, active->socket, &offence, NULL, 0);
	fake_expect_hangup(fake, client.socket);
	offence.session = 4711;
	fake_send(fake, active->socket, &offence, NULL, 0);
	ck_assert(!active->killed);
	part();
}

int main(void)
{
	Suite *suite = suite_create("sessions");
	TCase *sessions = suite_case(suite, "sessions");

	fake_prepare();
	suite_add(sessions, "sessions");
	return suite_run(suite);
}
