// Requests end to end: how they go to keeper, executor and standby, and what a session has from
// them: memory, pinned memory that is freed and still pinned, windows.

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/sink_make.h"
#include "server/holder/store.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/unpinning.h"
#include "server/session/guarantee.h"
#include "server/daemon/quota.h"
#include "server/daemon/requests.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

TEST(requests, host_memory_comes_as_a_file)
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

TEST(requests, failed_request_leaves_no_trace)
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

TEST(requests, one_request_at_a_time)
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

/* The keeper stays, and what nobody can hold goes back to it. */
TEST(requests, memory_without_a_free_descriptor_is_refused)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct rlimit before, few = {0};

	join();
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_give_chunk(keeper, fake->message.id, 5);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few.rlim_max = before.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	fake_turn(fake);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK)->chunk.handle, 5);
	fake_reply(fake, keeper->socket, fake->message.id, 0, NULL, 0);
	/* The next one goes well. */
	fake_request(fake, &client, &map, -1);
	fake_make_chunk(fake, keeper, 6);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	part();
}

static void close_everywhere(void)
{
	const uint64_t drained = 1;

	for (int i = 0; i < 2; i++) {
		struct fake_child *child = i ? standby : active;

		fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
		fake_reply(fake, child->socket, fake->message.id, 0, &drained, 1);
	}
}

TEST(requests, memory_waits_for_memory_that_is_being_given_back)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	fake_leave(fake, &other);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, 2, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	close_everywhere();
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	part();
}

/* Three of the session, one of the memory, two of the standby. */
#define RECORDS_OF_AN_ALLOCATION 6u

/* Each of its turns records what another process is about to know, and nothing twice: the session
 * with its request at the keeper, at the executor, and answered; the memory; the standby that
 * has the memory, and has it no longer to come. */
TEST(requests, an_allocation_writes_few_records)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	uint64_t before;

	fake_with_records = true;
	join();
	fake_turn(fake);
	before = store_serial(fake->daemon.store);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_make_chunk(fake, keeper, 6);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	/* Beside these, the resource and this question take a number each. */
	ck_assert_uint_eq(store_serial(fake->daemon.store) - before - 2, RECORDS_OF_AN_ALLOCATION);
	fake_leave(fake, &client);
	close_everywhere();
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	end();
}

/* There is always somebody who is about to give some back. */
TEST(requests, memory_that_never_comes_is_an_answer)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client other, third;

	join();
	fake_join(fake, &other, active, standby);
	fake_join(fake, &third, active, standby);
	fake_leave(fake, &other);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	/* Nobody need give anything back for it to be asked again. */
	ck_assert(timer_running(fake->daemon.reclaim.limit));
	TAILQ_FIRST(&fake->daemon.sessions)->request->refused_memory_us = 1;
	close_everywhere();
	fake_leave(fake, &third);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	ck_assert(reclaim_expects(&fake->daemon));
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	part();
}

TEST(requests, memory_that_does_not_exist_is_an_answer)
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

TEST(requests, limited_client_sees_its_limit)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	const uint64_t values[2] = {UINT64_C(30) << 30, UINT64_C(64) << 30};

	join();
	TAILQ_FIRST(&fake->daemon.sessions)->terms.memory_limit = UINT64_C(8) << 30;
	fake_request(fake, &client, &query, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, active->socket, fake->message.id, 0, values, 2);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.reply.values.at[0], UINT64_C(8) << 30);
	ck_assert_uint_eq(fake->message.reply.values.at[1], UINT64_C(8) << 30);
	part();
}

/* Which window the next client is given when it has these. */
static uint64_t next_window(uint64_t words)
{
	return window_take(&TAILQ_FIRST(&fake->daemon.domains)->windows, &(struct wire_u64s){&words, 1});
}

static uint64_t being_unpinned(void)
{
	return unpinning_bytes(TAILQ_FIRST(&fake->daemon.domains));
}

TEST(requests, a_window_with_pinned_memory_is_given_to_nobody)
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
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert_uint_eq(next_window(1), WINDOW_NONE);
	ck_assert_uint_eq(being_unpinned(), 5 * MIB);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect_nothing(fake, active->socket);
	ck_assert_uint_eq(being_unpinned(), 0);
	ck_assert_uint_eq(next_window(1), WINDOW_GRID_BASE);
	end();
}

TEST(requests, a_dead_executor_has_nothing_pinned)
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
	ck_assert_uint_eq(being_unpinned(), 0);
	ck_assert_uint_eq(next_window(1), WINDOW_GRID_BASE);
	end();
}

TEST(requests, freed_memory_that_stays_pinned_is_counted)
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
	ck_assert_uint_eq(being_unpinned(), bytes);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_expect_nothing(fake, active->socket);
	ck_assert_uint_eq(being_unpinned(), 0);
	part();
}

/*
 * Physical memory
 */

static const struct session *session(void)
{
	return TAILQ_FIRST(&fake->daemon.sessions);
}

/* The client makes memory: only the keeper hears of it. */
static void create_memory(struct fake_client *who, uint64_t handle, uint64_t keepers_handle)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY};

	create.memory = (struct wire_memory){.handle = handle, .bytes = 2 * MIB};
	fake_request(fake, who, &create, -1);
	fake_make_chunk(fake, keeper, keepers_handle);
	ck_assert_uint_eq(fake->message.chunk.bytes, 2 * MIB);
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

TEST(requests, physical_memory_is_counted_once)
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

/* It is there already: for what is being mapped nobody is refused anything, and nobody ends. */
TEST(requests, memory_that_is_being_mapped_is_counted_once)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE};
	struct fake_client holder, other;

	join();
	/* What two executors take, and 16 MiB. */
	fake->daemon.device.total_bytes = 2 * GUARANTEE_EXECUTOR_BYTES + 16 * MIB;
	fake_join(fake, &holder, active, standby);
	fake_join(fake, &other, active, standby);
	fake_session(fake, 0)->terms.memory_guarantee = 4 * MIB;
	create_memory(&holder, 9, 5);
	create_memory(&other, 9, 6);
	create_memory(&other, 10, 7);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 6 * MIB);
	fake_session(fake, 0)->terms.memory_policy = CONFIG_MEMORY_POLICY_EVICT;
	ck_assert_ptr_eq(guarantee_victim(fake_session(fake, 0), 2 * MIB), fake_session(fake, 2));
	map.memory = (struct wire_memory){.handle = 9, .address = holder.window_base, .bytes = 2 * MIB};
	fake_request(fake, &holder, &map, -1);
	fake_expect(fake, active->socket, WIRE_MAP_MEMORY);
	/* Counted twice it would be the one with most. */
	fake_session(fake, 1)->terms.memory_guarantee = 0;
	fake_session(fake, 2)->terms.memory_guarantee = 1 * MIB;
	ck_assert_ptr_eq(guarantee_victim(fake_session(fake, 0), 2 * MIB), fake_session(fake, 2));
	fake_session(fake, 2)->terms.memory_guarantee = 0;
	fake_session(fake, 0)->terms.memory_policy = CONFIG_MEMORY_POLICY_REFUSE;
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 6 * MIB);
	fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, holder.socket, WIRE_REPLY);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 6 * MIB);
	fake_leave(fake, &holder);
	fake_leave(fake, &other);
	part();
}

/* A device that is a part of a GPU: the GPU has more, and nothing is guaranteed. */
static void join_part(uint64_t bytes)
{
	join();
	fake->daemon.rules.general.device_memory = 2 * GUARANTEE_EXECUTOR_BYTES + bytes;
}

TEST(requests, sessions_together_never_have_more_than_the_device)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client other;
	uint64_t id;

	join_part(6 * MIB);
	fake_join(fake, &other, active, standby);
	create_memory(&other, 9, 5);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 0)), 4 * MIB);
	/* What is under way counts as well. */
	map.range = (struct wire_range){.address = client.window_base, .bytes = 4 * MIB};
	fake_request(fake, &client, &map, -1);
	id = fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK)->id;
	ck_assert_int_eq(ask(&other, &(struct wire_message){.type = WIRE_CREATE_MEMORY,
					     .memory = {.handle = 10, .bytes = 2 * MIB}}),
		CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_str_eq(fake_session(fake, 1)->refused_limit, "device_memory");
	fake_expect_nothing(fake, keeper->socket);
	/* It gets nothing, and the other has all. */
	fake_reply(fake, keeper->socket, id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	create_memory(&other, 10, 6);
	create_memory(&other, 11, 7);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 1)), 0);
	fake_leave(fake, &other);
	part();
}

/* On the whole of a GPU it is the keeper who says that there is none yet. */
TEST(requests, memory_of_who_ends_is_the_device_s_until_executors_have_let_go)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client other;

	join_part(4 * MIB);
	fake_join(fake, &other, active, standby);
	create_memory(&other, 9, 5);
	fake_leave(fake, &other);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 4 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_expect_nothing(fake, keeper->socket);
	fake_expect_nothing(fake, client.socket);
	close_everywhere();
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	fake_make_chunk(fake, keeper, 6);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	part();
}

/* The GPU would have it: the keeper is not asked before there is room on the device. */
TEST(requests, who_holds_more_ends_for_a_guarantee_on_a_part_of_a_gpu)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client holder;

	join_part(4 * MIB);
	fake_session(fake, 0)->terms.memory_guarantee = 4 * MIB;
	fake_session(fake, 0)->terms.memory_policy = CONFIG_MEMORY_POLICY_EVICT;
	fake_join(fake, &holder, active, standby);
	create_memory(&holder, 9, 5);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 4 * MIB};
	fake_request(fake, &client, &map, -1);
	ck_assert_uint_eq(fake->daemon.counters.sessions_evicted, 1);
	ck_assert_int_eq(fake_session(fake, 1)->state, SESSION_CLOSING);
	close_everywhere();
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	ck_assert_uint_eq(fake->message.chunk.bytes, 4 * MIB);
	fake_leave(fake, &holder);
	part();
}

/* What somebody is about to ask the keeper for would free nothing. */
TEST(requests, who_only_asks_for_memory_does_not_end_for_a_guarantee)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY};
	struct fake_client asker, holder;
	uint64_t id;

	join();
	fake_session(fake, 0)->terms.memory_guarantee = 2 * MIB;
	fake_session(fake, 0)->terms.memory_policy = CONFIG_MEMORY_POLICY_EVICT;
	fake_join(fake, &asker, active, standby);
	fake_join(fake, &holder, active, standby);
	create_memory(&holder, 9, 5);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	id = fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK)->id;
	map.range = (struct wire_range){.address = asker.window_base, .bytes = 8 * MIB};
	fake_request(fake, &asker, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_turn(fake);
	ck_assert_uint_eq(fake->daemon.counters.sessions_evicted, 1);
	ck_assert_int_eq(fake_session(fake, 1)->state, SESSION_SERVED);
	ck_assert_int_eq(fake_session(fake, 2)->state, SESSION_CLOSING);
	fake_leave(fake, &asker);
	fake_leave(fake, &holder);
	part();
}

/* Imports it that many times. */
static void import_memory(struct fake_client *who, const uint64_t token[2], uint64_t handle, unsigned times)
{
	struct wire_message import = {.type = WIRE_IMPORT_MEMORY};

	memcpy(import.memory.token, token, sizeof(import.memory.token));
	for (unsigned i = 0; i < times; i++) {
		import.memory.handle = handle + i;
		ck_assert_int_eq(ask(who, &import), 0);
	}
}

/* The device has it once, whoever has it: so long as somebody has it. */
TEST(requests, memory_that_is_shared_is_taken_from_what_others_may_have_once)
{
	struct fake_client sharer, third;
	uint64_t token[2];

	join();
	/* What two executors take, and 16 MiB. */
	fake->daemon.device.total_bytes = 2 * GUARANTEE_EXECUTOR_BYTES + 16 * MIB;
	fake_join(fake, &sharer, active, standby);
	fake_join(fake, &third, active, standby);
	fake_session(fake, 1)->terms.memory_guarantee = 4 * MIB;
	create_memory(&client, 9, 5);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 10 * MIB);
	ck_assert_int_eq(
		ask(&client, &(struct wire_message){.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}}), 0);
	memcpy(token, fake->message.reply.values.at, sizeof(token));
	import_memory(&client, token, 10, 3);
	import_memory(&sharer, token, 10, 3);
	ck_assert_uint_eq(fake_session(fake, 1)->holdings.memory_bytes, 6 * MIB);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 10 * MIB);
	ck_assert_int_eq(release_memory(&client, 9), 0);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 10 * MIB);
	/* From here on it is the sharer's, of its guarantee, before the executors have let go of
	 * the session. */
	close(client.socket);
	fake_turn(fake);
	ck_assert_int_eq(fake_session(fake, 0)->state, SESSION_CLOSING);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 12 * MIB);
	import_memory(&third, token, 20, 1);
	ck_assert_int_eq(release_memory(&sharer, 10), 0);
	ck_assert_int_eq(release_memory(&sharer, 11), 0);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 12 * MIB);
	ck_assert_int_eq(release_memory(&sharer, 12), 0);
	ck_assert_uint_eq(guarantee_room(fake_session(fake, 2)), 10 * MIB);
	client.socket = dup(STDERR_FILENO);
	fake_leave(fake, &sharer);
	fake_leave(fake, &third);
	part();
}

/* What somebody else keeps is not free with its end. The next to end is who frees it then. */
TEST(requests, who_shares_its_memory_ends_for_a_guarantee_behind_who_frees_some)
{
	struct wire_message export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}};
	struct fake_client sharer, importer, holder;
	const struct session *asks;
	uint64_t token[2];

	join();
	fake_join(fake, &sharer, active, standby);
	fake_join(fake, &importer, active, standby);
	fake_join(fake, &holder, active, standby);
	asks = fake_session(fake, 0);
	fake_session(fake, 0)->terms.memory_guarantee = 2 * MIB;
	fake_session(fake, 0)->terms.memory_policy = CONFIG_MEMORY_POLICY_EVICT;
	for (uint64_t handle = 9; handle < 12; handle++) {
		create_memory(&sharer, handle, handle);
		export.memory.handle = handle;
		ck_assert_int_eq(ask(&sharer, &export), 0);
		memcpy(token, fake->message.reply.values.at, sizeof(token));
		import_memory(&importer, token, handle, 1);
	}
	create_memory(&holder, 20, 20);
	ck_assert_ptr_eq(guarantee_victim(asks, 2 * MIB), fake_session(fake, 3));
	fake_session(fake, 3)->terms.memory_guarantee = 2 * MIB;
	ck_assert_ptr_eq(guarantee_victim(asks, 2 * MIB), fake_session(fake, 1));
	/* It frees what it has alone, of more than it is guaranteed. */
	create_memory(&sharer, 12, 21);
	fake_session(fake, 1)->terms.memory_guarantee = 2 * MIB;
	fake_session(fake, 3)->terms.memory_guarantee = 1 * MIB;
	ck_assert_ptr_eq(guarantee_victim(asks, 2 * MIB), fake_session(fake, 1));
	fake_leave(fake, &sharer);
	fake_leave(fake, &importer);
	fake_leave(fake, &holder);
	part();
}

/* Each takes half a GiB of the device, which no limit of a program counts. */
TEST(requests, executors_do_not_take_what_is_guaranteed)
{
	struct domain_refusal refusal;
	struct wire_message limit = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_MALLOC_HEAP_SIZE, 1}};
	const struct identity stranger = {.uid = getuid() + 1};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	fake->daemon.device.total_bytes = 4 * GUARANTEE_EXECUTOR_BYTES;
	fake_session(fake, 1)->terms.memory_guarantee = 2 * GUARANTEE_EXECUTOR_BYTES - 1;
	ck_assert_int_eq(ask(&client, &limit), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_null(domain_of(&fake->daemon, &stranger, "it has faults", false, &refusal));
	ck_assert_uint_eq(fake->child_count, 3);
	/* One has room; not two, for users have a standby. */
	fake_session(fake, 1)->terms.memory_guarantee = GUARANTEE_EXECUTOR_BYTES;
	ck_assert_ptr_null(domain_of(&fake->daemon, &stranger, NULL, false, &refusal));
	ck_assert_ptr_nonnull(domain_of(&fake->daemon, &stranger, "it has faults", false, &refusal));
	ck_assert_uint_eq(fake->child_count, 4);
	fake_leave(fake, &other);
	part();
}

/* The standbys of a new user's, which start one after the other, are to come. */
TEST(requests, executors_that_are_to_start_have_their_memory)
{
	struct domain_refusal refusal;
	const struct identity stranger = {.uid = getuid() + 1};

	join();
	fake->daemon.device.total_bytes = 5 * GUARANTEE_EXECUTOR_BYTES;
	fake_session(fake, 0)->terms.memory_guarantee = 1;
	ck_assert_ptr_nonnull(domain_of(&fake->daemon, &stranger, NULL, false, &refusal));
	ck_assert_uint_eq(fake->child_count, 4);
	/* Two of each user's, and what is guaranteed: less than one is left. */
	ck_assert_ptr_null(domain_of(&fake->daemon, &(const struct identity){.uid = stranger.uid + 1},
		"it has faults", false, &refusal));
	part();
}

/* A session goes on without a guard where its sink would take it. */
TEST(requests, a_sink_does_not_take_what_is_guaranteed)
{
	struct fake_client other;

	join();
	fake->config.guard = CONFIG_GUARD_ERROR;
	/* What two executors take, the sinks of two sessions, and 16 MiB. */
	fake->daemon.device.total_bytes = 2 * GUARANTEE_EXECUTOR_BYTES + 2 * SINK_BYTES + 16 * MIB;
	fake_session(fake, 0)->terms.memory_guarantee = 18 * MIB;
	fake_join(fake, &other, active, standby);
	fake_expect_nothing(fake, keeper->socket);
	fake_session(fake, 0)->terms.memory_guarantee = 16 * MIB;
	sink_request(fake_session(fake, 1));
	fake_make_chunk(fake, keeper, 7);
	fake_serve(fake, active, WIRE_OPEN_GUARD);
	fake_serve(fake, standby, WIRE_OPEN_GUARD);
	ck_assert_ptr_nonnull(fake_session(fake, 1)->sink);
	fake_leave(fake, &other);
	part();
}

/* ---- memory on its way back ---- */

static void map_memory(uint64_t keepers_handle)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = client.window_base, .bytes = 2 * MIB}};

	fake_request(fake, &client, &map, -1);
	fake_make_chunk(fake, keeper, keepers_handle);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
}

/* Memory of the client, which it frees; the standby has not answered. Return: the standby's
 * request. */
static uint64_t free_memory(bool by_handle)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = client.window_base, .bytes = 2 * MIB}};

	if (by_handle) {
		create_memory(&client, 9, 5);
		map_handle(&client, 9, client.window_base, 0);
	} else {
		map_memory(5);
	}
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	if (by_handle)
		ck_assert_int_eq(release_memory(&client, 9), 0);
	return fake_expect(fake, standby->socket, WIRE_UNMAP_MEMORY)->id;
}

static void expect_query(struct fake_client *of)
{
	fake_serve(fake, active, WIRE_QUERY_MEMORY);
	fake_expect(fake, of->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static const struct timer *reclaim_timer(void)
{
	return fake->daemon.reclaim.timer;
}

TEST_LOOP(requests, what_a_client_has_freed_is_free_before_it_is_told_how_much_is, 0, 2)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	uint64_t id;

	join();
	id = free_memory(_i);
	fake_request(fake, &client, &query, -1);
	fake_expect_nothing(fake, active->socket);
	fake_reply(fake, standby->socket, id, 0, NULL, 0);
	id = fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK)->id;
	fake_expect_nothing(fake, active->socket);
	fake_reply(fake, keeper->socket, id, 0, NULL, 0);
	expect_query(&client);
	part();
}

/* The memory that was given back last may be the one that is needed. */
TEST_LOOP(requests, freed_memory_that_a_standby_still_has_mapped_is_waited_for, 0, 2)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {.bytes = 2 * MIB}};
	uint64_t id;

	join();
	id = free_memory(_i);
	map.range.address = client.window_base;
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	fake_reply(fake, standby->socket, id, 0, NULL, 0);
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	part();
}

TEST(requests, nobody_waits_for_what_somebody_else_has_freed)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	free_memory(false);
	fake_request(fake, &other, &query, -1);
	expect_query(&other);
	fake_leave(fake, &other);
	part();
}

/* Behind a free of its own, of something else, or of memory that has come back already. */
TEST(requests, a_free_makes_nobody_wait_for_what_others_have_freed)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct wire_message pin = {.type = WIRE_MAP_HOST}, unpin = {.type = WIRE_UNMAP_HOST};
	struct fake_client other;

	join();
	fake_join(fake, &other, active, standby);
	free_memory(false);
	pin.range = unpin.range =
		(struct wire_range){.address = other.window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &other, &pin, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	fake_expect(fake, other.socket, WIRE_REPLY);
	fake_request(fake, &other, &unpin, -1);
	fake_serve(fake, active, WIRE_UNMAP_HOST);
	fake_expect(fake, other.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_UNMAP_HOST);
	fake_request(fake, &other, &query, -1);
	expect_query(&other);
	create_memory(&other, 9, 6);
	ck_assert_int_eq(release_memory(&other, 9), 0);
	fake_request(fake, &other, &query, -1);
	fake_expect_nothing(fake, active->socket);
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	expect_query(&other);
	fake_leave(fake, &other);
	part();
}

/* Somebody has its descriptor: it does not come back. */
TEST(requests, nobody_waits_for_exported_memory_that_stays)
{
	struct wire_message export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}};
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	int fd;

	join();
	create_memory(&client, 9, 6);
	ck_assert_int_eq(ask(&client, &export), 0);
	fd = packet_take_fd(&fake->packet, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(release_memory(&client, 9), 0);
	fake_request(fake, &client, &query, -1);
	expect_query(&client);
	close(fd);
	part();
}

TEST(requests, a_standby_that_does_not_let_go_is_not_waited_for_long)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	join();
	free_memory(false);
	fake_request(fake, &client, &query, -1);
	fake_expect_nothing(fake, active->socket);
	FAKE_RUN_WHILE(fake, timer_running(reclaim_timer()));
	expect_query(&client);
	/* Nor for each question anew. */
	fake_request(fake, &client, &query, -1);
	expect_query(&client);
	part();
}

TEST(requests, a_session_leaves_no_physical_memory)
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

TEST(requests, memory_is_imported_with_a_token_only)
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

/* He has the token, and knows where the events lie: he is told neither, but could guess. */
TEST(requests, nothing_is_shared_with_another_user)
{
	struct wire_message export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}};
	struct wire_message import = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 77}};
	struct wire_message events = {.type = WIRE_MAP_HOST}, import_events = {.type = WIRE_IMPORT_HOST};
	struct fake_child *his;
	struct fake_client other;

	join();
	fake_hello_as(fake, &other, getuid() + 1);
	his = &fake->children[3];
	fake_warm(fake, his);
	fake_serve(fake, his, WIRE_ACTIVATE);
	fake_open(fake, his);
	fake_welcome(fake, &other);
	create_memory(&client, 9, 5);
	ck_assert_int_eq(ask(&client, &export), 0);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	ck_assert_int_eq(ask(&other, &import), CUDA_ERROR_INVALID_VALUE);
	events.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES,
		.bytes = SHM_SHARED_PAGE_BYTES,
		.flags = WIRE_HOST_EVENTS};
	fake_request(fake, &client, &events, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	import_events.import = (struct wire_import){other.window_base + WINDOW_DEVICE_BYTES,
		SHM_SHARED_PAGE_BYTES, fake_session(fake, 0)->number, events.range.address};
	ck_assert_int_eq(ask(&other, &import_events), CUDA_ERROR_INVALID_HANDLE);
	fake_leave(fake, &other);
	part();
}

/* What a session holds is taken for open files, whoever else holds the same: so nobody may hold any
 * number. */
TEST(requests, memory_held_many_times_leaves_descriptors_for_others)
{
	struct wire_message import = {.type = WIRE_IMPORT_MEMORY}, map = {.type = WIRE_MAP_HANDLE};
	struct wire_message host = {.type = WIRE_MAP_HOST};
	struct fake_client other;
	unsigned count = 0;

	join();
	fake_join(fake, &other, active, standby);
	TAILQ_FIRST(&fake->daemon.sessions)->owner++;
	/* What the daemon, guests, two sessions and three children may need, and 64; the export has
	 * one. */
	fake->daemon.fds_max = 64 + QUOTA_GUESTS_LEAST + 2 * 11 + 3 * 8 + 64;
	create_memory(&client, 9, 5);
	ck_assert_int_eq(
		ask(&client, &(struct wire_message){.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}}), 0);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	for (import.memory.handle = 10; count < 64 && !ask(&client, &import); count++)
		import.memory.handle++;
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(count, 46);
	map.memory = (struct wire_memory){.handle = 9, .address = client.window_base, .bytes = 2 * MIB};
	ck_assert_int_eq(ask(&client, &map), CUDA_ERROR_OUT_OF_MEMORY);
	host.range = (struct wire_range){.address = other.window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &other, &host, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	fake_expect(fake, other.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_leave(fake, &other);
	part();
}

#define GIB (UINT64_C(1) << 30)

/* Fields 132 to 135 are free in the program: a tebibyte. */
static const uint64_t tebibyte[] = {0, 0, 0xf0};
#define TEBIBYTE_END (WINDOW_GRID_BASE + 136 * WINDOW_BYTES)

static struct window_set *windows(void)
{
	return &TAILQ_FIRST(&fake->daemon.domains)->windows;
}

/* Return: its address */
static uint64_t reserve(uint64_t bytes)
{
	struct wire_message reserve = {
		.type = WIRE_RESERVE_WINDOW, .window = {.bytes = bytes, .free_windows = {tebibyte, 3}}};
	struct fake_child *both[2] = {active, standby};
	uint64_t address = 0;

	fake_request(fake, &client, &reserve, -1);
	for (int i = 0; i < 2; i++) {
		uint64_t id = fake_expect(fake, both[i]->socket, WIRE_RESERVE_WINDOW)->id;
		uint64_t values[2] = {fake->message.window.address, fake->message.window.bytes};

		ck_assert_uint_eq(fake->message.window.free_windows.count, 0);
		ck_assert(!i || values[0] == address);
		address = values[0];
		ck_assert_uint_eq(values[1], bytes);
		fake_reply(fake, both[i]->socket, id, 0, values, 2);
	}
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	ck_assert_uint_eq(fake->message.reply.values.at[0], address);
	return address;
}

TEST(requests, further_windows_are_given_and_come_back)
{
	const uint64_t bytes = 2 * WINDOW_BYTES;
	struct wire_message wish = {
		.type = WIRE_RESERVE_WINDOW, .window = {.bytes = bytes, .free_windows = {tebibyte, 3}}};
	uint64_t at;

	join();
	at = reserve(bytes);
	ck_assert_uint_eq(at, TEBIBYTE_END - bytes);
	ck_assert_uint_eq(window_users(windows(), at), 1);
	create_memory(&client, 9, 5);
	map_handle(&client, 9, at + WINDOW_BYTES, 0);
	/* An executor that cannot have them: nothing is taken. */
	wish.window.bytes = (64 * GIB);
	fake_request(fake, &client, &wish, -1);
	fake_expect(fake, active->socket, WIRE_RESERVE_WINDOW);
	fake_reply(fake, active->socket, fake->message.id, CUDA_ERROR_MAP_FAILED, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_MAP_FAILED);
	ck_assert_uint_eq(windows()->count, 2);
	/* A place that is not free is none, and no executor hears of it. */
	wish.window.address = at + WINDOW_GRAIN;
	ck_assert_int_eq(ask(&client, &wish), CUDA_ERROR_OUT_OF_MEMORY);
	fake_expect_nothing(fake, active->socket);
	fake_leave(fake, &client);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(windows()->count, 0);
	end();
}

/* Those for pinned memory are nobody's until the last executor has unpinned it. */
TEST(requests, windows_for_pinned_memory_outlast_their_session)
{
	const uint64_t at = TEBIBYTE_END - WINDOW_BYTES, few[2] = {1, 4096};
	struct wire_message wish = {.type = WIRE_RESERVE_WINDOW,
		.window = {.address = at, .bytes = 64 * GIB, .free_windows = {tebibyte, 3}, .host = true}};
	uint64_t id;

	join();
	reserve(WINDOW_BYTES);
	wish.window.address -= WINDOW_BYTES;
	fake_request(fake, &client, &wish, -1);
	for (int i = 0; i < 2; i++) {
		struct fake_child *child = i ? standby : active;
		uint64_t values[2] = {wish.window.address, wish.window.bytes};

		id = fake_expect(fake, child->socket, WIRE_RESERVE_WINDOW)->id;
		ck_assert(fake->message.window.host);
		fake_reply(fake, child->socket, id, 0, values, 2);
	}
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_leave(fake, &client);
	id = fake_expect(fake, active->socket, WIRE_CLOSE_SESSION)->id;
	fake_reply(fake, active->socket, id, 0, few, 2);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	id = fake_expect(fake, active->socket, WIRE_CLOSE_SESSION)->id;
	ck_assert_uint_eq(windows()->count, 2);
	ck_assert_uint_eq(window_users(windows(), wish.window.address), 1);
	ck_assert_uint_eq(window_users(windows(), at), 0);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	fake_turn(fake);
	ck_assert_uint_eq(windows()->count, 0);
	end();
}

TEST(requests, further_windows_are_given_back_as_often_as_one_likes)
{
	struct wire_message release = {.type = WIRE_RELEASE_WINDOW};
	uint64_t record_bytes;
	struct session *session;

	join();
	session = TAILQ_FIRST(&fake->daemon.sessions);
	record_bytes = session->holdings.record_bytes;
	for (int i = 0; i < 50; i++) {
		release.window.bytes = 160 * GIB;
		release.window.address = reserve(160 * GIB);
		fake_request(fake, &client, &release, -1);
		fake_serve(fake, active, WIRE_RELEASE_WINDOW);
		fake_expect(fake, client.socket, WIRE_REPLY);
		ck_assert_int_eq(fake->message.reply.code, 0);
		fake_serve(fake, standby, WIRE_RELEASE_WINDOW);
		ck_assert_uint_eq(windows()->count, 1);
		ck_assert_uint_eq(session->holdings.record_bytes, record_bytes);
	}
	/* What is given back twice was never the session's. */
	fake_request(fake, &client, &release, -1);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	close(client.socket);
	end();
}

/* As many as it likes are as many as there are addresses. */
TEST(requests, millions_of_windows_are_no_more_than_there_are_addresses)
{
	struct wire_message wish = {
		.type = WIRE_RESERVE_WINDOW, .window = {.bytes = (64 * GIB), .free_windows = {tebibyte, 3}}};
	uint64_t lowest = UINT64_MAX, at;

	join();
	for (int i = 0; i < 4; i++) {
		at = reserve((64 * GIB));
		ck_assert_uint_lt(at, lowest);
		lowest = at;
	}
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(ask(&client, &wish), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(windows()->count, 5);
	fake_leave(fake, &client);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(windows()->count, 0);
	end();
}

int main(void)
{
	Suite *suite = suite_create("requests");
	TCase *tests = suite_case(suite, "requests");

	fake_prepare();
	suite_add(tests, "requests");
	return suite_run(suite);
}
