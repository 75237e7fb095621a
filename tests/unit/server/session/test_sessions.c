// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Sessions over the real daemon: handshake, requests end to end, bad clients, the listening socket, slow
// readers.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/session/client.h"
#include "server/session/domain.h"
#include "server/session/linger.h"
#include "server/session/listener.h"
#include "server/session/visitor.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB (UINT64_C(1) << 20)

static struct fake *fake;
static struct fake_child *keeper, *active, *standby;
static struct fake_client client;

static void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	keeper = &fake->children[0];
	active = &fake->children[1];
	standby = &fake->children[2];
}

static void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

static void join(void)
{
	boot();
	fake_join(fake, &client, active, standby);
}

static void part(void)
{
	fake_leave(fake, &client);
	end();
}

START_TEST(welcome_describes_device_and_window)
{
	boot();
	fake->config.spin_us = 77;
	fake->config.memory_limit = 64 * MIB;
	fake_hello(fake, &client);
	fake_open(fake, active);
	fake_expect(fake, client.socket, WIRE_WELCOME);
	ck_assert_str_eq(fake->message.welcome.devices[0].name, "fake device");
	ck_assert_int_eq(fake->message.welcome.driver_version, 13000);
	ck_assert_uint_eq(fake->message.welcome.spin_us, 77);
	ck_assert_uint_eq(fake->message.welcome.memory_limit, 64 * MIB);
	ck_assert_uint_eq(fake->message.welcome.window_base, WINDOW_GRID_BASE);
	ck_assert_uint_eq(fake->message.welcome.shape.arena_bytes, fake->config.arena_bytes);
	part();
}
END_TEST

START_TEST(server_region_is_read_only_for_the_client)
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
END_TEST

/* Another program is refused. */
static void expect_no_room(struct fake_client *late)
{
	fake_hello(fake, late);
	fake_expect(fake, late->socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
	fake_expect_hangup(fake, late->socket);
	fake_leave(fake, late);
}

START_TEST(full_service_refuses)
{
	struct fake_client late;

	join();
	fake->config.clients_max = 1;
	expect_no_room(&late);
	part();
}
END_TEST

START_TEST(a_user_has_bounded_clients)
{
	struct fake_client late;

	join();
	fake->config.clients_per_user_max = 1;
	expect_no_room(&late);
	TAILQ_FIRST(&fake->daemon.clients)->uid++;
	fake_join(fake, &late, active, standby);
	fake_leave(fake, &late);
	part();
}
END_TEST

/* Each page of pinned memory is a file that the service keeps open. */
START_TEST(descriptors_are_left_for_others)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST};
	uint64_t host;
	int32_t code = 0;
	unsigned count = 0;

	join();
	host = client.window_base + WINDOW_DEVICE_BYTES;
	fake->daemon.fds_max = 16;
	for (; !code && count < 16; count += !code) {
		map.range = (struct wire_range){.address = host + 4096 * count, .bytes = 4096};
		fake_request(fake, &client, &map, -1);
		if (count < 8) {
			fake_serve(fake, active, WIRE_MAP_HOST);
			fake_serve(fake, standby, WIRE_MAP_HOST);
		}
		fake_expect(fake, client.socket, WIRE_REPLY);
		code = fake->message.reply.code;
	}
	ck_assert_int_eq(code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(count, 8);
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
END_TEST

START_TEST(executor_that_cannot_take_a_client_refuses_it)
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
END_TEST

START_TEST(client_that_leaves_while_opening_is_closed_everywhere)
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
	ck_assert_uint_eq(fake->daemon.client_count, 0);
	end();
}
END_TEST

START_TEST(host_memory_comes_as_a_file)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};
	struct stat status;

	join();
	map.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = 8192};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, active->socket, WIRE_MAP_HOST);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert_int_eq(fstat(fake->packet.fds[0], &status), 0);
	ck_assert_int_eq(status.st_size, 8192);
	fake_expect(fake, standby->socket, WIRE_MAP_HOST);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	part();
}
END_TEST

START_TEST(failed_request_leaves_no_trace)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	join();
	map.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = 8192};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, active->socket, WIRE_MAP_HOST);
	fake_reply(fake, active->socket, fake->message.id, 2, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 2);
	ck_assert_uint_eq(fake->packet.fd_count, 0);
	fake_expect_nothing(fake, standby->socket);
	/* The same range is free. */
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	part();
}
END_TEST

START_TEST(one_request_at_a_time)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	uint64_t id;

	join();
	fake_request(fake, &client, &query, -1);
	fake_request(fake, &client, &query, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	id = fake->message.id;
	fake_expect_nothing(fake, active->socket);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	part();
}
END_TEST

START_TEST(memory_waits_for_memory_that_is_being_given_back)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY}, chunk = {.type = WIRE_REPLY};
	const uint64_t handle = 5, drained = 1;
	struct fake_client other;
	int fd;

	join();
	fake_join(fake, &other, active, standby);
	fake_leave(fake, &other);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, 2, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	for (int i = 0; i < 2; i++) {
		struct fake_child *child = i ? standby : active;

		fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
		fake_reply(fake, child->socket, fake->message.id, 0, &drained, 1);
	}
	chunk.id = fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK)->id;
	chunk.reply.values = (struct wire_u64s){&handle, 1};
	fd = fake_memfd(4096, 0);
	fake_send(fake, keeper->socket, &chunk, &fd, 1);
	close(fd);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	part();
}
END_TEST

START_TEST(memory_that_does_not_exist_is_an_answer)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};

	join();
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, 2, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 2);
	part();
}
END_TEST

START_TEST(limited_client_sees_its_limit)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	const uint64_t values[2] = {UINT64_C(30) << 30, UINT64_C(64) << 30};

	join();
	fake->config.memory_limit = UINT64_C(8) << 30;
	fake_request(fake, &client, &query, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, active->socket, fake->message.id, 0, values, 2);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.reply.values.at[0], UINT64_C(8) << 30);
	ck_assert_uint_eq(fake->message.reply.values.at[1], UINT64_C(8) << 30);
	part();
}
END_TEST

/* Which window the next client is given when it has these. */
static uint64_t next_window(uint64_t words)
{
	return window_take(&TAILQ_FIRST(&fake->daemon.domains)->windows, &(struct wire_u64s){&words, 1});
}

static uint64_t lingering(void)
{
	return linger_bytes(TAILQ_FIRST(&fake->daemon.domains));
}

START_TEST(a_window_with_pinned_memory_is_given_to_nobody)
{
	const uint64_t pinned[2] = {1, 5 * MIB};
	uint64_t id;

	join();
	ck_assert_uint_eq(client.window_base, WINDOW_GRID_BASE);
	fake_leave(fake, &client);
	id = fake_expect(fake, active->socket, WIRE_CLOSE_SESSION)->id;
	fake_reply(fake, active->socket, id, 0, pinned, 2);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	id = fake_expect(fake, active->socket, WIRE_CLOSE_SESSION)->id;
	ck_assert_uint_eq(fake->daemon.client_count, 0);
	ck_assert_uint_eq(next_window(1), WINDOW_NONE);
	ck_assert_uint_eq(lingering(), 5 * MIB);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect_nothing(fake, active->socket);
	ck_assert_uint_eq(lingering(), 0);
	ck_assert_uint_eq(next_window(1), 0);
	end();
}
END_TEST

START_TEST(a_dead_executor_has_nothing_pinned)
{
	const uint64_t pinned[2] = {1, 5 * MIB};

	join();
	fake_leave(fake, &client);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, pinned, 2);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(next_window(1), WINDOW_NONE);
	fake_reap(fake, active, SIGKILL);
	ck_assert_uint_eq(lingering(), 0);
	ck_assert_uint_eq(next_window(1), 0);
	end();
}
END_TEST

START_TEST(freed_memory_that_stays_pinned_is_counted)
{
	struct wire_message map = {.type = WIRE_MAP_HOST}, unmap = {.type = WIRE_UNMAP_HOST};
	const uint64_t bytes = 8192;
	uint64_t id;

	join();
	map.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = bytes};
	unmap.range = map.range;
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_request(fake, &client, &unmap, -1);
	fake_expect(fake, active->socket, WIRE_UNMAP_HOST);
	fake_reply(fake, active->socket, fake->message.id, 0, &bytes, 1);
	/* It is free for the client at once. */
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	id = fake_expect(fake, active->socket, WIRE_UNMAP_HOST)->id;
	ck_assert_uint_eq(fake->message.range.bytes, bytes);
	ck_assert_uint_eq(lingering(), bytes);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect_nothing(fake, active->socket);
	ck_assert_uint_eq(lingering(), 0);
	part();
}
END_TEST

/*
 * Physical memory
 */

static const struct client *session(void)
{
	return TAILQ_FIRST(&fake->daemon.clients);
}

/* The client makes memory: only the keeper hears of it. */
static void create_memory(struct fake_client *who, uint64_t handle, uint64_t keepers_handle)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY}, chunk = {.type = WIRE_REPLY};
	int fd = fake_memfd(4096, 0);

	create.memory = (struct wire_memory){.handle = handle, .bytes = 2 * MIB};
	fake_request(fake, who, &create, -1);
	chunk.id = fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK)->id;
	ck_assert_uint_eq(fake->message.chunk.bytes, 2 * MIB);
	chunk.reply.values = (struct wire_u64s){&keepers_handle, 1};
	fake_send(fake, keeper->socket, &chunk, &fd, 1);
	close(fd);
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_expect_nothing(fake, active->socket);
}

/* Both executors are told of a mapping, with the memory's descriptor. */
static void map_handle(struct fake_client *who, uint64_t handle, uint64_t address, uint32_t flags)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE};
	struct fake_child *both[] = {active, standby};

	map.memory = (struct wire_memory){.handle = handle, .address = address, .bytes = 2 * MIB};
	fake_request(fake, who, &map, -1);
	for (int i = 0; i < 2; i++) {
		uint64_t id = fake_expect(fake, both[i]->socket, WIRE_MAP_MEMORY)->id;

		ck_assert_uint_eq(fake->message.range.address, address);
		ck_assert_uint_eq(fake->message.range.bytes, 2 * MIB);
		ck_assert_uint_eq(fake->message.range.flags, flags);
		ck_assert_uint_eq(fake->packet.fd_count, 1);
		fake_reply(fake, both[i]->socket, id, 0, NULL, 0);
	}
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void unmap_memory(struct fake_client *who, uint64_t address)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = address, .bytes = 2 * MIB}};

	fake_request(fake, who, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_serve(fake, standby, WIRE_UNMAP_MEMORY);
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static int32_t ask(struct fake_client *who, const struct wire_message *message)
{
	struct wire_message request = *message;

	fake_request(fake, who, &request, -1);
	return fake_expect(fake, who->socket, WIRE_REPLY)->reply.code;
}

static int32_t release_memory(struct fake_client *who, uint64_t handle)
{
	return ask(who, &(struct wire_message){.type = WIRE_RELEASE_MEMORY, .memory = {.handle = handle}});
}

START_TEST(physical_memory_is_counted_once)
{
	join();
	create_memory(&client, 9, 5);
	ck_assert_uint_eq(session()->holdings.memory_bytes, 2 * MIB);
	map_handle(&client, 9, client.window_base, 0);
	map_handle(&client, 9, client.window_base + 4 * MIB, 1);
	ck_assert_uint_eq(session()->holdings.memory_bytes, 2 * MIB);
	unmap_memory(&client, client.window_base);
	unmap_memory(&client, client.window_base + 4 * MIB);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_int_eq(release_memory(&client, 9), 0);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	ck_assert_uint_eq(fake->message.chunk.handle, 5);
	ck_assert_uint_eq(session()->holdings.memory_bytes, 0);
	ck_assert_int_eq(release_memory(&client, 9), CUDA_ERROR_INVALID_HANDLE);
	part();
}
END_TEST

START_TEST(a_session_leaves_no_physical_memory)
{
	join();
	create_memory(&client, 9, 5);
	create_memory(&client, 10, 6);
	map_handle(&client, 9, client.window_base, 0);
	fake_leave(fake, &client);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	end();
}
END_TEST

START_TEST(memory_is_imported_with_a_token_only)
{
	struct wire_message export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}};
	struct wire_message import = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 77}};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	create_memory(&client, 9, 5);
	ck_assert_int_eq(ask(&client, &export), 0);
	ck_assert_uint_eq(fake->message.reply.values.count, 4);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	ck_assert_uint_eq(fake->message.reply.values.at[2], 2 * MIB);
	import.memory.token[1]++;
	ck_assert_int_eq(ask(&other, &import), CUDA_ERROR_INVALID_VALUE);
	import.memory.token[1]--;
	ck_assert_int_eq(ask(&other, &import), 0);
	ck_assert_uint_eq(fake->message.reply.values.at[0], 2 * MIB);
	/* It is the importer's as well now. */
	ck_assert_int_eq(release_memory(&client, 9), 0);
	fake_expect_nothing(fake, keeper->socket);
	map_handle(&other, 77, other.window_base, 0);
	unmap_memory(&other, other.window_base);
	ck_assert_int_eq(release_memory(&other, 77), 0);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	import.memory.handle = 78;
	ck_assert_int_eq(ask(&client, &import), CUDA_ERROR_INVALID_VALUE);
	fake_leave(fake, &other);
	part();
}
END_TEST

START_TEST(further_windows_are_given_and_come_back)
{
	const uint64_t words[] = {0, 0, 0xf0};
	struct wire_message reserve = {.type = WIRE_RESERVE_WINDOW,
		.window = {.bytes = 2 * WINDOW_BYTES, .free_windows = {words, 3}}};
	struct window_set *set;
	struct fake_child *both[2];

	join();
	both[0] = active;
	both[1] = standby;
	set = &TAILQ_FIRST(&fake->daemon.domains)->windows;
	fake_request(fake, &client, &reserve, -1);
	for (int i = 0; i < 2; i++) {
		uint64_t id = fake_expect(fake, both[i]->socket, WIRE_RESERVE_WINDOW)->id;

		ck_assert_uint_eq(fake->message.window.address, window_base(128 + 6));
		ck_assert_uint_eq(fake->message.window.bytes, 2 * WINDOW_BYTES);
		fake_reply(fake, both[i]->socket, id, 0, NULL, 0);
	}
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	ck_assert_uint_eq(set->users[128 + 6], 1);
	ck_assert_uint_eq(set->users[128 + 7], 1);
	create_memory(&client, 9, 5);
	map_handle(&client, 9, window_base(128 + 7), 0);
	/* An executor that cannot have them: nothing is taken. */
	fake_request(fake, &client, &reserve, -1);
	fake_expect(fake, active->socket, WIRE_RESERVE_WINDOW);
	fake_reply(fake, active->socket, fake->message.id, CUDA_ERROR_MAP_FAILED, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_MAP_FAILED);
	ck_assert_uint_eq(set->users[128 + 4], 0);
	fake_leave(fake, &client);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(set->users[128 + 6], 0);
	ck_assert_uint_eq(set->users[128 + 7], 0);
	end();
}
END_TEST

/* What a client may not send once it is served. */
static const struct wire_message bad[] = {
	{.type = WIRE_HELLO, .id = 1},
	{.type = WIRE_ACTIVATE, .id = 1},
	{.type = WIRE_SHUTDOWN, .id = 1},
	{.type = WIRE_CREATE_CHUNK, .id = 1, .chunk = {.bytes = 1}},
	{.type = WIRE_QUERY_MEMORY, .id = 0},
	{.type = WIRE_MAP_MEMORY, .id = 1, .range = {.address = 4096, .bytes = 4096}},
	{.type = WIRE_LOAD_MODULE, .id = 1, .load_module = {.module = 1, .bytes = 10}},
};

START_TEST(bad_client_is_cut_off_and_nobody_else)
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
END_TEST

/* A client that numbers all its requests alike, and a daemon that dies while one is under way. */
START_TEST(a_request_that_was_under_way_is_never_taken_for_an_answered_one)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY, .id = 1};
	struct wire_message nonsense = {.type = WIRE_UNMAP_MEMORY, .id = 1};
	struct client *session;

	join();
	session = TAILQ_FIRST(&fake->daemon.clients);
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
END_TEST

START_TEST(garbage_is_cut_off)
{
	uint8_t bytes[64];

	join();
	memset(bytes, 0xa5, sizeof(bytes));
	ck_assert_int_eq(send(client.socket, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
	fake_expect_hangup(fake, client.socket);
	part();
}
END_TEST

START_TEST(stranger_with_a_wrong_first_message_is_sent_away)
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
END_TEST

START_TEST(offence_reported_by_the_executor_cuts_off)
{
	struct wire_message offence = {.type = WIRE_OFFENCE, .trouble = {.text = "it lied"}};

	join();
	offence.session = TAILQ_FIRST(&fake->daemon.clients)->number;
	fake_send(fake, active->socket, &offence, NULL, 0);
	fake_expect_hangup(fake, client.socket);
	offence.session = 4711;
	fake_send(fake, active->socket, &offence, NULL, 0);
	ck_assert(!active->killed);
	part();
}
END_TEST

/*
 * Listener
 */

static char folder[] = "/tmp/frmps-listen-XXXXXX";

static void make_path(char *path, size_t size)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, size, "%s/sub/frmps.sock", folder);
}

static void remove_path(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/sub", folder);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(socket_is_made_and_removed)
{
	struct listener *listener, *second;
	struct stat status;
	char path[96], text[256];

	boot();
	make_path(path, sizeof(path));
	ck_assert_int_eq(listener_new(&fake->daemon, path, &listener, text, sizeof(text)), 0);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_mode & 0777, geteuid() == 0 ? 0666 : 0600);
	ck_assert_int_eq(listener_new(&fake->daemon, path, &second, text, sizeof(text)), LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "in use"));
	listener_free(listener);
	ck_assert_int_ne(stat(path, &status), 0);
	remove_path();
	end();
}
END_TEST

START_TEST(stale_socket_is_replaced_and_a_live_one_is_not)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct listener *listener;
	char text[256];
	int stale = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	boot();
	make_path(address.sun_path, sizeof(address.sun_path));
	*strrchr(address.sun_path, '/') = '\0';
	ck_assert_int_eq(mkdir(address.sun_path, 0755), 0);
	strcat(address.sun_path, "/frmps.sock");
	ck_assert_int_eq(bind(stale, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(stale, 1), 0);
	ck_assert_int_eq(listener_new(&fake->daemon, address.sun_path, &listener, text, sizeof(text)),
		LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "socket path in use"));
	close(stale);
	ck_assert_int_eq(listener_new(&fake->daemon, address.sun_path, &listener, text, sizeof(text)), 0);
	listener_free(listener);
	remove_path();
	end();
}
END_TEST

START_TEST(socket_path_errors_have_a_text)
{
	struct listener *listener;
	char text[256], path[300];

	boot();
	ck_assert_int_eq(listener_new(&fake->daemon, "/nonexistent/a/b.sock", &listener, text, sizeof(text)),
		LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "/nonexistent/a/b.sock"));
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(listener_new(&fake->daemon, path, &listener, text, sizeof(text)), LISTENER_E_PATH);
	end();
}
END_TEST

/*
 * Connection
 */

struct seen {
	unsigned messages, closed;
	struct connection *connection;
	bool shut_down_inside;
};

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct seen *seen = context;

	(void)message;
	(void)packet;
	seen->messages++;
	if (seen->shut_down_inside)
		seen->connection = connection_shutdown(seen->connection);
}

static void on_closed(void *context, const char *reason)
{
	struct seen *seen = context;

	(void)reason;
	seen->closed++;
}

static const struct connection_handlers handlers = {.message = on_message, .closed = on_closed};

static struct connection *connect_pair(uv_loop_t *loop, struct seen *seen, unsigned queue_max, int *ret_peer)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	uv_loop_init(loop);
	*seen = (struct seen){.connection = connection_new(loop, pair[0], queue_max, &handlers, seen)};
	*ret_peer = pair[1];
	return seen->connection;
}

START_TEST(slow_reader_gets_everything_in_order_with_descriptors)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = ""}}, got;
	struct packet *packet = malloc(sizeof(*packet));
	struct shared_fd *fd = shared_fd_new(fake_memfd(1, 0));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer, r, sent = 0, received = 0;

	connection = connect_pair(&loop, &seen, 5000, &peer);
	while (connection_queued(connection) < 500) {
		message.refuse.code = sent++;
		ck_assert_int_eq(connection_send(connection, &message, &fd, 1), 0);
	}
	ck_assert_uint_gt(fd->refs, 1);
	while (received < sent) {
		uv_run(&loop, UV_RUN_NOWAIT);
		r = packet_receive(peer, packet);
		if (r == PACKET_E_AGAIN)
			continue;
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(wire_decode(packet->bytes, packet->length, &got), 0);
		ck_assert_int_eq(got.refuse.code, received++);
		ck_assert_uint_eq(packet->fd_count, 1);
		packet_close_fds(packet);
	}
	ck_assert_uint_eq(fd->refs, 1);
	connection_shutdown(connection);
	close(peer);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	shared_fd_unref(fd);
	free(packet);
}
END_TEST

START_TEST(queue_is_bounded_and_freed)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = "x"}};
	struct shared_fd *fd = shared_fd_new(fake_memfd(1, 0));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer, r;

	connection = connect_pair(&loop, &seen, 3, &peer);
	while ((r = connection_send(connection, &message, &fd, 1)) == 0)
		;
	ck_assert_int_eq(r, CONNECTION_E_FULL);
	ck_assert_uint_eq(connection_queued(connection), 3);
	connection_shutdown(connection);
	close(peer);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert_uint_eq(fd->refs, 1);
	shared_fd_unref(fd);
}
END_TEST

START_TEST(last_words_are_read_before_the_hang_up)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	close(peer);
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.messages, 40);
	ck_assert_uint_eq(seen.closed, 1);
	connection_drain(connection);
	ck_assert_uint_eq(seen.closed, 1);
	connection_shutdown(connection);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(paused_connection_still_sees_the_hang_up)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	connection_pause(connection);
	ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.messages + seen.closed, 0);
	close(peer);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.closed, 1);
	connection_shutdown(connection);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(handler_may_shut_its_connection_down)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connect_pair(&loop, &seen, 3, &peer);
	seen.shut_down_inside = true;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(seen.messages, 1);
	ck_assert_uint_eq(seen.closed, 0);
	close(peer);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sessions");
	TCase *sessions = suite_case(suite, "sessions"), *listener = suite_case(suite, "listener"),
	      *connection = suite_case(suite, "connection");

	fake_prepare();
	tcase_add_test(sessions, welcome_describes_device_and_window);
	tcase_add_test(sessions, server_region_is_read_only_for_the_client);
	tcase_add_test(sessions, full_service_refuses);
	tcase_add_test(sessions, a_user_has_bounded_clients);
	tcase_add_test(sessions, descriptors_are_left_for_others);
	tcase_add_test(sessions, executor_that_cannot_take_a_client_refuses_it);
	tcase_add_test(sessions, client_that_leaves_while_opening_is_closed_everywhere);
	tcase_add_test(sessions, host_memory_comes_as_a_file);
	tcase_add_test(sessions, failed_request_leaves_no_trace);
	tcase_add_test(sessions, one_request_at_a_time);
	tcase_add_test(sessions, memory_waits_for_memory_that_is_being_given_back);
	tcase_add_test(sessions, memory_that_does_not_exist_is_an_answer);
	tcase_add_test(sessions, a_window_with_pinned_memory_is_given_to_nobody);
	tcase_add_test(sessions, a_dead_executor_has_nothing_pinned);
	tcase_add_test(sessions, freed_memory_that_stays_pinned_is_counted);
	tcase_add_test(sessions, limited_client_sees_its_limit);
	tcase_add_test(sessions, physical_memory_is_counted_once);
	tcase_add_test(sessions, a_session_leaves_no_physical_memory);
	tcase_add_test(sessions, memory_is_imported_with_a_token_only);
	tcase_add_test(sessions, further_windows_are_given_and_come_back);
	tcase_add_loop_test(sessions, bad_client_is_cut_off_and_nobody_else, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(sessions, a_request_that_was_under_way_is_never_taken_for_an_answered_one);
	tcase_add_test(sessions, garbage_is_cut_off);
	tcase_add_test(sessions, stranger_with_a_wrong_first_message_is_sent_away);
	tcase_add_test(sessions, offence_reported_by_the_executor_cuts_off);
	tcase_add_test(listener, socket_is_made_and_removed);
	tcase_add_test(listener, stale_socket_is_replaced_and_a_live_one_is_not);
	tcase_add_test(listener, socket_path_errors_have_a_text);
	tcase_add_test(connection, slow_reader_gets_everything_in_order_with_descriptors);
	tcase_add_test(connection, queue_is_bounded_and_freed);
	tcase_add_test(connection, last_words_are_read_before_the_hang_up);
	tcase_add_test(connection, paused_connection_still_sees_the_hang_up);
	tcase_add_test(connection, handler_may_shut_its_connection_down);
	return suite_run(suite);
}
