// Limits of contexts (cuCtxSetLimit) that are larger than what all programs have: they are in force
// for the program's own kernels, which read what there is, for nobody else's, and in every executor
// that serves the program later; or the call fails. On the host backend, whose kernels can read
// limits.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define LIMITS	6
#define STACK	8192
#define HEAP	(UINT64_C(64) << 20)
#define PENDING 5000

static struct service service;

static void start(void)
{
	ck_assert(service_start_configured(&service, "quarantine_faults = 0\n"));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* What a kernel sees. */
static uint64_t seen(CUlimit limit)
{
	uint64_t limits[LIMITS] = {0};
	CUdeviceptr out;
	void *arguments[] = {&out};

	ck_cuda(cuMemAlloc_v2(&out, sizeof(limits)));
	ck_cuda(launch("read_limits", 1, 1, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(limits, out, sizeof(limits)));
	ck_cuda(cuMemFree_v2(out));
	return limits[limit];
}

static size_t asked(CUlimit limit)
{
	size_t value;

	ck_cuda(cuCtxGetLimit(&value, limit));
	return value;
}

static bool has_all(uint64_t stack, uint64_t heap, uint64_t pending)
{
	return seen(CU_LIMIT_STACK_SIZE) == stack && seen(CU_LIMIT_MALLOC_HEAP_SIZE) == heap &&
	       seen(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) == pending;
}

/* As programs do: first the limits, then everything else. Its end: 0 if its kernels have them, also
 * when it is ordered to look again. */
static int raiser(int progress, int orders)
{
	bool right;

	driver_attach();
	ck_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK - 3));
	ck_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, HEAP));
	ck_cuda(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, PENDING));
	right = asked(CU_LIMIT_STACK_SIZE) == STACK && has_all(STACK, HEAP, PENDING);
	report(progress);
	ordered(orders, true);
	return right && has_all(STACK, HEAP, PENDING) ? 0 : 2;
}

static int modest(int progress, int orders)
{
	uint64_t stack, heap, pending;

	driver_attach();
	stack = asked(CU_LIMIT_STACK_SIZE);
	heap = asked(CU_LIMIT_MALLOC_HEAP_SIZE);
	pending = asked(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT);
	/* What there is for everybody is not worth an executor. */
	ck_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
	ck_cuda(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap / 2));
	ck_cuda(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64));
	report(progress);
	ordered(orders, true);
	return has_all(stack, heap, pending) ? 0 : 2;
}

/* It has more than it asked for first, of everything that it had before. */
static int latecomer(int progress, int orders)
{
	uint32_t value = 0x5a5a5a5a;
	CUdeviceptr word;

	driver_attach();
	word = device_words(1, 0);
	ck_cuda(cuMemcpyHtoD_v2(word, &value, 4));
	ck_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2 * STACK));
	value = 0;
	ck_cuda(cuMemcpyDtoH_v2(&value, word, 4));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4 * STACK));
	return value == 0x5a5a5a5a && seen(CU_LIMIT_STACK_SIZE) == 4 * STACK ? 0 : 2;
}

/* Its kernels may have left something in the context: it cannot get another one. */
static int immovable(int progress, int orders)
{
	uint64_t there;
	CUresult r;

	driver_open();
	there = seen(CU_LIMIT_STACK_SIZE);
	r = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK);
	report(progress);
	ordered(orders, true);
	return r == CUDA_ERROR_NOT_SUPPORTED && asked(CU_LIMIT_STACK_SIZE) == there &&
			       seen(CU_LIMIT_STACK_SIZE) == there
		       ? 0
		       : 2;
}

static int greedy(int progress, int orders)
{
	CUresult much, more;

	driver_attach();
	much = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 60);
	more = cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 3);
	report(progress);
	ordered(orders, true);
	return much == CUDA_ERROR_OUT_OF_MEMORY && more == CUDA_ERROR_UNSUPPORTED_LIMIT &&
			       seen(CU_LIMIT_MALLOC_HEAP_SIZE) == asked(CU_LIMIT_MALLOC_HEAP_SIZE)
		       ? 0
		       : 2;
}

static int domains(void)
{
	json_t *root = status_of(&service);
	int count = (int)json_array_size(json_object_get(root, "domains"));

	json_decref(root);
	return count;
}

static void end_well(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

TEST(raised_limits, limits_are_the_programs_own)
{
	struct child other = child_start(modest), child = child_start(raiser), second;

	child_wait(&other, 1);
	child_wait(&child, 1);
	ck_assert_int_eq(domains(), 2);
	second = child_start(latecomer);
	child_wait(&second, 1);
	ck_assert_int_eq(domains(), 3);
	end_well(&other);
	end_well(&second);
	end_well(&child);
	wait_closed(&service);
}

/* The active executor of a program. */
static pid_t executor_of(const struct child *child)
{
	json_t *root = status_of(&service), *domain, *at;
	size_t i, j;
	pid_t found = 0;
	bool its;

	json_array_foreach (json_object_get(root, "domains"), i, domain) {
		its = false;
		json_array_foreach (json_object_get(domain, "clients"), j, at)
			its |= json_integer_value(json_object_get(at, "pid")) == child->pid;
		json_array_foreach (json_object_get(domain, "executors"), j, at)
			if (its && !strcmp(json_string_value(json_object_get(at, "role")), "active"))
				found = (pid_t)json_integer_value(json_object_get(at, "pid"));
	}
	json_decref(root);
	return found;
}

static void kill_executor_of(const struct child *child)
{
	pid_t pid = executor_of(child);

	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
}

static pid_t daemon_pid(void)
{
	json_t *root = status_of(&service);
	pid_t pid = (pid_t)json_integer_value(json_object_get(root, "pid"));

	json_decref(root);
	return pid;
}

TEST(raised_limits, limits_outlive_executors)
{
	struct child child = child_start(raiser);

	child_wait(&child, 1);
	kill_executor_of(&child);
	end_well(&child);
}

TEST(raised_limits, limits_outlive_the_daemon)
{
	struct child child = child_start(raiser);
	pid_t former = daemon_pid();

	child_wait(&child, 1);
	ck_assert_int_eq(kill(former, SIGKILL), 0);
	while (daemon_pid() == former)
		pass_time(1);
	kill_executor_of(&child);
	end_well(&child);
}

TEST(raised_limits, limits_that_cannot_be_are_refused)
{
	struct child child = child_start(immovable), second = child_start(greedy);

	child_wait(&child, 1);
	child_wait(&second, 1);
	end_well(&child);
	end_well(&second);
	ck_assert_int_eq(service_log_count(&service, "cannot have a limit"), 1);
}

int main(void)
{
	Suite *suite = suite_create("raised limits");
	TCase *tests = suite_case(suite, "raised limits");

	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "raised_limits");
	return suite_run(suite);
}
