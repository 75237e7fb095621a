// What kernels print: complete, in order, at the points at which the program waits, and in the
// right program's output, whatever happens to others. The programs are children whose output goes
// to a pipe.
//
// The kernels are those of FRMPS_TEST_PRINT (tests/lib/host_print.c, print.cu).

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static struct service service;
static CUfunction say_function, insist_function;

static void start(void)
{
	if (!is_native())
		ck_assert(service_start(&service, NULL));
}

static void stop(void)
{
	if (!is_native())
		ck_assert_int_eq(service_stop(&service), 0);
}

/* ---- programs ---- */

/* Standard output is a buffer that is written when it is full or at the end, as with any pipe. */
static void printer_open(void)
{
	void *image = read_file(getenv("FRMPS_TEST_PRINT"));
	CUmodule module;

	driver_attach();
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuModuleGetFunction(&say_function, module, "say"));
	ck_cuda(cuModuleGetFunction(&insist_function, module, "insist"));
	free(image);
}

static void say(uint32_t program, uint32_t first, uint32_t lines, CUstream stream)
{
	void *arguments[] = {&program, &first, &lines};

	ck_cuda(cuLaunchKernel(say_function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

/* A child with its output and its errors in pipes. */
struct talker {
	pid_t pid;
	FILE *out, *err;
};

static struct talker talk(int (*program)(int), int argument)
{
	int out[2], err[2];
	struct talker talker;

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
	fflush(stdout);
	talker.pid = fork();
	if (talker.pid == 0) {
		int status;

		dup2(out[1], 1);
		dup2(err[1], 2);
		status = program(argument);
		fflush(stdout);
		_exit(status);
	}
	close(out[1]);
	close(err[1]);
	talker.out = fdopen(out[0], "r");
	talker.err = fdopen(err[0], "r");
	return talker;
}

/* All that comes until the end, the caller's. */
static char *listen_to(FILE *pipe)
{
	char *text = NULL;
	size_t size = 0;
	FILE *all = open_memstream(&text, &size);
	int c;

	while ((c = fgetc(pipe)) != EOF)
		fputc(c, all);
	fclose(all);
	fclose(pipe);
	return text;
}

/* Waits for a talker's end; its output is as expected. */
static void expect(struct talker *talker, int status, const char *expected)
{
	char *out = listen_to(talker->out), *err = listen_to(talker->err);

	ck_assert_msg(exit_status(talker->pid) == status, "%s%s", out, err);
	ck_assert_str_eq(out, expected);
	free(out);
	free(err);
}

/* ---- tests ---- */

/* Every kind of wait shows what was printed before it, behind what the program has written. */
static int order(int argument)
{
	CUstream stream;
	CUevent event;
	CUdeviceptr p;
	uint32_t word;

	(void)argument;
	printer_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, 0));
	ck_cuda(cuMemAlloc_v2(&p, 4));
	printf("begin\n");
	say(1, 0, 2, NULL);
	ck_cuda(cuCtxSynchronize());
	printf("context\n");
	say(1, 2, 1, stream);
	ck_cuda(cuStreamSynchronize(stream));
	printf("stream\n");
	say(1, 3, 1, stream);
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuEventSynchronize(event));
	printf("event\n");
	say(1, 4, 1, NULL);
	ck_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	printf("copy\n");
	say(1, 5, 1, stream);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	printf("end\n");
	return 0;
}

TEST(text, text_comes_where_the_program_waits)
{
	struct talker talker = talk(order, 0);

	expect(&talker, 0,
		"begin\nprogram 1 says 0\nprogram 1 says 1\ncontext\nprogram 1 says 2\nstream\n"
		"program 1 says 3\nevent\nprogram 1 says 4\ncopy\nprogram 1 says 5\nend\n");
}

#define ROUNDS 100
#define LINES  7

static int chatter(int number)
{
	CUstream stream;

	printer_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		say((uint32_t)number, round * LINES, LINES, round % 2 ? stream : NULL);
		ck_cuda(round % 2 ? cuStreamSynchronize(stream) : cuCtxSynchronize());
	}
	return 0;
}

static char *chatter_text(int number)
{
	char *text = NULL;
	size_t size = 0;
	FILE *all = open_memstream(&text, &size);

	for (int i = 0; i < ROUNDS * LINES; i++)
		fprintf(all, "program %d says %d\n", number, i);
	fclose(all);
	return text;
}

TEST(text, each_program_gets_its_own_text)
{
	struct talker talkers[3];

	for (int i = 0; i < 3; i++)
		talkers[i] = talk(chatter, i);
	for (int i = 0; i < 3; i++) {
		char *text = chatter_text(i);

		expect(&talkers[i], 0, text);
		free(text);
	}
	ck_assert(is_native() || service_log_count(&service, "says") == 0);
}

/* Prints without end and never waits: its text has nowhere to go, and that is its own affair. */
static int silent(int progress, int orders)
{
	driver_attach();
	ck_cuda(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 65536));
	printer_open();
	for (uint32_t i = 0; !ordered(orders, false); i++) {
		say(9, i, 1000, NULL);
		report(progress);
	}
	fclose(stdout); /* what is left is not for the test's report */
	return 0;
}

TEST(text_2, who_never_waits_holds_up_nobody)
{
	struct child child = child_start(silent);
	char *text = chatter_text(5);
	struct talker talker;

	child_wait(&child, 50);
	talker = talk(chatter, 5);
	expect(&talker, 0, text);
	ck_assert(child_runs(&child));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	free(text);
}

/* More than there is room for between two waits: the oldest is lost. NVIDIA's library keeps more
 * than it is told to: 1.8 MB of this were seen. */
#define MANY_LINES 100000
#define MANY_BYTES 2088890 /* of their text */
static int overflow(int argument)
{
	(void)argument;
	driver_attach();
	ck_cuda(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 65536));
	printer_open();
	say(1, 0, MANY_LINES, NULL);
	ck_cuda(cuCtxSynchronize());
	printf("later\n");
	say(1, 0, 2, NULL);
	ck_cuda(cuCtxSynchronize());
	return 0;
}

TEST(text, the_oldest_text_beyond_the_limit_is_lost)
{
	struct talker talker = talk(overflow, 0);
	char *out = listen_to(talker.out), *later = strstr(out, "later\n");

	free(listen_to(talker.err));
	ck_assert_int_eq(exit_status(talker.pid), 0);
	ck_assert_ptr_nonnull(later);
	ck_assert_int_lt(later - out, MANY_BYTES);
	ck_assert_int_gt(later - out, 10000);
	ck_assert_ptr_eq(strstr(out, "program 1 says 99999\n") + strlen("program 1 says 99999\n"), later);
	ck_assert_str_eq(later, "later\nprogram 1 says 0\nprogram 1 says 1\n");
	free(out);
}

/* The active executor, once there is a standby as well. Nothing says so: it is asked for. */
static pid_t active_executor(void)
{
	for (int i = 0; i < 600; i++) {
		char *text = service_status(&service);
		json_t *status = json_loads(text ? text : "", 0, NULL), *one;
		json_t *domain = json_array_get(json_object_get(status, "domains"), 0);
		bool warm = false;
		size_t index;
		pid_t pid = 0;

		json_array_foreach (json_object_get(domain, "executors"), index, one) {
			if (!strcmp(json_string_value(json_object_get(one, "role")), "active"))
				pid = (pid_t)json_integer_value(json_object_get(one, "pid"));
			warm |= !strcmp(json_string_value(json_object_get(one, "state")), "warm");
		}
		json_decref(status);
		free(text);
		if (pid && warm)
			return pid;
		pass_time(50);
	}
	ck_abort_msg("there is no standby");
	return 0;
}

/* Prints, and again when it is told to by a line. */
static int mover(int rounds)
{
	char line[8];

	setenv("FRMPS_RECOVERY", "replay", 1);
	printer_open();
	for (uint32_t i = 0; i < (uint32_t)rounds; i++) {
		say(4, i, 1, NULL);
		ck_cuda(cuCtxSynchronize());
		fflush(stdout);
		if (i + 1 < (uint32_t)rounds && !fgets(line, sizeof(line), stdin))
			return 3;
	}
	return 0;
}

TEST(text_2, text_goes_on_after_the_executors_death)
{
	int orders[2], kept = dup(0);
	struct talker talker;
	char line[64], expected[64];

	ck_assert_int_eq(pipe2(orders, O_CLOEXEC), 0);
	dup2(orders[0], 0);
	talker = talk(mover, 3);
	dup2(kept, 0);
	close(kept);
	close(orders[0]);
	for (int i = 0; i < 2; i++) {
		snprintf(expected, sizeof(expected), "program 4 says %d\n", i);
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), talker.out));
		ck_assert_str_eq(line, expected);
		ck_assert_int_eq(kill(active_executor(), SIGKILL), 0);
		ck_assert_int_eq(write(orders[1], "\n", 1), 1);
	}
	close(orders[1]);
	expect(&talker, 0, "program 4 says 2\n");
}

/* An assertion that fails. @waits: for the kernel; otherwise the program asks again and again */
static int failing(int waits)
{
	uint32_t value = 7, most = 5;
	void *arguments[] = {&value, &most};
	CUresult error;

	printer_open();
	say(2, 0, 1, NULL);
	ck_cuda(cuLaunchKernel(insist_function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	do
		error = waits ? cuCtxSynchronize() : cuStreamQuery(NULL);
	while (error == CUDA_ERROR_NOT_READY);
	printf("after\n");
	return error == CUDA_SUCCESS ? 2 : 0;
}

TEST_LOOP(text_2, an_assertions_text_is_its_programs, 0, 2)
{
	struct talker other = talk(chatter, 6), talker = talk(failing, _i);
	char *err = listen_to(talker.err), *out = listen_to(talker.out), *text = chatter_text(6);

	ck_assert_int_eq(exit_status(talker.pid), 0);
	/* nvcc has the types of its parameters in its name. */
	ck_assert_msg(strstr(err, "insist") != NULL, "%s", err);
	ck_assert_msg(
		strstr(err, ": block: [0,0,0], thread: [0,0,0] Assertion `value <= most` failed.\n") != NULL,
		"%s", err);
	ck_assert_str_eq(out, "program 2 says 0\nafter\n");
	expect(&other, 0, text);
	free(text);
	free(err);
	free(out);
}

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tests = tcase_create("text");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "text");
	if (!is_native()) {
		suite_add(tests, "text_2");
	}
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
