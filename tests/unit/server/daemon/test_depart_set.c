// The giver's side of a transfer of two sessions that share memory, interrupted behind each single
// message by whatever can die: all sessions stay, or all have left. The test is the receiver,
// keeper, executors and clients.

#include "server/daemon/depart.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/handover.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/transfer.h"
#include "tests/unit/server/daemon/pair.h"
#include "tests/unit/server/daemon/receiver.h"

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

static uint32_t taken; /* number of the transfer that the receiver has taken; 0: none */
static uint32_t asked; /* sessions in the latest bundle */
static bool waits;     /* the receiver, with its answer to the question */

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
	if (!pair_hear(receiver))
		return false;
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

/*
 * The sessions
 */

static void set_up(void)
{
	pair_new();
	receiver_open(SOCK_NONBLOCK);
	taken = asked = 0;
	waits = false;
	pair_join();
}

static void tear_down(void)
{
	receiver_hang_up();
	pair_free();
	receiver_close();
}

/*
 * Deaths
 */

static void die(enum death death)
{
	if (death == DEATH_DAEMON)
		ck_assert_int_eq(fake_come_back(fake), 0);
	else if (death == DEATH_EXECUTOR)
		pair_kill(fake_domain(fake)->active);
	else if (death == DEATH_KEEPER)
		pair_kill(fake->daemon.keeper);
	else if (death == DEATH_FIRST || death == DEATH_SECOND)
		pair_leave(death == DEATH_SECOND);
	else if (death == DEATH_RECEIVER)
		receiver_hang_up();
}

static bool is_at_rest(int i)
{
	return pair_is_gone[i] || taken ? !pair_session(i) : pair_is_at_rest(i);
}

static bool is_settled(void)
{
	return !fake->daemon.departure && is_at_rest(0) && is_at_rest(1);
}

static void settle(void)
{
	pair_play_all(receive_one);
	for (int i = 0; !is_settled() && i < 100000 && fake_skip(fake); i++)
		pair_play_all(receive_one);
	ck_assert(is_settled());
}

/* Return: whether the departure had so many messages */
static bool run(int steps, enum death death)
{
	depart_begin(pair_session(0), 1, on_done, NULL);
	for (int i = 0; i < steps; i++)
		while (!pair_play_one(receive_one))
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
	ck_assert_uint_eq(asked, PAIR);
	ck_assert_uint_eq(fake->daemon.counters.sessions_migrated, PAIR);
	for (int i = 0; i < PAIR; i++)
		ck_assert_int_lt(word_acquire(&pair[i].view.server->state), SHM_SESSION_FAULTED);
}

TEST_LOOP(deaths, all_stay_or_all_have_left, 0, STEPS *DEATHS)
{
	run(_i / DEATHS, (enum death)(_i % DEATHS));
}

/* Whoever ceases to share meanwhile would be torn from what it still waits for. */
TEST(set, it_is_the_set_that_was_asked_about)
{
	struct wire_message release = {.type = WIRE_RELEASE_MEMORY, .memory = {.handle = PAIR_HANDLE}},
			    unmap = {.type = WIRE_UNMAP_MEMORY,
				    .range = {.address = pair[1].window_base, .bytes = PAIR_BYTES}};

	waits = true;
	depart_begin(pair_session(0), 1, on_done, NULL);
	while (pair_play_one(receive_one) || !asked)
		continue;
	pair_ask(1, &unmap);
	pair_ask(1, &release);
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
