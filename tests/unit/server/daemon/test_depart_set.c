// The giver's side of a transfer of two sessions that share memory, interrupted behind each single
// message by whatever can die: all sessions stay, or all have left. The test is the receiver,
// keeper, executors and clients.

#include "server/daemon/depart.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/daemon/handover.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/transfer.h"
#include "tests/unit/server/daemon/receiver.h"
#include "tests/unit/server/session/fixture.h"

#define MEMBERS 2
#define BYTES	(2 * MIB)
#define HANDLE	9
/* More messages than a departure has. */
#define STEPS 32

/* What dies behind a message. */
enum death {
	DEATH_NONE,
	DEATH_DAEMON,
	DEATH_EXECUTOR,
	DEATH_KEEPER,
	DEATH_FIRST,
	DEATH_SECOND,
	DEATH_RECEIVER,
	DEATHS
};

static struct fake_client members[MEMBERS];
static uint64_t numbers[MEMBERS];
static bool is_gone[MEMBERS];
static uint32_t taken; /* number of the transfer that the receiver has taken; 0: none */
static uint32_t asked; /* sessions in the latest bundle */
static bool waits;     /* the receiver, with its answer to the question */
/*
 * The children
 */

static unsigned mapped[FAKE_CHILDREN_MAX];

static void answer(unsigned index)
{
	fake_play_answer(fake, &fake->children[index]);
}

static void start_up(struct fake_child *child)
{
	fake_ready(fake, child);
}

static struct fake_play play = {.mapped = mapped, .start = start_up, .answer = answer};

/*
 * The receiver
 */

static void say_yes(void)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.handover = (struct wire_handover){.step = HANDOVER_REPLY, .text = ""};
	/* The giver may have hung up. */
	message_send(receiver, &message, NULL, 0);
}

static void read_bundle(void)
{
	struct handover handover;

	ck_assert_int_eq(handover_read(fake->packet.fds[0], &handover), 0);
	asked = handover.head.member_count;
	handover_free(&handover);
}

static void take(void)
{
	const struct transfer transfer = {.to = 1, .number = fake->message.handover.transfer};

	if (transfer_take(transfers, &transfer))
		taken = transfer.number;
}

/* Return: whether there was anything to do */
static bool receive_one(void)
{
	enum handover_step step;

	if (receiver < 0)
		receiver = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	packet_close_fds(&fake->packet);
	if (receiver < 0 || packet_receive(receiver, &fake->packet))
		return false;
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	step = fake->message.handover.step;
	if (step == HANDOVER_ASK || step == HANDOVER_GIVE)
		read_bundle();
	if (step == HANDOVER_TAKE)
		take();
	if (step != HANDOVER_FILES && !(step == HANDOVER_ASK && waits))
		say_yes();
	packet_close_fds(&fake->packet);
	return true;
}

static bool play_one(void)
{
	return fake_play_one(fake, &play) || receive_one();
}

static void play_all(void)
{
	while (play_one())
		continue;
}

/*
 * The sessions
 */

static void ask(struct fake_client *program, struct wire_message *message)
{
	fake_request(fake, program, message, -1);
	fake_play_all(fake, &play);
	fake_expect(fake, program->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void map_shared(struct fake_client *member)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE,
		.memory = {.handle = HANDLE, .address = member->window_base, .bytes = BYTES}};

	ask(member, &map);
}

static void share(void)
{
	struct wire_message create = {.type = WIRE_CREATE_MEMORY,
				    .memory = {.handle = HANDLE, .bytes = BYTES}},
			    export_it = {.type = WIRE_EXPORT_MEMORY, .memory = {.handle = HANDLE}},
			    import = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = HANDLE}};

	ask(&members[0], &create);
	map_shared(&members[0]);
	ask(&members[0], &export_it);
	memcpy(import.memory.token, fake->message.reply.values.at, sizeof(import.memory.token));
	packet_close_fds(&fake->packet);
	ask(&members[1], &import);
	map_shared(&members[1]);
	fake_tell(fake);
	fake_play_all(fake, &play);
}

static void set_up(void)
{
	memset(play.started, 0, sizeof(play.started));
	memset(play.latest, 0, sizeof(play.latest));
	fake_with_records = true;
	fake = fake_new(1);
	fake->config.guard = CONFIG_GUARD_OFF;
	fake->daemon.rules.general.swap_host_bytes = UINT64_C(1) << 40;
	receiver_open(SOCK_NONBLOCK);
	taken = asked = 0;
	waits = false;
	fake_play_all(fake, &play);
	for (int i = 0; i < MEMBERS; i++) {
		is_gone[i] = false;
		fake_hello(fake, &members[i]);
		fake_play_all(fake, &play);
		fake_welcome(fake, &members[i]);
		numbers[i] = fake_session(fake, (unsigned)i)->number;
	}
	share();
}

static struct session *member(int i)
{
	return daemon_find_session(&fake->daemon, numbers[i]);
}

static void leave(int i)
{
	if (!is_gone[i])
		fake_leave(fake, &members[i]);
	is_gone[i] = true;
}

static void tear_down(void)
{
	receiver_hang_up();
	for (int i = 0; i < MEMBERS; i++)
		leave(i);
	play_all();
	packet_close_fds(&fake->packet);
	fake_free(fake);
	receiver_close();
}

/*
 * Deaths
 */

static void kill_child(const struct worker *worker)
{
	struct fake_child *child = fake_child_of(fake, worker);

	if (child)
		fake_reap(fake, child, SIGKILL);
}

static void die(enum death death)
{
	if (death == DEATH_DAEMON)
		ck_assert_int_eq(fake_come_back(fake), 0);
	else if (death == DEATH_EXECUTOR)
		kill_child(fake_domain(fake)->active);
	else if (death == DEATH_KEEPER)
		kill_child(fake->daemon.keeper);
	else if (death == DEATH_FIRST || death == DEATH_SECOND)
		leave(death == DEATH_SECOND);
	else if (death == DEATH_RECEIVER)
		receiver_hang_up();
}

static bool is_at_rest(int i)
{
	const struct session *session = member(i);

	if (is_gone[i] || taken)
		return !session;
	return session && session->state == SESSION_SERVED && session->memory == SESSION_MEMORY_HERE &&
	       !session->is_detached && !session->departure && !session->attach.worker;
}

static bool is_settled(void)
{
	return !fake->daemon.departure && is_at_rest(0) && is_at_rest(1);
}

static void settle(void)
{
	play_all();
	for (int i = 0; !is_settled() && i < 100000 && fake_skip(fake); i++)
		play_all();
	ck_assert(is_settled());
}

/* Return: whether the departure had so many messages */
static bool run(int steps, enum death death)
{
	depart_begin(member(0), 1, on_done, NULL);
	for (int i = 0; i < steps; i++)
		while (!play_one())
			if (ends || !fake_skip(fake))
				return false;
	die(death);
	settle();
	return true;
}

TEST(set, both_leave_at_once)
{
	ck_assert(!run(STEPS, DEATH_NONE));
	settle();
	ck_assert_int_eq(ends, 1);
	ck_assert_msg(!code, "%s", text);
	ck_assert_uint_ne(taken, 0);
	ck_assert_uint_eq(asked, MEMBERS);
	ck_assert_uint_eq(fake->daemon.counters.sessions_migrated, MEMBERS);
	for (int i = 0; i < MEMBERS; i++)
		ck_assert_int_lt(word_acquire(&members[i].view.server->state), SHM_SESSION_FAULTED);
}

TEST_LOOP(deaths, all_stay_or_all_have_left, 0, STEPS *DEATHS)
{
	run(_i / DEATHS, (enum death)(_i % DEATHS));
}

/* Whoever ceases to share meanwhile would be torn from what it still waits for. */
TEST(set, it_is_the_set_that_was_asked_about)
{
	struct wire_message release = {.type = WIRE_RELEASE_MEMORY, .memory = {.handle = HANDLE}},
			    unmap = {.type = WIRE_UNMAP_MEMORY,
				    .range = {.address = members[1].window_base, .bytes = BYTES}};

	waits = true;
	depart_begin(member(0), 1, on_done, NULL);
	while (play_one() || !asked)
		continue;
	ask(&members[1], &unmap);
	ask(&members[1], &release);
	say_yes();
	settle();
	ck_assert_int_eq(ends, 1);
	ck_assert_msg(strstr(text, "begun or ceased to share"), "%s", text);
	ck_assert_uint_eq(taken, 0);
}

int main(void)
{
	Suite *suite = suite_create("depart_set");
	TCase *tests = tcase_create("depart_set");

	fake_prepare();
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "set");
	suite_add(tests, "deaths");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
