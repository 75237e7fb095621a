// The keeper ends: what it was asked for is asked of the next one, what it has made stays, and its
// handles are nobody's any more. The test is the keepers, the executors and the program.

#include "server/daemon/keeping.h"

#include <signal.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/session.h"
#include "tests/unit/server/session/fixture.h"

#define HANDLE 5

static void become_keeper(struct fake_child *child)
{
	ck_assert_int_eq(child->role, ROLE_KEEPER);
	keeper = child;
	fake_ready(fake, keeper);
}

/* It is killed, and the next one is ready. */
static void replace_keeper(void)
{
	fake_reap(fake, keeper, SIGKILL);
	become_keeper(&fake->children[fake->child_count - 1]);
}

static void ask_for_memory(void)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = client.window_base, .bytes = 2 * MIB}};

	fake_request(fake, &client, &map, -1);
}

/* The keeper is asked for memory, and makes it. */
static void make(uint64_t bytes, uint64_t handle)
{
	fake_make_chunk(fake, keeper, handle);
	ck_assert_uint_eq(fake->message.chunk.bytes, bytes);
}

static void expect_memory(void)
{
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void get_memory(uint64_t handle)
{
	ask_for_memory();
	make(2 * MIB, handle);
	expect_memory();
}

/* Return: of the standby's request, if it is not to answer. */
static uint64_t free_memory(bool whole)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = client.window_base, .bytes = 2 * MIB}};
	uint64_t id;

	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	id = fake_expect(fake, standby->socket, WIRE_UNMAP_MEMORY)->id;
	if (whole)
		fake_reply(fake, standby->socket, id, 0, NULL, 0);
	return id;
}

static void expect_running(void)
{
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(fake->daemon.counters.keepers_lost, 1);
	ck_assert(!active->killed && !standby->killed);
}

/*
 * Memory
 */

TEST(memory, a_request_is_asked_of_the_next_keeper)
{
	join();
	ask_for_memory();
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	replace_keeper();
	fake_expect_nothing(fake, client.socket);
	make(2 * MIB, HANDLE);
	expect_memory();
	expect_running();
	part();
}

TEST(memory, a_request_that_comes_without_a_keeper_waits)
{
	join();
	fake_reap(fake, keeper, SIGKILL);
	ask_for_memory();
	keeper = &fake->children[3];
	/* This one cannot start. */
	fake_reap(fake, keeper, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 4);
	fake_expect_nothing(fake, client.socket);
	FAKE_RUN_WHILE(fake, timer_running(fake->daemon.keeper_timer));
	become_keeper(&fake->children[4]);
	make(2 * MIB, HANDLE);
	expect_memory();
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	part();
}

/* As long as it lacks room for a process there is none; then it is soon there. */
TEST(memory, a_keeper_that_could_not_be_started_is_tried_again)
{
	join();
	fake->refuse_start = true;
	fake_reap(fake, keeper, SIGKILL);
	ck_assert_uint_eq(fake->child_count, 3);
	ask_for_memory();
	fake_expect_nothing(fake, client.socket);
	fake->refuse_start = false;
	FAKE_SKIP_WHILE(fake, fake->child_count == 3);
	ck_assert_uint_lt(fake->skipped_ms, 2000);
	become_keeper(&fake->children[3]);
	make(2 * MIB, HANDLE);
	expect_memory();
	part();
}

/* The keeper's process crashes: the next one is not started in the same moment. */
static void crash_keeper(void)
{
	unsigned next = fake->child_count;

	fake_reap(fake, keeper, SIGSEGV);
	ck_assert_uint_eq(fake->child_count, next);
	FAKE_RUN_WHILE(fake, timer_running(fake->daemon.keeper_timer));
	become_keeper(&fake->children[next]);
}

TEST(memory, keepers_do_not_crash_at_a_request_for_ever)
{
	join();
	for (int i = 0; i < 2; i++) {
		ask_for_memory();
		fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
		crash_keeper();
		fake_expect_nothing(fake, client.socket);
		fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
		if (i == 0) {
			/* Once may be by chance. */
			fake_give_chunk(keeper, fake->message.id, HANDLE);
			expect_memory();
			free_memory(true);
			fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
		}
	}
	crash_keeper();
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	part();
}

TEST(memory, an_answer_is_used_that_was_on_its_way)
{
	join();
	ask_for_memory();
	make(2 * MIB, HANDLE);
	replace_keeper();
	fake_expect_nothing(fake, keeper->socket);
	expect_memory();
	expect_running();
	/* The next one knows nothing of it, whatever its own handles are. */
	free_memory(true);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	part();
}

TEST(memory, an_answer_that_nobody_waits_for_any_more_leaves_nothing)
{
	join();
	ask_for_memory();
	make(2 * MIB, HANDLE);
	close(client.socket);
	client.socket = dup(STDERR_FILENO);
	replace_keeper();
	fake_expect_nothing(fake, keeper->socket);
	part();
}

TEST(memory, handles_are_those_of_the_keeper_that_gave_them)
{
	struct wire_message other = {.type = WIRE_MAP_MEMORY, .range = {.bytes = 2 * MIB}};

	join();
	other.range.address = client.window_base + 8 * MIB;
	get_memory(HANDLE);
	replace_keeper();
	fake_request(fake, &client, &other, -1);
	make(2 * MIB, HANDLE);
	expect_memory();
	free_memory(true);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	other.type = WIRE_UNMAP_MEMORY;
	fake_request(fake, &client, &other, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_UNMAP_MEMORY);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	ck_assert_uint_eq(fake->message.chunk.handle, HANDLE);
	part();
}

/* What a standby is told after a promotion comes from the daemon's descriptors. */
TEST(memory, the_next_executor_is_told_of_memory_that_a_former_keeper_made)
{
	struct fake_child *next;

	join();
	get_memory(HANDLE);
	replace_keeper();
	next = &fake->children[fake->child_count];
	fake_reap(fake, standby, SIGKILL);
	fake_ready(fake, next);
	fake_expect(fake, next->socket, WIRE_OPEN_SESSION);
	fake_expect(fake, next->socket, WIRE_MAP_MEMORY);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	part();
}

/* Who waits for what it has freed is told when there is nobody left to let go of it. */
TEST(memory, a_release_ends_with_its_keeper)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	uint64_t id;

	join();
	get_memory(HANDLE);
	id = free_memory(false);
	fake_request(fake, &client, &query, -1);
	fake_expect_nothing(fake, active->socket);
	fake_reply(fake, standby->socket, id, 0, NULL, 0);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	fake_expect_nothing(fake, active->socket);
	replace_keeper();
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
	fake_expect_nothing(fake, keeper->socket);
	expect_running();
	part();
}

/*
 * Guards
 */

static void expect_guard(struct fake_child *executor)
{
	fake_expect(fake, executor->socket, WIRE_OPEN_GUARD);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	fake_reply(fake, executor->socket, fake->message.id, 0, NULL, 0);
}

static void boot_guarded(void)
{
	boot();
	fake->config.guard = CONFIG_GUARD_ERROR;
}

/* @_i: 1: the first keeper has made it before it ends. */
TEST_LOOP(guards, a_sink_that_is_missing_is_asked_of_the_next_keeper, 0, 2)
{
	const struct session *session;

	boot_guarded();
	fake_join(fake, &client, active, standby);
	session = TAILQ_FIRST(&fake->daemon.sessions);
	if (_i)
		fake_make_chunk(fake, keeper, 7);
	replace_keeper();
	if (!_i) {
		make(2 * MIB, 8);
		expect_guard(active);
		expect_guard(standby);
		ck_assert_uint_eq(session->sink->keeper, 2);
	}
	fake_turn(fake);
	fake_expect_nothing(fake, keeper->socket);
	part();
}

static void join_without_keeper(void)
{
	boot_guarded();
	fake_reap(fake, keeper, SIGKILL);
	fake_join(fake, &client, active, standby);
}

TEST(guards, a_session_that_comes_without_a_keeper_has_a_guard_later)
{
	join_without_keeper();
	fake_expect_nothing(fake, active->socket);
	become_keeper(&fake->children[3]);
	make(2 * MIB, 8);
	expect_guard(active);
	expect_guard(standby);
	part();
}

TEST(guards, a_session_that_was_told_an_error_needs_no_guard)
{
	join_without_keeper();
	word_release(&TAILQ_FIRST(&fake->daemon.sessions)->view.server->state, SHM_SESSION_FAULTED);
	become_keeper(&fake->children[3]);
	fake_expect_nothing(fake, keeper->socket);
	part();
}

int main(void)
{
	Suite *suite = suite_create("keeping");
	TCase *memory = suite_case(suite, "memory"), *guards = suite_case(suite, "guards");

	fake_prepare();
	suite_add(memory, "memory");
	suite_add(guards, "guards");
	return suite_run(suite);
}
