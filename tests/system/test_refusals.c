// What the service and its tools say to whom they refuse something: one clear line, and the exit
// code that scripts know. Wrong usage and wrong configurations are in
// unit/server/tools/test_usage.c; here a service runs. Needs root.

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/reach.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define SERVER "exec \"$FRMPS_TEST_SERVER\" --backend host "
#define CTL    "exec \"$FRMPS_TEST_CTL\" "
#define RUN    "exec \"$FRMPS_TEST_RUN\" "
#define OTHER  12345

static struct service service;

/* In a line of shell $folder is the service's. */
static const struct {
	uid_t uid;
	int code;
	const char *line, *says;
} orders[] = {
	{0, 1, CTL "terminate 99", "refuses: there is no session 99 (frmpsctl status lists them)\n"},
	{0, 1, CTL "isolate x", "refuses: there is no session x (frmpsctl status lists them)\n"},
	{0, 1, CTL "recovery 99 fail", "refuses: there is no session 99 (frmpsctl status lists them)\n"},
	{0, 1, CTL "recovery 1 maybe", "refuses: recovery takes a session, and fail or replay\n"},
	{0, 1, CTL "quarantine lift 99",
		"refuses: there is no program number 99 (frmpsctl quarantine lists them)\n"},
	{OTHER, 1, CTL "terminate 1", "refuses: session 1 is another user's\n"},
	{OTHER, 1, CTL "reload", "refuses: only root and the service's own user may reload\n"},
	{0, 1, "echo standby = 1 >$folder/conf; " CTL "reload", "standby: no such key"},
	{0, 1, "echo memory_guarantee = 5G >$folder/conf; " CTL "reload",
		"refuses: memory_guarantee: 5G are more than the device has, 4G: set it lower\n"},
	{0, 69, CTL "--socket $folder/none ping",
		"none cannot be reached: No such file or directory (frmpsctl doctor says what to do)\n"},
	{0, 69, CTL "--socket $folder/conf ping",
		"conf cannot be reached: Connection refused (frmpsctl doctor says what to do)\n"},
	{OTHER, 69, CTL "--socket $folder/private/s ping",
		"cannot be reached: Permission denied (frmpsctl doctor says what to do)\n"},
	{0, 69, RUN "--socket $folder/none true",
		"none cannot be reached: No such file or directory; true is not run (frmpsctl doctor says "
		"what to do; "},
	{0, 1, SERVER "--config $folder/conf --socket $folder/frmps.sock 2>&1 | head -1 >&2; exit 1",
		"(frmpsctl quit), or choose another path with --socket\n"},
	{OTHER, 78, SERVER "--check-config=$folder/private/conf", "private/conf: Permission denied\n"},
	{0, 78, SERVER "--check-config=$folder", ": Is a directory\n"},
	{0, 69,
		"CUDA_VISIBLE_DEVICES=MIG-1 " SERVER
		"--config /dev/null --socket $folder/none --backend cuda",
		"it serves whole GPUs, and no MIG devices\n"},
};

static void start(void)
{
	char path[128];

	ck_assert(service_start_configured(&service, "standbys = 0\n"));
	ck_assert_int_eq(chmod(service.folder, 0711), 0);
	snprintf(path, sizeof(path), "%s/private", service.folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	setenv("folder", service.folder, 1);
}

static void stop(void)
{
	ck_assert_int_eq(service_stop(&service), 0);
}

/* @ret_said (4096 bytes): its standard error. Return: its exit code */
static int shell_as(uid_t uid, const char *line, char *ret_said)
{
	size_t used = 0;
	int ends[2];
	ssize_t length;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
			_exit(99);
		execl("/bin/sh", "sh", "-c", line, NULL);
		_exit(99);
	}
	close(ends[1]);
	while ((length = read(ends[0], ret_said + used, 4095 - used)) > 0)
		used += (size_t)length;
	ret_said[used] = '\0';
	close(ends[0]);
	return exit_status(pid);
}

static int guest(int progress, int orders_fd)
{
	driver_attach();
	report(progress);
	ordered(orders_fd, true);
	return 0;
}

TEST_LOOP(orders, an_order_is_refused_in_a_line, 0, sizeof(orders) / sizeof(orders[0]))
{
	struct child first = child_start(guest);
	char said[4096];

	child_wait(&first, 1);
	ck_assert_int_eq(shell_as(orders[_i].uid, orders[_i].line, said), orders[_i].code);
	ck_assert_msg(strstr(said, orders[_i].says) != NULL, "%s", said);
	ck_assert_ptr_eq(strchr(said, '\n'), said + strlen(said) - 1);
	child_order(&first);
	ck_assert_int_eq(child_end(&first), 0);
}

/* Limits that a second program is beyond, and what both of them are told. */
static const struct {
	const char *terms;
	CUresult code;
	const char *says;
} limits[] = {
	{"clients_max = 1\n", CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
		"is refused: the service serves as many programs as clients_max allows: end one (frmpsctl "
		"status lists them), or raise the key\n"},
	{"clients_per_user_max = 1\n", CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
		"is refused: its user has as many programs as clients_per_user_max allows: end one (frmpsctl "
		"status lists them), or raise the key\n"},
	{"memory_guarantee = 3G\n", CUDA_ERROR_OUT_OF_MEMORY,
		"is refused: its memory_guarantee of 3G cannot be kept: 3G are guaranteed to "
		"others"},
	{"memory_guarantee = 3G\nmemory_policy = evict\n", CUDA_ERROR_OUT_OF_MEMORY,
		"is refused: its memory_guarantee of 3G cannot be kept: 3G are guaranteed to "
		"others"},
};

static int beyond(int code)
{
	return cuInit(0) == (CUresult)code ? 0 : 2;
}

TEST_LOOP(programs, a_program_is_refused_in_a_line, 0, sizeof(limits) / sizeof(limits[0]))
{
	struct child first;

	ck_assert(service_start_configured(&service, limits[_i].terms));
	first = child_start(guest);
	child_wait(&first, 1);
	ck_assert_int_eq(exit_status(spawn(beyond, (int)limits[_i].code)), 0);
	ck_assert_int_eq(service_log_count(&service, limits[_i].says), 1);
	ck_assert_int_eq(service_log_count(&service, "is refused"), 1);
	child_order(&first);
	ck_assert_int_eq(child_end(&first), 0);
}

int main(void)
{
	Suite *suite;
	TCase *tests;
	int status;

	if (geteuid() != 0) {
		puts("skipped: only root can ask as several users");
		return 77;
	}
	reach_open();
	suite = suite_create("refusals");
	tests = suite_case(suite, "orders");
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "orders");
	tests = suite_case(suite, "programs");
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "programs");
	status = suite_run(suite);
	reach_close();
	return status;
}
