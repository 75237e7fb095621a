// Programs whose modules must be compiled first, and what that costs others. The host backend
// compiles fat binaries of texts (server/backend/host/compile.c); a compilation here begins when
// the test opens a FIFO for writing, which is where it waits for that, and ends when the test
// closes it.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

static struct service service;
static char fifo[128];

/*
 * Sources
 */

static size_t file_bytes(const char *path)
{
	struct stat status;

	ck_assert_int_eq(stat(path, &status), 0);
	return (size_t)status.st_size;
}

/* A fat binary with one text, which becomes the test kernels. @wait: "" or the path of a FIFO */
static void *source_of_kernels(const char *wait)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	struct {
		uint32_t magic;
		uint16_t version, header_bytes;
		uint64_t payload_bytes;
	} header = {0xba55ed50, 1, 16, 0};
	struct {
		uint16_t kind, version;
		uint32_t header_bytes;
		uint64_t payload_bytes;
	} text = {1, 1, 16, 0};
	size_t bytes = file_bytes(path), length;
	void *object = read_file(path);
	char line[160], *source;

	length = (size_t)snprintf(line, sizeof(line), "host-text%s%s\n", *wait ? " " : "", wait);
	text.payload_bytes = length + bytes;
	header.payload_bytes = sizeof(text) + text.payload_bytes;
	source = malloc(sizeof(header) + header.payload_bytes);
	ck_assert_ptr_nonnull(source);
	memcpy(source, &header, sizeof(header));
	memcpy(source + sizeof(header), &text, sizeof(text));
	memcpy(source + sizeof(header) + sizeof(text), line, length);
	memcpy(source + sizeof(header) + sizeof(text) + length, object, bytes);
	free(object);
	return source;
}

static void expect_kernels_run(CUmodule module)
{
	uint32_t by = 3, seen = 0;
	CUfunction function;
	CUdeviceptr word;
	void *arguments[] = {&word, &by};

	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	word = device_words(1, 0);
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	ck_cuda(cuMemcpyDtoH_v2(&seen, word, 4));
	ck_assert_uint_eq(seen, 3);
	ck_cuda(cuMemFree_v2(word));
}

static void start(void)
{
	ck_assert(service_start_configured(&service, "quarantine_faults = 0\n"));
	snprintf(fifo, sizeof(fifo), "%s/compiler", service.folder);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
}

static void start_one(void)
{
	setenv("FRMPS_COMPILE_THREADS", "1", 1);
	start();
}

static void stop(void)
{
	unlink(fifo);
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* Waits until a compilation has come to the FIFO. Return: what it waits to see closed. */
static int let_compilation_begin(void)
{
	int fd = open(fifo, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/*
 * Programs
 */

/* Its module compiles as long as the FIFO says; then it runs until it is ordered to end. */
static int compile_slowly(int progress, int orders)
{
	void *source = source_of_kernels(fifo);
	CUmodule module;

	driver_attach();
	report(progress);
	ck_cuda(cuModuleLoadData(&module, source));
	free(source);
	expect_kernels_run(module);
	report(progress);
	ordered(orders, true);
	expect_kernels_run(module);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

/* The same with a link. */
static int link_slowly(int progress, int orders)
{
	void *source = source_of_kernels(fifo), *image;
	size_t bytes = 16 + *(uint64_t *)((char *)source + 8);
	CUlinkState link;
	CUmodule module;

	driver_attach();
	report(progress);
	ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &link));
	ck_cuda(cuLinkAddData_v2(link, CU_JIT_INPUT_FATBINARY, source, bytes, "slow", 0, NULL, NULL));
	ck_cuda(cuLinkComplete(link, &image, NULL));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuLinkDestroy(link));
	free(source);
	expect_kernels_run(module);
	report(progress);
	ordered(orders, true);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

/* Loads, compiles, links and runs, all at once: a whole program in a child, whose end is 0. */
static int do_everything(int unused)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	void *source = source_of_kernels(""), *image;
	CUlinkState link;
	CUmodule module;

	(void)unused;
	driver_attach();
	expect_kernels_run(kernels());
	ck_cuda(cuModuleLoadData(&module, source));
	expect_kernels_run(module);
	ck_cuda(cuModuleUnload(module));
	ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &link));
	ck_cuda(cuLinkAddFile_v2(link, CU_JIT_INPUT_OBJECT, path, 0, NULL, NULL));
	ck_cuda(cuLinkComplete(link, &image, NULL));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuLinkDestroy(link));
	expect_kernels_run(module);
	free(source);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

static void end_well(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

/*
 * Tests
 */

static void others_go_on_beside(child_function *slow)
{
	struct child child = child_start(slow);
	int compilation;

	child_wait(&child, 1);
	compilation = let_compilation_begin();
	/* It compiles, and does until we say so. */
	ck_assert_int_eq(exit_status(spawn(do_everything, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(do_everything, 0)), 0);
	close(compilation);
	child_wait(&child, 1);
	end_well(&child);
}

START_TEST(a_slow_compilation_holds_up_nobody)
{
	others_go_on_beside(compile_slowly);
}
END_TEST

START_TEST(a_slow_link_holds_up_nobody)
{
	others_go_on_beside(link_slowly);
}
END_TEST

/* The one thread that compiles is still at it, for nobody. */
START_TEST(killed_while_it_compiles)
{
	struct child child;
	int compilation;

	child = child_start(compile_slowly);
	child_wait(&child, 1);
	compilation = let_compilation_begin();
	kill(child.pid, SIGKILL);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	wait_closed(&service);
	ck_assert_int_eq(exit_status(spawn(do_everything, 0)), 0);
	close(compilation);
	ck_assert_int_eq(exit_status(spawn(do_everything, 0)), 0);
}
END_TEST

/* What was begun in an executor that dies is begun again in the next; what was compiled is not. */
START_TEST(compiled_once_whatever_becomes_of_executors)
{
	struct child child = child_start(compile_slowly);
	int first, second;
	pid_t active;

	child_wait(&child, 1);
	first = let_compilation_begin();
	active = service_active(&service);
	ck_assert_int_gt(active, 0);
	kill(active, SIGKILL);
	/* While ours is open nobody waits at the FIFO for a writer; there is a reader again when
	 * the next executor compiles. */
	while (service_active(&service) == active || !service_active(&service))
		pass_time(1);
	while ((second = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
		ck_assert_int_eq(errno, ENXIO);
		pass_time(1);
	}
	close(first);
	close(second);
	child_wait(&child, 1);
	/* The next executor has the code: nobody is there to let it compile. */
	ck_assert(service_kill_active(&service));
	end_well(&child);
}
END_TEST

/* The code comes to a daemon that did not ask for it, and serves later executors like any other. */
START_TEST(compiled_while_there_is_no_daemon)
{
	struct child child = child_start(compile_slowly);
	json_t *status;
	int compilation;

	child_wait(&child, 1);
	compilation = let_compilation_begin();
	status = status_of(&service);
	/* Its holder makes no other one before it goes on. */
	ck_assert_int_eq(kill(service.pid, SIGSTOP), 0);
	ck_assert_int_eq(kill((pid_t)json_integer_value(json_object_get(status, "pid")), SIGKILL), 0);
	json_decref(status);
	close(compilation);
	ck_assert_int_eq(kill(service.pid, SIGCONT), 0);
	child_wait(&child, 1);
	ck_assert(service_kill_active(&service));
	end_well(&child);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("compiling");
	TCase *tests = tcase_create("compiling"), *one = tcase_create("one compiles");

	setenv("FRMPS_RECOVERY", "replay", 1);
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, start, stop);
	tcase_add_test(tests, a_slow_compilation_holds_up_nobody);
	tcase_add_test(tests, a_slow_link_holds_up_nobody);
	tcase_add_test(tests, compiled_once_whatever_becomes_of_executors);
	tcase_add_test(tests, compiled_while_there_is_no_daemon);
	suite_add_tcase(suite, tests);
	tcase_set_timeout(one, 120);
	tcase_add_checked_fixture(one, start_one, stop);
	tcase_add_test(one, killed_while_it_compiles);
	suite_add_tcase(suite, one);
	return suite_run(suite);
}
