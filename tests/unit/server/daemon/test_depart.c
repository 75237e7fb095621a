// The giver's side of a transfer: whatever the receiver says, does not say, or does, and whichever
// daemon dies, one of the two has the session. The test is the receiver, and keeper, executors and
// client of the giver.

#include "server/daemon/depart.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/handover.h"
#include "server/door/visitor.h"
#include "server/session/session.h"
#include "server/transfer.h"
#include "tests/unit/server/daemon/receiver.h"
#include "tests/unit/server/session/fixture.h"

static struct session *session;

static void set_up(void)
{
	fake_with_records = true;
	join();
	receiver_open(0);
	session = fake_session(fake, 0);
}

static void tear_down(void)
{
	receiver_hang_up();
	part();
	receiver_close();
}

/* Expects a step of the giver. Its descriptors are closed with the next message. */
static const struct wire_handover *expect(enum handover_step step)
{
	const struct wire_handover *what = &fake_expect(fake, receiver, WIRE_HANDOVER)->handover;

	ck_assert_uint_eq(what->step, step);
	return what;
}

static void say(int32_t result, const char *reason)
{
	struct wire_message message = {.type = WIRE_HANDOVER};

	message.handover = (struct wire_handover){.step = HANDOVER_REPLY, .code = result, .text = reason};
	fake_send(fake, receiver, &message, NULL, 0);
	fake_turn(fake);
}

/* Until the receiver has answered the question. */
static void ask(int32_t result, const char *reason)
{
	depart_begin(session, 1, on_done, NULL);
	receiver = accept(listener, NULL, NULL);
	ck_assert_int_ge(receiver, 0);
	expect(HANDOVER_HELLO);
	ck_assert_mem_eq(fake->message.handover.key, transfers->key, sizeof(transfers->key));
	say(0, "");
	expect(HANDOVER_ASK);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	say(result, reason);
}

/* The executor does at once what concerns the session's memory, of which there is none. */
static void answer_all(void)
{
	const uint64_t memory[2] = {UINT64_C(1) << 35, UINT64_C(1) << 36};

	fake_turn(fake);
	packet_close_fds(&fake->packet);
	while (!packet_receive(active->socket, &fake->packet)) {
		ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
		ck_assert(fake->message.type == WIRE_PING || fake->message.type == WIRE_CARRY_MEMORY ||
			  fake->message.type == WIRE_QUERY_MEMORY);
		fake_reply(fake, active->socket, fake->message.id, 0, memory, 2);
		fake_turn(fake);
	}
}

/* Until the receiver has the records and descriptors. Return: the transfer */
static struct transfer give(void)
{
	struct transfer transfer = {.from = 0, .to = 1};
	uint32_t files;

	ask(0, "");
	while (!session->transfer.number && fake_skip(fake))
		answer_all();
	files = expect(HANDOVER_GIVE)->files;
	transfer.number = fake->message.handover.transfer;
	ck_assert_uint_eq(transfer.number, session->transfer.number);
	ck_assert_uint_gt(files, 3);
	for (uint32_t got = 0; got < files; got += fake->packet.fd_count)
		expect(HANDOVER_FILES);
	return transfer;
}

/* Until the receiver may take the session. */
static struct transfer hand(void)
{
	const uint64_t gone = 1;
	struct transfer transfer = give();

	say(0, "");
	fake_expect(fake, active->socket, WIRE_DETACH_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, &gone, 1);
	fake_turn(fake);
	expect(HANDOVER_TAKE);
	ck_assert(session->is_detached);
	return transfer;
}

static void hang_up(void)
{
	receiver_hang_up();
	FAKE_SKIP_WHILE(fake, !ends);
}

static void expect_stays(const char *why)
{
	ck_assert_int_eq(ends, 1);
	ck_assert_int_ne(code, 0);
	ck_assert_msg(strstr(text, why), "%s", text);
	ck_assert_ptr_null(session->departure);
	ck_assert_ptr_null(fake->daemon.departure);
	ck_assert_uint_eq(session->transfer.number, 0);
	ck_assert(!session->is_detached);
	ck_assert_uint_eq(session->state, SESSION_SERVED);
}

/* Every executor closes the session, and the program notices nothing. */
static void expect_left(void)
{
	const uint64_t closed = 1;

	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, active->socket, fake->message.id, 0, &closed, 1);
	fake_expect(fake, standby->socket, WIRE_CLOSE_SESSION);
	fake_reply(fake, standby->socket, fake->message.id, 0, &closed, 1);
	fake_turn(fake);
	ck_assert_uint_eq(fake->daemon.session_count, 0);
	ck_assert_int_lt(word_acquire(&client.view.server->state), SHM_SESSION_FAULTED);
}

TEST(depart, who_is_refused_stays)
{
	ask(CUDA_ERROR_OUT_OF_MEMORY, "there is no room");
	FAKE_SKIP_WHILE(fake, !ends);
	expect_stays("there is no room");
	fake_expect_nothing(fake, active->socket);
}

TEST(depart, who_finds_nobody_stays)
{
	close(listener);
	listener = -1;
	depart_begin(session, 1, on_done, NULL);
	FAKE_SKIP_WHILE(fake, !ends);
	expect_stays("does not answer");
}

TEST(depart, a_receiver_that_ends_before_it_is_ready_has_nothing)
{
	struct transfer transfer = give();

	hang_up();
	expect_stays("does not answer");
	ck_assert(!transfer_take(transfers, &transfer));
	while (session->memory != SESSION_MEMORY_HERE && fake_skip(fake))
		answer_all();
}

TEST(depart, a_receiver_that_ends_before_it_takes_has_nothing)
{
	const uint64_t clean = 0;
	struct transfer transfer = hand();

	hang_up();
	/* The executor serves it again. */
	fake_expect(fake, active->socket, WIRE_ACTIVATE);
	ck_assert_uint_eq(fake->message.activate.sessions.count, 1);
	fake_reply(fake, active->socket, fake->message.id, 0, &clean, 1);
	fake_turn(fake);
	expect_stays("does not answer");
	ck_assert(!transfer_take(transfers, &transfer));
}

TEST_LOOP(depart, who_is_taken_has_left_whatever_is_said, 0, 2)
{
	struct transfer transfer = hand();

	ck_assert(transfer_take(transfers, &transfer));
	if (_i)
		say(0, "");
	else
		hang_up();
	FAKE_SKIP_WHILE(fake, !ends);
	ck_assert_int_eq(code, 0);
	expect_left();
}

/* The next daemon finds what the table says. */
TEST_LOOP(depart, a_giver_that_dies_knows_the_outcome, 0, 2)
{
	const uint64_t clean = 0;
	struct transfer transfer = hand();

	if (_i)
		ck_assert(transfer_take(transfers, &transfer));
	ck_assert_int_eq(fake_come_back(fake), 0);
	if (_i) {
		expect_left();
		return;
	}
	/* The executor learns that the memory is still away. */
	fake_serve(fake, active, WIRE_PING);
	fake_expect(fake, active->socket, WIRE_ACTIVATE);
	fake_reply(fake, active->socket, fake->message.id, 0, &clean, 1);
	fake_turn(fake);
	session = fake_session(fake, 0);
	ck_assert(!session->is_detached);
	ck_assert(!transfer_take(transfers, &transfer));
	while (session->memory != SESSION_MEMORY_HERE && fake_skip(fake))
		answer_all();
}

/* A daemon of the service proves that it is one by the key. */
TEST_LOOP(depart, who_has_not_the_key_is_sent_away, 0, 2)
{
	struct wire_message hello = {.type = WIRE_HANDOVER};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	hello.handover = (struct wire_handover){.step = HANDOVER_HELLO, .device = 1, .text = ""};
	memcpy(hello.handover.key, transfers->key, sizeof(transfers->key));
	hello.handover.key[1] ^= _i ? UINT64_C(1) << 63 : 0;
	fake_send(fake, pair[1], &hello, NULL, 0);
	if (_i) {
		fake_expect_hangup(fake, pair[1]);
	} else {
		fake_expect(fake, pair[1], WIRE_HANDOVER);
		ck_assert_uint_eq(fake->message.handover.step, HANDOVER_REPLY);
		ck_assert_int_eq(fake->message.handover.code, 0);
	}
	close(pair[1]);
	fake_turn(fake);
	ck_assert_ptr_null(fake->daemon.arrival);
}

int main(void)
{
	Suite *suite = suite_create("depart");
	TCase *tests = tcase_create("depart");

	fake_prepare();
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "depart");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
