// See pair.h.

#include "tests/unit/server/daemon/pair.h"

#include <signal.h>
#include <string.h>

#include "server/config/config.h"
#include "server/session/domain.h"
#include "server/session/session.h"

struct fake_client pair[PAIR];
uint64_t pair_numbers[PAIR];
bool pair_is_gone[PAIR];

static unsigned mapped[FAKE_CHILDREN_MAX];

/*
 * The children
 */

struct pair_manner pair_manner;

/* A stash, as an executor has it mapped. */
static struct {
	uint64_t address, reserved, bytes;
} stashes[FAKE_CHILDREN_MAX];

/* A request without an answer. */
static struct {
	uint64_t id;
	unsigned index;
} held[64];
static unsigned held_count;

static void expect_stashed(unsigned index, uint64_t address, uint64_t bytes)
{
	ck_assert_uint_ge(address, stashes[index].address);
	ck_assert_uint_le(address + bytes, stashes[index].address + stashes[index].bytes);
}

/* Nothing is copied where nothing is mapped, and nothing is mapped twice. */
static void note_stash(unsigned index, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_MAP_STASH:
		if (!fake->packet.fd_count) {
			ck_assert_uint_eq(stashes[index].reserved, 0);
			stashes[index].address = message->range.address;
			stashes[index].reserved = message->range.bytes;
			break;
		}
		ck_assert_uint_eq(stashes[index].bytes, 0);
		ck_assert_uint_eq(stashes[index].address, message->range.address);
		ck_assert_uint_le(message->range.bytes, stashes[index].reserved);
		stashes[index].bytes = message->range.bytes;
		break;
	case WIRE_UNMAP_STASH:
		if (message->range.bytes)
			ck_assert_uint_eq(stashes[index].bytes, message->range.bytes);
		else
			stashes[index].reserved = 0;
		stashes[index].bytes = 0;
		break;
	case WIRE_CARRY_MEMORY:
		ck_assert_uint_eq(fake->packet.fd_count, message->carry.bytes && !message->carry.aside);
		if (message->carry.aside)
			expect_stashed(index, message->carry.aside, message->carry.bytes);
		pair_manner.stashed += message->carry.aside != 0;
		pair_manner.filed += message->carry.bytes && !message->carry.aside;
		break;
	case WIRE_CARRY_STASH:
		ck_assert_uint_eq(fake->packet.fd_count, 1);
		expect_stashed(index, message->carry.address, message->carry.bytes);
		break;
	default:
		break;
	}
}

static void answer(unsigned index)
{
	note_stash(index, &fake->message);
	if (pair_manner.held && fake->message.type == pair_manner.held) {
		held[held_count].id = fake->message.id;
		held[held_count++].index = index;
		return;
	}
	fake_play_answer(fake, &fake->children[index]);
}

bool pair_answer_held(void)
{
	unsigned last = held_count - 1;

	if (!held_count)
		return false;
	held_count--;
	/* Who died has not answered; the next life of the daemon has other workers. */
	if (fake->children[held[last].index].worker)
		fake_reply(fake, fake->children[held[last].index].socket, held[last].id, 0, NULL, 0);
	return true;
}

uint64_t pair_stashed_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < fake->child_count; i++)
		bytes += fake->children[i].worker ? stashes[i].bytes + stashes[i].reserved : 0;
	return bytes;
}

static void start_up(struct fake_child *child)
{
	fake_ready(fake, child);
}

static struct fake_play play = {.mapped = mapped, .start = start_up, .answer = answer};

bool pair_play_one(bool (*beside)(void))
{
	return fake_play_one(fake, &play) || (beside && beside());
}

void pair_play_all(bool (*beside)(void))
{
	while (pair_play_one(beside))
		continue;
}

bool pair_hear(int socket)
{
	packet_close_fds(&fake->packet);
	if (socket < 0 || packet_receive(socket, &fake->packet))
		return false;
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	ck_assert_uint_eq(fake->message.type, WIRE_HANDOVER);
	return true;
}

/*
 * The programs
 */

struct session *pair_session(int i)
{
	return daemon_find_session(&fake->daemon, pair_numbers[i]);
}

void pair_leave(int i)
{
	if (!pair_is_gone[i])
		fake_leave(fake, &pair[i]);
	pair_is_gone[i] = true;
}

void pair_ask(int i, struct wire_message *message)
{
	fake_request(fake, &pair[i], message, -1);
	pair_play_all(NULL);
	fake_expect(fake, pair[i].socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void map_shared(int i)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE,
		.memory = {.handle = PAIR_HANDLE, .address = pair[i].window_base, .bytes = PAIR_BYTES}};

	pair_ask(i, &map);
}

static void share(void)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY,
				    .memory = {.handle = PAIR_HANDLE, .bytes = PAIR_BYTES}},
			    export_it = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = PAIR_HANDLE}},
			    import = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = PAIR_HANDLE}};

	pair_ask(0, &create);
	map_shared(0);
	pair_ask(0, &export_it);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	packet_close_fds(&fake->packet);
	pair_ask(1, &import);
	map_shared(1);
	fake_tell(fake);
	pair_play_all(NULL);
}

void pair_new(void)
{
	memset(play.started, 0, sizeof(play.started));
	memset(play.latest, 0, sizeof(play.latest));
	memset(stashes, 0, sizeof(stashes));
	pair_manner = (struct pair_manner){0};
	held_count = 0;
	fake_with_records = true;
	fake = fake_new(1);
	fake->config.guard = CONFIG_GUARD_OFF;
	fake->daemon.rules.general.swap_host_bytes = UINT64_C(1) << 40;
}

void pair_join(void)
{
	pair_play_all(NULL);
	for (int i = 0; i < PAIR; i++) {
		pair_is_gone[i] = false;
		fake_hello(fake, &pair[i]);
		pair_play_all(NULL);
		fake_welcome(fake, &pair[i]);
		pair_numbers[i] = fake_session(fake, (unsigned)i)->number;
	}
	share();
}

void pair_free(void)
{
	for (int i = 0; i < PAIR; i++)
		pair_leave(i);
	pair_play_all(NULL);
	end();
}

void pair_kill(const struct worker *worker)
{
	struct fake_child *child = fake_child_of(fake, worker);

	if (child)
		fake_reap(fake, child, SIGKILL);
}

void pair_die(enum pair_death death, void (*hang_up)(void))
{
	if (death == PAIR_DEATH_DAEMON) {
		ck_assert_int_eq(fake_come_back(fake), 0);
		/* The kernel closes what a daemon has that dies. */
		hang_up();
	} else if (death == PAIR_DEATH_EXECUTOR) {
		pair_kill(fake_domain(fake)->active);
	} else if (death == PAIR_DEATH_KEEPER) {
		pair_kill(fake->daemon.keeper);
	} else if (death == PAIR_DEATH_FIRST || death == PAIR_DEATH_SECOND) {
		pair_leave(death == PAIR_DEATH_SECOND);
	} else if (death == PAIR_DEATH_TOOL) {
		hang_up();
	}
}

bool pair_is_at_rest(int i)
{
	const struct session *session = pair_session(i);

	return session && session->state == SESSION_SERVED && session->memory == SESSION_MEMORY_HERE &&
	       !session->is_detached && !session->departure && !session->attach.worker;
}
