// The process that proves that faults are contained, as the service sees it: it answers, crashes,
// hangs, or is not there.

#include "server/prove.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/trial.h"
#include "tests/lib/script.h"
#include "tests/lib/suite.h"

#define PATIENCE_MS 20000u

static char path[64], path_variable[80];
static char *environment[] = {(char *)"PATH=/bin:/usr/bin", path_variable, NULL};
static struct heritage heritage = {.backend = "cuda", .backend_option = "cuda", .environment = environment};

/* Puts a program that does something else instead at `path`. */
static void write_program(const char *script)
{
	strcpy(path, "/tmp/frmps-prove-XXXXXX");
	script_make(path, script);
}

static void ask(const char *script, unsigned patience_ms)
{
	write_program(script);
	prove_ask(path, &heritage, patience_ms);
	unlink(path);
	/* Nothing of it is left. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

TEST(prove, a_trial_that_crashes_proves_nothing)
{
	ask("kill -SEGV $$", PATIENCE_MS);
	ck_assert_int_eq(heritage.proof.state, PROOF_FAILED);
	ck_assert_str_eq(heritage.proof.why, "the trial was ended by signal 11");
}

TEST(prove, a_trial_that_hangs_is_ended)
{
	ask("exec sleep 1000", 100);
	ck_assert_int_eq(heritage.proof.state, PROOF_FAILED);
	ck_assert_str_eq(heritage.proof.why, "the trial did not end within 100 ms");
}

TEST(prove, a_trial_that_says_something_else_proves_nothing)
{
	ask("echo proved >&3; exit 3", PATIENCE_MS);
	ck_assert_int_eq(heritage.proof.state, PROOF_FAILED);
	ck_assert_str_eq(heritage.proof.why, "the trial ended with exit code 3");
}

TEST(prove, a_trial_that_is_not_there_proves_nothing)
{
	prove_ask("/nonexistent", &heritage, PATIENCE_MS);
	ck_assert_int_eq(heritage.proof.state, PROOF_FAILED);
	ck_assert_str_eq(heritage.proof.why, "the trial ended with exit code 127");
}

/* As an executor: the driver is to handle exceptions as for a debugger, and to have where to
 * write. */
TEST(prove, a_trial_is_started_as_an_executor_is)
{
	ask("test \"$CUDA_ENABLE_COREDUMP_ON_EXCEPTION\" = 1 && test -e /proc/self/fd/5 && "
	    "test \"$1 $2 $3 $5\" = '--role=trial --backend=cuda --child-device=0 --control-fd=3' && exit 42",
		PATIENCE_MS);
	ck_assert_str_eq(heritage.proof.why, "the trial ended with exit code 42");
}

/* Who started the service may have left it more. */
TEST(prove, a_trial_has_no_descriptors_but_its_own)
{
	int others[] = {HERITAGE_WORDS_FD, HERITAGE_DUMP_FD + 1};

	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(dup2(STDERR_FILENO, others[i]), 0);
	ask("test \"$(readlink /proc/$$/fd/0)\" = /dev/null && test ! -e /proc/$$/fd/4 && "
	    "test ! -e /proc/$$/fd/6 && exit 42",
		PATIENCE_MS);
	ck_assert_str_eq(heritage.proof.why, "the trial ended with exit code 42");
}

/* Return: whether the other ends are all closed within the time */
static bool has_hung_up(int fifo)
{
	struct pollfd end = {.fd = fifo, .events = POLLIN};

	return poll(&end, 1, 10000) == 1 && end.revents & POLLHUP;
}

/* It would keep the device, and may hang there for ever. */
static void expect_end_with_service(const char *program, const char *fifo)
{
	pid_t service = fork();
	int fd;

	if (!service) {
		prove_ask(program, &heritage, PATIENCE_MS);
		_exit(0);
	}
	fd = open(fifo, O_RDONLY); /* waits for the trial */
	kill(service, SIGKILL);
	ck_assert_int_eq(waitpid(service, NULL, 0), service);
	ck_assert(has_hung_up(fd));
	close(fd);
	unlink(fifo);
}

static void make_fifo(char *ret_path, size_t size)
{
	snprintf(ret_path, size, "/tmp/frmps-prove-fifo-%d", (int)getpid());
	ck_assert_int_eq(mkfifo(ret_path, 0600), 0);
	ck_assert_int_eq(chmod(ret_path, 0666), 0);
}

TEST(prove, a_trial_does_not_outlive_the_service)
{
	char fifo[64], script[200];

	make_fifo(fifo, sizeof(fifo));
	snprintf(script, sizeof(script), "exec sleep 30 >%s", fifo);
	write_program(script);
	expect_end_with_service(path, fifo);
	unlink(path);
}

/* The kernel forgets the wish for a signal when a process becomes another user's. */
TEST(prove_2, nor_does_a_trial_of_another_user)
{
	char fifo[48];

	make_fifo(fifo, sizeof(fifo));
	snprintf(path_variable, sizeof(path_variable), "FRMPS_TEST_HANG=%s", fifo);
	heritage.run_as = RUN_AS_USER;
	expect_end_with_service("/proc/self/exe", fifo);
}

/* ---- the child, where there is no device ---- */

static CUresult open_nothing(int device, struct backend_device *ret_device)
{
	(void)device;
	(void)ret_device;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_unknown(int device, struct backend_device *ret_device)
{
	(void)device;
	(void)ret_device;
	return CUDA_SUCCESS;
}

static CUresult enter(void)
{
	return CUDA_SUCCESS;
}

static const struct {
	CUresult (*open)(int device, struct backend_device *ret_device);
	const char *why;
} refusals[] = {{open_nothing, "the device cannot be opened (code 2)"},
	{open_unknown, "the driver or the device is not known"}};

TEST_LOOP(prove_3, a_device_that_cannot_be_tried_is_said, 0, 2)
{
	static const struct trial_kernels kernels = {.survivor = "none"};
	struct backend_ops ops = {
		.trial = &kernels, .open_executor = refusals[_i].open, .thread_enter = enter};
	char answer[1024];
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (!pid)
		_exit(prove_main(&ops, 0, 0, ends[1]));
	close(ends[1]);
	n = read(ends[0], answer, sizeof(answer) - 1);
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_ptr_nonnull(memmem(answer, (size_t)n, refusals[_i].why, strlen(refusals[_i].why) + 1));
	close(ends[0]);
}

/* ---- the child, which is this test again ---- */

/* Somebody else has all of its memory, until it is asked once more. */
static CUresult open_at_the_second_time(int device, struct backend_device *ret_device)
{
	(void)device;
	(void)ret_device;
	return unlink(getenv("FRMPS_TEST_FULL")) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_known(int device, struct backend_device *ret_device)
{
	(void)device;
	(void)ret_device;
	backend_contains = true;
	return CUDA_SUCCESS;
}

/* The first step of the trial. */
static CUresult hang(void *at, size_t bytes)
{
	int fd = open(getenv("FRMPS_TEST_HANG"), O_WRONLY);

	(void)at;
	(void)bytes;
	while (fd >= 0)
		pause();
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* @last: its last argument */
static int be_the_child(const char *last)
{
	uint32_t user = 0;

	static const struct trial_kernels kernels = {.survivor = "none"};
	static const struct backend_ops ops = {
		.trial = &kernels, .open_executor = open_at_the_second_time, .thread_enter = enter};

	static const struct backend_ops hanging = {
		.trial = &kernels, .open_executor = open_known, .thread_enter = enter, .host_register = hang};

	sscanf(last, "--user=%u", &user);
	return prove_main(getenv("FRMPS_TEST_HANG") ? &hanging : &ops, 0, user, HERITAGE_CONTROL_FD);
}

TEST(prove_3, a_device_that_cannot_be_opened_is_tried_again)
{
	write_program("");
	snprintf(path_variable, sizeof(path_variable), "FRMPS_TEST_FULL=%s", path);
	prove_ask("/proc/self/exe", &heritage, PATIENCE_MS);
	ck_assert_str_eq(heritage.proof.why, "the driver or the device is not known");
}

/* Handling faults comes before running as a user. */
TEST(prove_3, what_no_user_can_do_is_tried_as_the_service)
{
	heritage.run_as = RUN_AS_USER;
	ask("case \"$*\" in *--user=65534*) exit 42;; esac; exit 43", PATIENCE_MS);
	ck_assert_str_eq(heritage.proof.why, "the trial ended with exit code 43");
	ck_assert_int_eq(heritage.run_as, RUN_AS_SERVICE);
	ck_assert_str_eq(heritage.run_as_why, "the trial ended with exit code 42");
}

/* It has become the user, and the device is no better for anybody else. */
TEST(prove_3, a_device_that_nobody_can_use_is_no_reason_to_run_as_root)
{
	if (geteuid() != 0)
		return;
	heritage.run_as = RUN_AS_USER;
	write_program("");
	snprintf(path_variable, sizeof(path_variable), "FRMPS_TEST_FULL=%s", path);
	prove_ask("/proc/self/exe", &heritage, PATIENCE_MS);
	ck_assert_str_eq(heritage.proof.why, "the driver or the device is not known");
	ck_assert_int_eq(heritage.run_as, RUN_AS_USER);
	ck_assert_str_eq(heritage.run_as_why, "");
}

int main(int count, char **arguments)
{
	Suite *suite = suite_create("prove");
	TCase *tests = tcase_create("prove");

	if (count > 1 && strcmp(arguments[1], "--role=trial") == 0)
		return be_the_child(count > 6 ? arguments[6] : "");
	tcase_set_timeout(tests, 60);
	suite_add(tests, "prove");
	if (geteuid() == 0)
		suite_add(tests, "prove_2");
	suite_add(tests, "prove_3");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
