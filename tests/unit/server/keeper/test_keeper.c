// The keeper in a child process, spoken to over its socket, on the host backend.

#include "server/keeper/keeper.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/keeper/ledger.h"
#include "tests/host/host.h"
#include "tests/lib/suite.h"

#define GRANULE BACKEND_CHUNK_GRANULE

static struct {
	int socket;
	pid_t pid;
	struct packet packet;
	struct wire_message answer;
	int fd; /* that came with the answer, -1 */
} daemon_end;

static void receive(void)
{
	ck_assert_int_eq(message_receive(daemon_end.socket, &daemon_end.packet, &daemon_end.answer), 0);
	daemon_end.fd = packet_take_fd(&daemon_end.packet, 0);
	ck_assert_uint_le(daemon_end.packet.fd_count, 1);
}

static CUresult ask(enum wire_type type, uint64_t bytes, uint64_t handle)
{
	static uint64_t id = 100;
	struct wire_message message = {.type = type, .id = ++id, .chunk = {.bytes = bytes, .handle = handle}};

	ck_assert_int_eq(message_send(daemon_end.socket, &message, NULL, 0), 0);
	receive();
	ck_assert_int_eq(daemon_end.answer.type, WIRE_REPLY);
	ck_assert_uint_eq(daemon_end.answer.id, id);
	return (CUresult)daemon_end.answer.reply.code;
}

static void start_on(int device)
{
	int ends[2];

	ck_assert_int_eq(setenv("FRMPS_HOST_MEMORY", "16M", 1), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	daemon_end.pid = fork();
	ck_assert_int_ge(daemon_end.pid, 0);
	if (!daemon_end.pid) {
		close(ends[0]);
		_exit(keeper_main(&backend_host, device, ends[1]));
	}
	close(ends[1]);
	daemon_end.socket = ends[0];
	receive();
}

static void start(void)
{
	start_on(0);
	ck_assert_int_eq(daemon_end.answer.type, WIRE_READY);
}

static int ending(void)
{
	int status;

	ck_assert_int_eq(waitpid(daemon_end.pid, &status, 0), daemon_end.pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void hang_up(void)
{
	if (daemon_end.socket < 0)
		return;
	close(daemon_end.socket);
	ck_assert_int_eq(ending(), 0);
}

TEST(keeper, a_chunk_is_a_descriptor_of_its_size)
{
	uint64_t first;
	struct stat status;

	ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, 2 * GRANULE, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(daemon_end.answer.reply.values.count, 1);
	first = daemon_end.answer.reply.values.at[0];
	ck_assert_int_ge(daemon_end.fd, 0);
	ck_assert_int_eq(fstat(daemon_end.fd, &status), 0);
	ck_assert_int_eq(status.st_size, 2 * GRANULE);
	ck_assert_int_ne(fcntl(daemon_end.fd, F_GETFD) & FD_CLOEXEC, 0);
	close(daemon_end.fd);
	ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, GRANULE, 0), CUDA_SUCCESS);
	ck_assert_uint_ne(daemon_end.answer.reply.values.at[0], first);
	close(daemon_end.fd);
	ck_assert_int_eq(ask(WIRE_RELEASE_CHUNK, 0, first), CUDA_SUCCESS);
	ck_assert_int_eq(ask(WIRE_RELEASE_CHUNK, 0, first), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(ask(WIRE_RELEASE_CHUNK, 0, 4711), CUDA_ERROR_INVALID_VALUE);
}

TEST(keeper, sizes_are_checked)
{
	static const uint64_t wrong[] = {
		0, 1, GRANULE - 1, GRANULE + 4096, (UINT64_C(256) << 30) + GRANULE, UINT64_MAX - GRANULE + 1};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, wrong[i], 0), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(daemon_end.fd, -1);
	}
}

TEST(keeper, memory_ends_and_comes_back)
{
	uint64_t handle;

	ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, 6 * GRANULE, 0), CUDA_SUCCESS);
	handle = daemon_end.answer.reply.values.at[0];
	close(daemon_end.fd);
	ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, 3 * GRANULE, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(daemon_end.fd, -1);
	ck_assert_int_eq(ask(WIRE_RELEASE_CHUNK, 0, handle), CUDA_SUCCESS);
	ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, 8 * GRANULE, 0), CUDA_SUCCESS);
	close(daemon_end.fd);
}

/* The descriptor goes with the answer; a keeper that kept it would run out of them. */
TEST(keeper, chunks_cost_no_descriptors)
{
	struct rlimit few = {.rlim_cur = 32, .rlim_max = 32};

	ck_assert_int_eq(prlimit(daemon_end.pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(ask(WIRE_CREATE_CHUNK, GRANULE, 0), CUDA_SUCCESS);
		close(daemon_end.fd);
		ck_assert_int_eq(
			ask(WIRE_RELEASE_CHUNK, 0, daemon_end.answer.reply.values.at[0]), CUDA_SUCCESS);
	}
}

TEST(keeper, other_messages_are_answered)
{
	ck_assert_int_eq(ask(WIRE_PING, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(ask(WIRE_QUERY_MEMORY, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(ask(WIRE_PING, 0, 0), CUDA_SUCCESS);
}

TEST(keeper, shutdown_ends_it)
{
	struct wire_message message = {.type = WIRE_SHUTDOWN};

	ck_assert_int_eq(message_send(daemon_end.socket, &message, NULL, 0), 0);
	ck_assert_int_eq(packet_receive(daemon_end.socket, &daemon_end.packet), PACKET_E_CLOSED);
	close(daemon_end.socket);
	daemon_end.socket = -1;
	ck_assert_int_eq(ending(), 0);
}

TEST(keeper, nonsense_ends_it)
{
	ck_assert_int_eq(send(daemon_end.socket, "nonsense", 8, MSG_NOSIGNAL), 8);
	ck_assert_int_eq(packet_receive(daemon_end.socket, &daemon_end.packet), PACKET_E_CLOSED);
	close(daemon_end.socket);
	daemon_end.socket = -1;
	ck_assert_int_eq(ending(), 1);
}

TEST(alone, a_missing_device_is_told)
{
	start_on(3);
	ck_assert_int_eq(daemon_end.answer.type, WIRE_LOST);
	ck_assert_int_eq(daemon_end.answer.trouble.code, CUDA_ERROR_INVALID_DEVICE);
	close(daemon_end.socket);
	ck_assert_int_eq(ending(), 1);
}

TEST(alone, the_ledger_adds_up)
{
	struct ledger ledger;

	ledger_init(&ledger);
	for (uint64_t i = 1; i <= 1000; i++) {
		ck_assert(ledger_reserve(&ledger));
		ledger_add(&ledger, i * 7);
	}
	for (uint64_t i = 1; i <= 1000; i += 2)
		ck_assert(ledger_remove(&ledger, i * 7));
	ck_assert(!ledger_remove(&ledger, 7));
	ck_assert_uint_eq(ledger.count, 500);
	ledger_deinit(&ledger);
}

int main(void)
{
	Suite *suite = suite_create("server/keeper");
	TCase *tests = suite_case(suite, "keeper"), *alone = suite_case(suite, "alone");

	tcase_add_checked_fixture(tests, start, hang_up);
	suite_add(tests, "keeper");
	suite_add(alone, "alone");
	return suite_run(suite);
}
