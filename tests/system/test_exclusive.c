// A device that lets one process alone have a context (compute mode EXCLUSIVE_PROCESS), which the
// host backend plays: a second context is refused there as the driver refuses it. An executor that
// the service starts too early says so in the log, so each test also shows the order of starts.
// Tests of users need root.

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/folder.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define REFUSED "the device, whose compute mode permits one at most"
#define TURNS	20
#define OTHER	12345

static struct service service;
static char mode[256]; /* the file that has it (tests/host/context.c) */

static void set_mode(const char *name)
{
	FILE *file = fopen(mode, "w");

	ck_assert_ptr_nonnull(file);
	fputs(name, file);
	ck_assert_int_eq(fclose(file), 0);
}

static void set_up(void)
{
	const char *folder = folder_enter();

	ck_assert_int_eq(chmod(folder, 0755), 0);
	snprintf(mode, sizeof(mode), "%s/mode", folder);
	set_mode("e");
	ck_assert_int_eq(chmod(mode, 0644), 0);
	setenv("FRMPS_HOST_MODE", mode, 1);
	setenv("FRMPS_HOST_FAULTS", "named", 1);
	ck_assert_int_eq(setgroups(0, NULL), 0);
}

static void start(const char *configuration)
{
	ck_assert(service_start_configured(&service, configuration));
	ck_assert_int_eq(chmod(service.folder, 0755), 0);
}

static void tear_down(void)
{
	if (service.pid) {
		ck_assert_int_eq(service_log_count(&service, REFUSED), 0);
		ck_assert_int_eq(service_stop(&service), 0);
	}
	folder_leave();
}

/* Executors that have not ended. */
static size_t count_executors(void)
{
	json_t *status = status_of(&service), *domain;
	size_t count = 0, index;

	json_array_foreach (json_object_get(status, "domains"), index, domain)
		count += json_array_size(json_object_get(domain, "executors"));
	json_decref(status);
	return count;
}

static void go_on(const struct child *child)
{
	child_drain(child);
	child_wait(child, TURNS);
}

static int crash(int unused)
{
	CUdeviceptr address = 16;
	void *arguments[] = {&address};

	(void)unused;
	driver_open();
	launch("crash_write", 1, 1, NULL, arguments);
	return cuCtxSynchronize() == CUDA_SUCCESS ? 1 : 0;
}

static void become_other(void)
{
	if (setgroups(0, NULL) || setresgid(OTHER, OTHER, OTHER) || setresuid(OTHER, OTHER, OTHER))
		_exit(90);
}

/* What cuInit says to a program of another user. */
static int others_start(int unused)
{
	(void)unused;
	become_other();
	return (int)cuInit(0) & 0xff;
}

static int others_program(int number)
{
	become_other();
	return one_program(number);
}

TEST(exclusive, programs_of_a_user_share_one_executor)
{
	struct child first, second;

	start("standbys = 3\n");
	ck_assert_int_eq(service_log_count(&service, "compute mode EXCLUSIVE_PROCESS"), 1);
	first = child_start(survivor);
	second = child_start(survivor);
	go_on(&first);
	go_on(&second);
	ck_assert_uint_eq(count_executors(), 1);
	child_order(&first);
	child_order(&second);
	ck_assert_int_eq(child_end(&first), 0);
	ck_assert_int_eq(child_end(&second), 0);
}

TEST(exclusive, faults_are_contained)
{
	struct child child;
	pid_t executor;

	start("quarantine_faults = 0\n");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	executor = service_active(&service);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(exit_status(spawn(crash, 0)), 0);
		status_await_faults(&service, i + 1);
		go_on(&child);
	}
	ck_assert_int_eq(service_active(&service), executor);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* The next one can only start when the kernel has ended the old one. */
TEST(exclusive, a_lost_executor_is_replaced)
{
	struct child child;

	start("");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	for (int i = 0; i < 3; i++) {
		ck_assert(service_kill_active(&service));
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
		go_on(&child);
		ck_assert_uint_eq(count_executors(), 1);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(exclusive, users_come_one_after_the_other)
{
	struct child child;

	start("");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	ck_assert_int_eq(exit_status(spawn(others_start, 0)), CUDA_ERROR_MPS_SERVER_NOT_READY & 0xff);
	ck_assert_int_eq(service_log_count(&service,
				 "is refused: the device lets one process have a context (compute mode "
				 "EXCLUSIVE_PROCESS), and that executor serves programs of another user"),
		1);
	go_on(&child);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	/* Whose programs have ended waits for nothing. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(exit_status(spawn(others_program, i)), 0);
		ck_assert_int_eq(exit_status(spawn(one_program, i)), 0);
	}
}

TEST(exclusive, no_program_gets_an_executor_of_its_own)
{
	struct child child;
	char line[256];

	start("");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	snprintf(line, sizeof(line), "%s isolate %lld 2>&1 | grep -q EXCLUSIVE_PROCESS",
		getenv("FRMPS_TEST_CTL"), status_session(&service, child.pid));
	folder_shell(line);
	go_on(&child);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* The configuration wants it: then it is the only one there. */
TEST(exclusive, isolated_programs_come_one_after_the_other)
{
	struct child child;

	start("isolation = client\n");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	ck_assert_int_eq(exit_status(spawn(others_start, 0)), CUDA_ERROR_MPS_SERVER_NOT_READY & 0xff);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(exit_status(spawn(one_program, 0)), 0);
}

TEST(exclusive, the_next_daemon_knows_the_mode)
{
	struct child child;

	start("");
	child = child_start(survivor);
	child_wait(&child, TURNS);
	ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
	go_on(&child);
	ck_assert(service_kill_active(&service));
	ck_assert(service_log_wait(&service, "promotion: executor", 1, 60));
	go_on(&child);
	ck_assert_uint_eq(count_executors(), 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* Somebody outside the service has the device while the next executor is to start. */
TEST(exclusive, a_stranger_that_has_the_device_is_named)
{
	int fd = open(mode, O_RDONLY | O_CLOEXEC);

	start("");
	ck_assert_int_eq(exit_status(spawn(one_program, 0)), 0);
	/* Whoever comes first: it may be the next executor. */
	while (flock(fd, LOCK_EX | LOCK_NB) < 0)
		service_kill_active(&service);
	ck_assert(service_log_wait(&service, REFUSED, 1, 60));
	close(fd);
	while (!service_active(&service))
		pass_time(10);
	ck_assert_int_eq(exit_status(spawn(one_program, 0)), 0);
	ck_assert_int_eq(service_stop(&service), 0);
}

TEST(exclusive, a_prohibited_device_is_not_served)
{
	char line[512];

	set_mode("p");
	snprintf(line, sizeof(line),
		"%s --config /dev/null --backend %s --socket %s.sock 2>said; test $? = 69 && grep -q "
		"'compute mode is PROHIBITED' said",
		getenv("FRMPS_TEST_SERVER"), service_backend(), mode);
	folder_shell(line);
}

/* doctor and status say what the mode is, and that it was changed. */
TEST(exclusive, the_mode_is_told)
{
	char line[256];

	start("");
	snprintf(line, sizeof(line), "%s doctor | grep -q '^warning  compute_mode .*EXCLUSIVE_PROCESS'",
		getenv("FRMPS_TEST_CTL"));
	folder_shell(line);
	snprintf(line, sizeof(line), "%s status --json | grep -q '\"compute_mode\": \"exclusive\"'",
		getenv("FRMPS_TEST_CTL"));
	folder_shell(line);
}

int main(void)
{
	Suite *suite = suite_create("exclusive");
	TCase *cases = tcase_create("exclusive");

	if (geteuid()) {
		fprintf(stderr, "these tests need root\n");
		return 77;
	}
	tcase_add_checked_fixture(cases, set_up, tear_down);
	suite_add(cases, "exclusive");
	suite_add_tcase(suite, cases);
	return suite_run(suite);
}
