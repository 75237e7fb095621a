// Executors and keepers that lie: what they answer, and what they say unasked, for another user is
// as if they had not. Each flaw costs the executor that has it; the daemon and the programs of
// other users go on. And records that were damaged on their way to the next daemon.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/holder/store.h"
#include "server/loop/shared_fd.h"
#include "server/session/domain.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/worker/record.h"
#include "tests/lib/seed.h"
#include "tests/unit/server/session/fixture.h"

#define OTHER	      ((uid_t)4242)
#define ROUNDS	      400u
#define ROUNDS_ADOPT  60u
#define CHILDREN_MOST 24u /* one round may cost many */

static struct fake_client honest;

static uint32_t random_word(void)
{
	static uint32_t state;
	static bool is_seeded;

	if (!is_seeded)
		state = seed_of(2027);
	is_seeded = true;
	state = state * UINT32_C(1664525) + UINT32_C(1013904223);
	return state >> 8;
}

static uint32_t some(uint32_t count)
{
	return random_word() % count;
}

/*
 * One flaw after the other
 */

static const uint64_t free_windows[] = {0, 0, 0xf0};

static void reserve(void)
{
	struct wire_message ask = {.type = WIRE_RESERVE_WINDOW,
		.window = {.bytes = 2 * WINDOW_BYTES, .free_windows = {free_windows, 3}}};

	fake_request(fake, &client, &ask, -1);
	fake_expect(fake, active->socket, WIRE_RESERVE_WINDOW);
}

static uint64_t field(uint32_t number)
{
	return WINDOW_GRID_BASE + number * WINDOW_BYTES;
}

/* The address of the first field is the session's own, and field 132 is as free as the one that was
 * taken, 134. */
TEST_LOOP(flaws, windows_that_are_not_its_to_give_cost_the_executor, 0, 8)
{
	const uint64_t answers[][2] = {{0, 2 * WINDOW_BYTES},
		{WINDOW_GRID_BASE - WINDOW_BYTES, 2 * WINDOW_BYTES},
		{field(WINDOW_COUNT - 1), 2 * WINDOW_BYTES}, {~UINT64_C(0), 2 * WINDOW_BYTES},
		{field(134) + 4096, 2 * WINDOW_BYTES}, {WINDOW_GRID_BASE, 2 * WINDOW_BYTES},
		{field(132), 2 * WINDOW_BYTES}, {field(134), WINDOW_BYTES}};
	const struct window_set *set;

	join();
	set = &fake_domain(fake)->windows;
	reserve();
	fake_reply(fake, active->socket, fake->message.id, 0, answers[_i], 2);
	ck_assert(active->killed);
	ck_assert_uint_eq(set->count, 2);
	ck_assert_uint_eq(window_users(set, WINDOW_GRID_BASE), 1);
	ck_assert_uint_eq(window_users(set, field(134)), 1);
	fake_expect_nothing(fake, client.socket);
	part();
}

/* With an answer, with a failure, with what nobody has asked. */
TEST_LOOP(flaws, a_descriptor_costs_the_executor, 0, 3)
{
	const uint64_t answer[] = {field(134), 2 * WINDOW_BYTES};
	struct wire_message message = {.type = _i < 2 ? WIRE_REPLY : WIRE_SUSPECT, .trouble.text = ""};
	int fd = fake_memfd(4096, 0);

	join();
	reserve();
	message.id = _i < 2 ? fake->message.id : 0;
	if (_i < 2)
		message.reply = (struct wire_reply){.code = _i ? CUDA_ERROR_OUT_OF_MEMORY : 0,
			.values = {answer, _i ? 0 : 2},
			.text = ""};
	fake_send(fake, active->socket, &message, &fd, 1);
	close(fd);
	ck_assert(active->killed);
	fake_expect_nothing(fake, client.socket);
	part();
}

/* The second time it is the request. */
TEST(flaws, a_request_that_executors_lie_at_is_not_asked_again)
{
	const uint64_t answer[] = {0, 2 * WINDOW_BYTES};

	join();
	reserve();
	fake_reply(fake, active->socket, fake->message.id, 0, answer, 2);
	ck_assert(active->killed);
	fake_reap(fake, active, SIGKILL);
	fake_take_all_over(fake, standby);
	fake_expect(fake, standby->socket, WIRE_RESERVE_WINDOW);
	fake_reply(fake, standby->socket, fake->message.id, 0, answer, 2);
	ck_assert(standby->killed);
	ck_assert_uint_eq(fake->daemon.counters.sessions_rejected, 1);
	part();
}

static void load(uint64_t bytes)
{
	struct wire_message message = {
		.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = bytes}};
	int fd = fake_memfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);

	fake_request(fake, &client, &message, fd);
	close(fd);
	fake_expect(fake, active->socket, WIRE_LOAD_MODULE);
}

/* Zeros of a file without pages, and code that is nearly nothing while it is compressed, count. */
TEST_LOOP(flaws, code_unpacks_to_no_more_than_the_program_may_have, 0, 2)
{
	uint64_t values[7] = {0};

	join();
	fake_session(fake, 0)->terms.image_limit = 1 << 20;
	load(4096);
	ck_assert_uint_eq(fake->message.load_module.room, (1 << 20) - 4096);
	values[6] = (1 << 20) - 4096 + (_i == 0);
	fake_reply(fake, active->socket, fake->message.id, 0, values, 7);
	ck_assert_int_eq(active->killed, _i == 0);
	if (_i) {
		fake_serve(fake, standby, WIRE_LOAD_MODULE);
		ck_assert_uint_eq(fake->message.load_module.room, values[6]);
		fake_expect(fake, client.socket, WIRE_REPLY);
		ck_assert_uint_eq(fake_session(fake, 0)->holdings.image_bytes, 1 << 20);
	}
	part();
}

/* Each answer would be asked for the next one, for ever. */
TEST(flaws, memory_is_not_said_to_be_pinned_again_and_again)
{
	const uint64_t answer[] = {1, 4096};

	join();
	fake_leave(fake, &client);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, answer, 2);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, answer, 2);
	ck_assert(active->killed);
	end();
}

TEST_LOOP(flaws, a_keeper_says_nothing_that_executors_say, 0, 4)
{
	static const enum wire_type types[] = {WIRE_SUSPECT, WIRE_FAULT, WIRE_GUARD_HIT, WIRE_OFFENCE};
	const struct wire_message message = {.type = types[_i], .session = 1};

	join();
	fake_send(fake, keeper->socket, &message, NULL, 0);
	ck_assert(keeper->killed);
	ck_assert_uint_eq(fake->daemon.counters.guard_hits, 0);
	part();
}

/*
 * Anything
 */

/* Executors of the first domain lie, and what it has moved out; those of the other user do not. */
static bool is_liar(const struct fake_child *child)
{
	return child->role == ROLE_EXECUTOR && child->worker->domain->identity.uid != OTHER;
}

static uint64_t some_value(void)
{
	const uint64_t values[] = {0, 1, 2, 4096, ~UINT64_C(0), UINT64_C(1) << 63, WINDOW_BYTES,
		field(some(WINDOW_COUNT)), field(some(1u << 20)), random_word()};

	return values[some(sizeof(values) / sizeof(values[0]))];
}

/* Bytes of a message, changed in some places. The socket may be over. */
static void send_tampered(struct fake_child *child, const struct wire_message *message, unsigned changes)
{
	_Alignas(8) static uint8_t packet[WIRE_PACKET_MAX];
	int fd = fake_memfd(some(2) * 4096, 0);
	size_t length;

	ck_assert_int_eq(wire_encode(message, packet, sizeof(packet), &length), 0);
	while (changes--)
		packet[some((uint32_t)length)] = (uint8_t)random_word();
	packet_send(child->socket, packet, length, &fd, some(3) == 0);
	close(fd);
}

static void lie(struct fake_child *child, uint64_t id)
{
	uint64_t values[4] = {some_value(), some_value(), some_value(), some_value()};
	struct wire_message reply = {.type = WIRE_REPLY, .id = id};

	reply.reply.code = some(4) ? 0 : (int32_t)some(1000);
	reply.reply.values = (struct wire_u64s){values, some(5)};
	reply.reply.text = some(2) ? "%s%n" : "";
	send_tampered(child, &reply, some(4) ? 0 : 1 + some(3));
}

static void say_something(struct fake_child *child)
{
	static const enum wire_type types[] = {WIRE_LOST, WIRE_SUSPECT, WIRE_FAULT, WIRE_GUARD_HIT,
		WIRE_OFFENCE, WIRE_READY, WIRE_REPLY, WIRE_WELCOME};
	struct wire_message message = {
		.type = types[some(sizeof(types) / sizeof(types[0]))], .id = some(4), .session = some(5)};

	if (message.type == WIRE_LOST || message.type == WIRE_FAULT)
		message.trouble = (struct wire_trouble){.code = (int32_t)some(1000), .text = "said"};
	if (message.type == WIRE_GUARD_HIT)
		message.guard_hit.text = "said";
	send_tampered(child, &message, some(3));
}

static void answer(struct fake_child *child)
{
	static uint64_t handle = 1;
	const uint64_t one = 1;
	struct wire_message reply = {.type = WIRE_REPLY, .id = fake->message.id};
	enum wire_type type = fake->message.type;
	int fd;

	if (is_liar(child) && !some(6)) {
		lie(child, reply.id);
		return;
	}
	if (type == WIRE_CREATE_CHUNK || type == WIRE_CLOSE_SESSION)
		reply.reply.values = (struct wire_u64s){type == WIRE_CREATE_CHUNK ? &handle : &one, 1};
	fd = fake_memfd(4096, 0);
	message_send(child->socket, &reply, &fd, type == WIRE_CREATE_CHUNK);
	close(fd);
	handle++;
}

/* A session may be over since the message was sent. */
static void take_over(uint64_t number, uint32_t generation)
{
	struct session *session = daemon_find_session(&fake->daemon, number);

	if (session)
		fake_take_over(session, generation);
}

static void serve(struct fake_child *child)
{
	if (!child->worker)
		return;
	if (child->killed) {
		fake_reap(fake, child, SIGKILL);
		return;
	}
	if (child->worker->state == WORKER_STARTING)
		fake_ready(fake, child);
	for (;;) {
		packet_close_fds(&fake->packet);
		if (packet_receive(child->socket, &fake->packet))
			break;
		ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
		if (fake->message.type == WIRE_ACTIVATE)
			for (uint32_t i = 0; i < fake->message.activate.sessions.count; i++)
				take_over(fake->message.activate.sessions.at[i],
					fake->message.activate.generation);
		if (fake->message.id)
			answer(child);
	}
	if (is_liar(child) && !some(12))
		say_something(child);
}

static void serve_all(void)
{
	for (int i = 0; i < 6; i++) {
		fake_turn(fake);
		for (unsigned k = 0; k < fake->child_count; k++)
			serve(&fake->children[k]);
	}
	fake_turn(fake);
}

/* What comes is not read. Return: whether the socket lives */
static bool is_connected(const struct fake_client *one)
{
	int r;

	do {
		packet_close_fds(&fake->packet);
		r = packet_receive(one->socket, &fake->packet);
	} while (!r);
	return r == PACKET_E_AGAIN;
}

static void ask_something(void)
{
	static const enum wire_type types[] = {
		WIRE_RESERVE_WINDOW, WIRE_MAP_MEMORY, WIRE_MAP_HOST, WIRE_UNMAP_HOST, WIRE_QUERY_MEMORY};
	struct wire_message ask = {.type = types[some(sizeof(types) / sizeof(types[0]))]};
	uint64_t at = client.window_base + some(4) * 2 * MIB;

	if (ask.type == WIRE_RESERVE_WINDOW)
		ask.window = (struct wire_window){.bytes = WINDOW_BYTES, .free_windows = {free_windows, 3}};
	else if (ask.type == WIRE_MAP_MEMORY)
		ask.range = (struct wire_range){.address = at, .bytes = 2 * MIB};
	else if (ask.type != WIRE_QUERY_MEMORY)
		ask.range = (struct wire_range){.address = at + WINDOW_DEVICE_BYTES, .bytes = 4096};
	ask.id = client.next_id++;
	message_send(client.socket, &ask, NULL, 0);
}

static void expect_honest(void)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	fake_request(fake, &honest, &query, -1);
	serve_all();
	fake_expect(fake, honest.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	ck_assert_int_ne(fake->daemon.phase, DAEMON_LEAVES);
	ck_assert(!daemon_has_failed(&fake->daemon));
}

static void begin_with_both(void)
{
	boot();
	fake_hello_as(fake, &honest, OTHER);
	serve_all();
	fake_welcome(fake, &honest);
	client = (struct fake_client){.socket = -1};
}

static void end_with_both(void)
{
	if (client.socket >= 0)
		close(client.socket);
	fake_leave(fake, &honest);
	serve_all();
	end();
}

/* The same numbers in every run. */
TEST(anything, executors_that_lie_hurt_nobody_else)
{
	unsigned terminated = 0;

	begin_with_both();
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (fake->child_count > CHILDREN_MOST) {
			terminated += fake->child_count - 5;
			end_with_both();
			begin_with_both();
		}
		if (client.socket < 0) {
			fake_hello(fake, &client);
			client.window_base = field(some(2));
			serve_all();
		}
		ask_something();
		serve_all();
		if (client.socket >= 0 && !is_connected(&client)) {
			close(client.socket);
			client.socket = -1;
		}
		if (round % 8 == 0)
			expect_honest();
	}
	ck_assert_uint_gt(terminated, 20);
	end_with_both();
}

/*
 * Records
 */

static const struct session *session_of_honest(void)
{
	const struct session *session;

	TAILQ_FOREACH (session, &fake->daemon.sessions, link)
		if (session->uid == OTHER)
			break;
	return session;
}

static bool is_of_honest(const struct record *record, enum record_type type)
{
	const struct session *session = session_of_honest();
	size_t bytes;
	const void *payload = record_payload(record, &bytes);

	if (type == RECORD_SESSION)
		return record_key(record) == session->number;
	if (type == RECORD_HOLDING)
		return ((const struct kept_holding *)payload)->session == session->number;
	return ((const struct kept_worker *)payload)->domain == session->domain->number ||
	       !((const struct kept_worker *)payload)->domain;
}

static bool is_key_of_honest(uint32_t key)
{
	const struct session *session = session_of_honest();

	return key == session->connection_key || key == session->process_key ||
	       key == session->client_fd->key || key == session->server_fd->key ||
	       key == session->doorbell_fd->key;
}

/* The key of a descriptor names it, whoever it is of: the first record that has it gets it. Such
 * changes are taken back. */
static void leave_keys_of_honest(uint8_t *changed, const uint8_t *payload, size_t bytes)
{
	uint32_t word;

	for (size_t i = 0; i + sizeof(word) <= bytes; i += sizeof(word)) {
		memcpy(&word, changed + i, sizeof(word));
		if (memcmp(changed + i, payload + i, sizeof(word)) && is_key_of_honest(word))
			memcpy(changed + i, payload + i, sizeof(word));
	}
}

/* Changes bytes of some record of what is not honest's. */
static void damage(enum record_type type)
{
	const struct record **records;
	size_t count = store_list(fake->daemon.store, type, &records), bytes;

	for (size_t i = 0; i < count; i++) {
		const uint8_t *payload = record_payload(records[i], &bytes);
		uint8_t *changed;

		if (is_of_honest(records[i], type))
			continue;
		changed = malloc(bytes);
		ck_assert_ptr_nonnull(changed);
		memcpy(changed, payload, bytes);
		for (unsigned changes = 1 + some(64); changes; changes--)
			changed[some((uint32_t)bytes)] = (uint8_t)random_word();
		leave_keys_of_honest(changed, payload, bytes);
		store_put(fake->daemon.store, records[i], type, record_key(records[i]), changed, bytes);
		free(changed);
	}
	free(records);
}

TEST(records, records_that_are_damaged_hurt_nobody_else)
{
	static const enum record_type types[] = {RECORD_SESSION, RECORD_HOLDING};

	fake_with_records = true;
	for (unsigned round = 0; round < ROUNDS_ADOPT; round++) {
		boot();
		fake_join(fake, &client, active, standby);
		reserve();
		fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
		fake_hello_as(fake, &honest, OTHER);
		serve_all();
		fake_welcome(fake, &honest);
		damage(types[some(2)]);
		ck_assert_int_eq(fake_come_back(fake), 0);
		fake_leave(fake, &client);
		client.socket = -1;
		serve_all();
		expect_honest();
		fake_leave(fake, &honest);
		serve_all();
		end();
	}
}

/* That of a request which was under way. */
TEST_LOOP(records, a_window_that_cannot_be_is_not_taken_over, 0, 2)
{
	const struct record **records;
	struct session_record copy;

	fake_with_records = true;
	join();
	reserve();
	ck_assert_uint_eq(store_list(fake->daemon.store, RECORD_SESSION, &records), 1);
	ck_assert(record_read(records[0], &copy, sizeof(copy)));
	ck_assert_uint_eq(copy.kept.window.address, field(134));
	copy.kept.window.address = _i ? client.window_base + WINDOW_GRAIN : ~UINT64_C(0);
	store_put(
		fake->daemon.store, records[0], RECORD_SESSION, record_key(records[0]), &copy, sizeof(copy));
	free(records);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_int_eq(fake_session(fake, 0)->state, SESSION_CLOSING);
	ck_assert_uint_eq(fake_domain(fake)->windows.count, 1);
	part();
}

/* The keeper is no executor, and 75 is no bool. */
TEST(records, a_call_that_cannot_be_is_not_repeated)
{
	const struct record **records;
	struct session_record copy;
	struct session head = {0};

	fake_with_records = true;
	join();
	ck_assert_uint_eq(store_list(fake->daemon.store, RECORD_SESSION, &records), 1);
	ck_assert(record_read(records[0], &copy, sizeof(copy)));
	memcpy(&head, copy.head, sizeof(copy.head));
	head.attach = (struct kept_call){fake->daemon.keeper->number, 5};
	memset(&head.opened, 75, sizeof(head.opened));
	memcpy(copy.head, &head, sizeof(copy.head));
	store_put(
		fake->daemon.store, records[0], RECORD_SESSION, record_key(records[0]), &copy, sizeof(copy));
	free(records);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake_session(fake, 0)->attach.worker, 0);
	ck_assert(!fake_session(fake, 0)->opened);
	part();
}

/* Of a session that is over, but for memory that stays pinned. */
TEST_LOOP(records, unpinnings_that_are_damaged_are_no_bugs, 0, 4)
{
	const uint64_t pinned[] = {1, 4096};
	const struct record **records;
	struct {
		struct kept_unpinning kept;
		struct kept_window window;
	} copy;

	fake_with_records = true;
	join();
	fake_leave(fake, &client);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, pinned, 2);
	ck_assert_uint_eq(store_list(fake->daemon.store, RECORD_UNPINNING, &records), 1);
	ck_assert(record_read(records[0], &copy, sizeof(copy)));
	ck_assert_uint_eq(copy.window.address, WINDOW_GRID_BASE);
	if (_i == 0)
		copy.kept.window_count = UINT32_MAX;
	else if (_i == 1)
		copy.kept.window_count = 2;
	else
		copy.window.address += _i == 2 ? 4096 : UINT64_C(1) << 63;
	store_put(fake->daemon.store, records[0], RECORD_UNPINNING, record_key(records[0]), &copy,
		sizeof(copy));
	free(records);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake_domain(fake)->windows.count, 0);
	end();
}

int main(void)
{
	Suite *suite = suite_create("answers");
	TCase *flaws = suite_case(suite, "flaws"), *anything = suite_case(suite, "anything");
	TCase *records = tcase_create("records"); /* daemons that died leave their descriptors open */

	fake_prepare();
	suite_add(flaws, "flaws");
	tcase_set_timeout(anything, 300);
	suite_add(anything, "anything");
	tcase_set_timeout(records, 300);
	suite_add(records, "records");
	suite_add_tcase(suite, records);
	return suite_run(suite);
}
