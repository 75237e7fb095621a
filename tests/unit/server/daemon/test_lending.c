// Memory of one device on another: the daemon that borrows, with the test as the other device's
// daemon, and the daemon that lends.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "server/daemon/lending.h"
#include "server/door/visitor.h"
#include "server/session/chunk.h"
#include "server/session/export.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/swap.h"
#include "shm/layout.h"
#include "tests/unit/server/session/fixture.h"

/* Words of a token of device 1. */
#define FAR                                                                                                  \
	{                                                                                                    \
		WIRE_TOKEN_DEVICES + 1, 77                                                                   \
	}

static char folder[] = "/tmp/frmps-lending-XXXXXX", path[PLACE_BYTES];
static int listener = -1, memory = -1; /* memory: of device 1 */

/* This daemon is device 0 of two; device 1 is the test. */
static void start(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	join();
	fake->heritage.count = 2;
	snprintf(fake->config.socket, sizeof(fake->config.socket), "%s/socket", folder);
	ck_assert(place_of_device(fake->config.socket, 1, path));
	strcpy(address.sun_path, path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 8), 0);
}

static void stop_listening(void)
{
	close(listener);
	close(memory);
	memory = -1;
	unlink(path);
	rmdir(folder);
}

static int32_t ask(const struct wire_message *message)
{
	struct wire_message request = *message;

	fake_request(fake, &client, &request, -1);
	return fake_expect(fake, client.socket, WIRE_REPLY)->reply.code;
}

static void import(uint64_t handle)
{
	struct wire_message message = {
		.type = WIRE_IMPORT_MEMORY, .memory = {.handle = handle, .token = FAR}};

	fake_request(fake, &client, &message, -1);
	fake_turn(fake);
}

/* Takes the borrower's question. Return: its connection */
static int take_question(void)
{
	const uint64_t token[2] = FAR;
	int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	const struct wire_message *message;

	ck_assert_int_ge(socket, 0);
	message = fake_expect(fake, socket, WIRE_LEND_MEMORY);
	ck_assert_mem_eq(message->lend.token, token, sizeof(token));
	ck_assert_uint_eq(message->lend.uid, getuid());
	return socket;
}

/* Answers with memory, and the file of it. Return: the other end of that file */
static int lend(int socket, uint64_t is_host)
{
	const uint64_t values[4] = {2 * MIB, is_host};
	const struct wire_message reply = {.type = WIRE_REPLY, .id = 1, .reply = {.values = {values, 4}}};
	int file[2];

	memory = fake_memfd(2 * MIB, 0);
	ck_assert_int_eq(pwrite(memory, "here", 4, MIB), 4);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, file), 0);
	fake_send(fake, socket, &reply, (const int[2]){memory, file[0]}, 2);
	close(file[0]);
	close(socket);
	return file[1];
}

static bool is_open(int file)
{
	char byte;

	return recv(file, &byte, 1, 0) < 0;
}

static const struct holdings *holdings(void)
{
	return &fake_session(fake, 0)->holdings;
}

TEST(borrower, memory_of_another_device_is_mapped_like_own)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE,
		.memory = {.handle = 7, .address = client.window_base, .bytes = 2 * MIB}};
	struct wire_message unmap = {.type = WIRE_UNMAP_MEMORY, .range = {.bytes = 2 * MIB}};
	int file;

	start();
	fake_session(fake, 0)->terms.memory_limit = MIB;
	import(7);
	fake_expect_nothing(fake, client.socket);
	file = lend(take_question(), 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	ck_assert_uint_eq(fake->message.reply.values.at[0], 2 * MIB);
	ck_assert_uint_eq(fake->message.reply.values.at[1], 0);
	/* It counts where it is. */
	ck_assert_uint_eq(holdings()->memory_bytes, 0);
	ck_assert_uint_eq(holdings()->owned_bytes, 0);
	ck_assert_uint_eq(holdings()->fds, 2);
	map.memory.address = unmap.range.address = client.window_base;
	fake_request(fake, &client, &map, -1);
	/* Whoever else writes there, it is not this session's work alone. */
	ck_assert_uint_eq(fake_expect(fake, active->socket, WIRE_MAP_MEMORY)->range.flags, 1);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	fake_reply(fake, active->socket, fake->message.id, 0, NULL, 0);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	ck_assert_ptr_nonnull(swap_refuses(fake_session(fake, 0)));
	/* A second session's import asks nobody. */
	ck_assert_int_eq(ask(&(struct wire_message){
				 .type = WIRE_IMPORT_MEMORY, .memory = {.handle = 8, .token = FAR}}),
		0);
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_UNMAP_MEMORY);
	for (uint64_t handle = 7; handle < 9; handle++) {
		ck_assert(is_open(file));
		ck_assert_int_eq(ask(&(struct wire_message){
					 .type = WIRE_RELEASE_MEMORY, .memory = {.handle = handle}}),
			0);
	}
	ck_assert(!is_open(file));
	/* The keeper here never knew it. */
	fake_expect_nothing(fake, keeper->socket);
	close(file);
	part();
}

/* The pages are the other daemon's to count, and to free. */
TEST(borrower, host_memory_of_another_device_stays_when_it_is_released)
{
	const struct wire_message release = {.type = WIRE_RELEASE_MEMORY, .memory = {.handle = 7}};
	char text[4];
	int file;

	start();
	fake_session(fake, 0)->terms.pinned_limit = MIB;
	import(7);
	file = lend(take_question(), 1);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	ck_assert_uint_eq(fake->message.reply.values.at[1], 1);
	ck_assert_uint_eq(holdings()->host_bytes, 0);
	ck_assert_int_eq(ask(&release), 0);
	ck_assert(!is_open(file));
	ck_assert_int_eq(pread(memory, text, 4, MIB), 4);
	ck_assert_mem_eq(text, "here", 4);
	close(file);
	part();
}

TEST(borrower, a_refusal_is_the_answer)
{
	const struct wire_message reply = {
		.type = WIRE_REPLY, .id = 1, .reply = {.code = CUDA_ERROR_INVALID_VALUE}};
	int socket;

	start();
	import(7);
	socket = take_question();
	fake_send(fake, socket, &reply, NULL, 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, CUDA_ERROR_INVALID_VALUE);
	close(socket);
	part();
}

/* 0 it hangs up, 1 it says what makes no sense, 2 nothing, 3 it is not there, 4 without
 * descriptors. */
TEST_LOOP(borrower, a_daemon_that_does_not_answer_is_an_error, 0, 5)
{
	const struct wire_message wrong = {.type = _i == 1 ? WIRE_PING : WIRE_REPLY, .id = 1};
	const uint64_t values[4] = {2 * MIB};
	struct wire_message bare = {.type = WIRE_REPLY, .id = 1, .reply = {.values = {values, 4}}};
	int socket = -1;

	start();
	if (_i == 3) {
		close(listener);
		listener = -1;
	}
	import(7);
	if (_i != 3)
		socket = take_question();
	/* Also when it is asked again. */
	for (int tries = 1; _i == 0 && tries < 4; tries++) {
		close(socket);
		fake_turn(fake);
		socket = take_question();
	}
	if (_i == 0)
		close(socket);
	if (_i == 1)
		fake_send(fake, socket, &wrong, NULL, 0);
	if (_i == 4)
		fake_send(fake, socket, &bare, NULL, 0);
	if (_i == 2)
		FAKE_SKIP_WHILE(fake, fake_session(fake, 0)->request);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code,
		_i == 4 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(holdings()->count, 0);
	if (_i)
		close(socket);
	part();
}

static void refuse(int socket, int32_t code)
{
	const struct wire_message reply = {.type = WIRE_REPLY, .id = 1, .reply = {.code = code}};

	fake_send(fake, socket, &reply, NULL, 0);
	fake_turn(fake);
	close(socket);
}

/* Its programs have gone on there, and the token is as old as the memory. */
TEST(borrower, memory_that_was_made_here_may_be_there)
{
	const uint64_t token[2] = {WIRE_TOKEN_DEVICES, 77};
	struct wire_message message = {.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 7}};
	int socket, file;

	start();
	memcpy(message.memory.token, token, sizeof(token));
	fake_request(fake, &client, &message, -1);
	fake_turn(fake);
	socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	fake_expect(fake, socket, WIRE_LEND_MEMORY);
	ck_assert_mem_eq(fake->message.lend.token, token, sizeof(token));
	file = lend(socket, 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	close(file);
	part();
}

/* The token's device comes first, then the others. */
TEST(borrower, each_other_device_is_asked_once)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char other[PLACE_BYTES];
	int second, asked;

	start();
	fake->heritage.count = 3;
	ck_assert(place_of_device(fake->config.socket, 2, other));
	strcpy(address.sun_path, other);
	second = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(second, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(second, 8), 0);
	import(7);
	ck_assert_int_lt(accept4(second, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), 0);
	refuse(take_question(), CUDA_ERROR_INVALID_VALUE);
	asked = accept4(second, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	fake_expect(fake, asked, WIRE_LEND_MEMORY);
	fake_expect_nothing(fake, client.socket);
	refuse(asked, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, CUDA_ERROR_INVALID_VALUE);
	close(second);
	unlink(other);
	part();
}

/* It comes back, or arrives at another device. */
TEST(borrower, memory_that_is_away_is_asked_for_again)
{
	int file;

	start();
	import(7);
	for (int i = 0; i < 3; i++) {
		refuse(take_question(), CUDA_ERROR_NOT_READY);
		fake_expect_nothing(fake, client.socket);
		FAKE_SKIP_WHILE(fake, !fake_session(fake, 0)->request->borrowing);
	}
	file = lend(take_question(), 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	close(file);
	part();
}

TEST(borrower, memory_that_stays_away_is_an_error)
{
	start();
	import(7);
	fake_session(fake, 0)->asked_us -= UINT64_C(1000) * LENDING_PATIENCE_MS;
	refuse(take_question(), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(holdings()->count, 0);
	part();
}

TEST(borrower, a_daemon_that_dies_is_asked_again)
{
	int file;

	start();
	import(7);
	close(take_question());
	fake_turn(fake);
	fake_expect_nothing(fake, client.socket);
	file = lend(take_question(), 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	close(file);
	part();
}

TEST(borrower, a_session_ends_while_it_borrows)
{
	int socket;

	start();
	import(7);
	socket = take_question();
	part();
	close(socket);
}

TEST(borrower, a_token_of_no_device_is_none)
{
	struct wire_message message = {
		.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 7, .token = {WIRE_TOKEN_DEVICES + 2, 1}}};

	start();
	ck_assert_int_eq(ask(&message), CUDA_ERROR_INVALID_VALUE);
	part();
}

/*
 * The lender
 */

/* Memory of the client. @ret_token: to import it */
static void create(uint64_t handle, uint64_t ret_token[2])
{
	struct wire_message create = {
		.type = WIRE_CREATE_MEMORY, .memory = {.handle = handle, .bytes = 2 * MIB}};

	fake_request(fake, &client, &create, -1);
	fake_make_chunk(fake, keeper, handle);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(
		ask(&(struct wire_message){.type = WIRE_EXPORT_MEMORY, .memory = {.handle = handle}}), 0);
	memcpy(ret_token, fake->message.reply.values.at, 2 * sizeof(*ret_token));
	ck_assert_uint_eq(WIRE_TOKEN_DEVICE(ret_token), fake->heritage.number);
}

static uint64_t size = 2 * MIB; /* of what is pinned and lent */

/* Asks as the daemon of another device. @ret_file: that the answer brings, the caller's */
static int32_t borrow(const uint64_t token[2], uid_t as, uid_t uid, int *ret_file)
{
	const struct wire_message message = {
		.type = WIRE_LEND_MEMORY, .id = 5, .lend = {.token = {token[0], token[1]}, .uid = uid}};
	int pair[2];
	int32_t code;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	TAILQ_LAST(&fake->daemon.visitors, visitor_list)->peer.uid = as;
	fake_send(fake, pair[1], &message, NULL, 0);
	code = fake_expect(fake, pair[1], WIRE_REPLY)->reply.code;
	ck_assert_uint_eq(fake->message.id, 5);
	ck_assert_uint_eq(fake->packet.fd_count, code ? 0 : 2);
	if (!code) {
		ck_assert_uint_eq(fake->message.reply.values.at[0], size);
		*ret_file = packet_take_fd(&fake->packet, 1);
	}
	fake_expect_hangup(fake, pair[1]);
	close(pair[1]);
	return code;
}

TEST(lender, memory_is_lent_to_the_service_alone)
{
	uint64_t token[2], wrong[2];
	int file = -1;

	join();
	create(9, token);
	memcpy(wrong, token, sizeof(wrong));
	wrong[1]++;
	ck_assert_int_eq(borrow(token, geteuid() + 1, getuid(), &file), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(borrow(token, geteuid(), getuid() + 1, &file), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(borrow(wrong, geteuid(), getuid(), &file), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	ck_assert_int_ge(file, 0);
	close(file);
	part();
}

/* It stays where it is, as long as it is there: also for a daemon that comes later. */
TEST(lives, lent_memory_is_not_emptied)
{
	struct wire_message map = {.type = WIRE_MAP_HANDLE, .memory = {.handle = 9, .bytes = 2 * MIB}};
	uint64_t token[2];
	int file, other;

	fake_with_records = true;
	join();
	create(9, token);
	map.memory.address = client.window_base;
	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_MAP_MEMORY);
	fake_tell(fake);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	ck_assert_ptr_nonnull(swap_refuses(fake_session(fake, 0)));
	/* Until the other device has it no more, as the records say, too. */
	close(file);
	ck_assert_ptr_null(swap_refuses(fake_session(fake, 0)));
	fake_turn(fake);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_ptr_null(swap_refuses(fake_session(fake, 0)));
	ck_assert_uint_eq(holdings()->shared_count, 0);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	ck_assert_ptr_nonnull(swap_refuses(fake_session(fake, 0)));
	ck_assert_uint_eq(holdings()->shared_count, 1);
	/* A daemon that comes later has no file that tells: one of its own says nothing of this. */
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_ptr_nonnull(swap_refuses(fake_session(fake, 0)));
	ck_assert_uint_eq(holdings()->shared_count, 1);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &other), 0);
	close(other);
	ck_assert_ptr_nonnull(swap_refuses(fake_session(fake, 0)));
	close(file);
	part();
}

/* The record has all that the next daemon needs of it. */
TEST(lives, borrowed_memory_outlives_the_daemon)
{
	const struct wire_message release = {.type = WIRE_RELEASE_MEMORY, .memory = {.handle = 7}};
	int file;

	fake_with_records = true;
	start();
	import(7);
	file = lend(take_question(), 0);
	ck_assert_int_eq(fake_expect(fake, client.socket, WIRE_REPLY)->reply.code, 0);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(holdings()->memory_bytes, 0);
	ck_assert_int_eq(TAILQ_FIRST(&holdings()->entries)->chunk->kind, CHUNK_BORROWED);
	ck_assert_ptr_nonnull(TAILQ_FIRST(&holdings()->entries)->chunk->lease);
	ck_assert_int_eq(ask(&release), 0);
	ck_assert_uint_eq(holdings()->count, 0);
	close(file);
	part();
}

/* Pins memory of the client, without a handle. @ret_token: to import it */
static void pin(uint64_t address, uint64_t ret_token[2])
{
	struct wire_message map = {.type = WIRE_MAP_HOST, .range = {address, size, 0}};

	fake_request(fake, &client, &map, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	/* Any address in it. */
	ck_assert_int_eq(ask(&(struct wire_message){
				 .type = WIRE_EXPORT_MEMORY, .memory = {.address = address + 4096}}),
		0);
	ck_assert_uint_eq(fake->message.reply.values.at[2], size);
	ck_assert_uint_eq(fake->message.reply.values.at[3], address);
	memcpy(ret_token, fake->message.reply.values.at, 2 * sizeof(*ret_token));
	ck_assert_uint_eq(WIRE_TOKEN_DEVICE(ret_token), fake->heritage.number);
}

static void unpin(uint64_t address)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST, .range = {address, size, 0}};

	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_UNMAP_HOST);
}

/* Pinned memory without a handle is lent by its address, and goes on counting as before. */
TEST(lender, pinned_memory_is_lent_by_its_address)
{
	struct wire_message events = {
		.type = WIRE_MAP_HOST, .range = {.bytes = SHM_SHARED_PAGE_BYTES, .flags = WIRE_HOST_EVENTS}};
	uint64_t token[2], again[2], at;
	uint32_t fds;
	int file;

	join();
	at = client.window_base + WINDOW_DEVICE_BYTES;
	pin(at, token);
	fds = holdings()->fds;
	ck_assert_uint_eq(holdings()->host_bytes, 2 * MIB);
	ck_assert_int_eq(
		ask(&(struct wire_message){.type = WIRE_EXPORT_MEMORY, .memory = {.address = at}}), 0);
	memcpy(again, fake->message.reply.values.at, sizeof(again));
	ck_assert_mem_eq(again, token, sizeof(token));
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	ck_assert_uint_eq(fake->message.reply.values.at[1], 1);
	ck_assert_uint_eq(holdings()->fds, fds);
	ck_assert_uint_eq(holdings()->host_bytes, 2 * MIB);
	/* Its device memory may leave all the same. */
	ck_assert_ptr_null(swap_refuses(fake_session(fake, 0)));
	unpin(at);
	ck_assert_uint_eq(holdings()->host_bytes, 0);
	ck_assert_uint_eq(holdings()->fds, 0);
	close(file);
	/* Shared events are none of it. */
	events.range.address = at + 8 * MIB;
	fake_request(fake, &client, &events, -1);
	fake_serve(fake, active, WIRE_MAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_serve(fake, standby, WIRE_MAP_HOST);
	ck_assert_int_eq(ask(&(struct wire_message){
				 .type = WIRE_EXPORT_MEMORY, .memory = {.address = events.range.address}}),
		CUDA_ERROR_INVALID_VALUE);
	part();
}

/* What the other device has no more counts no more, at once. */
TEST(lender, memory_that_is_freed_makes_room_for_more)
{
	uint64_t token[2], at;
	int file, other;

	join();
	at = client.window_base + WINDOW_DEVICE_BYTES;
	fake_session(fake, 0)->terms.pinned_limit = 3 * MIB;
	for (uint64_t i = 0; i < 4; i++) {
		pin(at + i * 2 * MIB, token);
		ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
		/* It is freed a moment before the other device says so. */
		unpin(at + i * 2 * MIB);
		if (i < 3)
			close(file);
	}
	pin(at, token);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &other), CUDA_ERROR_OUT_OF_MEMORY);
	close(file);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &other), 0);
	close(other);
	part();
}

/* Without a limit of the configuration, too: that of a session holds. */
TEST(lender, no_more_is_lent_than_a_session_may_pin)
{
	uint64_t token[2], at;
	int file, other;

	join();
	at = client.window_base + WINDOW_DEVICE_BYTES;
	size = WINDOW_HOST_BYTES / 2 + 2 * MIB;
	pin(at, token);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	unpin(at);
	pin(at, token);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &other), CUDA_ERROR_OUT_OF_MEMORY);
	close(file);
	part();
}

TEST(lives, lent_pinned_memory_outlives_the_daemon)
{
	uint64_t token[2], again[2], at;
	int file;

	fake_with_records = true;
	join();
	at = client.window_base + WINDOW_DEVICE_BYTES;
	pin(at, token);
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	close(file);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(holdings()->host_bytes, 2 * MIB);
	ck_assert_int_eq(
		ask(&(struct wire_message){.type = WIRE_EXPORT_MEMORY, .memory = {.address = at}}), 0);
	memcpy(again, fake->message.reply.values.at, sizeof(again));
	ck_assert_mem_eq(again, token, sizeof(token));
	ck_assert_int_eq(borrow(token, geteuid(), getuid(), &file), 0);
	close(file);
	unpin(at);
	ck_assert_uint_eq(holdings()->count, 0);
	part();
}

/* It counts for its user until the other device has it no more. */
TEST(lender, lent_memory_counts_when_its_owner_has_ended)
{
	uint64_t token[3][2];
	int files[2];

	join();
	fake_session(fake, 0)->terms.memory_limit = 6 * MIB;
	for (uint64_t i = 0; i < 3; i++)
		create(9 + i, token[i]);
	fake_session(fake, 0)->terms.memory_limit = 1;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(borrow(token[i], geteuid(), getuid(), &files[i]), 0);
		ck_assert_int_eq(ask(&(struct wire_message){
					 .type = WIRE_RELEASE_MEMORY, .memory = {.handle = 9 + (uint64_t)i}}),
			0);
	}
	/* More than may be unheld: nothing is freed that is in use, and nothing more is lent. */
	ck_assert_uint_eq(exports_unheld_bytes(&fake->daemon.exports), 4 * MIB);
	ck_assert(!exports_release_one(&fake->daemon.exports));
	fake_expect_nothing(fake, keeper->socket);
	close(files[0]);
	FAKE_SKIP_WHILE(fake, exports_unheld_bytes(&fake->daemon.exports) == 4 * MIB);
	fake_serve(fake, keeper, WIRE_RELEASE_CHUNK);
	close(files[1]);
	part();
}

int main(void)
{
	Suite *suite = suite_create("lending");
	TCase *tests = suite_case(suite, "borrower");

	fake_prepare();
	tcase_add_checked_fixture(tests, NULL, stop_listening);
	suite_add(tests, "borrower");
	tests = suite_case(suite, "lender");
	suite_add(tests, "lender");
	/* What killed daemons have open is not closed. */
	tests = tcase_create("lives");
	suite_add_tcase(suite, tests);
	suite_add(tests, "lives");
	return suite_run(suite);
}
