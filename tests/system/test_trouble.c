// What goes wrong around a service: it is not there, it dies, clients are killed, clients lie.
// Every test starts a service of its own and runs programs as children; nobody may hang, and a
// program that behaves notices nothing. Those with rows do them one after the other, and say in
// which one something was wrong.
//
// FRMPS_TEST_KILLS (60) is how many clients are killed in the leak test.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "shm/doorbell.h"
#include "shm/ring.h"
#include "tests/lib/service.h"
#include "tests/lib/slow.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/raw.h"
#include "tests/system/status.h"

static struct service service;

static void start(void)
{
	ck_assert(service_start(&service, NULL));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

static int init_fails(int argument)
{
	(void)argument;
	return cuInit(0) == CUDA_SUCCESS;
}

TEST(trouble, without_a_service_init_fails)
{
	setenv("FRMPS_SOCKET", "/nonexistent/frmps.sock", 1);
	ck_assert_int_eq(exit_status(spawn(init_fails, 0)), 0);
}

/* Says when it is about to wait for a kernel that never ends, then expects an error. */
static int wait_for_ever(int ready)
{
	driver_open();
	ck_cuda(launch_spin(shared_word(), 1, NULL));
	if (write(ready, "x", 1) != 1)
		return 2;
	if (cuCtxSynchronize() == CUDA_SUCCESS)
		return 3;
	return cuMemAlloc_v2(&(CUdeviceptr){0}, 4) == CUDA_SUCCESS ? 4 : 0;
}

/* Return: a program that waits for ever by now */
static pid_t start_waiting(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = spawn(wait_for_ever, ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	return pid;
}

TEST(trouble, when_the_service_is_killed_programs_get_an_error)
{
	pid_t pid = start_waiting();

	kill(service.pid, SIGKILL);
	ck_assert_int_eq(exit_status(pid), 0);
	service_stop(&service);
}

TEST(trouble, a_terminated_service_cuts_off_and_ends_cleanly)
{
	pid_t pid = start_waiting();

	/* One after the other: signals that arrive together are one. */
	kill(service.pid, SIGTERM);
	ck_assert(service_log_wait(&service, "stopping", 1, 60));
	kill(service.pid, SIGTERM);
	ck_assert_int_eq(exit_status(pid), 0);
}

static int second_service(int log)
{
	dup2(log, STDERR_FILENO);
	execl(getenv("FRMPS_TEST_SERVER"), "frmps-server", "--config", "/dev/null", "--socket",
		service.socket, "--backend", service_backend(), NULL);
	return 127;
}

static int is_refused_while_the_service_stops(int unused)
{
	(void)unused;
	return cuInit(0) == CUDA_ERROR_MPS_SERVER_NOT_READY ? 0 : 1;
}

/* Who is waited for can be seen, and ended. */
TEST(trouble, a_service_that_stops_says_for_whom_it_waits)
{
	json_t *status;
	pid_t pid = start_waiting();

	kill(service.pid, SIGTERM);
	ck_assert(service_log_wait(&service, "stopping: waits", 1, 60));
	status = status_of(&service);
	ck_assert_int_gt(json_integer_value(json_object_get(status, "stop_ms")), 0);
	json_decref(status);
	ck_assert_int_eq(exit_status(spawn(is_refused_while_the_service_stops, 0)), 0);
	ck_assert_int_eq(service_log_count(&service, "is refused: the service stops"), 1);
	kill(service.pid, SIGTERM);
	ck_assert_int_eq(exit_status(pid), 0);
}

/* Another one says why it cannot be and ends, orderly; the first one goes on. */
TEST(trouble, there_is_one_service_at_a_socket)
{
	static char said[65536];
	int log = memfd_create("log", MFD_CLOEXEC);
	char wanted[128];

	ck_assert_int_eq(exit_status(spawn(second_service, log)), 1);
	ck_assert_int_gt(pread(log, said, sizeof(said) - 1, 0), 0);
	snprintf(wanted, sizeof(wanted), "in use by another frmps service (process %d)", (int)service.pid);
	ck_assert_msg(strstr(said, wanted), "%s", said);
	ck_assert_msg(!strstr(said, "signal"), "%s", said);
	ck_assert_int_eq(exit_status(spawn(one_program, 5)), 0);
	close(log);
}

/* A program that is busy in several ways when it is killed. */
static int busy(int ready)
{
	uint64_t count = 100000, ns = 1000000;
	uint32_t round = 0;
	CUdeviceptr a, b;
	void *mix[] = {&b, &a, &round, &count}, *spin[] = {&ns}, *pinned;

	driver_open();
	a = device_words(count, 1);
	b = device_words(count, 1);
	ck_cuda(cuMemHostAlloc(&pinned, 1 << 20, 0));
	if (write(ready, "x", 1) != 1)
		return 2;
	for (;; round++) {
		CUstream stream;

		ck_cuda(cuStreamCreate(&stream, 0));
		ck_cuda(launch("mix", 4, 64, stream, mix));
		ck_cuda(launch("spin_ns", 1, 1, stream, spin));
		ck_cuda(cuMemcpyDtoHAsync_v2(pinned, b, 1 << 18, stream));
		ck_cuda(cuStreamDestroy_v2(stream));
	}
}

static void kill_busy_client(unsigned delay_us)
{
	struct timespec delay = {.tv_nsec = delay_us * 1000};
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = spawn(busy, ready[1]);
	close(ready[1]);
	if (delay_us % 3) {
		/* Anywhere in its life, also before it is connected. */
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	}
	nanosleep(&delay, NULL);
	kill(pid, SIGKILL);
	ck_assert_int_eq(exit_status(pid), 1000 + SIGKILL);
	close(ready[0]);
}

TEST(trouble, killed_clients_leave_nothing_behind)
{
	const char *kills = getenv("FRMPS_TEST_KILLS");
	int count = kills ? atoi(kills) : 60, fds[2], threads[2];

	for (int i = 0; i < 20; i++)
		kill_busy_client((unsigned)i * 131);
	wait_closed(&service);
	status_footprint(&service, &fds[0], &threads[0]);
	for (int i = 0; i < count; i++)
		kill_busy_client((unsigned)i * 97 % 5000);
	wait_closed(&service);
	status_footprint(&service, &fds[1], &threads[1]);
	/* Idle worker threads of the host backend end after a while, if nothing wakes them. */
	for (int i = 0; i < 40 && (fds[1] > fds[0] || threads[1] > threads[0]); i++) {
		pass_time(500);
		service_footprint(&service, &fds[1], &threads[1]);
	}
	ck_assert_int_le(fds[1], fds[0]);
	ck_assert_int_le(threads[1], threads[0]);
}

/* ---- rows ---- */

#define GARBAGE_ROWS 6
#define RING_ROWS    12
#define SLOW_ROWS    4

static int row;

#define EXPECT(condition) ck_assert_msg(condition, "row %d: %s is not so", row, #condition)

/* It has cost nobody else anything. */
static void expect_service(int argument)
{
	EXPECT(exit_status(spawn(one_program, argument)) == 0);
	EXPECT(service_log_count(&service, "was ended by signal") == 0);
}

static void send_garbage(void)
{
	int fd = raw_connect(&service), length = row % 2 ? 512 : row + 1;
	uint8_t bytes[512];

	srand((unsigned)row + 1);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rand();
	EXPECT(send(fd, bytes, (size_t)length, MSG_NOSIGNAL) == length);
	raw_wait_hangup(fd);
	expect_service(3);
}

TEST(trouble, garbage_on_the_socket_costs_one_disconnect)
{
	for (row = 0; row < GARBAGE_ROWS; row++)
		send_garbage();
}

/* Fills the ring with what the row says and publishes it. */
static void lie(struct shm_view *view)
{
	uint8_t *bytes = view->ring;
	struct frmps_head head = {.size = 80, .op = FRMPS_OP_LAUNCH, .seq = 1};

	srand((unsigned)row);
	for (uint64_t i = 0; i < view->shape.ring_bytes; i++)
		bytes[i] = (uint8_t)rand();
	for (uint32_t i = 0; i < SHM_STREAMS; i++)
		shm_view_entry(view, i)->flags = (uint32_t)rand();
	switch (row % 6) {
	case 0: /* nothing but noise */
		break;
	case 1: /* a kernel that does not exist */
		memcpy(bytes, &head, sizeof(head));
		break;
	case 2: /* a stream that cannot exist */
		head.stream = SHM_STREAMS;
		memcpy(bytes, &head, sizeof(head));
		break;
	case 3: /* a hole in the order */
		head.seq = 7;
		memcpy(bytes, &head, sizeof(head));
		break;
	case 4: /* an op that does not exist */
		head.op = 999;
		memcpy(bytes, &head, sizeof(head));
		break;
	case 5: /* a wait for a command that never was */
		head.op = FRMPS_OP_DEPEND;
		head.size = 48;
		memcpy(bytes, &head, sizeof(head));
		memcpy(bytes + sizeof(head), &(struct frmps_depend){.seq = 1u << 20, .stream = 4, .event = 1},
			sizeof(struct frmps_depend));
		break;
	}
	word_release(&view->client->tail, row % 6 ? head.size : 4096u * (1u + (unsigned)row));
}

static void lie_once(void)
{
	int rejected = service_log_count(&service, "rejected");
	struct raw_session session;

	raw_open(&service, &session);
	/* What the client may only read, it can only read. */
	EXPECT(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, session.server_fd, 0) == MAP_FAILED);
	lie(&session.view);
	doorbell_force(session.doorbell);
	raw_wait_hangup(session.socket);
	session.socket = -1;
	EXPECT(service_log_count(&service, "rejected") == rejected + 1);
	expect_service(5);
	raw_close(&session);
}

TEST(trouble, a_lying_ring_costs_one_disconnect)
{
	for (row = 0; row < RING_ROWS; row++)
		lie_once();
}

/* Takes what addresses it can get, wherever it can. Another program of its user has enough all the
 * same. */
TEST(trouble, a_greedy_program_leaves_addresses_for_others)
{
	static const uint64_t all_free[] = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0),
		~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)};
	const uint64_t sizes[] = {
		UINT64_C(1) << 47, UINT64_C(30) << 40, UINT64_C(1) << 40, UINT64_C(4) << 30};
	struct wire_message reserve = {.type = WIRE_RESERVE_WINDOW, .window.free_windows = {all_free, 7}};
	struct wire_message release = {.type = WIRE_RELEASE_WINDOW};
	struct raw_session session;
	uint64_t taken[2048];
	unsigned count = 0;

	raw_open(&service, &session);
	for (unsigned i = 0; i < 4; i++) {
		reserve.window.bytes = sizes[i];
		while (count < 2048 && raw_ask(&session, &reserve, NULL) == CUDA_SUCCESS)
			taken[count++] = session.value;
	}
	ck_assert_uint_gt(count, 10);
	ck_assert_uint_le(count, 1024);
	/* Neither its own ones a second time, nor its own window. */
	reserve.window.bytes = UINT64_C(4) << 30;
	for (unsigned i = 0; i < 10; i++) {
		reserve.window.address = taken[i];
		ck_assert_int_eq(raw_ask(&session, &reserve, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	}
	reserve.window.address = session.window_base;
	ck_assert_int_eq(raw_ask(&session, &reserve, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	expect_service(3);
	release.window = (struct wire_window){.address = taken[0], .bytes = UINT64_C(2) << 20};
	ck_assert_int_eq(raw_ask(&session, &release, NULL), -1);
	close(session.socket);
	session.socket = -1;
	expect_service(5);
	raw_close(&session);
}

/* Odd rows are of a session, the others of nobody yet. From row 2 on there is something before it
 * that ends the connection: it is never read. A kernel that lets a service refuse descriptors does
 * not send it. */
static void send_slow(void)
{
	const struct wire_message offence = {.type = WIRE_WELCOME},
				  query = {.type = WIRE_QUERY_MEMORY, .id = 1};
	struct raw_session session = {.socket = -1};
	int silent, slow = slow_new(&silent), fd, r;
	pid_t daemon;

	if (row % 2)
		raw_open(&service, &session);
	fd = row % 2 ? session.socket : raw_connect(&service);

	/* Both are there before it looks. */
	EXPECT(service_children(&service, &daemon, 1) > 0);
	kill(daemon, SIGSTOP);
	if (row >= 2)
		EXPECT(message_send(fd, &offence, NULL, 0) == 0);
	r = message_send(fd, &query, &slow, 1);
	EXPECT(r == 0 || r == -EPERM);
	if (r) {
		EXPECT(message_send(fd, &offence, NULL, 0) == 0);
		slow_close(slow);
	} else {
		close(slow);
	}
	kill(daemon, SIGCONT);
	raw_wait_hangup(fd);
	expect_service(7);
	session.socket = -1;
	if (row % 2)
		raw_close(&session);
	close(silent);
}

TEST(slow, a_descriptor_that_takes_long_to_close_holds_nobody_up)
{
	for (row = 0; row < SLOW_ROWS; row++)
		send_slow();
}

/* Until a process has taken a signal off and sleeps again. */
static void await_passed_on(pid_t pid, int number)
{
	unsigned long long pending = ~0ull;
	char path[64], line[256], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	while (state != 'S' || pending >> (number - 1) & 1) {
		FILE *status = fopen(path, "re");

		EXPECT(status != NULL);
		while (status && fgets(line, sizeof(line), status)) {
			sscanf(line, "State: %c", &state);
			sscanf(line, "ShdPnd: %llx", &pending);
		}
		fclose(status);
		pass_time(1);
	}
}

/* More than are taken at a time: the last one is still to be accepted when the service is told to
 * stop. */
TEST(slow, whoever_was_not_accepted_does_not_hold_up_the_end)
{
	const struct wire_message query = {.type = WIRE_QUERY_MEMORY, .id = 1};
	int silent, slow, fds[40], r;
	pid_t daemon;

	row = 0;
	slow = slow_new(&silent);
	EXPECT(service_children(&service, &daemon, 1) > 0);
	kill(daemon, SIGSTOP);
	for (int i = 0; i < 40; i++)
		fds[i] = raw_connect(&service);
	r = message_send(fds[39], &query, &slow, 1);
	EXPECT(r == 0 || r == -EPERM);
	if (r)
		slow_close(slow);
	else
		close(slow);
	kill(service.pid, SIGTERM);
	await_passed_on(service.pid, SIGTERM);
	kill(daemon, SIGCONT);
	ck_assert_int_eq(service_stop(&service), 0);
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	close(silent);
}

int main(void)
{
	Suite *suite = suite_create("trouble");
	TCase *tests = tcase_create("trouble"), *slow = tcase_create("slow");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "trouble");
	suite_add_tcase(suite, tests);
	tcase_set_timeout(slow, 300);
	tcase_add_checked_fixture(slow, start, stop);
	suite_add(slow, "slow");
	suite_add_tcase(suite, slow);
	return suite_run(suite);
}
