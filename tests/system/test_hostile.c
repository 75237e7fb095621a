// A hostile user: programs of his that do what no library does, one attack after the other against
// the same service. Each ends as the table says; meanwhile a program of another user runs and is
// exact, and the daemon is the same to the end. The table is printed, with what was found. Only
// root has programs of several users (77 otherwise).

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "shm/doorbell.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/raw.h"
#include "tests/system/status.h"

/* As the service lays out address windows. */
#define WINDOW_BYTES	    (UINT64_C(256) << 30)
#define WINDOW_DEVICE_BYTES (UINT64_C(192) << 30)

#define HOSTILE	  1001
#define HONEST	  1002
#define MANY	  200
#define EXECUTORS 4  /* of one user, in this service */
#define UNWELCOME 75 /* exit status */

/* What comes of an attack. */
enum outcome {
	NOTHING,   /* it has no effect at all */
	REFUSED,   /* an error, and the session goes on */
	CUT_OFF,   /* the session, or the connection, is over */
	FORBIDDEN, /* the kernel does not let it */
	BOUNDED,   /* it gets what he may have, and no more */
	OTHER,	   /* none of these */
};
static const char *const outcomes[] = {
	"nothing", "refused", "cut off", "forbidden", "bounded", "something else"};

static struct service service;
static struct packet packet;

/*
 * Attacks. Each runs as the hostile user in a process of its own.
 */

/* Return: whether the other side hangs up */
static bool is_hung_up(int socket)
{
	int r;

	while ((r = raw_receive(socket, &packet)) == 0)
		packet_close_fds(&packet);
	return r == PACKET_E_CLOSED;
}

static enum outcome send_garbage(void)
{
	int socket = raw_connect(&service);
	uint8_t bytes[512];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37);
	send(socket, bytes, sizeof(bytes), MSG_NOSIGNAL);
	return is_hung_up(socket) ? CUT_OFF : OTHER;
}

static enum outcome speak_as_an_executor(void)
{
	static const enum wire_type types[] = {
		WIRE_LOST, WIRE_READY, WIRE_REPLY, WIRE_ACTIVATE, WIRE_SHUTDOWN};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct wire_message message = {.type = types[i], .id = 1};
		int socket = raw_connect(&service);

		message_send(socket, &message, NULL, 0);
		if (!is_hung_up(socket))
			return OTHER;
	}
	return CUT_OFF;
}

/* They say nothing and stay. */
static enum outcome connect_and_be_silent(void)
{
	int sockets[MANY], open = 0;

	for (int i = 0; i < MANY; i++)
		sockets[i] = raw_connect(&service);
	for (int i = 0; i < MANY; i++) {
		char byte;

		open += recv(sockets[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
	}
	return open < MANY ? BOUNDED : OTHER;
}

static enum outcome ask(struct wire_message *request)
{
	struct raw_session session;
	int code;

	raw_open(&service, &session);
	request->range.address += session.window_base;
	code = raw_ask(&session, request, NULL);
	return code < 0 ? CUT_OFF : code ? REFUSED : NOTHING;
}

static enum outcome map_beside_its_window(void)
{
	struct wire_message map = {
		.type = WIRE_MAP_MEMORY, .range = {.address = WINDOW_BYTES, .bytes = 2u << 20}};

	return ask(&map);
}

static enum outcome free_what_is_not_there(void)
{
	struct wire_message unmap = {
		.type = WIRE_UNMAP_HOST, .range = {.address = WINDOW_DEVICE_BYTES, .bytes = 4096}};

	return ask(&unmap);
}

static enum outcome want_more_than_there_is(void)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {.bytes = WINDOW_DEVICE_BYTES}};

	return ask(&map);
}

static enum outcome guess_a_token(void)
{
	struct wire_message import = {
		.type = WIRE_IMPORT_MEMORY, .memory = {.handle = 1, .bytes = 2u << 20, .token = {1, 2}}};
	struct raw_session session;
	int code;

	raw_open(&service, &session);
	code = raw_ask(&session, &import, NULL);
	return code < 0 ? CUT_OFF : code ? REFUSED : NOTHING;
}

/* The service's own regions: what it reads there stays. */
static enum outcome shrink_the_regions(void)
{
	struct raw_session session;

	raw_open(&service, &session);
	if (ftruncate(session.client_fd, 0) == 0 || ftruncate(session.server_fd, 0) == 0 ||
		fallocate(session.server_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
		return OTHER;
	return FORBIDDEN;
}

static enum outcome write_what_it_may_read(void)
{
	struct raw_session session;
	char path[64];
	int fd;

	raw_open(&service, &session);
	if (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, session.server_fd, 0) != MAP_FAILED)
		return OTHER;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", session.server_fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 && write(session.server_fd, "x", 1) < 0 ? FORBIDDEN : OTHER;
}

/* Everything that it may write, ring and header and staging memory. */
static enum outcome scribble_over_its_region(void)
{
	struct raw_session session;
	struct stat status;
	uint8_t *at;

	raw_open(&service, &session);
	if (fstat(session.client_fd, &status) < 0)
		return OTHER;
	at = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, session.client_fd, 0);
	if (at == MAP_FAILED)
		return OTHER;
	for (off_t i = 0; i < status.st_size && i < (4 << 20); i++)
		at[i] = (uint8_t)(i * 31 + 7);
	doorbell_ring(session.doorbell, &session.view.server->asleep);
	return is_hung_up(session.socket) ? CUT_OFF : OTHER;
}

static enum outcome empty_the_doorbell(void)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	struct raw_session session;
	uint64_t count;

	raw_open(&service, &session);
	fcntl(session.doorbell, F_SETFL, 0);
	count = UINT64_MAX - 1;
	if (write(session.doorbell, &count, sizeof(count)) < 0)
		return OTHER;
	return raw_ask(&session, &query, NULL) == CUDA_SUCCESS ? NOTHING : OTHER;
}

/* Freed, and kept open: it counts, and others do not pay for the looks at it. */
static enum outcome keep_pinned_memory(void)
{
	struct raw_session session;
	int refused = 0, fd;

	raw_open(&service, &session);
	for (uint64_t i = 0; i < MANY; i++) {
		struct wire_message map = {.type = WIRE_MAP_HOST,
			.range = {session.window_base + session.device_bytes + (i << 20), 1 << 20, 0}};

		refused = raw_ask(&session, &map, &fd);
		if (refused)
			break;
		map.type = WIRE_UNMAP_HOST;
		raw_ask(&session, &map, NULL);
	}
	return refused == CUDA_ERROR_OUT_OF_MEMORY ? BOUNDED : OTHER;
}

/* A program of its own, until it is served. The service refuses its user's programs until it has
 * seen the end of what the attack before had: files that were kept open, executors. */
static void run_program(bool faults)
{
	int status;

	do {
		pid_t pid = fork();
		CUcontext context;

		if (pid == 0) {
			if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
				_exit(UNWELCOME);
			if (!faults)
				_exit(0);
			driver_open();
			launch("crash_trap", 1, 1, NULL, NULL);
			cuCtxSynchronize();
			_exit(0);
		}
		status = exit_status(pid);
	} while (status == UNWELCOME);
}

/* A program of this name has been in quarantine from its third fault on: each gets an executor of
 * its own. */
static enum outcome fault_again_and_again(void)
{
	int served = 0, pids[EXECUTORS * 2];

	for (int i = 0; i < 4; i++)
		run_program(true);
	for (int i = 0; i < EXECUTORS * 2; i++) {
		int ends[2];
		char byte = 0;

		if (pipe(ends) < 0)
			return OTHER;
		pids[i] = fork();
		if (pids[i] == 0) {
			CUcontext context;

			byte = cuInit(0) == CUDA_SUCCESS &&
			       cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS;
			if (write(ends[1], &byte, 1) != 1)
				_exit(1);
			pause();
		}
		close(ends[1]);
		served += read(ends[0], &byte, 1) == 1 && byte;
		close(ends[0]);
	}
	for (int i = 0; i < EXECUTORS * 2; i++) {
		kill(pids[i], SIGKILL);
		exit_status(pids[i]);
	}
	return served > 0 && served <= EXECUTORS ? BOUNDED : OTHER;
}

static enum outcome die_again_and_again(void)
{
	run_program(false);
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();
		struct raw_session session;

		if (pid == 0) {
			raw_open(&service, &session);
			kill(getpid(), SIGKILL);
		}
		if (exit_status(pid) != 1000 + SIGKILL)
			return OTHER;
	}
	return NOTHING;
}

static enum outcome end_the_service(void)
{
	struct wire_message quit = {.type = WIRE_ADMIN, .id = 1, .admin = {.command = "quit"}};
	int socket = raw_connect(&service);
	struct wire_message answer;

	if (message_send(socket, &quit, NULL, 0) || raw_receive(socket, &packet) ||
		wire_decode(packet.bytes, packet.length, &answer) || answer.type != WIRE_ADMIN_REPLY)
		return OTHER;
	return answer.admin_reply.code ? REFUSED : OTHER;
}

static enum outcome take_hold_of_an_executor(void)
{
	pid_t pids[16];
	int count = service_children(&service, pids, 16);
	struct stat status;
	char path[32];

	/* The host backend's executors run as their user, who may end his own. */
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "/proc/%d", (int)pids[i]);
		if (stat(path, &status) == 0 && status.st_uid != HOSTILE && kill(pids[i], SIGKILL) == 0)
			return OTHER;
	}
	return FORBIDDEN;
}

static const struct {
	const char *name;
	enum outcome (*attack)(void);
	enum outcome outcome;
} attacks[] = {
	{"bytes that are no message", send_garbage, CUT_OFF},
	{"messages of executors and keepers", speak_as_an_executor, CUT_OFF},
	{"connections that say nothing", connect_and_be_silent, BOUNDED},
	{"memory beside its own window", map_beside_its_window, CUT_OFF},
	{"memory that it does not have is freed", free_what_is_not_there, CUT_OFF},
	{"more memory than the device has", want_more_than_there_is, REFUSED},
	{"memory of others by a guessed token", guess_a_token, REFUSED},
	{"the shared regions are cut short", shrink_the_regions, FORBIDDEN},
	{"what it may only read is written", write_what_it_may_read, FORBIDDEN},
	{"its ring is filled with nonsense", scribble_over_its_region, CUT_OFF},
	{"the doorbell is blocked", empty_the_doorbell, NOTHING},
	{"pinned memory is freed and kept open", keep_pinned_memory, BOUNDED},
	{"programs fault, then many of them start", fault_again_and_again, BOUNDED},
	{"programs are killed as they start", die_again_and_again, NOTHING},
	{"an operator's verb: quit", end_the_service, REFUSED},
	{"processes of the service are killed", take_hold_of_an_executor, FORBIDDEN},
};
#define ATTACKS (sizeof(attacks) / sizeof(attacks[0]))

/*
 * The two users
 */

static void become(uid_t uid)
{
	if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		_exit(90);
}

static int attack(int number)
{
	become(HOSTILE);
	return (int)attacks[number].attack();
}

static int be_honest(int number)
{
	become(HONEST);
	return one_program(number);
}

static pid_t find_daemon(void)
{
	pid_t daemon = 0;

	ck_assert_int_gt(service_children(&service, &daemon, 1), 0);
	return daemon;
}

/* Other users read the kernels, wherever the build lies. */
static void start(void)
{
	char command[512], path[128];

	ck_assert(service_start_configured(&service,
		"pinned_limit = 64M\nexecutors_per_user_max = 4\nstandbys = 0\ndomain_idle_seconds = 1\n"));
	ck_assert_int_eq(chmod(service.folder, 0711), 0);
	snprintf(path, sizeof(path), "%s/kernels.so", service.folder);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 644 '%s'", getenv("FRMPS_TEST_KERNELS"),
		path, path);
	ck_assert_int_eq(system(command), 0);
	setenv("FRMPS_TEST_KERNELS", path, 1);
}

TEST(hostile, attacks_end_as_they_must)
{
	unsigned wrong = 0;
	pid_t daemon;

	start();
	daemon = find_daemon();
	printf("%-44s %-12s %s\n", "attack", "outcome", "beside it");
	for (size_t i = 0; i < ATTACKS; i++) {
		pid_t hostile = spawn(attack, (int)i);
		int beside = exit_status(spawn(be_honest, 3 + (int)i)), end = exit_status(hostile);
		bool is_right = end == (int)attacks[i].outcome && beside == 0;

		printf("%-44s %-12s %s%s\n", attacks[i].name, end <= OTHER ? outcomes[end] : "died",
			beside ? "hurt" : "exact", is_right ? "" : "  <-- WRONG");
		fflush(stdout);
		wrong += !is_right;
		ck_assert_int_eq(find_daemon(), daemon);
	}
	ck_assert_uint_eq(wrong, 0);
	wait_closed(&service);
	ck_assert_int_eq(service_stop(&service), 0);
}

/* Whoever all wait for comes before what runs for one of them. */
TEST(hostile, the_daemon_comes_before_executors)
{
	int own = getpriority(PRIO_PROCESS, 0);
	pid_t executor;

	start();
	ck_assert_int_eq(exit_status(spawn(be_honest, 3)), 0);
	executor = service_active(&service);
	ck_assert_int_ne(executor, 0);
	ck_assert_int_eq(getpriority(PRIO_PROCESS, (id_t)executor), own);
	ck_assert_int_lt(getpriority(PRIO_PROCESS, (id_t)find_daemon()), own);
	ck_assert_int_eq(service_stop(&service), 0);
}

int main(void)
{
	Suite *suite;
	TCase *tests;

	if (geteuid() != 0) {
		puts("skipped: only root has programs of several users");
		return 77;
	}
	suite = suite_create("hostile");
	tests = tcase_create("hostile");
	tcase_set_timeout(tests, 300);
	suite_add(tests, "hostile");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
