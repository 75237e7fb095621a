// Kernels that write beside their memory: no other program notices, and the program gets an error.
// Each test starts a service of its own; the same writes with the guard off, and those that go
// farther, are faults, which shows what the guard is for.
//
// FRMPS_TEST_GUARDED (64) is how many clients there are in the test of many.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB	      (UINT64_C(1) << 20)
#define PATTERN	      UINT32_C(0xfffafffb)
#define CONFIGURATION "log_level = debug\nguard_interval_ms = 5\n"
#define SECONDS	      20

static struct service service;

static void start_with(const char *more)
{
	char text[512];

	snprintf(text, sizeof(text), "%s%s", CONFIGURATION, more);
	ck_assert(service_start_configured(&service, text));
}

static void stop(void)
{
	ck_assert_int_eq(service_stop(&service), 0);
}

static json_int_t counter(const char *name)
{
	char *text = service_status(&service);
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;
	json_int_t value = json_integer_value(json_object_get(json_object_get(root, "counters"), name));

	ck_assert_ptr_nonnull(root);
	json_decref(root);
	free(text);
	return value;
}

static bool passed(time_t begin)
{
	return time(NULL) - begin > SECONDS;
}

/* Counters have no event to wait for. */
static void wait_counter(const char *name, json_int_t least)
{
	time_t begin = time(NULL);

	while (counter(name) < least) {
		ck_assert_msg(!passed(begin), "%s does not become %d", name, (int)least);
		pass_time(5);
	}
}

static CUfunction crash_write;

static void open_driver(void)
{
	driver_open();
	crash_write = kernel("crash_write");
}

/* In a child: whether the program is told what natively follows such a write. */
static bool is_told(void)
{
	time_t begin = time(NULL);
	CUresult error;

	while ((error = cuCtxSynchronize()) == CUDA_SUCCESS)
		if (passed(begin))
			return false;
	return error == CUDA_ERROR_ILLEGAL_ADDRESS && cuMemAlloc_v2(&(CUdeviceptr){0}, 4) == error &&
	       cuCtxSynchronize() == error;
}

/* A program that was told meanwhile cannot launch any more. */
static void write_to(uint64_t address)
{
	void *arguments[] = {&address};
	CUresult error = cuLaunchKernel(crash_write, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);

	if (error != CUDA_ERROR_ILLEGAL_ADDRESS)
		ck_cuda(error);
}

/* Waits for each order; then works, and reports. */
static int neighbour(int progress, int orders)
{
	uint64_t count = 1000;
	CUdeviceptr in, out;
	uint32_t word;

	open_driver();
	in = device_words(count, 3);
	out = device_words(count, 0);
	if (write(progress, &out, sizeof(out)) != sizeof(out))
		return 99;
	for (uint32_t round = 0; ordered(orders, true); round++) {
		void *arguments[] = {&out, &in, &round, &count};

		ck_cuda(launch("mix", 4, 64, NULL, arguments));
		ck_cuda(cuMemcpyDtoH_v2(&word, out + 400, 4));
		if (word != mixed(300, round, 100))
			return 2;
		report(progress);
		if (round == 1)
			return 0;
	}
	return 3;
}

/* A neighbour that works once, and then is idle. *ret_address: memory of it. */
static struct child idle_neighbour(uint64_t *ret_address)
{
	struct child child = child_start(neighbour);

	ck_assert_int_eq(read(child.progress, ret_address, sizeof(*ret_address)), sizeof(*ret_address));
	child_order(&child);
	child_wait(&child, 1);
	return child;
}

/* It works as before. */
static void end_neighbour(struct child *child)
{
	child_order(child);
	child_wait(child, 1);
	ck_assert_int_eq(child_end(child), 0);
}

/* ---- one write of each kind ---- */

enum place { BEHIND, BEFORE, FREED, FAR };

/* Writes there, and says whether it is told. The large allocation is the lowest memory of the
 * program: it is made before a module's variables, which may lie in the program's memory as
 * well. */
static int culprit(int place)
{
	CUdeviceptr large;

	driver_attach();
	ck_cuda(cuMemAlloc_v2(&large, 96 * MIB));
	open_driver();
	ck_cuda(cuMemAlloc_v2(&(CUdeviceptr){0}, 4096));
	switch ((enum place)place) {
	case BEHIND:
		write_to(large + 96 * MIB);
		break;
	case BEFORE:
		write_to(large - 8);
		break;
	case FREED:
		ck_cuda(cuMemFree_v2(large));
		write_to(large + 32 * MIB + 64);
		break;
	case FAR:
		write_to(large + 8192 * MIB);
		break;
	}
	return is_told() ? 0 : 2;
}

TEST_LOOP(guard, a_write_beside_memory_stops_nobody, BEHIND, BEFORE + 1)
{
	struct child child;
	uint64_t address;

	start_with("");
	child = idle_neighbour(&address);
	ck_assert_int_eq(exit_status(spawn(culprit, _i)), 0);
	end_neighbour(&child);
	ck_assert_int_eq(counter("guard_hits"), 1);
	ck_assert_int_eq(counter("faults"), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	ck_assert_int_eq(service_log_count(&service, "is ended by the daemon"), 0);
	ck_assert_int_eq(service_log_count(&service, "verdict: culprit is process"), 1);
	ck_assert_int_eq(service_log_count(&service, "a kernel wrote beside its memory: 1 words changed"), 1);
	stop();
}

/* What is freed is bare at once, and so is what is farther from memory than the guard. */
TEST_LOOP(guard, beyond_the_guard_it_is_a_fault, FREED, FAR + 1)
{
	struct child child;
	uint64_t address;

	start_with("");
	child = idle_neighbour(&address);
	ck_assert_int_eq(exit_status(spawn(culprit, _i)), 0);
	wait_counter("culprits", 1);
	end_neighbour(&child);
	ck_assert_int_eq(counter("guard_hits"), 0);
	stop();
}

TEST_LOOP(guard, without_the_guard_it_is_a_fault, BEHIND, FREED)
{
	struct child child;
	uint64_t address;

	start_with("guard = off\n");
	child = idle_neighbour(&address);
	ck_assert_int_eq(exit_status(spawn(culprit, _i)), 0);
	wait_counter("culprits", 1);
	end_neighbour(&child);
	ck_assert_int_eq(counter("guard_hits"), 0);
	stop();
}

/* ---- beside busy programs ---- */

/* With another module. */
static struct child start_with_kernels(const char *variable, child_function *function)
{
	char *others = strdup(getenv("FRMPS_TEST_KERNELS"));
	struct child child;

	setenv("FRMPS_TEST_KERNELS", getenv(variable), 1);
	child = child_start(function);
	setenv("FRMPS_TEST_KERNELS", others, 1);
	free(others);
	return child;
}

static CUresult count_up(CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};
	CUresult error = launch("count_up", 1, 1, NULL, arguments);

	return error ? error : cuCtxSynchronize();
}

static void end_well(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

/* Ordered to, writes beside its memory again and again; ordered once more, it ends. Is never
 * told. */
static int untold(int progress, int orders)
{
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4096));
	kernel("count_up");
	report(progress);
	ordered(orders, true);
	while (!ordered(orders, false)) {
		ck_cuda(count_up(p + 2 * MIB, 1));
		report(progress);
	}
	return 0;
}

/* Has a kernel running until it is ordered to end. */
static int busy(int progress, int orders)
{
	uint32_t *word;

	open_driver();
	word = shared_word();
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	ordered(orders, true);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 2;
}

/* Ordered to, writes behind its memory again and again. Its end: 0 if it gets the error, 2 if it is
 * ordered to end before. */
static int overrunner(int progress, int orders)
{
	CUresult error = CUDA_SUCCESS;
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4096));
	kernel("count_up");
	report(progress);
	ordered(orders, true);
	while (!error && !ordered(orders, false))
		error = count_up(p + 2 * MIB, 1);
	return error == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : error ? 4 : 2;
}

/* Counts exactly in its own memory, whose address it says first. Its end: 0; 2 after a wrong
 * number, 4 after an error. */
static int counter_of_words(int progress, int orders)
{
	uint32_t counted = 0, seen = 0;
	CUresult error = CUDA_SUCCESS;
	CUdeviceptr word;

	driver_open();
	word = device_words(1, 0);
	if (write(progress, &word, sizeof(word)) != sizeof(word))
		return 99;
	while (!error && seen == counted && !ordered(orders, false)) {
		error = count_up(word, 1);
		counted++;
		if (!error)
			error = cuMemcpyDtoH_v2(&seen, word, 4);
		report(progress);
	}
	return error ? 4 : seen == counted ? 0 : 2;
}

static struct child start_counter(uint64_t *ret_address)
{
	struct child child = start_with_kernels("FRMPS_TEST_COUNT_KERNELS", counter_of_words);

	ck_assert_int_eq(read(child.progress, ret_address, sizeof(*ret_address)), sizeof(*ret_address));
	child_wait(&child, 3);
	return child;
}

/* Two programs run all the time, one of them with a kernel that does not end. */
TEST(guard, busy_programs_go_on)
{
	struct child one, worker, runner;
	uint64_t address;

	start_with("");
	one = start_with_kernels("FRMPS_TEST_COUNT_KERNELS", overrunner);
	child_wait(&one, 1);
	worker = start_counter(&address);
	runner = child_start(busy);
	child_wait(&runner, 1);
	child_order(&one);
	wait_counter("guard_hits", 1);
	/* Nobody waits for the order in it. */
	ck_assert_int_eq(child_end(&one), 0);
	ck_assert_int_eq(counter("guard_hits"), 1);
	ck_assert_int_eq(counter("faults"), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	child_drain(&worker);
	child_wait(&worker, 3);
	end_well(&runner);
	end_well(&worker);
	stop();
}

/* ---- policy ---- */

TEST(guard, a_warning_leaves_the_program_alone)
{
	struct child one;

	start_with("guard = warn\n");
	one = child_start(untold);
	child_wait(&one, 1);
	child_order(&one);
	wait_counter("guard_hits", 1);
	child_wait(&one, 5);
	child_order(&one);
	ck_assert_int_eq(child_end(&one), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	stop();
}

/* Ends as soon as its kernels have, without having waited for them, so that nobody looks before;
 * but a first look may come between the two, and then the second one does not run. */
static int hasty(int progress, int orders)
{
	time_t begin;
	uint32_t *word;
	CUdeviceptr p;

	open_driver();
	ck_cuda(cuMemAlloc_v2(&p, 4096));
	word = shared_word();
	report(progress);
	ordered(orders, true);
	write_to(p + 2 * MIB);
	write_to((uintptr_t)word);
	begin = time(NULL);
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) {
		if (time(NULL) - begin > 1 && cuStreamQuery(NULL) == CUDA_ERROR_ILLEGAL_ADDRESS)
			return 0;
		if (passed(begin))
			return 4;
	}
	return 0;
}

TEST(guard, a_write_at_the_end_is_reported)
{
	struct child child;

	start_with("guard_interval_ms = 60000\n");
	child = child_start(hasty);
	child_wait(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert(service_log_wait(&service, "session closed", 1, SECONDS));
	ck_assert_int_eq(counter("guard_hits"), 1);
	ck_assert_int_eq(counter("promotions"), 0);
	stop();
}

/* ---- reading ---- */

/* What a kernel reads beside its memory is no number; that changes nothing. */
static int reader(int unused)
{
	CUdeviceptr zeros, out, large, beside;
	uint64_t count = 256;
	uint32_t words[256];
	void *arguments[] = {&out, &beside, &zeros, &count};

	(void)unused;
	driver_attach();
	ck_cuda(cuMemAlloc_v2(&large, 96 * MIB));
	open_driver();
	zeros = device_words(count, 0);
	out = device_words(count, 1);
	beside = large - MIB;
	ck_cuda(launch("add_vectors", 1, 64, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(words, out, sizeof(words)));
	for (uint32_t i = 0; i < count; i++)
		if (words[i] != PATTERN)
			return 2;
	return 0;
}

TEST(guard, what_a_guard_has_is_on_its_account)
{
	struct child owner;
	uint64_t address;
	json_t *status, *one;

	start_with("");
	owner = idle_neighbour(&address);
	status = status_of(&service);
	one = json_array_get(
		json_object_get(json_array_get(json_object_get(status, "domains"), 0), "clients"), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(one, "sink_bytes")), 2 * MIB);
	json_decref(status);
	end_neighbour(&owner);
	stop();
}

TEST(guard, a_read_beside_memory_is_no_number)
{
	start_with("");
	ck_assert_int_eq(exit_status(spawn(reader, 0)), 0);
	ck_assert(service_log_wait(&service, "session closed", 1, SECONDS));
	ck_assert_int_eq(counter("guard_hits"), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	stop();
}

/* ---- the guard lives on ---- */

TEST(guard, the_next_executor_has_the_guard_too)
{
	struct child owner, neighbour;
	uint64_t address;

	start_with("");
	neighbour = idle_neighbour(&address);
	owner = child_start(overrunner);
	child_wait(&owner, 1);
	ck_assert(service_kill_active(&service));
	wait_counter("promotions", 1);
	child_order(&owner);
	ck_assert_int_eq(child_end(&owner), 0);
	end_neighbour(&neighbour);
	ck_assert_int_eq(counter("guard_hits"), 1);
	ck_assert_int_eq(counter("promotions"), 1);
	stop();
}

/* ---- memory ---- */

/* Allocates, frees, allocates: the sink gives way to memory and comes back. */
static int shuffler(int seed)
{
	CUdeviceptr at[8] = {0};
	uint32_t word = 0;

	open_driver();
	srand((unsigned)seed + 1);
	for (uint32_t round = 0; round < 60; round++) {
		unsigned i = (unsigned)rand() % 8;

		if (at[i]) {
			ck_cuda(cuMemcpyDtoH_v2(&word, at[i] + MIB, 4));
			if (word != i)
				return 2;
			ck_cuda(cuMemFree_v2(at[i]));
			at[i] = 0;
			continue;
		}
		ck_cuda(cuMemAlloc_v2(&at[i], (2 + (uint64_t)rand() % 64) * MIB));
		ck_cuda(cuMemsetD32_v2(at[i], i, MIB / 2));
	}
	return 0;
}

TEST(guard, memory_and_sinks_give_way_to_each_other)
{
	start_with("");
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(exit_status(spawn(shuffler, i)), 0);
	ck_assert(service_log_wait(&service, "session closed", 4, SECONDS));
	ck_assert_int_eq(counter("guard_hits"), 0);
	ck_assert_int_eq(service_log_count(&service, "has no guard"), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	stop();
}

/* Takes `mib` MiB of the device at once. It has no module: variables of one are memory that counts
 * as well. */
static int greedy(int mib)
{
	CUdeviceptr p;

	driver_attach();
	return cuMemAlloc_v2(&p, (uint64_t)mib * MIB) == CUDA_SUCCESS ? 0 : 2;
}

TEST(guard, sinks_are_given_back)
{
	/* More programs than sinks fit beside what each takes. */
	setenv("FRMPS_HOST_MEMORY", "64M", 1);
	start_with("");
	for (int i = 1; i <= 12; i++) {
		ck_assert_int_eq(exit_status(spawn(greedy, 48)), 0);
		ck_assert(service_log_wait(&service, "session closed", i, SECONDS));
	}
	ck_assert_int_eq(service_log_count(&service, "no guard"), 0);
	stop();
}

TEST(guard, a_limit_is_all_the_clients)
{
	start_with("memory_limit = 32M\n");
	ck_assert_int_eq(exit_status(spawn(greedy, 32)), 0);
	ck_assert_int_eq(exit_status(spawn(greedy, 34)), 2);
	stop();
}

/* ---- many ---- */

TEST(guard, one_of_many)
{
	const char *text = getenv("FRMPS_TEST_GUARDED");
	int count = text ? atoi(text) : 64;
	struct child *children = calloc((size_t)count, sizeof(*children));
	uint64_t address;

	start_with("");
	for (int i = 0; i < count; i++)
		children[i] = idle_neighbour(&address);
	ck_assert_int_eq(exit_status(spawn(culprit, BEHIND)), 0);
	for (int i = 0; i < count; i++)
		end_neighbour(&children[i]);
	ck_assert_int_eq(counter("guard_hits"), 1);
	ck_assert_int_eq(counter("promotions"), 0);
	stop();
	free(children);
}

int main(void)
{
	Suite *suite = suite_create("guard");
	TCase *tests = tcase_create("guard");

	tcase_set_timeout(tests, 300);
	suite_add(tests, "guard");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
