// frmps-run as a program: without the service it runs nothing, unless it is told that it may; and
// frmpsctl: what it says and ends with when the service is not there, or refuses. Their paths come
// by FRMPS_TEST_RUN and FRMPS_TEST_CTL.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/one_answer.h"

#define MOST 8

static char folder[64];
static int32_t code;	 /* with which the service answers */
static const char *json; /* and what */

/* Runs a program; *ret_output (at least 4096 bytes) is the beginning of both its outputs. Return:
 * exit code. */
static int run_program(const char *variable, const char *const *arguments, char *ret_output)
{
	const char *program = getenv(variable);
	char *list[MOST + 2] = {(char *)"frmps"};
	int pipes[2], status;
	size_t length = 0;
	char rest;
	ssize_t n;
	pid_t pid;

	ck_assert_msg(program != NULL, "%s names no program", variable);
	for (int i = 0; i < MOST && arguments[i]; i++)
		list[i + 1] = (char *)arguments[i];
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], 1);
		dup2(pipes[1], 2);
		execv(program, list);
		_exit(99);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], ret_output + length, 4095 - length)) > 0)
		length += (size_t)n;
	ret_output[length] = '\0';
	/* To the end, which nobody must find closed. */
	while (length == 4095 && read(pipes[0], &rest, 1) > 0)
		continue;
	close(pipes[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int run(const char *const *arguments, char *ret_output)
{
	return run_program("FRMPS_TEST_RUN", arguments, ret_output);
}

static int control(const char *const *arguments, char *ret_output)
{
	return run_program("FRMPS_TEST_CTL", arguments, ret_output);
}

static void set_up(void)
{
	strcpy(folder, "/tmp/frmps-run-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	code = CUDA_SUCCESS;
	json = "{}";
	unsetenv("FRMPS_SOCKET");
	unsetenv("LD_LIBRARY_PATH");
}

static void tear_down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

TEST(run, without_the_service_nothing_is_run)
{
	const char *arguments[] = {"--socket", "/nonexistent/frmps.sock", "/bin/echo", "was-run", NULL};
	char output[4096];

	ck_assert_int_eq(run(arguments, output), 69);
	ck_assert_ptr_null(strstr(output, "was-run\n"));
	ck_assert_ptr_nonnull(strstr(output, "/nonexistent/frmps.sock"));
	ck_assert_ptr_nonnull(strstr(output, "--allow-native"));
}

TEST(run, native_runs_say_so)
{
	const char *arguments[] = {"--allow-native", "--socket", "/nonexistent/frmps.sock", "/bin/sh", "-c",
		"echo path=$LD_LIBRARY_PATH=; exit 5", NULL};
	char output[4096];

	ck_assert_int_eq(run(arguments, output), 5);
	ck_assert_ptr_nonnull(strstr(output, "path=="));
	ck_assert_ptr_nonnull(strstr(output, "without protection"));
}

static const struct {
	const char *arguments[MOST];
	int code;
} wrong[] = {
	{{NULL}, 64},
	{{"--no-such-option", "true", NULL}, 64},
	{{"--recovery", "maybe", "true", NULL}, 64},
	{{"--help", NULL}, 0},
	{{"--version", NULL}, 0},
};

TEST_LOOP(run, usage_is_checked, 0, sizeof(wrong) / sizeof(wrong[0]))
{
	char output[4096];

	ck_assert_int_eq(run(wrong[_i].arguments, output), wrong[_i].code);
	ck_assert_uint_gt(strlen(output), 0);
}

static pid_t start_service(char *path, size_t size)
{
	snprintf(path, size, "%s/frmps.sock", folder);
	return one_answer_start(path, code, json);
}

static void make_shim(char *path, size_t size)
{
	char library[160];

	snprintf(path, size, "%s/shim", folder);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(library, sizeof(library), "%s/shim/libcuda.so.1", folder);
	close(open(library, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	setenv("FRMPS_SHIM_DIR", path, 1);
}

TEST(run, program_gets_the_shim_and_the_socket)
{
	char path[128], shim[128], output[4096], expected[512];
	const char *arguments[] = {"--socket", path, "--recovery", "replay", "/bin/sh", "-c",
		"echo $LD_LIBRARY_PATH $FRMPS_SOCKET $FRMPS_RECOVERY $0", NULL};
	pid_t service = start_service(path, sizeof(path));

	make_shim(shim, sizeof(shim));
	setenv("LD_LIBRARY_PATH", "/other", 1);
	ck_assert_int_eq(run(arguments, output), 0);
	snprintf(expected, sizeof(expected), "%s:/other %s replay /bin/sh\n", shim, path);
	ck_assert_str_eq(output, expected);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

/* The next daemon answers whoever has connected meanwhile. */
TEST(run, a_daemon_that_dies_over_the_question_is_not_missing)
{
	char path[128], shim[128], output[4096];
	const char *arguments[] = {"--socket", path, "/bin/echo", "was-run", NULL};
	pid_t service;

	one_answer_deaths = 2;
	service = start_service(path, sizeof(path));
	make_shim(shim, sizeof(shim));
	ck_assert_int_eq(run(arguments, output), 0);
	ck_assert_str_eq(output, "was-run\n");
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
	one_answer_deaths = 0;
}

TEST(run, missing_shim_is_an_error)
{
	char path[128], output[4096];
	const char *arguments[] = {"--socket", path, "/bin/echo", "was-run", NULL};
	pid_t service = start_service(path, sizeof(path));

	setenv("FRMPS_SHIM_DIR", folder, 1);
	ck_assert_int_eq(run(arguments, output), 69);
	ck_assert_ptr_null(strstr(output, "was-run\n"));
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

TEST(run, programs_that_gain_rights_are_refused)
{
	char path[128], shim[128], program[128], output[4096];
	const char *arguments[] = {"--socket", path, program, NULL};
	pid_t service = start_service(path, sizeof(path));
	int fd;

	make_shim(shim, sizeof(shim));
	snprintf(program, sizeof(program), "%s/suid", folder);
	fd = open(program, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	ck_assert_int_eq(write(fd, "#!/bin/sh\necho was-run\n", 23), 23);
	/* Only root can make such a program; others see that it then simply runs. */
	if (fchown(fd, geteuid() == 0 ? 65534 : geteuid(), (gid_t)-1) < 0 || fchmod(fd, 04755) < 0)
		ck_abort_msg("%s", strerror(errno));
	close(fd);
	ck_assert_int_eq(run(arguments, output), geteuid() == 0 ? 77 : 0);
	ck_assert(geteuid() != 0 || !strstr(output, "was-run\n"));
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

TEST(run, unknown_programs_are_127)
{
	char path[128], shim[128], output[4096];
	const char *arguments[] = {"--socket", path, "no-such-program-anywhere", NULL};
	pid_t service = start_service(path, sizeof(path));

	make_shim(shim, sizeof(shim));
	ck_assert_int_eq(run(arguments, output), 127);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

static const struct {
	int32_t code;
	const char *arguments[3];
	int status;
	const char *says;
} asked[] = {
	{CUDA_SUCCESS, {"ping"}, 0, ""},
	{CUDA_SUCCESS, {"recovery", "7", "replay"}, 0, ""},
	{CUDA_ERROR_NOT_FOUND, {"recovery", "7", "replay"}, 1, "no such session"},
	{CUDA_ERROR_NOT_PERMITTED, {"recovery", "7", "fail"}, 1, "another user's"},
	{CUDA_ERROR_INVALID_VALUE, {"recovery", "7", "maybe"}, 1, "does not understand"},
	{CUDA_ERROR_NOT_FOUND, {"isolate", "7"}, 1, "no such session"},
	{CUDA_ERROR_NOT_PERMITTED, {"isolate", "7"}, 1, "another user's"},
	{CUDA_SUCCESS, {"isolate", "7"}, 1, "stays where it is"},
	{CUDA_ERROR_OUT_OF_MEMORY, {"status"}, 1, "out of memory"},
};

TEST_LOOP(run, a_refusal_is_no_missing_service, 0, sizeof(asked) / sizeof(asked[0]))
{
	char path[128], output[4096];
	const char *arguments[] = {"--socket", path, asked[_i].arguments[0], asked[_i].arguments[1],
		asked[_i].arguments[2], NULL};
	pid_t service;

	code = asked[_i].code;
	service = start_service(path, sizeof(path));
	ck_assert_int_eq(control(arguments, output), asked[_i].status);
	ck_assert_msg(strstr(output, asked[_i].says) && !asked[_i].says[0] == !output[0], "%s", output);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
	arguments[1] = "/nonexistent/frmps.sock";
	ck_assert_int_eq(control(arguments, output), 69);
	ck_assert_ptr_nonnull(strstr(output, "cannot be reached"));
}

TEST(run, a_refusal_says_why)
{
	char path[128], output[4096];
	const char *arguments[] = {"--socket", path, "isolate", "7", NULL};
	pid_t service;

	code = CUDA_ERROR_NOT_FOUND;
	json = "{\"reason\": \"there is no session 7\"}";
	service = start_service(path, sizeof(path));
	ck_assert_int_eq(control(arguments, output), 1);
	ck_assert_msg(strstr(output, " refuses: there is no session 7\n") != NULL, "%s", output);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

static const struct {
	const char *answer, *line; /* line: NULL: none */
} proofs[] = {
	{"{\"proof\": {\"proved\": true, \"ms\": 42}}",
		"\nfaults of kernels: contained by the service (proved in 42 ms)\n"},
	{"{\"proof\": {\"proved\": false, \"ms\": 3000, \"reason\": \"a kernel does not begin\"}}",
		"\nfaults of kernels: the driver's fence, because the trial failed: a kernel does not "
		"begin\n"},
	{"{\"proof\": null}", NULL},
};

TEST_LOOP(run, the_status_says_who_contains_faults, 0, sizeof(proofs) / sizeof(proofs[0]))
{
	char path[128], output[4096];
	const char *arguments[] = {"--socket", path, "status", NULL};
	pid_t service;

	json = proofs[_i].answer;
	service = start_service(path, sizeof(path));
	ck_assert_int_eq(control(arguments, output), 0);
	ck_assert_msg(strstr(output, proofs[_i].line ? proofs[_i].line : "\ndaemon ") != NULL, "%s", output);
	ck_assert(proofs[_i].line || !strstr(output, "faults of kernels"));
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

TEST(run, control_checks_its_usage)
{
	static const char *const lists[][3] = {{"--help"}, {"--version"}, {NULL}, {"nonsense"}, {"isolate"},
		{"recovery", "7"}, {"--nonsense", "ping"}};
	char output[4096];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		ck_assert_int_eq(
			control((const char *[]){lists[i][0], lists[i][1], NULL}, output), i < 2 ? 0 : 64);
		ck_assert_uint_gt(strlen(output), 0);
	}
}

/* Whose PID namespace the service does not see has PID 0, and is one of many. */
TEST(run, nobody_is_terminated_as_process_0)
{
	char path[128], output[4096];
	const char *arguments[] = {"--socket", path, "terminate_client", "5", "0", NULL};
	pid_t service;

	code = CUDA_SUCCESS;
	json = "{\"domains\": [{\"uid\": 1, \"executors\": [{\"role\": \"active\", \"pid\": 5}], "
	       "\"clients\": [{\"session\": 7, \"pid\": 0}, {\"session\": 8, \"pid\": 0}]}]}";
	service = start_service(path, sizeof(path));
	ck_assert_int_eq(control(arguments, output), 1);
	ck_assert_msg(strstr(output, "terminate_client: several may have no PID here") != NULL, "%s", output);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
}

int main(void)
{
	Suite *suite = suite_create("run");
	TCase *tests = suite_case(suite, "run");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "run");
	return suite_run(suite);
}
