// Programs whose modules must be compiled first, and what that costs others: also where a compiler
// crashes, hangs, or takes what it can get. The host backend compiles fat binaries of texts
// (tests/host/compile.c); a compilation here begins when the test opens a FIFO for
// writing, which is where it waits for that, and ends when the test closes it.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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

/* The address sanitizer ends a process that crashes, or gets no more memory, by abort(). */
#ifdef __SANITIZE_ADDRESS__
#define CRASH		 "signal 6"
#define SHORTAGE_IS_SAID false
#else
#define CRASH		 "signal 11"
#define SHORTAGE_IS_SAID true
#endif

static struct service service;
static char fifo[128], notes[128];

/*
 * Sources
 */

/* @wait: the path of a FIFO */
static void *slow_source(const char *wait)
{
	char behaviour[140];

	snprintf(behaviour, sizeof(behaviour), " %s", wait);
	return kernels_source(behaviour);
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
	snprintf(notes, sizeof(notes), "%s/notes", service.folder);
}

static void start_one(void)
{
	setenv("FRMPS_COMPILATIONS", "1", 1);
	start();
}

static void start_hasty(void)
{
	setenv("FRMPS_COMPILE_SECONDS", "1", 1);
	start();
}

static void start_small(void)
{
	setenv("FRMPS_COMPILE_MIB", "128", 1);
	start();
}

static void stop(void)
{
	unlink(fifo);
	unlink(notes);
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
	void *text = slow_source(fifo);
	CUmodule module;

	driver_attach();
	report(progress);
	ck_cuda(cuModuleLoadData(&module, text));
	free(text);
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
	void *text = slow_source(fifo), *image;
	size_t bytes = 16 + *(uint64_t *)((char *)text + 8);
	CUlinkState link;
	CUmodule module;

	driver_attach();
	report(progress);
	ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &link));
	ck_cuda(cuLinkAddData_v2(link, CU_JIT_INPUT_FATBINARY, text, bytes, "slow", 0, NULL, NULL));
	ck_cuda(cuLinkComplete(link, &image, NULL));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuLinkDestroy(link));
	free(text);
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
	void *text = kernels_source(""), *image;
	CUlinkState link;
	CUmodule module;

	(void)unused;
	driver_attach();
	expect_kernels_run(kernels());
	ck_cuda(cuModuleLoadData(&module, text));
	expect_kernels_run(module);
	ck_cuda(cuModuleUnload(module));
	ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &link));
	ck_cuda(cuLinkAddFile_v2(link, CU_JIT_INPUT_OBJECT, path, 0, NULL, NULL));
	ck_cuda(cuLinkComplete(link, &image, NULL));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuLinkDestroy(link));
	expect_kernels_run(module);
	free(text);
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

TEST(compiling, a_slow_compilation_holds_up_nobody)
{
	others_go_on_beside(compile_slowly);
}

TEST(compiling, a_slow_link_holds_up_nobody)
{
	others_go_on_beside(link_slowly);
}

/* No more than one compiles at a time; who is gone does not count. */
TEST(one_compiles, killed_while_it_compiles)
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

/* What is compiled when an executor dies goes on, and what was compiled is not compiled again. */
TEST(compiling, compiled_once_whatever_becomes_of_executors)
{
	struct child child = child_start(compile_slowly);
	int compilation;

	child_wait(&child, 1);
	compilation = let_compilation_begin();
	ck_assert(service_kill_active(&service));
	close(compilation);
	child_wait(&child, 1);
	/* The next executor has the code: nobody is there to let it compile. */
	ck_assert(service_kill_active(&service));
	end_well(&child);
	ck_assert_int_eq(status_counter(&service, "compilers_lost"), 0);
}

/* The children of the daemon, in whatever state: its compilers. Return: how many; @ret_pids: up to
 * 16 */
static unsigned children_of(pid_t parent, pid_t *ret_pids)
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	unsigned count = 0;

	ck_assert_ptr_nonnull(processes);
	while ((entry = readdir(processes))) {
		char path[300], line[512], name[64] = "", state = ' ';
		int of = 0, pid = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%.20s/stat", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) &&
			sscanf(line, "%d (%63[^)]) %c %d", &pid, name, &state, &of) == 4 && of == parent &&
			count < 16)
			ret_pids[count++] = pid;
		fclose(file);
	}
	closedir(processes);
	return count;
}

/* Waits until a process is gone, its parent's wait included. */
static void await_gone(pid_t pid)
{
	while (kill(pid, 0) == 0)
		pass_time(1);
	ck_assert_int_eq(errno, ESRCH);
}

/* The compilation ends with the daemon, and the next one begins it anew. */
TEST(compiling, compiled_anew_after_the_daemon)
{
	struct child child = child_start(compile_slowly);
	pid_t daemon = status_daemon(&service), compilers[16];
	unsigned count;
	int first, second;

	child_wait(&child, 1);
	first = let_compilation_begin();
	count = children_of(daemon, compilers);
	ck_assert_uint_ge(count, 1);
	/* Its holder makes no other one before it goes on. */
	ck_assert_int_eq(kill(service.pid, SIGSTOP), 0);
	ck_assert_int_eq(kill(daemon, SIGKILL), 0);
	/* Nobody reads from it any more. */
	signal(SIGPIPE, SIG_IGN);
	while (write(first, "", 1) == 1)
		pass_time(1);
	ck_assert_int_eq(errno, EPIPE);
	close(first);
	ck_assert_int_eq(kill(service.pid, SIGCONT), 0);
	second = let_compilation_begin();
	for (unsigned i = 0; i < count; i++)
		await_gone(compilers[i]);
	close(second);
	child_wait(&child, 1);
	ck_assert(service_kill_active(&service));
	end_well(&child);
}

/* What a load of a text comes to. @ret_log: of errors, 512 bytes */
static CUresult load_text(void *text, CUmodule *ret_module, char *ret_log)
{
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {ret_log, (void *)512};
	CUresult code;

	ret_log[0] = '\0';
	code = cuModuleLoadDataEx(ret_module, text, 2, options, values);
	free(text);
	return code;
}

static CUresult link_text(void *text, char *ret_log)
{
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {ret_log, (void *)512};
	size_t bytes = 16 + *(uint64_t *)((char *)text + 8);
	CUlinkState link;
	CUresult code;

	ret_log[0] = '\0';
	ck_cuda(cuLinkCreate_v2(2, options, values, &link));
	code = cuLinkAddData_v2(link, CU_JIT_INPUT_FATBINARY, text, bytes, "text", 0, NULL, NULL);
	ck_cuda(cuLinkDestroy(link));
	free(text);
	return code;
}

static void expect_in(const char *log, const char *text)
{
	ck_assert_msg(strstr(log, text), "'%s' is not in '%s'", text, log);
}

static int crash_each_time(int unused)
{
	CUmodule module;
	char log[512];

	(void)unused;
	driver_open();
	ck_assert_int_eq(load_text(kernels_source("-crash"), &module, log), CUDA_ERROR_INVALID_PTX);
	expect_in(log, "crashed");
	expect_in(log, CRASH);
	ck_assert_int_eq(link_text(kernels_source("-crash"), log), CUDA_ERROR_INVALID_PTX);
	expect_in(log, "crashed");
	/* Nothing else of the program is touched. */
	expect_kernels_run(kernels());
	ck_cuda(load_text(kernels_source(""), &module, log));
	ck_assert_str_eq(log, "");
	expect_kernels_run(module);
	ck_cuda(link_text(kernels_source(""), log));
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

/* Each compilation is tried twice; nobody else notices. */
TEST(compiling, a_crash_is_an_error_of_one_compilation)
{
	struct child other = child_start(survivor);
	pid_t active;

	status_await_executors(&service);
	active = service_active(&service);
	child_wait(&other, 1);
	ck_assert_int_eq(exit_status(spawn(crash_each_time, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(do_everything, 0)), 0);
	ck_assert_int_eq(service_active(&service), active);
	ck_assert_int_eq(status_counter(&service, "compilers_lost"), 4);
	ck_assert_int_eq(status_counter(&service, "promotions"), 0);
	end_well(&other);
}

/* Each at a file of its own: there it does not crash again. */
static int crash_once(int unused)
{
	char behaviour[160], log[512];
	CUmodule module;

	(void)unused;
	driver_attach();
	snprintf(behaviour, sizeof(behaviour), "-crash %s", notes);
	ck_cuda(load_text(kernels_source(behaviour), &module, log));
	ck_assert_str_eq(log, "");
	expect_kernels_run(module);
	ck_assert_int_eq(unlink(notes), 0);
	ck_cuda(link_text(kernels_source(behaviour), log));
	ck_assert_str_eq(log, "");
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

TEST(compiling, what_crashes_once_is_compiled_once_more)
{
	pid_t active;

	status_await_executors(&service);
	active = service_active(&service);
	ck_assert_int_eq(exit_status(spawn(crash_once, 0)), 0);
	ck_assert_int_eq(service_active(&service), active);
	ck_assert_int_eq(status_counter(&service, "compilers_lost"), 2);
}

/* Two threads' worth of it, in one program: a link is not lost for good with the compiler. */
static int link_beside_a_crash(int unused)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	CUmodule module;
	CUlinkState link;
	char log[512];
	void *image;

	(void)unused;
	driver_attach();
	ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &link));
	ck_cuda(cuLinkAddFile_v2(link, CU_JIT_INPUT_OBJECT, path, 0, NULL, NULL));
	ck_assert_int_eq(load_text(kernels_source("-crash"), &module, log), CUDA_ERROR_INVALID_PTX);
	ck_cuda(cuLinkComplete(link, &image, NULL));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuLinkDestroy(link));
	expect_kernels_run(module);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

TEST(compiling, links_survive_a_crash_of_their_compiler)
{
	ck_assert_int_eq(exit_status(spawn(link_beside_a_crash, 0)), 0);
}

static int spin(int unused)
{
	CUmodule module;
	char log[512];

	(void)unused;
	driver_attach();
	ck_assert_int_eq(load_text(kernels_source("-spin"), &module, log), CUDA_ERROR_INVALID_PTX);
	expect_in(log, "within 1 s");
	expect_kernels_run(kernels());
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

TEST(little_time, time_is_bounded)
{
	ck_assert_int_eq(exit_status(spawn(spin, 0)), 0);
	ck_assert_int_eq(status_counter(&service, "compilers_lost"), 2);
}

static int eat(int unused)
{
	CUmodule module;
	char log[512];

	(void)unused;
	driver_attach();
	ck_assert_int_eq(load_text(kernels_source("-eat"), &module, log), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(load_text(kernels_source(""), &module, log));
	expect_kernels_run(module);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

/* Who gets no more memory says so. */
TEST(little_memory, memory_is_bounded)
{
	ck_assert_int_eq(exit_status(spawn(eat, 0)), 0);
	ck_assert_int_eq(status_counter(&service, "compilers_lost"), 0);
}

#define SOMEBODY 12345

/* @as: the user to become, 0: stays */
static int look_around(int as)
{
	char behaviour[160], log[512];
	CUmodule module;

	if (as && (setgroups(0, NULL) || setresgid(23456, 23456, 23456) ||
			  setresuid((uid_t)as, (uid_t)as, (uid_t)as)))
		return 77;
	driver_attach();
	snprintf(behaviour, sizeof(behaviour), "-look %s", notes);
	ck_cuda(load_text(kernels_source(behaviour), &module, log));
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

static unsigned count_lines(const char *text, const char *start)
{
	size_t length = strlen(start);
	unsigned count = 0;

	for (const char *at = text; (at = strstr(at, start)); at += length)
		count += at == text || at[-1] == '\n';
	return count;
}

/* It has the user's rights at most, and no descriptor but the one that it is asked by. */
TEST(compiling, a_compiler_has_nothing_of_anybody)
{
	bool is_root = geteuid() == 0;
	char *seen;

	ck_assert_int_eq(chmod(service.folder, 0777), 0);
	ck_assert_int_eq(chmod(service.socket, 0666), 0);
	ck_assert_int_eq(exit_status(spawn(look_around, is_root ? SOMEBODY : 0)), 0);
	seen = read_file(notes);
	expect_in(seen, "\nCapEff:\t0000000000000000\n");
	expect_in(seen, "\nCapPrm:\t0000000000000000\n");
	expect_in(seen, "\nNoNewPrivs:\t1\n");
	expect_in(seen, "\nMax core file size        0 ");
	if (is_root) {
		expect_in(seen, "\nUid:\t12345\t12345\t12345\t12345\n");
		expect_in(seen, "\nGid:\t65534\t65534\t65534\t65534\n");
		expect_in(seen, "\nGroups:\t \n");
	}
	expect_in(seen, "\nFile: 0 /dev/null\n");
	expect_in(seen, "\nFile: 1 /dev/null\n");
	expect_in(seen, "\nFile: 2 /dev/null\n");
	expect_in(seen, "\nFile: 3 socket:");
	/* And the text, and where its code goes. */
	ck_assert_uint_eq(count_lines(seen, "File: "), 6);
	free(seen);
}

TEST(compiling, no_compiler_is_left_behind)
{
	pid_t compilers[16], daemon = status_daemon(&service);
	struct child child = child_start(compile_slowly);
	int compilation;

	child_wait(&child, 1);
	compilation = let_compilation_begin();
	/* Its own, and one for whoever comes next. */
	ck_assert_uint_eq(children_of(daemon, compilers), 2);
	kill(child.pid, SIGKILL);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	while (children_of(daemon, compilers))
		pass_time(1);
	close(compilation);
}

/*
 * Code on disk
 */

static char cached[128];

static void start_cache(void)
{
	start();
	ck_assert_int_eq(chmod(service.folder, 0777), 0);
	snprintf(cached, sizeof(cached), "%s/cached", service.folder);
	setenv("CUDA_CACHE_DISABLE", "0", 1);
	setenv("CUDA_CACHE_PATH", cached, 1);
}

/* The files of the cache. Return: how many; @ret_path: of the last one */
static unsigned files_kept(char *ret_path)
{
	unsigned count = 0;
	char path[160];
	DIR *folder;
	const struct dirent *file;

	snprintf(path, sizeof(path), "%s/frmps", cached);
	folder = opendir(path);
	if (!folder)
		return 0;
	while ((file = readdir(folder))) {
		if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0)
			continue;
		snprintf(ret_path, 200, "%s/%.30s", path, file->d_name);
		count++;
	}
	closedir(folder);
	return count;
}

static void stop_cache(void)
{
	char path[200];

	while (files_kept(path))
		unlink(path);
	snprintf(path, sizeof(path), "%s/frmps", cached);
	rmdir(path);
	rmdir(cached);
	stop();
}

/* A text that leaves a note when it is compiled. @number: another text */
static int load_noted(int number)
{
	char behaviour[160];
	CUmodule module;
	void *text;

	snprintf(behaviour, sizeof(behaviour), "-look %s%.*s/notes", service.folder, number, "//////////");
	text = kernels_source(behaviour);
	driver_attach();
	ck_cuda(cuModuleLoadData(&module, text));
	free(text);
	expect_kernels_run(module);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

static int load_with_log(int unused)
{
	char behaviour[160], log[64];
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)sizeof(log)}, *text;
	CUmodule module;

	(void)unused;
	snprintf(behaviour, sizeof(behaviour), "-look %s", notes);
	text = kernels_source(behaviour);
	driver_attach();
	ck_cuda(cuModuleLoadDataEx(&module, text, 2, options, values));
	free(text);
	expect_kernels_run(module);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

static bool compiles(int (*program)(int), int number)
{
	ck_assert_int_eq(exit_status(spawn(program, number)), 0);
	return unlink(notes) == 0;
}

TEST(cache, a_text_is_compiled_once_for_all_programs)
{
	char path[200];

	ck_assert(compiles(load_noted, 0));
	ck_assert_uint_eq(files_kept(path), 1);
	ck_assert(!compiles(load_noted, 0));
	ck_assert(compiles(load_with_log, 0));
	ck_assert(!compiles(load_noted, 0));
	ck_assert_uint_eq(files_kept(path), 1);
}

static void expect_compiled_anew(void)
{
	ck_assert(compiles(load_noted, 0));
	ck_assert(!compiles(load_noted, 0));
}

static void flip(const char *path, off_t offset, int whence)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	offset = lseek(fd, offset, whence);
	ck_assert_int_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
}

TEST(cache, kept_code_that_is_damaged_is_not_used)
{
	char path[200];

	ck_assert(compiles(load_noted, 0));
	ck_assert_uint_eq(files_kept(path), 1);
	flip(path, -100, SEEK_END);
	expect_compiled_anew();
	/* Names for debuggers: the code would still load and run. */
	flip(path, -3500, SEEK_END);
	expect_compiled_anew();
	flip(path, 400, SEEK_SET);
	expect_compiled_anew();
	ck_assert_int_eq(truncate(path, 5000), 0);
	expect_compiled_anew();
	ck_assert_int_eq(truncate(path, 0), 0);
	expect_compiled_anew();
	/* Others could have written there. */
	ck_assert_int_eq(chmod(path, 0622), 0);
	expect_compiled_anew();
}

TEST(cache, the_drivers_variables_bound_what_is_kept)
{
	char path[200], most[32];
	struct stat status;

	setenv("CUDA_CACHE_DISABLE", "1", 1);
	ck_assert(compiles(load_noted, 0));
	ck_assert_uint_eq(files_kept(path), 0);
	setenv("CUDA_CACHE_DISABLE", "0", 1);
	setenv("CUDA_CACHE_MAXSIZE", "4096", 1);
	ck_assert(compiles(load_noted, 0));
	ck_assert_uint_eq(files_kept(path), 0);
	unsetenv("CUDA_CACHE_MAXSIZE");
	ck_assert(compiles(load_noted, 0));
	ck_assert_int_eq(stat(path, &status), -1);
	ck_assert_uint_eq(files_kept(path), 1);
	ck_assert_int_eq(stat(path, &status), 0);
	/* Room for one of two: the one that was used last stays. */
	snprintf(most, sizeof(most), "%lld", (long long)status.st_size * 3 / 2);
	setenv("CUDA_CACHE_MAXSIZE", most, 1);
	ck_assert(compiles(load_noted, 1));
	ck_assert_uint_eq(files_kept(path), 1);
	ck_assert(!compiles(load_noted, 1));
	ck_assert(compiles(load_noted, 0));
	ck_assert(compiles(load_noted, 1));
}

int main(void)
{
	Suite *suite = suite_create("compiling");
	TCase *tests = tcase_create("compiling"), *cache = tcase_create("cache"),
	      *one = tcase_create("one compiles"), *hasty = tcase_create("little time"),
	      *small = tcase_create("little memory");

	setenv("FRMPS_RECOVERY", "replay", 1);
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "compiling");
	suite_add_tcase(suite, tests);
	tcase_set_timeout(cache, 120);
	tcase_add_checked_fixture(cache, start_cache, stop_cache);
	suite_add(cache, "cache");
	suite_add_tcase(suite, cache);
	tcase_set_timeout(one, 120);
	tcase_add_checked_fixture(one, start_one, stop);
	suite_add(one, "one_compiles");
	suite_add_tcase(suite, one);
	tcase_set_timeout(hasty, 120);
	tcase_add_checked_fixture(hasty, start_hasty, stop);
	suite_add(hasty, "little_time");
	suite_add_tcase(suite, hasty);
	tcase_set_timeout(small, 120);
	tcase_add_checked_fixture(small, start_small, stop);
	if (SHORTAGE_IS_SAID)
		suite_add(small, "little_memory");
	suite_add_tcase(suite, small);
	return suite_run(suite);
}
