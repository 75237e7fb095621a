// A session's memory on its way to the host and back, interrupted behind each single message by the
// death of everything that can die. The test is keeper, executors and clients: each executor knows
// what is mapped in it, and the memory has a content. The same for two sessions that share some.

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/loop/shared_fd.h"
#include "server/session/domain.h"
#include "server/session/export.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB	 UINT64_C(1048576)
#define PLACES	 3u /* mapped: the last two are the same memory */
#define CHUNKS	 2u
#define STRANGER 4711u /* a user */
#define ALL	 ((1u << PLACES) - 1)
#define HANDLE	 7u
#define BYTES	 (130 * MIB) /* of a chunk: several requests of the executor */
#define HOPS	 72	     /* messages of a way out and back, and some */
#define SET_HOPS 80	     /* the same of two sessions */
#define TURNS	 90	     /* of a way out for another session, that one's memory, and the way back */
#define SETTLES	 40

/* OTHER: the second of two that share. */
enum kind { DAEMON, ACTIVE, STANDBY, KEEPER, CLIENT, OTHER, SET_KINDS, KINDS = OTHER };

static struct fake *fake;
static struct fake_client client;
static struct session *session;
static unsigned mapped[FAKE_CHILDREN_MAX]; /* bit i: place i */
static unsigned live;			   /* of these, not released */
static unsigned carried[2];
static uint64_t free_bytes;
static unsigned starts_short; /* 0: executors have room for a context; else 1 and how many had not */
static unsigned chunks_most;  /* that the device has room for */
/* Another session, which has one place: of a chunk of its own, or of the session's last one. */
static struct fake_client asker;
static struct session *asking;
static uint64_t asking_number;
static bool shares, is_first_gone;
static unsigned stops; /* executors were asked whether a session's work has ended */
static int ends, failures;
static char why[256]; /* of the latest end */

static void on_done(void *context, int32_t code, const char *text)
{
	(void)context;
	snprintf(why, sizeof(why), "%s", text);
	ends++;
	failures += code != 0;
}

static uint64_t address(unsigned place)
{
	return client.window_base + place * 256 * MIB;
}

static unsigned place_of(uint64_t at)
{
	if (asking && at - asker.window_base < 256 * MIB)
		return PLACES;
	return (unsigned)((at - client.window_base) / (256 * MIB));
}

/*
 * The children
 */

static void reply(struct fake_child *child, int32_t code, const uint64_t *values, uint32_t count)
{
	fake_reply(fake, child->socket, fake->message.id, code, values, count);
}

/* @is_there: it is to be unmapped */
static void map(unsigned index, bool is_there)
{
	unsigned bit = 1u << place_of(fake->message.range.address);
	bool fits = is_there == !!(mapped[index] & bit);

	ck_assert_uint_le(place_of(fake->message.range.address), PLACES);
	/* Only an active executor may be told what is so already. */
	if (!fits)
		ck_assert_uint_eq(fake->children[index].worker->state, WORKER_ACTIVE);
	if (fits)
		mapped[index] ^= bit;
	reply(&fake->children[index], fits ? 0 : CUDA_ERROR_INVALID_VALUE, NULL, 0);
}

/* The same for all mappings of a chunk. */
static uint64_t content(uint64_t at)
{
	static const uint64_t chunks[PLACES + 1] = {1, 2, 2, 3};
	unsigned place = place_of(at);
	uint64_t chunk = shares && place == PLACES ? 2 : chunks[place];

	return chunk << 40 | at % (256 * MIB);
}

static void carry(unsigned index)
{
	static _Alignas(4096) uint64_t page[512];
	const struct wire_carry *wish = &fake->message.carry;
	int fd = fake->packet.fds[0];

	if (!wish->bytes) {
		ck_assert_uint_eq(fake->packet.fd_count, 0);
		stops++;
		reply(&fake->children[index], 0, NULL, 0);
		return;
	}
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert(mapped[index] & 1u << place_of(wish->address));
	/* Whoever may write there has stopped. */
	ck_assert_uint_ge(stops, wish->into || !shares || !asking ? 1 : 2);
	if (wish->into) {
		ck_assert_int_eq(pread(fd, page, sizeof(page), (off_t)wish->offset), sizeof(page));
		/* What only the dead one had is in the file no more. */
		ck_assert(page[0] == content(wish->address) ||
			  (is_first_gone && place_of(wish->address) != PLACES));
	} else {
		page[0] = content(wish->address);
		ck_assert_int_eq(pwrite(fd, page, sizeof(page), (off_t)wish->offset), sizeof(page));
	}
	carried[wish->into]++;
	reply(&fake->children[index], 0, NULL, 0);
}

static void answer(unsigned index)
{
	struct fake_child *child = &fake->children[index];
	const uint64_t room = chunks_most == UINT_MAX ? free_bytes
			      : live < chunks_most    ? (chunks_most - live) * BYTES
						      : 0;
	const uint64_t memory[2] = {room, UINT64_C(1) << 36};

	switch (fake->message.type) {
	case WIRE_MAP_MEMORY:
		map(index, false);
		return;
	case WIRE_UNMAP_MEMORY:
		map(index, true);
		return;
	case WIRE_CARRY_MEMORY:
		carry(index);
		return;
	case WIRE_QUERY_MEMORY:
		reply(child, 0, memory, 2);
		return;
	case WIRE_CREATE_CHUNK:
		if (live >= chunks_most) {
			reply(child, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0);
			return;
		}
		live++;
		break;
	case WIRE_RELEASE_CHUNK:
		live--;
		break;
	case WIRE_CLOSE_SESSION:
		mapped[index] &= fake->message.session == asking_number ? ALL : 1u << PLACES;
		break;
	default:
		break;
	}
	fake_play_answer(fake, child);
}

/* One that starts: it may find no device memory for its context while the session has its own. */
static void start_up(struct fake_child *child)
{
	struct wire_message lost = {
		.type = WIRE_LOST, .trouble = {.code = CUDA_ERROR_OUT_OF_MEMORY, .text = "no room"}};

	if (!starts_short || !live) {
		fake_ready(fake, child);
		return;
	}
	starts_short++;
	fake_send(fake, child->socket, &lost, NULL, 0);
	fake_reap(fake, child, 0);
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

/*
 * The session
 */

static void ask(struct wire_message *message)
{
	fake_request(fake, &client, message, -1);
	serve_all();
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void boot(void)
{
	struct wire_message first = {.type = WIRE_MAP_MEMORY},
			    second = {.type = WIRE_CREATE_MEMORY,
				    .memory = {.handle = HANDLE, .bytes = BYTES}},
			    third = {.type = WIRE_MAP_HANDLE, .memory = {.handle = HANDLE, .bytes = BYTES}};

	memset(mapped, 0, sizeof(mapped));
	memset(play.started, 0, sizeof(play.started));
	memset(play.latest, 0, sizeof(play.latest));
	live = carried[0] = carried[1] = stops = 0;
	shares = is_first_gone = false;
	ends = failures = 0;
	free_bytes = UINT64_C(1) << 35;
	chunks_most = UINT_MAX;
	starts_short = 0;
	asking = NULL;
	asking_number = 0;
	fake_with_records = true;
	fake = fake_new(1);
	fake->config.guard = CONFIG_GUARD_OFF;
	fake->daemon.rules.general.swap_host_bytes = UINT64_C(1) << 40;
	serve_all();
	fake_hello(fake, &client);
	serve_all();
	fake_welcome(fake, &client);
	session = fake_session(fake, 0);
	first.range = (struct wire_range){.address = address(0), .bytes = BYTES};
	ask(&first);
	ask(&second);
	for (unsigned i = 1; i < PLACES; i++) {
		third.memory.address = address(i);
		ask(&third);
	}
	serve_all();
	ck_assert_uint_eq(live, CHUNKS);
}

static void end(bool is_there)
{
	packet_close_fds(&fake->packet);
	if (is_there)
		fake_leave(fake, &client);
	serve_all();
	ck_assert_uint_eq(live, 0);
	for (unsigned i = 0; i < fake->child_count; i++)
		ck_assert_uint_eq(mapped[i], 0);
	fake_free(fake);
}

static void expect_maps(unsigned places)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		for (unsigned i = 0; i < fake->child_count; i++)
			if (fake->children[i].worker == worker)
				ck_assert_uint_eq(mapped[i], places);
}

static void expect_here(void)
{
	ck_assert_int_eq(session->memory, SESSION_MEMORY_HERE);
	ck_assert_ptr_null(session->swap);
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		ck_assert_ptr_null(session->swap_files[i]);
	ck_assert_uint_eq(session->holdings.owned_bytes, CHUNKS * BYTES);
	ck_assert_uint_eq(session->holdings.away_bytes, 0);
	ck_assert_uint_eq(live, CHUNKS);
	ck_assert(!(word_relaxed(&session->view.server->share) & SHM_SHARE_AWAY));
	expect_maps(ALL);
}

static void expect_away(void)
{
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(session->holdings.owned_bytes, 0);
	ck_assert_uint_eq(session->holdings.away_bytes, CHUNKS * BYTES);
	ck_assert_uint_eq(
		swap_bytes_of(&fake->daemon, NULL).host + swap_bytes_of(&fake->daemon, NULL).directory,
		CHUNKS * BYTES);
	ck_assert_uint_eq(live, 0);
	ck_assert(word_relaxed(&session->view.server->share) & SHM_SHARE_AWAY);
	expect_maps(0);
}

TEST(swap, all_of_it_goes_and_comes_back)
{
	boot();
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
		ck_assert_int_eq(ends, 2 * i);
		serve_all();
		ck_assert_int_eq(ends, 2 * i + 1);
		expect_away();
		swap_end(session, on_done, NULL);
		serve_all();
		ck_assert_int_eq(ends, 2 * i + 2);
		expect_here();
	}
	ck_assert_int_eq(failures, 0);
	/* Each chunk once, whatever it is mapped at. */
	ck_assert_uint_eq(carried[0], 2 * CHUNKS * 3);
	ck_assert_uint_eq(carried[1], 2 * CHUNKS * 3);
	end(true);
}

/* An executor unmaps when its threads have been asked; what is mapped there before is an error. */
TEST(swap, nothing_is_mapped_before_it_is_unmapped)
{
	boot();
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	while (session->memory != SESSION_MEMORY_AWAY)
		ck_assert(serve_one());
	swap_end(session, on_done, NULL);
	for (unsigned i = 0; i < PLACES; i++) {
		ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
		while (mapped[1] & 1u << i)
			ck_assert(serve_one());
	}
	serve_all();
	ck_assert_int_eq(failures, 0);
	expect_here();
	end(true);
}

TEST(swap, it_waits_until_there_is_room)
{
	boot();
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	free_bytes = CHUNKS * BYTES - 1;
	swap_end(session, on_done, NULL);
	serve_all();
	ck_assert_int_eq(failures, 1);
	expect_away();
	free_bytes++;
	FAKE_SKIP_WHILE(fake, session->memory == SESSION_MEMORY_AWAY);
	serve_all();
	expect_here();
	end(true);
}

TEST(swap, a_request_brings_it_back_and_is_made_then)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	boot();
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	session_pause(session, true, true);
	fake_request(fake, &client, &query, -1);
	serve_all();
	expect_away();
	fake_expect_nothing(fake, client.socket);
	session_pause(session, false, true);
	swap_end(session, on_done, NULL);
	serve_all();
	expect_here();
	fake_expect(fake, client.socket, WIRE_REPLY);
	end(true);
}

TEST(swap, work_keeps_it_or_brings_it_back)
{
	struct wire_message wanted = {.type = WIRE_WANTED};

	boot();
	wanted.session = session->number;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	fake_send(fake, fake->children[1].socket, &wanted, NULL, 0);
	ck_assert_int_eq(failures, 1);
	serve_all();
	expect_here();
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_away();
	fake_send(fake, fake->children[1].socket, &wanted, NULL, 0);
	serve_all();
	expect_here();
	end(true);
}

/* An earlier keeper's memory is not released by name. */
static void end_after(enum kind kind)
{
	if (kind != KEEPER) {
		end(kind != CLIENT);
		return;
	}
	fake_leave(fake, &client);
	serve_all();
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

static void strike(enum kind kind);

TEST(swap, who_goes_at_once_is_paused_behind_it)
{
	struct wire_message wanted = {.type = WIRE_WANTED}, query = {.type = WIRE_QUERY_MEMORY};

	boot();
	wanted.session = session->number;
	ck_assert_ptr_null(swap_begin(session, SWAP_PAUSED_BY_US, on_done, NULL));
	ck_assert(!session_is_paused(session));
	fake_send(fake, fake->children[1].socket, &wanted, NULL, 0);
	fake_request(fake, &client, &query, -1);
	serve_all();
	ck_assert_int_eq(failures, 0);
	expect_away();
	ck_assert(session_is_paused(session) && session->pause_is_ours);
	fake_expect_nothing(fake, client.socket);
	session_pause(session, false, true);
	swap_end(session, on_done, NULL);
	serve_all();
	expect_here();
	fake_expect(fake, client.socket, WIRE_REPLY);
	/* It goes on if it could not be. */
	ck_assert_ptr_null(swap_begin(session, SWAP_PAUSED, on_done, NULL));
	strike(ACTIVE);
	serve_all();
	ck_assert_int_eq(failures, 1);
	ck_assert(!session_is_paused(session));
	expect_here();
	end(true);
}

TEST(swap, a_budget_is_kept)
{
	boot();
	fake->daemon.rules.general.swap_host_bytes = CHUNKS * BYTES - 1;
	ck_assert_ptr_nonnull(strstr(swap_begin(session, SWAP_AT_REST, on_done, NULL), "swap_host_bytes"));
	serve_all();
	expect_here();
	fake->daemon.rules.general.swap_host_bytes++;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_away();
	ck_assert_uint_eq(swap_bytes_of(&fake->daemon, NULL).directory, 0);
	end(true);
}

TEST(swap, what_the_budget_has_no_room_for_goes_to_a_folder)
{
	char folder[] = "/var/tmp/frmps-swap-XXXXXX";

	boot();
	ck_assert_ptr_nonnull(mkdtemp(folder));
	fake->daemon.rules.general.swap_host_bytes = CHUNKS * BYTES - 1;
	strcpy(fake->config.swap_directory, "/var/tmp/frmps-swap-XXXXXX");
	ck_assert_ptr_nonnull(strstr(swap_begin(session, SWAP_AT_REST, on_done, NULL), "swap_directory"));
	serve_all();
	expect_here();
	strcpy(fake->config.swap_directory, folder);
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_away();
	ck_assert_uint_eq(swap_bytes_of(&fake->daemon, NULL).host, 0);
	swap_end(session, on_done, NULL);
	serve_all();
	expect_here();
	ck_assert_int_eq(failures, 0);
	/* It is empty. */
	ck_assert_int_eq(rmdir(folder), 0);
	end(true);
}

/*
 * Kills
 */

static void reap(struct fake_child *child)
{
	ck_assert_ptr_nonnull(child);
	mapped[child - fake->children] = 0;
	fake_reap(fake, child, SIGKILL);
}

static void strike(enum kind kind)
{
	switch (kind) {
	case DAEMON:
		ck_assert_int_eq(fake_come_back(fake), 0);
		session = fake_session(fake, 0);
		asking = asking ? fake_session(fake, 1) : NULL;
		break;
	case ACTIVE:
		reap(fake_find_executor(fake, true));
		break;
	case STANDBY:
		reap(fake_find_executor(fake, false));
		break;
	case KEEPER:
		/* What it had made goes with descriptors and mappings. */
		reap(fake_child_of(fake, fake->daemon.keeper));
		break;
	case CLIENT:
		fake_leave(fake, &client);
		is_first_gone = true;
		break;
	case OTHER:
		fake_leave(fake, &asker);
		break;
	case SET_KINDS:
		break;
	}
}

/* Out, and if that is done in so many messages, on the way back.
 * @other: of its set: at no moment one of the two is out, and the other is not; NULL: alone
 * Return: whether it was over before these were needed */
static bool go(int hops, const struct session *other)
{
	bool out = false;

	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	for (int i = 0; i < hops; i++) {
		if (!out && session->memory == SESSION_MEMORY_AWAY) {
			out = true;
			swap_end(session, on_done, NULL);
		}
		if (!serve_one())
			return true;
		if (other)
			ck_assert_int_eq(session->memory, other->memory);
	}
	return false;
}

static void settle(struct session *one)
{
	serve_all();
	if (one->memory != SESSION_MEMORY_HERE && one->memory != SESSION_MEMORY_AWAY)
		FAKE_SKIP_WHILE(fake, serve_one() || one->memory == SESSION_MEMORY_RETURNS);
	if (one->memory == SESSION_MEMORY_AWAY)
		swap_end(one, on_done, NULL);
	serve_all();
	FAKE_SKIP_WHILE(fake, serve_one() || one->memory != SESSION_MEMORY_HERE);
	serve_all();
}

START_TEST(whatever_dies_it_is_here_or_there)
{
	enum kind kind = (enum kind)(_i / HOPS);

	boot();
	go(_i % HOPS, NULL);
	strike(kind);
	if (kind != CLIENT) {
		settle(session);
		/* An earlier keeper's memory is not released by name. */
		if (kind == KEEPER)
			live = CHUNKS;
		expect_here();
	}
	end_after(kind);
}
END_TEST

/*
 * Room for another session (memory_policy = swap)
 */

/* There is room for the session, and none for the other one's chunk beside it. */
static void boot_short(void)
{
	boot();
	fake->config.memory_policy = fake->daemon.rules.general.memory_policy = CONFIG_MEMORY_POLICY_SWAP;
	session_set_terms(session);
	fake_hello(fake, &asker);
	serve_all();
	fake_welcome(fake, &asker);
	asking = fake_session(fake, 1);
	asking_number = asking->number;
	chunks_most = CHUNKS;
}

static void ask_for_room(void)
{
	struct wire_message message = {
		.type = WIRE_MAP_MEMORY, .range = {.address = asker.window_base, .bytes = BYTES}};

	fake_request(fake, &asker, &message, -1);
}

/* The session has work, as its executor says. */
static void call(void)
{
	struct wire_message wanted = {.type = WIRE_WANTED, .session = session->number};

	fake_send(fake, fake_find_executor(fake, true)->socket, &wanted, NULL, 0);
}

/* The other one's memory comes, and then the session's again. Return: whether it was over before so
 * many messages */
static bool take_turns(int hops)
{
	bool called = false;

	ask_for_room();
	for (int i = 0; i < hops; i++) {
		if (!called && session->memory == SESSION_MEMORY_AWAY && asking->holdings.owned_bytes) {
			call();
			called = true;
		}
		if (called && session->memory == SESSION_MEMORY_HERE)
			return true;
		while (!serve_one())
			fake_skip(fake);
	}
	return false;
}

static void expect_turns_taken(void)
{
	serve_all();
	ck_assert_int_eq(session->memory, SESSION_MEMORY_HERE);
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(asking->holdings.owned_bytes, 0);
	ck_assert_uint_eq(fake->daemon.counters.sessions_displaced, 2);
	expect_maps(ALL);
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

/* Time passes where nobody has anything to do. */
#define AWAIT(condition)                                                                                     \
	while (!(condition))                                                                                 \
		if (!serve_one())                                                                            \
	fake_skip(fake)

static bool is_settled(const struct session *one)
{
	return one->memory == SESSION_MEMORY_HERE || one->memory == SESSION_MEMORY_AWAY;
}

/* With room for all, all of it is there. */
static void bring_all_back(bool with_session)
{
	serve_all();
	chunks_most = UINT_MAX;
	AWAIT(!asking->request);
	for (int i = with_session ? 0 : 1; i < 2; i++) {
		struct session *one = i ? asking : session;

		AWAIT(is_settled(one));
		if (one->memory == SESSION_MEMORY_AWAY)
			swap_end(one, on_done, NULL);
		AWAIT(one->memory == SESSION_MEMORY_HERE);
	}
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	ck_assert_uint_eq(asking->holdings.owned_bytes, BYTES);
}

TEST(swap, another_session_has_the_room_meanwhile)
{
	boot_short();
	ck_assert(take_turns(TURNS - 1));
	expect_turns_taken();
	fake_leave(fake, &asker);
	end(true);
}

START_TEST(whatever_dies_turns_go_on)
{
	enum kind kind = (enum kind)(_i / TURNS);

	boot_short();
	take_turns(_i % TURNS);
	if (kind == KEEPER)
		live = 0;
	strike(kind);
	bring_all_back(kind != CLIENT);
	if (kind != CLIENT) {
		ck_assert_uint_eq(session->holdings.owned_bytes, CHUNKS * BYTES);
		ck_assert_uint_eq(session->holdings.away_bytes, 0);
		expect_maps(ALL | 1u << PLACES);
	}
	fake_leave(fake, &asker);
	end_after(kind);
}
END_TEST

/* Who has come back is not displaced for a while: an allocation gets its error at once. */
TEST(swap, who_came_back_stays)
{
	boot_short();
	ck_assert(take_turns(TURNS - 1));
	expect_turns_taken();
	fake_stop_clock(true);
	swap_end(asking, on_done, NULL);
	serve_all();
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_AWAY);
	ck_assert_int_eq(session->memory, SESSION_MEMORY_HERE);
	fake_leave(fake, &asker);
	serve_all();
	fake_hello(fake, &asker);
	serve_all();
	fake_welcome(fake, &asker);
	ask_for_room();
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(session->memory, SESSION_MEMORY_HERE);
	fake_stop_clock(false);
	fake_leave(fake, &asker);
	end(true);
}

/*
 * Budgets of users
 */

/* Another owner's session, with a chunk. */
static void boot_budgets(void)
{
	boot_short();
	chunks_most = UINT_MAX;
	asking->owner = STRANGER;
	ask_for_room();
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

/* In a section of the other owner's. */
static void set_budget(uint64_t bytes)
{
	struct rules *rules = &fake->daemon.rules;

	rules->rules[0] = (struct rule){.kind = RULE_USER,
		.uid = STRANGER,
		.set = 1u << term_find("swap_host_bytes"),
		.terms.swap_host_bytes = bytes};
	rules->count = 1;
}

static void end_budgets(void)
{
	fake_leave(fake, &asker);
	serve_all();
	asking = NULL;
	end(true);
}

static void expect_refusal(const char *text)
{
	const char *said = swap_begin(asking, SWAP_AT_REST, on_done, NULL);

	ck_assert_msg(said && !strcmp(said, text), "%s", said);
}

TEST(swap, no_users_memory_counts_against_another)
{
	const uid_t owner = STRANGER;

	boot_budgets();
	fake->daemon.rules.general.swap_host_bytes = CHUNKS * BYTES;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(swap_room(&fake->daemon, session->owner), 0);
	ck_assert_uint_eq(swap_room(&fake->daemon, STRANGER), CHUNKS * BYTES);
	/* A subordinate user has no budget of his own. */
	asking->owner = session->owner;
	expect_refusal("user 0 may have 260M of device memory in host memory (swap_host_bytes): 260M are "
		       "there, and 130M more are not allowed");
	asking->owner = STRANGER;
	/* The operator gives less. */
	set_budget(BYTES - 1);
	ck_assert_ptr_nonnull(swap_begin(asking, SWAP_AT_REST, on_done, NULL));
	set_budget(BYTES);
	ck_assert_ptr_null(swap_begin(asking, SWAP_AT_REST, on_done, NULL));
	serve_all();
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(swap_bytes_of(&fake->daemon, &owner).host, BYTES);
	ck_assert_uint_eq(swap_bytes_of(&fake->daemon, &session->owner).host, CHUNKS * BYTES);
	ck_assert_uint_eq(swap_bytes_of(&fake->daemon, NULL).host, (CHUNKS + 1) * BYTES);
	end_budgets();
}

TEST(swap, without_a_budget_a_user_leaves_some_to_others)
{
	uint64_t most;

	boot_budgets();
	fake->daemon.rules.general.swap_host_bytes = 0;
	most = swap_most_bytes(&fake->daemon);
	ck_assert_uint_eq(swap_budget(&fake->daemon, session->owner), most / 3 * 2);
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(swap_budget(&fake->daemon, session->owner), most / 3 * 2);
	ck_assert_uint_eq(swap_room(&fake->daemon, session->owner), most / 3 * 2 - CHUNKS * BYTES);
	ck_assert_uint_eq(swap_room(&fake->daemon, STRANGER), (most - CHUNKS * BYTES) / 3 * 2);
	/* There is no more than there is, whatever the operator says. */
	fake->daemon.rules.general.swap_host_bytes = UINT64_C(1) << 50;
	ck_assert_uint_eq(swap_room(&fake->daemon, STRANGER), most - CHUNKS * BYTES);
	session->holdings.away_bytes += most;
	ck_assert_uint_eq(swap_room(&fake->daemon, STRANGER), 0);
	ck_assert_ptr_nonnull(swap_begin(asking, SWAP_AT_REST, on_done, NULL));
	session->holdings.away_bytes -= most;
	end_budgets();
}

TEST(swap, what_is_free_is_what_the_users_may_swap)
{
	boot_budgets();
	fake->daemon.rules.general.swap_host_bytes = CHUNKS * BYTES - 1;
	AWAIT(swap_spare(asking) == CHUNKS * BYTES - 1);
	AWAIT(swap_spare(session) == BYTES);
	set_budget(1);
	ck_assert_uint_eq(swap_spare(asking), CHUNKS * BYTES - 1);
	ck_assert_uint_eq(swap_spare(session), 1);
	strcpy(fake->config.swap_directory, "/var/tmp");
	ck_assert_uint_eq(swap_spare(asking), CHUNKS * BYTES);
	ck_assert_uint_eq(swap_spare(session), BYTES);
	/* The executor may have had no processor since it took the last command. */
	word_set(&session->view.server->streams, 1);
	word_set(&session->view.states[0].issued, 1);
	ck_assert_uint_eq(swap_spare(asking), 0);
	word_set(&session->view.states[0].issued, 0);
	end_budgets();
}

TEST(swap, the_executor_of_a_newcomer_has_room)
{
	boot();
	fake->daemon.rules.general.memory_policy = CONFIG_MEMORY_POLICY_SWAP;
	session_set_terms(session);
	starts_short = 1;
	fake_hello_as(fake, &asker, STRANGER);
	AWAIT(session->memory == SESSION_MEMORY_AWAY);
	ck_assert_uint_gt(starts_short, 1);
	AWAIT(fake->daemon.counters.sessions_opened == 2);
	ck_assert_uint_eq(fake->daemon.counters.sessions_refused, 0);
	ck_assert_uint_eq(fake->daemon.counters.sessions_displaced, 1);
	serve_all();
	fake_welcome(fake, &asker);
	fake_leave(fake, &asker);
	swap_end(session, on_done, NULL);
	AWAIT(session->memory == SESSION_MEMORY_HERE);
	end(true);
}

TEST(swap, who_has_work_does_not_go)
{
	boot_short();
	word_set(&session->view.server->streams, 1);
	word_set(&session->view.states[0].issued, 1);
	word_set(&session->view.states[0].journaled, 1);
	ask_for_room();
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	expect_maps(ALL);
	ck_assert_uint_eq(fake->daemon.counters.sessions_displaced, 0);
	fake_leave(fake, &asker);
	end(true);
}

TEST(swap, what_is_guaranteed_does_not_go)
{
	boot_short();
	session->terms.memory_guarantee = CHUNKS * BYTES;
	ask_for_room();
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	expect_maps(ALL);
	fake_leave(fake, &asker);
	end(true);
}

TEST(swap, every_message_was_there)
{
	boot();
	ck_assert(go(HOPS - 1, NULL));
	expect_here();
	end(true);
}

/*
 * Sessions that share memory
 */

#define SHARED (1u << PLACES) /* the other's mapping */

static void ask_as(struct fake_client *who, struct wire_message *message)
{
	fake_request(fake, who, message, -1);
	serve_all();
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void import_as_other(const uint64_t token[2])
{
	struct wire_message import = {
		.type = WIRE_IMPORT_MEMORY, .memory = {.handle = HANDLE, .token = {token[0], token[1]}}};

	fake_request(fake, &asker, &import, -1);
}

static void export(uint64_t token[2])
{
	struct wire_message wish = {.type = WIRE_EXPORT_MEMORY, .memory = {.address = address(PLACES - 1)}};

	ask_as(&client, &wish);
	token[0] = fake->message.reply.values.at[0];
	token[1] = fake->message.reply.values.at[1];
}

/* A second program, which has imported nothing yet. */
static void boot_two(uint64_t token[2])
{
	boot();
	fake_hello(fake, &asker);
	serve_all();
	fake_welcome(fake, &asker);
	asking = fake_session(fake, 1);
	asking_number = asking->number;
	export(token);
}

static void map_as_other(void)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE,
		.memory = {.handle = HANDLE, .address = asker.window_base, .bytes = BYTES}};

	ask_as(&asker, &map);
	serve_all();
	shares = true;
}

/* Two programs: the second has the first one's last chunk, too. */
static void boot_set(void)
{
	uint64_t token[2];

	boot_two(token);
	import_as_other(token);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	map_as_other();
	ck_assert_uint_eq(live, CHUNKS);
}

static void end_set(bool first_is_there, bool other_is_there)
{
	if (other_is_there)
		fake_leave(fake, &asker);
	asking = NULL;
	end(first_is_there);
}

static uint64_t swapped(void)
{
	const struct swap_bytes bytes = swap_bytes_of(&fake->daemon, NULL);

	return bytes.host + bytes.directory;
}

static void expect_set_here(void)
{
	ck_assert_int_eq(session->memory, SESSION_MEMORY_HERE);
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_HERE);
	ck_assert(!session->swap && !asking->swap && !session->swap_files[0] && !asking->swap_files[0]);
	/* What they share counts once on the device, and for each of them as its memory. */
	ck_assert_uint_eq(session->holdings.owned_bytes + asking->holdings.owned_bytes, CHUNKS * BYTES);
	ck_assert_uint_eq(session->holdings.away_bytes + asking->holdings.away_bytes, 0);
	ck_assert_uint_eq(holdings_mapped_bytes(&session->holdings), CHUNKS * BYTES);
	ck_assert_uint_eq(holdings_mapped_bytes(&asking->holdings), BYTES);
	ck_assert_uint_eq(swapped(), 0);
	ck_assert_uint_eq(live, CHUNKS);
	expect_maps(ALL | SHARED);
}

static void expect_set_away(void)
{
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(session->holdings.owned_bytes + asking->holdings.owned_bytes, 0);
	ck_assert_uint_eq(holdings_mapped_bytes(&session->holdings), 0);
	ck_assert_uint_eq(holdings_mapped_bytes(&asking->holdings), 0);
	ck_assert_uint_eq(swapped(), CHUNKS * BYTES);
	ck_assert_uint_eq(live, 0);
	expect_maps(0);
}

TEST(set, both_go_and_come_back_whoever_is_asked)
{
	boot_set();
	for (int i = 0; i < 4; i++) {
		stops = 0;
		ck_assert_ptr_null(swap_begin(i % 2 ? asking : session, SWAP_AT_REST, on_done, NULL));
		serve_all();
		expect_set_away();
		swap_end(i / 2 ? asking : session, on_done, NULL);
		serve_all();
		expect_set_here();
	}
	ck_assert_int_eq(failures, 0);
	/* Each chunk once, whatever it is mapped at. */
	ck_assert_uint_eq(carried[0], 4 * CHUNKS * 3);
	ck_assert_uint_eq(carried[1], 4 * CHUNKS * 3);
	ck_assert_uint_eq(fake->daemon.counters.sessions_suspended, 8);
	end_set(true, true);
}

TEST(set, work_of_either_keeps_both_or_brings_both_back)
{
	struct wire_message wanted = {.type = WIRE_WANTED};

	boot_set();
	wanted.session = asking->number;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	fake_send(fake, fake_find_executor(fake, true)->socket, &wanted, NULL, 0);
	ck_assert_int_eq(failures, 1);
	/* Who it is has to be said. */
	ck_assert_ptr_nonnull(strstr(why, "session 2"));
	serve_all();
	expect_set_here();
	stops = 0;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_set_away();
	fake_send(fake, fake_find_executor(fake, true)->socket, &wanted, NULL, 0);
	serve_all();
	expect_set_here();
	end_set(true, true);
}

TEST(set, obstacles_of_the_other_are_named)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	const char *text;

	boot_set();
	fake_request(fake, &asker, &query, -1);
	ck_assert_ptr_nonnull(asking->request);
	text = swap_begin(session, SWAP_AT_REST, on_done, NULL);
	ck_assert_ptr_nonnull(strstr(text, "session 2"));
	ck_assert_ptr_nonnull(strstr(text, "waits for an answer"));
	ck_assert_ptr_nonnull(swap_begin(session, SWAP_DRAINED, on_done, NULL));
	ck_assert(!session->swap && !asking->swap);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	expect_set_here();
	end_set(true, true);
}

/* Whose memory an operator has taken off the device stays there until he says so; others wait. */
TEST(set, what_is_checkpointed_stays_away_whoever_asks)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	boot_set();
	ck_assert_ptr_null(swap_begin(session, SWAP_PAUSED_BY_US, on_done, NULL));
	serve_all();
	session_set_checkpointed(session, true);
	fake_request(fake, &asker, &query, -1);
	serve_all();
	expect_set_away();
	ck_assert(session_is_paused(session) && !session_is_paused(asking));
	fake_expect_nothing(fake, asker.socket);
	swap_end(asking, on_done, NULL);
	ck_assert_int_eq(failures, 1);
	serve_all();
	expect_set_away();
	session_pause(session, false, true);
	swap_end(session, on_done, NULL);
	serve_all();
	expect_set_here();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	end_set(true, true);
}

/* The end of the one that held the other up. */
TEST(set, the_end_of_who_held_it_up_lets_the_other_go_on)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct stat status;
	blkcnt_t blocks;

	boot_set();
	ck_assert_ptr_null(swap_begin(session, SWAP_PAUSED_BY_US, on_done, NULL));
	serve_all();
	session_set_checkpointed(session, true);
	ck_assert_int_eq(fstat(session->swap_files[0]->fd, &status), 0);
	blocks = status.st_blocks;
	fake_leave(fake, &client);
	serve_all();
	/* What it alone had takes no room any more. */
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_AWAY);
	ck_assert_uint_eq(swapped(), BYTES);
	ck_assert_int_eq(fstat(asking->swap_files[0]->fd, &status), 0);
	ck_assert_int_lt(status.st_blocks, blocks);
	fake_request(fake, &asker, &query, -1);
	serve_all();
	ck_assert_int_eq(asking->memory, SESSION_MEMORY_HERE);
	ck_assert_uint_eq(asking->holdings.owned_bytes, BYTES);
	fake_expect(fake, asker.socket, WIRE_REPLY);
	end_set(false, true);
}

TEST(set, an_import_of_what_is_away_waits_for_it)
{
	uint64_t token[2];

	boot_two(token);
	ck_assert_ptr_null(swap_begin(session, SWAP_PAUSED_BY_US, on_done, NULL));
	serve_all();
	session_set_checkpointed(session, true);
	import_as_other(token);
	serve_all();
	fake_expect_nothing(fake, asker.socket);
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	session_pause(session, false, true);
	swap_end(session, on_done, NULL);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	map_as_other();
	expect_set_here();
	/* Its own import is a reason to come back. */
	stops = 0;
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_set_away();
	end_set(true, true);
}

/* Memory that was exported, and is nobody's when it is away, is nobody's for good. */
TEST(set, exported_memory_that_is_away_ends_with_its_last_program)
{
	struct wire_message wish = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = HANDLE}};
	uint64_t token[2];
	int file;

	boot_two(token);
	ask_as(&client, &wish);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	file = packet_take_fd(&fake->packet, 0);
	ck_assert_ptr_null(swap_begin(session, SWAP_AT_REST, on_done, NULL));
	serve_all();
	ck_assert_int_eq(session->memory, SESSION_MEMORY_AWAY);
	fake_leave(fake, &client);
	serve_all();
	import_as_other(token);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(exports_unheld_bytes(&fake->daemon.exports), 0);
	ck_assert_uint_eq(swapped(), 0);
	close(file);
	end_set(false, true);
}

/* Room is made by those who share nothing. */
TEST(set, nobody_makes_room_at_the_cost_of_a_set)
{
	struct wire_message more = {.type = WIRE_MAP_MEMORY, .range = {.bytes = BYTES}};

	boot_set();
	fake->config.memory_policy = fake->daemon.rules.general.memory_policy = CONFIG_MEMORY_POLICY_SWAP;
	session_set_terms(session);
	session_set_terms(asking);
	chunks_most = CHUNKS;
	more.range.address = asker.window_base + 256 * MIB;
	fake_request(fake, &asker, &more, -1);
	ck_assert_ptr_nonnull(asking->request);
	AWAIT(!asking->request);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(fake->daemon.counters.sessions_displaced, 0);
	chunks_most = UINT_MAX;
	expect_set_here();
	end_set(true, true);
}

/* Both have a guarantee, which together are the device. */
TEST(set, what_is_guaranteed_to_its_members_lets_it_come_back)
{
	boot_set();
	session->terms.memory_guarantee = CHUNKS * BYTES;
	asking->terms.memory_guarantee = BYTES;
	fake->daemon.device.total_bytes = (CHUNKS + 1) * BYTES;
	ck_assert_ptr_null(swap_begin(asking, SWAP_AT_REST, on_done, NULL));
	serve_all();
	expect_set_away();
	swap_end(asking, on_done, NULL);
	serve_all();
	ck_assert_int_eq(failures, 0);
	expect_set_here();
	end_set(true, true);
}

static void strike_set(enum kind kind, int hops)
{
	boot_set();
	go(hops, asking);
	strike(kind);
	settle(kind == CLIENT ? asking : session);
	/* An earlier keeper's memory is not released by name. */
	if (kind == KEEPER)
		live = CHUNKS;
	if (kind == CLIENT) {
		ck_assert_int_eq(asking->memory, SESSION_MEMORY_HERE);
		ck_assert_uint_eq(asking->holdings.owned_bytes, BYTES);
		ck_assert_uint_eq(live, 1);
		ck_assert_uint_eq(swapped(), 0);
	} else if (kind == OTHER) {
		asking = NULL;
		expect_here();
	} else {
		expect_set_here();
	}
	if (kind != KEEPER) {
		end_set(kind != CLIENT, kind != OTHER);
		return;
	}
	fake_leave(fake, &asker);
	fake_leave(fake, &client);
	serve_all();
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

START_TEST(whatever_dies_a_set_is_here_or_there)
{
	strike_set((enum kind)(_i / SET_HOPS), _i % SET_HOPS);
}
END_TEST

static void expect_shared(uint32_t mine, uint32_t others)
{
	ck_assert_uint_eq(session->holdings.shared_count, mine);
	ck_assert_uint_eq(asking->holdings.shared_count, others);
}

/* Nobody looks at all holdings to know whether a session shares memory. */
TEST(death, what_is_shared_is_counted)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_MEMORY, .range = {.bytes = BYTES}},
			    release = {.type = WIRE_RELEASE_MEMORY, .memory = {.handle = HANDLE}},
			    export = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = HANDLE}};
	uint64_t token[2];

	boot_two(token);
	expect_shared(0, 0);
	/* Imported, and freed. */
	import_as_other(token);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	expect_shared(1, 1);
	map_as_other();
	expect_shared(1, 1);
	/* Away, and back. */
	ck_assert(go(SET_HOPS - 1, asking));
	expect_shared(1, 1);
	strike(DAEMON);
	serve_all();
	expect_shared(1, 1);
	unmap.range.address = asker.window_base;
	ask_as(&asker, &unmap);
	shares = false;
	ask_as(&asker, &release);
	expect_shared(0, 0);
	/* Exported: anybody may import it. */
	ask_as(&client, &export);
	packet_close_fds(&fake->packet);
	expect_shared(1, 0);
	import_as_other(token);
	serve_all();
	fake_expect(fake, asker.socket, WIRE_REPLY);
	map_as_other();
	expect_shared(1, 1);
	/* The first one ends. */
	fake_leave(fake, &client);
	serve_all();
	ck_assert_uint_eq(asking->holdings.shared_count, 1);
	end_set(false, true);
}

TEST(set, every_message_of_both_was_there)
{
	boot_set();
	ck_assert(go(SET_HOPS - 1, asking));
	expect_set_here();
	end_set(true, true);
}

int main(void)
{
	Suite *suite;
	TCase *tests, *kills, *deaths;

	fake_prepare();
	suite = suite_create("swap");
	tests = suite_case(suite, "swap");
	suite_add(tests, "swap");
	suite_add(tests, "set");
	/* What a dead daemon had open stays so here. */
	deaths = tcase_create("deaths of the daemon");
	suite_add(deaths, "death");
	suite_add_tcase(suite, deaths);
	kills = suite_case(suite, "kills");
	for (int kind = DAEMON; kind < KINDS; kind++) {
		suite_add_sweep(kind ? kills : deaths, whatever_dies_it_is_here_or_there, kind, HOPS);
		suite_add_sweep(kind ? kills : deaths, whatever_dies_turns_go_on, kind, TURNS);
	}
	for (int kind = DAEMON; kind < SET_KINDS; kind++)
		suite_add_sweep(kind ? kills : deaths, whatever_dies_a_set_is_here_or_there, kind, SET_HOPS);
	return suite_run(suite);
}
