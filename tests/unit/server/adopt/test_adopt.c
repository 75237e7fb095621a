// Another life of the daemon: what it makes of the records of the one before. Keeper, executors and
// clients are the test, and stay.

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/control/events.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/holder/store.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/session/fixture.h"

/* That the configuration allows. */
#define STANDBYS_MOST 8u

static void set_up(void)
{
	fake_with_records = true;
	join();
}

static void expect_served(void)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	map.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

/* An executor that holds a session's commands may sleep until it is told that the memory stays. */
TEST(adopt, commands_that_were_held_go_on_if_memory_stays)
{
	struct session *session = fake_session(fake, 0);

	session_set_memory(session, SESSION_MEMORY_LEAVES);
	fake_serve(fake, active, WIRE_PING);
	ck_assert(word_acquire(&client.view.server->share) & SHM_SHARE_AWAY);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(!(word_acquire(&client.view.server->share) & SHM_SHARE_AWAY));
	fake_serve(fake, active, WIRE_PING);
	expect_served();
}

/* A damaged record is dropped: the next executor answers the request that was under way. */
TEST(adopt, an_executor_without_a_record_is_replaced)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	fake_request(fake, &client, &query, -1);
	fake_expect(fake, active->socket, WIRE_QUERY_MEMORY);
	store_drop(fake->daemon.store, active->worker->record);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_take_all_over(fake, standby);
	fake_expect(fake, standby->socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, standby->socket, fake->message.id, 0, (uint64_t[]){1, 2}, 2);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	close(active->socket);
}

TEST(adopt, everything_is_as_it_was)
{
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), active->worker);
	ck_assert_int_eq(standby->worker->state, WORKER_WARM);
	expect_served();
}

static jmp_buf death;

static void die(void)
{
	fake_reads_clock = NULL;
	longjmp(death, 1);
}

/* The daemon dies at the beginning of an incident, which nothing tells the next one of. */
TEST(promotion, nobody_is_held_for_an_incident_that_is_forgotten)
{
	/* The incident begins with the time of the detection. */
	fake_reads_clock = die;
	if (!setjmp(death)) {
		promote_silent(fake_domain(fake), active->worker);
		ck_abort_msg("it has not died");
	}
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(incident_is_serving(fake_domain(fake)->promotion.state));
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_RUNNING);
	expect_served();
}

/* Of all that follows from a loss the daemon has recorded the executor, and has died. */
TEST(promotion, an_executor_that_was_lost_as_the_daemon_died_is_replaced)
{
	struct wire_message lost = {.type = WIRE_LOST, .trouble = {.code = CUDA_ERROR_LAUNCH_FAILED}};

	lost.trouble.text = "the context is lost";
	active->worker->lost = true;
	worker_changed(active->worker);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_send(fake, active->socket, &lost, NULL, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
}

static void note(uid_t uid, enum event_kind kind, const char *text)
{
	const struct event_about about = {.uid = uid, .session = 7, .program = uid ? "a program" : NULL};

	events_note(&fake->daemon, kind, LOG_LEVEL_INFO, &about, "%s", text);
}

TEST(adopt, events_stay)
{
	uint64_t latest;
	char *before, *after, *rest;

	for (unsigned i = 0; i < EVENTS_MAX + 3; i++)
		note(getuid(), EVENT_lost, i % 2 ? "one of many" : "one of few");
	note((uid_t)-1, EVENT_verdict, "culprit is nobody");
	note(0, EVENT_move, "");
	latest = fake->daemon.events.latest;
	before = events_json(&fake->daemon, 0, 0);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake->daemon.events.count, EVENTS_MAX);
	after = events_json(&fake->daemon, 0, 0);
	ck_assert_ptr_nonnull(strstr(after, "culprit is nobody"));
	/* The new daemon's own event has taken the place of the oldest; the head differs by it. */
	rest = strstr(strstr(before, "\"number\"") + 1, "\"number\"");
	ck_assert(!strncmp(strstr(after, "\"number\""), rest, strlen(rest) - strlen("]}")));
	ck_assert_uint_eq(fake->daemon.events.latest, latest + 1);
	ck_assert_int_eq(TAILQ_LAST(&fake->daemon.events.all, event_list)->kind, EVENT_daemon);
	ck_assert_uint_eq(fake->daemon.counters.events[EVENT_daemon], 1);
	free(before);
	free(after);
}

/* It had shown a sign of a fault before it was given up. */
TEST(promotion, why_an_executor_was_given_up_is_not_forgotten)
{
	struct wire_message sign = {.type = WIRE_SUSPECT, .trouble = {.text = "it shows one"}};

	fake_issue(&TAILQ_FIRST(&fake_domain(fake)->sessions)->view, 5);
	fake_send(fake, active->socket, &sign, NULL, 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	worker_terminate(active->worker, "the test wants it");
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
	fake_reap(fake, active, SIGKILL);
	ck_assert_int_eq(fake_domain(fake)->promotion.verdict.ground, JUDGE_UNKNOWN);
}

TEST(promotion, a_silence_stays_one)
{
	promote_silent(fake_domain(fake), active->worker);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_int_eq(fake_domain(fake)->promotion.cause, PROMOTE_SILENT);
}

/* How each session is to be treated is told to the next executor again, as it was found. */
TEST(promotion, a_culprit_stays_one)
{
	for (unsigned life = 0; life < 3; life++) {
		if (!life) {
			fake_issue(&fake_session(fake, 0)->view, 5);
			active->words->session = fake_session(fake, 0)->number;
			active->words->magic = LAST_WORDS_MAGIC;
			fake_reap(fake, active, SIGSEGV);
		} else {
			ck_assert_int_eq(fake_come_back(fake), 0);
		}
		ck_assert_int_eq(fake_session(fake, 0)->evidence.recover, SESSION_RECOVER_CULPRIT);
		fake_expect(fake, standby->socket, WIRE_ACTIVATE);
		ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
		ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	}
	fake_reply(fake, standby->socket, fake->message.id, 0, (uint64_t[]){0}, 1);
	ck_assert_int_eq(fake_session(fake, 0)->evidence.recover, SESSION_RECOVER_NOTHING);
	ck_assert_uint_eq(fake->daemon.counters.culprits, 1);
}

/* It was to be replaced for that program's work: that is what becomes known of it at its end. */
TEST(promotion, who_was_over_the_limit_is_not_forgotten)
{
	fake_issue(&fake_session(fake, 0)->view, 5);
	promote_over_limit(fake_domain(fake), fake_session(fake, 0));
	ck_assert(incident_is_halting(fake_domain(fake)->promotion.state));
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_reap(fake, active, SIGKILL);
	fake_expect(fake, standby->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.recover.at[0], SESSION_RECOVER_CULPRIT);
	ck_assert_int_eq(fake->message.activate.code, CUDA_ERROR_LAUNCH_TIMEOUT);
}

/* What has been freed since is among it. */
TEST(adopt, memory_that_an_executor_has_which_is_ending_is_waited_for)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {.bytes = 2 * MIB}};

	worker_terminate(standby->worker, "the test wants it");
	ck_assert_int_eq(fake_come_back(fake), 0);
	map.range.address = client.window_base;
	fake_request(fake, &client, &map, -1);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	fake_reply(fake, keeper->socket, fake->message.id, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
	fake_expect_nothing(fake, client.socket);
	fake_reap(fake, standby, SIGKILL);
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
}

/* The holder had none left when it was to keep this one. */
static void lose_fd(uint32_t key)
{
	ck_assert_int_ge(fake->legacy.fds[key], 0);
	close(fake->legacy.fds[key]);
	fake->legacy.fds[key] = -1;
}

TEST_LOOP(adopt, a_session_without_its_descriptors_ends_alone, 0, 2)
{
	const struct session *session;
	struct fake_client other;

	fake_join(fake, &other, active, standby);
	session = daemon_find_session(&fake->daemon, fake->daemon.next_session);
	lose_fd(_i ? session->connection_key : session->server_fd->key);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	if (_i)
		ck_assert_uint_eq(word_acquire(&other.view.server->state), SHM_SESSION_CLOSED);
	expect_served();
	fake_leave(fake, &other);
}

/* What it has given to the device may still write. */
TEST(adopt, an_executor_without_its_descriptors_is_replaced_when_it_has_ended)
{
	lose_fd(active->worker->control_key);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_expect_nothing(fake, standby->socket);
	ck_assert_int_eq(fake_domain(fake)->promotion.state, INCIDENT_FENCING);
	ck_assert(active->killed);
	fake_reap(fake, active, SIGKILL);
	fake_serve(fake, standby, WIRE_ACTIVATE);
	ck_assert_ptr_eq(domain_serving(fake_domain(fake)), standby->worker);
	active = standby;
	standby = &fake->children[3];
	fake_warm_with(fake, standby, 1);
	expect_served();
}

/* What the holder has not got cannot be forgotten: its key is that of the next that the holder
 * gets. */
TEST(adopt, an_executor_without_its_descriptors_takes_none_of_others_along)
{
	const struct worker *worker = standby->worker;
	const uint32_t keys[] = {worker->control_key, worker->process_key, worker->words_key};
	uint32_t given[64], count = 0;
	int fd;

	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i])
			lose_fd(keys[i]);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fd = fake_memfd(4096, 0);
	while (count < sizeof(given) / sizeof(given[0]))
		ck_assert_int_eq(store_deposit(fake->daemon.store, fd, &given[count++]), 0);
	close(fd);
	fake_reap(fake, standby, SIGKILL);
	fake_turn(fake);
	while (count--)
		ck_assert_int_ge(fake->legacy.fds[given[count]], 0);
}

/* Nor in the life after that. */
TEST(adopt, what_an_executor_has_lost_is_not_in_its_record)
{
	lose_fd(active->worker->words_key);
	for (unsigned life = 0; life < 2; life++) {
		ck_assert_int_eq(fake_come_back(fake), 0);
		ck_assert_uint_eq(active->worker->words_key, 0);
		ck_assert_uint_ne(active->worker->control_key, 0);
		ck_assert_int_eq(active->worker->state, WORKER_ACTIVE);
	}
	expect_served();
}

TEST(adopt, memory_without_its_descriptor_is_not_exported)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY, .memory = {.handle = 9, .bytes = 2 * MIB}};
	struct wire_message export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = 9}};

	fake_request(fake, &client, &create, -1);
	fake_make_chunk(fake, keeper, 5);
	fake_expect(fake, client.socket, WIRE_REPLY);
	lose_fd(TAILQ_FIRST(&TAILQ_FIRST(&fake->daemon.sessions)->holdings.entries)->chunk->fd->key);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_request(fake, &client, &export, -1);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_INVALID_VALUE);
}

/* Makes the record of something that a session has one that no daemon has written. */
static void damage(struct holding *entry)
{
	struct store *store = fake->daemon.store;
	struct kept_holding kept;

	ck_assert(record_read(entry->record, &kept, sizeof(kept)));
	kept.function = HOLDINGS_IDS;
	entry->record = store_put(
		store, entry->record, RECORD_HOLDING, record_key(entry->record), &kept, sizeof(kept));
}

/* The one that is read first is damaged; others name the same memory behind it. */
TEST(adopt, memory_that_a_damaged_record_names_goes_back_once)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE, .memory = {.handle = 9, .bytes = 2 * MIB}};
	struct wire_message create = {.type = WIRE_CREATE_MEMORY, .memory = map.memory};
	struct holdings *holdings = &fake_session(fake, 0)->holdings;

	fake_request(fake, &client, &create, -1);
	fake_make_chunk(fake, keeper, 5);
	fake_expect(fake, client.socket, WIRE_REPLY);
	for (uint64_t i = 1; i < 3; i++) {
		map.memory.address = client.window_base + i * 2 * MIB;
		fake_request(fake, &client, &map, -1);
		fake_serve(fake, active, WIRE_MAP_MEMORY);
		fake_serve(fake, standby, WIRE_MAP_MEMORY);
		fake_expect(fake, client.socket, WIRE_REPLY);
	}
	damage(TAILQ_FIRST(&holdings->entries));
	damage(TAILQ_NEXT(TAILQ_FIRST(&holdings->entries), link));
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_serve(fake, active, WIRE_CLOSE_SESSION);
	fake_serve(fake, standby, WIRE_CLOSE_SESSION);
	fake_expect(fake, keeper->socket, WIRE_RELEASE_CHUNK);
	ck_assert_uint_eq(fake->message.chunk.handle, 5);
	fake_reply(fake, keeper->socket, fake->message.id, 0, NULL, 0);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
}

static void expect_no_memory(struct fake_client *who)
{
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
}

/* The holder keeps as many descriptors as it may. */
static void leave_no_room(void)
{
	fake->legacy.fds_most = 0;
	for (uint32_t key = 0; key < fake->legacy.fd_count; key++)
		fake->legacy.fds_most += fake->legacy.fds[key] >= 0;
	ck_assert_int_eq(fake_come_back(fake), 0);
}

TEST(adopt, what_cannot_be_deposited_is_refused)
{
	struct wire_message host = {.type = WIRE_MAP_HOST}, map = {.type = WIRE_MAP_MEMORY};
	struct fake_client other;

	ck_assert_int_eq(fake_come_back(fake), 0);
	leave_no_room();
	host.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = 4096};
	fake_request(fake, &client, &host, -1);
	expect_no_memory(&client);
	map.range = (struct wire_range){.address = client.window_base, .bytes = 2 * MIB};
	fake_request(fake, &client, &map, -1);
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	expect_no_memory(&client);
	fake_hello(fake, &other);
	fake_expect(fake, other.socket, WIRE_REFUSE);
	close(other.socket);
	fake_turn(fake);
	ck_assert_uint_eq(fake->daemon.session_count, 1);
	/* And when there is room again. */
	fake->legacy.fds_most += 20;
	ck_assert_int_eq(fake_come_back(fake), 0);
	expect_served();
}

static void ask_for_memory(struct fake_client *who)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = who->window_base, .bytes = 2 * MIB}};

	fake_request(fake, who, &map, -1);
}

/* Its end is known when everything is adopted. */
static void lose_keeper_and_daemon(void)
{
	close(keeper->socket);
	keeper->socket = -1;
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_reap(fake, keeper, SIGKILL);
	keeper = &fake->children[3];
	ck_assert_int_eq(keeper->role, ROLE_KEEPER);
	fake_ready(fake, keeper);
}

TEST(adopt, what_a_keeper_owed_that_died_as_well_is_asked_of_the_next)
{
	struct fake_client other;

	fake_join(fake, &other, active, standby);
	ask_for_memory(&client);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	ask_for_memory(&other);
	fake_expect(fake, keeper->socket, WIRE_CREATE_CHUNK);
	lose_keeper_and_daemon();
	for (int i = 0; i < 2; i++) {
		fake_make_chunk(fake, keeper, 5);
		fake_serve(fake, active, WIRE_MAP_MEMORY);
		fake_serve(fake, standby, WIRE_MAP_MEMORY);
	}
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_expect(fake, other.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_leave(fake, &other);
}

TEST(adopt, memory_of_a_keeper_that_died_as_well_is_given_back)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_MEMORY, .range = {.address = client.window_base, .bytes = 2 * MIB}};

	ask_for_memory(&client);
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	lose_keeper_and_daemon();
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_UNMAP_MEMORY);
	fake_expect_nothing(fake, keeper->socket);
	ck_assert_uint_eq(fake->daemon.reclaim.under_way, 0);
}

#define GIB (UINT64_C(1) << 30)

static const uint64_t all_free[] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)};

static void ask_for_window(struct fake_client *who)
{
	struct wire_message reserve = {
		.type = WIRE_RESERVE_WINDOW, .window = {.bytes = 160 * GIB, .free_windows = {all_free, 3}}};

	fake_request(fake, who, &reserve, -1);
}

/* Return: where it is */
static uint64_t answer_window(struct fake_child *child)
{
	uint64_t values[2];

	fake_expect(fake, child->socket, WIRE_RESERVE_WINDOW);
	values[0] = fake->message.window.address;
	values[1] = fake->message.window.bytes;
	fake_reply(fake, child->socket, fake->message.id, 0, values, 2);
	return values[0];
}

static uint64_t get_window(struct fake_client *who)
{
	uint64_t at;

	ask_for_window(who);
	at = answer_window(active);
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	ck_assert_uint_eq(fake->message.reply.values.at[0], at);
	ck_assert_uint_eq(answer_window(standby), at);
	return at;
}

static void give_window(struct fake_client *who, uint64_t address)
{
	struct wire_message release = {
		.type = WIRE_RELEASE_WINDOW, .window = {.address = address, .bytes = 160 * GIB}};

	fake_request(fake, who, &release, -1);
	fake_serve(fake, active, WIRE_RELEASE_WINDOW);
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_serve(fake, standby, WIRE_RELEASE_WINDOW);
}

TEST(promotion, windows_are_whose_they_were)
{
	uint64_t at[20], later;

	for (int i = 0; i < 20; i++)
		at[i] = get_window(&client);
	give_window(&client, at[7]);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake_domain(fake)->windows.count, 20);
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(window_users(&fake_domain(fake)->windows, at[i]), i != 7);
	later = get_window(&client);
	ck_assert_uint_eq(later, at[7]);
	for (int i = 0; i < 20; i++)
		give_window(&client, at[i]);
	ck_assert_uint_eq(fake_domain(fake)->windows.count, 1);
	expect_served();
}

/* Whether the executor had taken it is not known: it is asked for the same one. */
TEST(promotion, a_window_that_was_asked_for_is_the_same_one)
{
	struct fake_client other;
	uint64_t first, asked;

	fake_join(fake, &other, active, standby);
	first = get_window(&other);
	ask_for_window(&client);
	fake_expect(fake, active->socket, WIRE_RESERVE_WINDOW);
	asked = fake->message.window.address;
	ck_assert_uint_ne(asked, first);
	/* A better place is free now. */
	give_window(&other, first);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(window_users(&fake_domain(fake)->windows, asked), 1);
	ck_assert_uint_eq(answer_window(active), asked);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.reply.values.at[0], asked);
	ck_assert_uint_eq(answer_window(standby), asked);
	ck_assert_uint_eq(get_window(&other), first);
	give_window(&client, asked);
	ck_assert_uint_eq(window_users(&fake_domain(fake)->windows, asked), 0);
	fake_leave(fake, &other);
}

/* Nobody knows whether they were. */
TEST(adopt, executors_are_told_of_a_guard_again)
{
	struct fake_client guarded;

	fake->config.guard = CONFIG_GUARD_ERROR;
	fake_join(fake, &guarded, active, standby);
	fake_make_chunk(fake, keeper, 5);
	fake_expect(fake, active->socket, WIRE_OPEN_GUARD);
	fake_expect(fake, standby->socket, WIRE_OPEN_GUARD);
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_serve(fake, active, WIRE_OPEN_GUARD);
	fake_serve(fake, standby, WIRE_OPEN_GUARD);
	fake_leave(fake, &guarded);
}

TEST(adopt, a_guard_that_the_daemon_had_asked_for_is_asked_for_again)
{
	fake->config.guard = CONFIG_GUARD_ERROR;
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_make_chunk(fake, keeper, 5);
	fake_serve(fake, active, WIRE_OPEN_GUARD);
	fake_serve(fake, standby, WIRE_OPEN_GUARD);
}

/* The daemon dies when it has sent the Welcome, and has not recorded it: the program may ask before
 * the next daemon has said so again. */
TEST(adopt, who_was_welcomed_as_the_daemon_died_may_ask_at_once)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct fake_client other;
	uint64_t open;

	fake_hello(fake, &other);
	open = fake_expect(fake, active->socket, WIRE_OPEN_SESSION)->id;
	ck_assert_int_eq(fake_come_back(fake), 0);
	fake_request(fake, &other, &query, -1);
	fake_expect_nothing(fake, other.socket);
	fake_expect(fake, active->socket, WIRE_OPEN_SESSION);
	fake_reply(fake, active->socket, open, 0, NULL, 0);
	fake_welcome(fake, &other);
	fake_serve(fake, active, WIRE_ACTIVATE);
	fake_serve(fake, active, WIRE_QUERY_MEMORY);
	fake_expect(fake, other.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_leave(fake, &other);
}

/* A session ends in as many executors as a domain may have, and the daemon dies before any of them
 * has answered. */
TEST(ends, every_executor_closes_a_session_that_ended)
{
	const unsigned count = 1 + STANDBYS_MOST;
	const uint64_t drained = 1;

	fake_with_records = true;
	fake = fake_new(STANDBYS_MOST);
	fake_boot(fake);
	ck_assert_uint_eq(fake->child_count, 1 + count);
	fake_join(fake, &client, &fake->children[1], NULL);
	for (unsigned i = 2; i <= count; i++)
		fake_serve(fake, &fake->children[i], WIRE_OPEN_SESSION);
	fake_leave(fake, &client);
	ck_assert_int_eq(fake_come_back(fake), 0);
	for (unsigned i = 1; i <= count; i++) {
		ck_assert_uint_eq(fake->daemon.session_count, 1);
		fake_expect(fake, fake->children[i].socket, WIRE_CLOSE_SESSION);
		fake_reply(fake, fake->children[i].socket, fake->message.id, 0, &drained, 1);
	}
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	end();
}

/* The daemon dies when it has recorded that a domain is closed, and has not killed its executors
 * yet. */
TEST(ends, executors_of_a_domain_that_was_closed_end)
{
	struct domain *domain;

	set_up();
	domain = fake_domain(fake);
	fake_leave(fake, &client);
	for (int i = 0; i < 2; i++) {
		const uint64_t drained = 1;
		struct fake_child *child = i ? standby : active;

		fake_expect(fake, child->socket, WIRE_CLOSE_SESSION);
		fake_reply(fake, child->socket, fake->message.id, 0, &drained, 1);
	}
	domain->life = DOMAIN_RETIRES;
	domain_changed(domain);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert(active->killed && standby->killed);
	fake_reap(fake, active, SIGKILL);
	fake_reap(fake, standby, SIGKILL);
	ck_assert_int_ne(fake_domain(fake)->life, DOMAIN_RETIRES);
	end();
}

/* The daemon dies when it has made a domain, and before it has said whose it is. */
TEST(ends, a_domain_that_is_nobodys_yet_is_forgotten)
{
	set_up();
	ck_assert_ptr_nonnull(domain_new_alone(fake_domain(fake)));
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_ptr_null(TAILQ_NEXT(fake_domain(fake), link));
	ck_assert_uint_eq(fake->child_count, 3);
	part();
}

/* The daemon dies when it has recorded that the device has failed, and has told nobody yet. */
TEST(ends, everybody_is_told_that_the_device_has_failed)
{
	set_up();
	fake->daemon.health = (struct device_health){.state = DEVICE_FAILED,
		.code = CUDA_ERROR_DEVICE_UNAVAILABLE,
		.reason = "the device has failed: a test"};
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_acquire(&client.view.server->error), CUDA_ERROR_DEVICE_UNAVAILABLE);
	ck_assert(active->killed && standby->killed);
	part();
}

int main(void)
{
	Suite *suite = suite_create("adopt");
	/* A daemon that died has not closed anything: descriptors are not counted. */
	TCase *tests = tcase_create("adopt");

	fake_prepare();
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, set_up, part);
	suite_add(tests, "adopt");
	tests = tcase_create("ends");
	suite_add_tcase(suite, tests);
	suite_add(tests, "ends");
	tests = tcase_create("promotion");
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, set_up, part);
	suite_add(tests, "promotion");
	return suite_run(suite);
}
