// Faults that are contained: the program whose kernel faulted is told, everybody else goes on in
// the same executor, which is never replaced for it.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define SURVIVORS 3
#define PATIENT	  "fault_stall_ms = 5000\nfault_patience_ms = 20000\nquarantine_faults = 1000\n"

enum { EXACT = 0, WRONG = 2, TOLD = 3 };

static struct service service;

static void start(const char *fault_ms)
{
	setenv("FRMPS_HOST_FAULTS", "named", 1);
	setenv("FRMPS_HOST_FAULT_MS", fault_ms, 1);
	ck_assert(service_start_configured(&service, PATIENT));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Programs
 */

struct counter {
	CUdeviceptr word;
	uint32_t *seen, launched;
	CUfunction count_up, spin;
};

static void counter_open(struct counter *counter)
{
	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	*counter = (struct counter){.count_up = kernel("count_up"), .spin = kernel("spin_ns")};
	counter->word = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&counter->seen, 4, 0));
}

/* Kernels that count, and that take a while. */
static CUresult count(struct counter *counter, uint32_t times, uint64_t ns)
{
	uint32_t one = 1;
	void *up[] = {&counter->word, &one}, *wait[] = {&ns};
	CUresult error = CUDA_SUCCESS;

	for (uint32_t i = 0; i < times && !error; i++) {
		error = cuLaunchKernel(counter->count_up, 1, 1, 1, 1, 1, 1, 0, NULL, up, NULL);
		counter->launched += !error;
		if (!error)
			error = cuLaunchKernel(counter->spin, 1, 1, 1, 1, 1, 1, 0, NULL, wait, NULL);
	}
	return error;
}

static int settle(struct counter *counter, CUresult error)
{
	if (!error)
		error = cuMemcpyDtoH_v2(counter->seen, counter->word, 4);
	if (error)
		return TOLD;
	return *counter->seen == counter->launched ? EXACT : WRONG;
}

static int busy(int progress, int orders)
{
	struct counter counter;
	int end = EXACT;

	counter_open(&counter);
	report(progress);
	for (uint32_t i = 0; end == EXACT && !ordered(orders, false); i++) {
		end = settle(&counter, count(&counter, i % 7 + 1, 100000));
		report(progress);
	}
	return end;
}

/* Kernels of 50 ms, all given at once, behind one that ends when the program is ordered to let
 * it. */
#define DEEP 60
static int deep(int progress, int orders)
{
	struct counter counter;
	uint32_t *word;
	CUresult error;

	counter_open(&counter);
	word = shared_word();
	error = launch_spin(word, 1, NULL);
	if (!error)
		error = count(&counter, DEEP, 50000000);
	report(progress);
	ordered(orders, true);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	return settle(&counter, error);
}

/* All of it is with the executor then, a copy and the kernel in front as well. */
static struct child start_deep(void)
{
	struct child child = child_start(deep);

	child_wait(&child, 1);
	status_await_commands(&service, child.pid, 2 + 2 * DEEP);
	return child;
}

/* Loads code, runs it and unloads it, again and again: each time somebody waits until nothing
 * runs. */
static int loader(int progress, int orders)
{
	const char *path = getenv("FRMPS_TEST_COUNT_KERNELS");
	uint32_t launched = 0, one = 1, seen;
	CUresult error = CUDA_SUCCESS;
	CUfunction count_up;
	CUdeviceptr word;
	CUmodule module;

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_attach();
	word = device_words(1, 0);
	while (!error && !ordered(orders, false)) {
		void *up[] = {&word, &one};

		ck_cuda(cuModuleLoad(&module, path));
		error = cuModuleGetFunction(&count_up, module, "count_up");
		if (!error)
			error = cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, NULL, up, NULL);
		launched += !error;
		if (!error)
			error = cuModuleUnload(module);
		report(progress);
	}
	if (!error)
		error = cuMemcpyDtoH_v2(&seen, word, 4);
	if (error)
		return TOLD;
	return seen == launched ? EXACT : WRONG;
}

static const struct {
	const char *kernel;
	CUresult code;
} classes[] = {
	{"crash_write", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"crash_trap", CUDA_ERROR_LAUNCH_FAILED},
	{"crash_assert", CUDA_ERROR_ASSERT},
	{"crash_illegal", CUDA_ERROR_ILLEGAL_INSTRUCTION},
	{"crash_divide", CUDA_ERROR_LAUNCH_FAILED},
	{"crash_stack", CUDA_ERROR_HARDWARE_STACK_ERROR},
};
#define CLASSES ((int)(sizeof(classes) / sizeof(*classes)))

/* Its mark arrives at once, and is never taken for a good end. */
static int culprit(int class)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};
	CUdeviceptr p;

	driver_open();
	ck_cuda(launch(classes[class].kernel, 1, 1, NULL, arguments));
	if (cuCtxSynchronize() != classes[class].code)
		return 2;
	return cuMemAlloc_v2(&p, 4096) == classes[class].code ? 0 : 3;
}

/* The same on command: what a program needs is loaded before others make the device busy. */
static int crash_on_command(int progress, int orders, int class)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};

	driver_open();
	kernel(classes[class].kernel);
	report(progress);
	ordered(orders, true);
	ck_cuda(launch(classes[class].kernel, 1, 1, NULL, arguments));
	return cuCtxSynchronize() == classes[class].code ? 0 : 2;
}

static int writes_on_command(int progress, int orders)
{
	return crash_on_command(progress, orders, 0);
}

static int traps_on_command(int progress, int orders)
{
	return crash_on_command(progress, orders, 1);
}

/* On command. The second kernel begins, and faults, when the program has been told. */
static int traps_twice(int progress, int orders)
{
	uint64_t nowhere = UINT64_C(0x10), ns = 200000000;
	void *arguments[] = {&nowhere}, *wait[] = {&ns};
	CUstream late;

	driver_open();
	ck_cuda(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
	kernel("crash_trap");
	kernel("spin_ns");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("spin_ns", 1, 1, late, wait));
	ck_cuda(launch("crash_trap", 1, 1, late, arguments));
	ck_cuda(launch("crash_trap", 1, 1, NULL, arguments));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/* The same for those who only ask. */
static int asking_culprit(int unused)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};
	CUresult stream, event;
	CUevent end;

	(void)unused;
	driver_open();
	ck_cuda(cuEventCreate(&end, 0));
	ck_cuda(launch("crash_write", 1, 1, NULL, arguments));
	ck_cuda(cuEventRecord(end, NULL));
	do {
		stream = cuStreamQuery(NULL);
		event = cuEventQuery(end);
	} while (stream == CUDA_ERROR_NOT_READY &&
		 (event == CUDA_ERROR_NOT_READY || event == CUDA_ERROR_ILLEGAL_ADDRESS));
	return stream == CUDA_ERROR_ILLEGAL_ADDRESS && cuEventQuery(end) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0
												       : 2;
}

/*
 * Tests
 */

static void gather(struct child *children, child_function *program, int number)
{
	for (int i = 0; i < number; i++)
		children[i] = child_start(program);
	for (int i = 0; i < number; i++)
		child_wait(&children[i], 1);
}

static void dismiss(struct child *children, int number)
{
	for (int i = 0; i < number; i++)
		child_order(&children[i]);
	for (int i = 0; i < number; i++)
		ck_assert_int_eq(child_end(&children[i]), EXACT);
}

static void see_them_go_on(struct child *children, int number)
{
	for (int i = 0; i < number; i++) {
		child_drain(&children[i]);
		child_wait(&children[i], 3);
	}
}

static void expect_no_replacement(pid_t executor)
{
	ck_assert_int_eq(service_active(&service), executor);
	ck_assert_int_eq(service_log_count(&service, "promotion: executor"), 0);
}

TEST(contained, only_the_culprit_is_hurt)
{
	struct child survivors[SURVIVORS];
	pid_t executor;

	start("50");
	gather(survivors, busy, SURVIVORS);
	executor = service_active(&service);
	for (int i = 0; i < 2 * CLASSES; i++) {
		ck_assert_int_eq(exit_status(spawn(culprit, i % CLASSES)), 0);
		see_them_go_on(survivors, SURVIVORS);
	}
	dismiss(survivors, SURVIVORS);
	expect_no_replacement(executor);
	ck_assert_int_eq(service_log_count(&service, "a fault is contained: kernel"), 2 * CLASSES);
	ck_assert_int_eq(service_log_count(&service, "verdict: culprit is process"), 2 * CLASSES);
	ck_assert_int_eq(service_log_count(&service, "sign of a fault"), 0);
}

TEST(contained, a_kernel_that_faulted_never_looks_finished)
{
	struct child survivors[SURVIVORS];

	start("500");
	gather(survivors, busy, SURVIVORS);
	ck_assert_int_eq(exit_status(spawn(asking_culprit, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
	dismiss(survivors, SURVIVORS);
}

/* Also of a program that has the queue full. */
TEST(contained, long_kernels_go_on)
{
	struct child long_runner, others[2], culprits[2];
	pid_t executor;

	start("50");
	gather(others, busy, 2);
	gather(culprits, writes_on_command, 2);
	executor = service_active(&service);
	long_runner = start_deep();
	for (int i = 0; i < 2; i++) {
		dismiss(&culprits[i], 1);
		see_them_go_on(others, 2);
		ck_assert(child_runs(&long_runner));
	}
	dismiss(&long_runner, 1);
	dismiss(others, 2);
	expect_no_replacement(executor);
	ck_assert_int_eq(service_log_count(&service, "a fault is contained: kernel"), 2);
}

/* Programs end and begin behind a trap, with all that waits in the driver until nothing runs. */
TEST(contained, others_come_and_go_behind_a_trap)
{
	struct child trap, leaver;
	pid_t executor;

	start("50");
	gather(&trap, traps_on_command, 1);
	gather(&leaver, busy, 1);
	executor = service_active(&service);
	dismiss(&trap, 1);
	dismiss(&leaver, 1);
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	ck_assert(service_log_wait(&service, "session closed: ", 3, 60));
	expect_no_replacement(executor);
	ck_assert_int_eq(service_log_count(&service, "nobody is proved guilty"), 0);
}

/* A kernel that has trapped looks done, and is on the device while the driver looks at it: code
 * that is loaded or unloaded then must not wait for it in the driver, and hold everybody up. */
TEST(contained, loads_do_not_wait_for_a_trap)
{
	struct child loaders[SURVIVORS], trap;
	pid_t executor;

	start("300");
	gather(&trap, traps_on_command, 1);
	gather(loaders, loader, SURVIVORS);
	see_them_go_on(loaders, SURVIVORS);
	executor = service_active(&service);
	dismiss(&trap, 1);
	see_them_go_on(loaders, SURVIVORS);
	dismiss(loaders, SURVIVORS);
	expect_no_replacement(executor);
	ck_assert_int_eq(service_log_count(&service, "nobody is proved guilty"), 0);
}

/* When its program was told already: that is a fault of the same program, and hurts nobody else
 * either. */
TEST(contained, another_kernel_of_a_culprit_may_fault_later)
{
	struct child survivors[SURVIVORS], culprit;
	pid_t executor;

	start("50");
	gather(&culprit, traps_twice, 1);
	gather(survivors, busy, SURVIVORS);
	executor = service_active(&service);
	dismiss(&culprit, 1);
	ck_assert(service_log_wait(&service, "a fault is contained: kernel", 2, 60));
	see_them_go_on(survivors, SURVIVORS);
	dismiss(survivors, SURVIVORS);
	expect_no_replacement(executor);
	ck_assert_int_eq(service_log_count(&service, "verdict: culprit is process"), 1);
}

int main(void)
{
	Suite *suite = suite_create("contained");
	TCase *tests = tcase_create("contained");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "contained");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
