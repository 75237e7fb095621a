// What a program can do with descriptors: those that it sends, and those that the service gave it.
// Every test starts a service of its own; the client speaks the protocol by hand. Those with a file
// system of their own need root.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "tests/lib/mute.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/program.h"
#include "tests/system/raw.h"

#define MIB    (UINT64_C(1) << 20)
#define PIECES 4u
#define PIECE  (16 * MIB)

static struct service service;
static struct raw_session session;

static void start_limited(void)
{
	ck_assert(service_start_configured(&service, "pinned_limit = 64M\n"));
	raw_open(&service, &session);
}

static void stop(void)
{
	raw_close(&session);
	ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Pinned memory
 */

/* The latest piece: addresses of earlier ones may be taken for a while. */
static uint64_t offset;

/* @ret_fd: the file of the memory, the caller's. Return: the answer's code */
static int pin(int *ret_fd)
{
	struct wire_message map = {.type = WIRE_MAP_HOST, .range = {.bytes = PIECE}};

	offset += PIECE;
	map.range.address = session.window_base + session.device_bytes + offset;
	return raw_ask(&session, &map, ret_fd);
}

static int unpin(void)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST,
		.range = {.address = session.window_base + session.device_bytes + offset, .bytes = PIECE}};

	return raw_ask(&session, &unmap, NULL);
}

static void *fill(int fd)
{
	void *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	memset(at, 1, PIECE);
	return at;
}

/* Keeps a descriptor of each, or with odd rows a mapping alone. */
TEST_LOOP(pinned, freed_pinned_memory_that_is_kept_counts, 0, 2)
{
	void *at[PIECES];
	int fds[PIECES], fd;

	for (unsigned i = 0; i < PIECES; i++) {
		ck_assert_int_eq(pin(&fds[i]), CUDA_SUCCESS);
		at[i] = fill(fds[i]);
		if (_i)
			close(fds[i]);
		else
			munmap(at[i], PIECE);
		ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	}
	ck_assert_int_eq(pin(&fd), CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned i = 0; i < PIECES; i++)
		ck_assert_int_eq(_i ? munmap(at[i], PIECE) : close(fds[i]), 0);
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	close(fd);
}

/* The session is over, and the next one is its user's as well. */
TEST(pinned, pinned_memory_of_a_session_that_has_ended_counts)
{
	int fds[PIECES], fd;

	for (unsigned i = 0; i < PIECES; i++) {
		ck_assert_int_eq(pin(&fds[i]), CUDA_SUCCESS);
		munmap(fill(fds[i]), PIECE);
		if (i + 1 < PIECES)
			ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	}
	raw_close(&session);
	wait_closed(&service);
	raw_open(&service, &session);
	ck_assert_int_eq(pin(&fd), CUDA_ERROR_OUT_OF_MEMORY);
	close(fds[0]);
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	close(fd);
	for (unsigned i = 1; i < PIECES; i++)
		close(fds[i]);
}

static off_t blocks(int fd)
{
	struct stat status;

	ck_assert_int_eq(fstat(fd, &status), 0);
	return status.st_blocks;
}

/* A descriptor that gives no right to the file is not counted, and keeps no page. */
TEST(pinned, freed_pinned_memory_has_no_pages)
{
	char path[64];
	int fd, bare;

	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	munmap(fill(fd), PIECE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	bare = open(path, O_PATH | O_CLOEXEC);
	ck_assert_int_ge(bare, 0);
	close(fd);
	ck_assert_int_gt(blocks(bare), 0);
	ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	/* The answer comes before the pages go. */
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	ck_assert_int_eq(blocks(bare), 0);
	close(fd);
	close(bare);
}

/*
 * Files for a client's bytes
 */

static int load(uint64_t file)
{
	struct wire_message load = {
		.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 4096, .file = file}};

	return raw_ask(&session, &load, NULL);
}

/* @ret_fd: the caller's. Return: its number */
static uint64_t make_sealed(int *ret_fd)
{
	struct wire_message make = {.type = WIRE_MAKE_FILE};

	ck_assert_int_eq(raw_ask(&session, &make, ret_fd), CUDA_SUCCESS);
	ck_assert_int_eq(ftruncate(*ret_fd, 4096), 0);
	ck_assert_int_eq(fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
	return session.value;
}

TEST(pinned, a_file_serves_one_request)
{
	uint64_t file;
	int fd;

	file = make_sealed(&fd);
	close(fd);
	ck_assert_int_eq(load(0), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(load(file + 1), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(load(file), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(load(file), CUDA_ERROR_ILLEGAL_STATE);
}

/*
 * A file system whose program does not answer
 */

static bool is_mounted;

/* Its program is there before anything that it must not have. */
static void start_mute(void)
{
	is_mounted = mute_new();
	ck_assert(service_start(&service, NULL));
	raw_open(&service, &session);
}

/* Everybody else works, a killed daemon is reaped and another one comes, and the service ends when
 * it is told to. */
static void expect_service(void)
{
	pid_t daemon;

	ck_assert_int_eq(exit_status(spawn(one_program, 3)), 0);
	ck_assert_int_gt(service_children(&service, &daemon, 1), 0);
	kill(daemon, SIGKILL);
	ck_assert(service_log_wait(&service, "was ended by signal", 1, 30));
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
}

static const struct wire_message sent[] = {
	{.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 4096}},
	{.type = WIRE_LINK_ADD, .link = {.link = 1, .bytes = 4096, .name = "input"}},
	{.type = WIRE_LINK_COMPLETE, .link = {.link = 1, .name = ""}},
	{.type = WIRE_MAKE_GRAPH, .graph = {.graph = 1, .bytes = 4096}},
	{.type = WIRE_QUERY_MEMORY},
};
#define SENT  (sizeof(sent) / sizeof(sent[0]))
#define TIMES 64
/* Processes that take files of one user (session/taking.c). */
#define TAKERS 32

/* From a session, or with odd numbers from nobody yet. A kernel that lets a service refuse
 * descriptors does not send it. */
static void send_file(const struct wire_message *message, int number)
{
	struct wire_message request = *message;
	struct raw_session own = {.socket = -1};
	int file = mute_open(), fds[2] = {file, file}, r, socket;

	if (number % 2 == 0)
		raw_open(&service, &own);
	socket = number % 2 ? raw_connect(&service) : own.socket;
	request.id = 2;
	r = message_send(socket, &request, fds, number % 4 < 2 ? 1 : 2);
	ck_assert(r == 0 || r == -EPERM);
	if (r)
		close(socket);
	else
		raw_wait_hangup(socket);
	own.socket = -1;
	if (number % 2 == 0)
		raw_close(&own);
	/* The last copy is the service's, if it has one. */
	mute_stop();
	close(file);
	mute_begin();
}

/* Sends a file where one of the program's own is taken. Return: whether the service has answered */
static bool give_file(int file, struct packet *ret_packet)
{
	struct wire_message take = {.type = WIRE_TAKE_FILE};
	int socket = -1, r;

	if (raw_ask(&session, &take, &socket) != CUDA_SUCCESS)
		return false;
	ck_assert_int_eq(packet_send(socket, (const uint8_t *)"f", 1, &file, 1), 0);
	r = packet_receive(socket, ret_packet);
	close(socket);
	return r == 0;
}

/* Nobody waits for the processes that take it, and there are not many. */
TEST(mute, a_file_whose_closing_waits_is_not_taken)
{
	struct packet *packet = malloc(sizeof(*packet));
	struct wire_message answer;
	unsigned answers = 0;
	int files[TIMES];

	if (!is_mounted) {
		free(packet);
		stop();
		return;
	}
	mute_begin();
	for (int i = 0; i < TIMES; i++) {
		files[i] = mute_open();
		if (!give_file(files[i], packet))
			continue;
		ck_assert_int_eq(wire_decode(packet->bytes, packet->length, &answer), 0);
		ck_assert_int_eq(answer.reply.code, CUDA_ERROR_NOT_SUPPORTED);
		answers++;
	}
	ck_assert_uint_eq(answers, TAKERS);
	free(packet);
	/* Other programs do not have them. */
	mute_stop();
	for (int i = 0; i < TIMES; i++)
		close(files[i]);
	mute_begin();
	expect_service();
	raw_close(&session);
	ck_assert_int_eq(service_stop(&service), 0);
	mute_end();
}

TEST_LOOP(mute, a_file_whose_closing_waits_holds_nobody_up, 0, SENT)
{
	if (!is_mounted) {
		stop();
		return;
	}
	mute_begin();
	for (int i = 0; i < TIMES; i++)
		send_file(&sent[_i], i);
	expect_service();
	raw_close(&session);
	ck_assert_int_eq(service_stop(&service), 0);
	mute_end();
}

/* A process that writes what it cannot read to a file holds the lock of the file. */
static pid_t write_for_ever(int fd)
{
	int file = mute_open();
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
	pid_t pid;

	ck_assert_ptr_ne(at, MAP_FAILED);
	mute_begin();
	pid = fork();
	if (pid == 0) {
		close(session.socket);
		_exit(write(fd, at, 4096) < 0);
	}
	mute_await();
	mute_stop();
	munmap(at, 4096);
	close(file);
	return pid;
}

static void end_writer(pid_t pid)
{
	kill(pid, SIGKILL);
	/* Whoever waits for the file system goes on. */
	mute_end();
	ck_assert_int_gt(exit_status(pid), 0);
}

TEST(mute, a_writer_that_does_not_end_keeps_pinned_memory_and_nobody)
{
	pid_t writer;
	int fd;

	if (!is_mounted) {
		stop();
		return;
	}
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	writer = write_for_ever(fd);
	ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	close(fd);
	expect_service();
	raw_close(&session);
	wait_closed(&service);
	ck_assert_int_eq(service_stop(&service), 0);
	end_writer(writer);
}

/* Sealed before, so the service takes it. */
TEST(mute, a_writer_that_does_not_end_is_not_waited_for_with_an_image)
{
	uint64_t file;
	pid_t writer;
	int fd;

	if (!is_mounted) {
		stop();
		return;
	}
	file = make_sealed(&fd);
	writer = write_for_ever(fd);
	ck_assert_int_eq(load(file), CUDA_ERROR_INVALID_IMAGE);
	close(fd);
	expect_service();
	raw_close(&session);
	ck_assert_int_eq(service_stop(&service), 0);
	end_writer(writer);
}

int main(void)
{
	Suite *suite = suite_create("descriptors");
	TCase *mute = tcase_create("mute");
	TCase *pinned = suite_case(suite, "pinned");

	tcase_set_timeout(pinned, 300);
	tcase_add_checked_fixture(pinned, start_limited, stop);
	suite_add(pinned, "pinned");
	tcase_set_timeout(mute, 300);
	tcase_add_checked_fixture(mute, start_mute, NULL);
	suite_add(mute, "mute");
	suite_add_tcase(suite, mute);
	return suite_run(suite);
}
