// How far one program's behaviour reaches: work that never ends, deep queues, many clients, too
// much memory, programs that end in the middle, programs that do nothing. Every test starts a
// service of its own.
//
// FRMPS_TEST_MANY (24) is how many clients share the service in the test of many.

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB (UINT64_C(1) << 20)

static struct service service;

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * What the operator sees
 */

static json_t *status(void)
{
	return status_of(&service);
}

static int64_t counter(const char *name)
{
	return status_counter(&service, name);
}

/* Device memory of all clients together. */
static uint64_t held_bytes(void)
{
	json_t *json = status(), *domain, *client;
	uint64_t sum = 0;
	size_t i, j;

	json_array_foreach (json_object_get(json, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			sum += (uint64_t)json_integer_value(json_object_get(client, "memory_bytes"));
	json_decref(json);
	return sum;
}

/* Whether every user's executor has its spare one at hand. */
static bool has_standbys(void)
{
	json_t *json = status(), *domain, *executor;
	bool all = true;
	size_t i, j;

	json_array_foreach (json_object_get(json, "domains"), i, domain) {
		bool warm = false;

		json_array_foreach (json_object_get(domain, "executors"), j, executor) {
			const char *state = json_string_value(json_object_get(executor, "state"));

			warm = warm || (state && strcmp(state, "warm") == 0);
		}
		all = all && warm;
	}
	json_decref(json);
	return all;
}

/* A spare executor holds device memory as well. Nothing says that it is there: it is asked for. */
static void wait_standbys(void)
{
	for (int i = 0; i < 300 && !has_standbys(); i++)
		pass_time(100);
	ck_assert(has_standbys());
}

/*
 * Work that never ends
 */

static CUstream new_stream(void)
{
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* A stream of its own and a word, made before anything runs: making them might wait for what
 * does. */
static struct {
	CUstream stream;
	CUdeviceptr word;
} probe;

static void open_with_probe(void)
{
	driver_open();
	probe.stream = new_stream();
	probe.word = (CUdeviceptr)(uintptr_t)shared_word();
}

/* Everything that was launched before is with the driver: what came later is done. */
static void be_issued(void)
{
	ck_cuda(cuMemsetD32Async(probe.word, 1, 1, probe.stream));
	ck_cuda(cuStreamSynchronize(probe.stream));
}

/* Holds device memory and, when it is told to, runs kernels that never end, two at a time and two
 * that wait. */
static int hog(int progress, int orders)
{
	CUstream streams[2];
	CUdeviceptr p;

	open_with_probe();
	for (int i = 0; i < 2; i++)
		streams[i] = new_stream();
	ck_cuda(cuMemAlloc_v2(&p, 256 * MIB));
	kernel("endless");
	report(progress);
	ordered(orders, true);
	for (int i = 0; i < 4; i++)
		ck_cuda(launch("endless", 1, 1, streams[i % 2], NULL));
	be_issued();
	report(progress);
	ordered(orders, true);
	/* Nobody but the test of the limit lets it go on. */
	for (int i = 0; i < 2; i++)
		if (cuStreamSynchronize(streams[i]) != CUDA_ERROR_LAUNCH_TIMEOUT)
			return 2;
	return cuMemsetD32_v2(p, 0, 1) == CUDA_ERROR_LAUNCH_TIMEOUT ? 0 : 3;
}

/* Has a kernel under way from one order to the next; vouches that it may be run again. */
static int patient(int progress, int orders)
{
	uint32_t *word, one = 1, round = 7, result[1000];
	uint64_t count = 1000;
	CUdeviceptr in, out;
	CUstream stream;

	setenv("FRMPS_RECOVERY", "replay", 1);
	open_with_probe();
	word = shared_word();
	stream = new_stream();
	in = device_words(count, 5);
	out = device_words(count, 0);
	void *spin[] = {&word, &one}, *mix[] = {&out, &in, &round, &count};
	kernel("spin_until");
	kernel("mix");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("spin_until", 1, 1, stream, spin));
	ck_cuda(launch("mix", 4, 64, stream, mix));
	be_issued();
	report(progress);
	ordered(orders, true);
	if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		return 3;
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuMemcpyDtoHAsync_v2(result, out, sizeof(result), stream));
	ck_cuda(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < count; i++)
		if (result[i] != mixed(i * 5, round, i))
			return 2;
	return 0;
}

/* The programs of the test below that end by themselves, and their ends. */
static void run_once(void)
{
	struct child fast = child_start(survivor), slow = child_start(patient);

	child_wait(&fast, 20);
	child_wait(&slow, 1);
	child_order(&slow);
	child_wait(&slow, 1);
	child_order(&slow);
	ck_assert_int_eq(child_end(&slow), 0);
	child_order(&fast);
	ck_assert_int_eq(child_end(&fast), 0);
	wait_closed(&service);
}

/* One is killed, one is over its limit. */
static const struct {
	const char *options, *line;
	bool is_killed;
} endings[] = {{"orphan_seconds = 1\n", "did not end within orphan_seconds: its kernels were ended", true},
	{"max_kernel_seconds = 4\n", "for longer than max_kernel_seconds (4): its kernels were ended",
		false}};

/* Nobody else notices: the executor goes on with their work, that of a long kernel as well. */
TEST_LOOP(limits, endless_work_ends_alone, 0, 2)
{
	struct child fast, slow, gone;
	uint64_t unused, before, after;
	pid_t active;

	ck_assert(service_start_configured(&service, endings[_i].options));
	free_memory(); /* somebody has to be there for executors to be */
	wait_standbys();
	unused = free_memory();
	/* The driver keeps what its context needed for streams and kernels: both sides of the
	 * comparison have it. */
	run_once();
	before = free_memory();
	fast = child_start(survivor);
	slow = child_start(patient);
	gone = child_start(hog);
	/* Everybody is there before anything endless runs: a module may not be loaded meanwhile. */
	child_wait(&fast, 20);
	child_wait(&slow, 1);
	child_wait(&gone, 1);
	child_order(&slow);
	child_order(&gone);
	child_wait(&slow, 1);
	child_wait(&gone, 1);
	active = status_active(&service);
	if (endings[_i].is_killed) {
		ck_assert_uint_ge(held_bytes(), 256 * MIB);
		ck_assert_uint_le(free_memory() + 256 * MIB, before);
		kill(gone.pid, SIGKILL);
		ck_assert_int_eq(child_end(&gone), 1000 + SIGKILL);
	} else {
		child_order(&slow);
		ck_assert_int_eq(child_end(&slow), 0);
		child_order(&gone);
		ck_assert_int_eq(child_end(&gone), 0);
	}
	ck_assert(service_log_wait(&service, endings[_i].line, 1, 60));
	child_drain(&fast);
	child_wait(&fast, 20);
	if (endings[_i].is_killed) {
		ck_assert(child_runs(&slow));
		child_order(&slow);
		ck_assert_int_eq(child_end(&slow), 0);
	}
	child_order(&fast);
	ck_assert_int_eq(child_end(&fast), 0);
	wait_closed(&service);
	ck_assert_int_eq(status_active(&service), active);
	ck_assert_int_eq(counter("kernels_ended"), 1);
	ck_assert_int_eq(counter("culprits"), !endings[_i].is_killed);
	ck_assert_int_eq(counter("orphans"), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	ck_assert_int_eq(counter("sessions_moved"), 0);
	ck_assert_int_eq(service_log_count(&service, "promotion: "), 0);
	ck_assert_uint_eq(held_bytes(), 0);
	wait_standbys();
	after = free_memory();
	ck_assert_msg(after + 64 * MIB >= before, "%llu bytes are free, before it was %llu, and unused %llu",
		(unsigned long long)after, (unsigned long long)before, (unsigned long long)unused);
}

/*
 * Pinned memory of others
 */

/* Bytes that stay pinned although nobody has them any more. */
static int64_t unpinning_bytes(void)
{
	json_t *json = status(), *domain;
	int64_t sum = 0;
	size_t i;

	json_array_foreach (json_object_get(json, "domains"), i, domain)
		sum += json_integer_value(json_object_get(domain, "unpinning_bytes"));
	json_decref(json);
	return sum;
}

/* Pins memory and frees it when it is told to: more than is kept for the next allocation. */
static int pinning(int progress, int orders)
{
	enum { PIECES = 3 };
	void *pinned[PIECES];

	driver_open();
	for (int i = 0; i < PIECES; i++)
		ck_cuda(cuMemHostAlloc(&pinned[i], 32 * MIB, 0));
	report(progress);
	ordered(orders, true);
	for (int i = 0; i < PIECES; i++)
		ck_cuda(cuMemFreeHost(pinned[i]));
	report(progress);
	ordered(orders, true);
	return 0;
}

/* Asynchronous copies of registered memory go through pinned memory, and there is none to be
 * had. */
static int copies_registered_memory(int unused)
{
	size_t bytes = 24 * MIB, count = bytes / 4, wrong = 0;
	uint32_t *own = malloc(bytes);
	CUdeviceptr device;
	CUstream stream;

	(void)unused;
	driver_open();
	stream = new_stream();
	ck_cuda(cuMemAlloc_v2(&device, bytes));
	ck_cuda(cuMemHostRegister_v2(own, bytes, 0));
	for (uint32_t i = 0; i < count; i++)
		own[i] = i;
	/* One that has room, and one that has none: the second is behind the first. */
	ck_cuda(cuMemcpyHtoDAsync_v2(device, own + 1, 4 * MIB, stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(device + 4, own, bytes - 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	memset(own, 0, bytes);
	ck_cuda(cuMemcpyDtoHAsync_v2(own, device, bytes, stream));
	ck_cuda(cuStreamSynchronize(stream));
	wrong += own[0] != 1;
	for (uint32_t i = 1; i < count; i++)
		wrong += own[i] != i - 1;
	ck_cuda(cuMemHostUnregister(own));
	free(own);
	return wrong != 0;
}

TEST(limits, registered_memory_is_copied_beyond_the_limit)
{
	ck_assert(service_start_configured(&service, "pinned_limit = 16M\n"));
	ck_assert_int_eq(exit_status(spawn(copies_registered_memory, 0)), 0);
	wait_closed(&service);
}

/* The driver unpins nothing while a kernel runs, and lets nobody launch meanwhile. */
TEST(limits, pinned_memory_of_others_holds_nobody_up)
{
	struct child fast, slow, frees, gone;
	unsigned closed;

	ck_assert(service_start(&service, NULL));
	fast = child_start(survivor);
	slow = child_start(patient);
	frees = child_start(pinning);
	gone = child_start(pinning);
	child_wait(&fast, 20);
	child_wait(&slow, 1);
	child_wait(&frees, 1);
	child_wait(&gone, 1);
	closed = service_log_count(&service, "session closed");
	child_order(&slow);
	child_wait(&slow, 1);
	/* From here on a kernel runs. */
	child_order(&frees);
	child_wait(&frees, 1);
	kill(gone.pid, SIGKILL);
	ck_assert_int_eq(child_end(&gone), 1000 + SIGKILL);
	ck_assert(service_log_wait(&service, "session closed", closed + 1, 60));
	ck_assert_int_ge(unpinning_bytes(), (int64_t)(32 * MIB + 96 * MIB));
	child_drain(&fast);
	child_wait(&fast, 200);
	ck_assert(child_runs(&slow));
	child_order(&slow);
	ck_assert_int_eq(child_end(&slow), 0);
	child_order(&fast);
	ck_assert_int_eq(child_end(&fast), 0);
	/* Nothing runs any more. */
	for (int i = 0; i < 300 && unpinning_bytes(); i++)
		pass_time(100);
	ck_assert_int_eq(unpinning_bytes(), 0);
	child_order(&frees);
	ck_assert_int_eq(child_end(&frees), 0);
	wait_closed(&service);
	ck_assert_int_eq(counter("promotions"), 0);
}

/*
 * Many clients
 */

static void *synchronize(void *stream)
{
	CUcontext context;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamSynchronize(stream));
	return NULL;
}

/* Waits in a stream for a word that it sets when it is told to. */
static int parked(int progress, int orders)
{
	CUstream stream;
	pthread_t thread;
	uint32_t *words;

	open_with_probe();
	words = shared_word();
	stream = new_stream();
	ck_cuda(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)words, 1, CU_STREAM_WAIT_VALUE_EQ));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(words + 1), 7, 1, stream));
	be_issued();
	ck_assert_int_eq(pthread_create(&thread, NULL, synchronize, stream), 0);
	report(progress);
	ordered(orders, true);
	if (words[1] || cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		return 2;
	__atomic_store_n(words, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	return words[1] == 7 ? 0 : 3;
}

/* Keeps many long kernels queued until it is told to stop, then lets them end. */
static int deep(int progress, int orders)
{
	enum { DEPTH = 24 };
	uint64_t ns = 50000000;
	void *arguments[] = {&ns};
	CUevent done[DEPTH];
	CUstream stream;

	driver_open();
	stream = new_stream();
	for (int i = 0; i < DEPTH; i++)
		ck_cuda(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	for (int i = 0; !ordered(orders, false); i++) {
		if (i >= DEPTH)
			ck_cuda(cuEventSynchronize(done[i % DEPTH]));
		ck_cuda(launch("spin_ns", 1, 1, stream, arguments));
		ck_cuda(cuEventRecord(done[i % DEPTH], stream));
		if (i + 1 == DEPTH)
			report(progress);
	}
	if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		return 2;
	ck_cuda(cuStreamSynchronize(stream));
	return 0;
}

static int launches_and_waits(int number)
{
	uint32_t by = (uint32_t)number + 1, sum;
	CUdeviceptr word;
	void *arguments[] = {&word, &by};

	driver_open();
	word = device_words(1, 0);
	for (int i = 0; i < 20; i++) {
		ck_cuda(launch("count_up", 1, 1, NULL, arguments));
		ck_cuda(cuCtxSynchronize());
	}
	ck_cuda(cuMemcpyDtoH_v2(&sum, word, 4));
	return sum == 20 * by ? 0 : 2;
}

TEST(limits, nobody_waits_for_parked_or_busy_clients)
{
	const char *text = getenv("FRMPS_TEST_MANY");
	int many = text ? atoi(text) : 24, others = many > 3 ? many - 2 : 1;
	pid_t *pids = calloc((size_t)others, sizeof(*pids));
	struct child parking, busy;

	ck_assert(service_start(&service, NULL));
	parking = child_start(parked);
	busy = child_start(deep);
	child_wait(&parking, 1);
	child_wait(&busy, 1);
	for (int i = 0; i < others; i++)
		pids[i] = spawn(launches_and_waits, i);
	for (int i = 0; i < others; i++)
		ck_assert_int_eq(exit_status(pids[i]), 0);
	ck_assert(child_runs(&parking));
	ck_assert(child_runs(&busy));
	child_order(&parking);
	child_order(&busy);
	ck_assert_int_eq(child_end(&parking), 0);
	ck_assert_int_eq(child_end(&busy), 0);
	ck_assert_int_eq(counter("promotions"), 0);
	free(pids);
}

/*
 * Threads
 */

struct waiter {
	CUstream stream;
	uint32_t tid; /* 0 until it runs */
};

static void *wait_for_stream(void *data)
{
	struct waiter *waiter = data;

	__atomic_store_n(&waiter->tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
	return synchronize(waiter->stream);
}

/* Until a thread of this process sleeps, as one does in a long wait. */
static void wait_asleep(const uint32_t *tid)
{
	char path[64], line[256], state = 'R';

	for (int i = 0; i < 20000 && state != 'S'; i++) {
		uint32_t number = __atomic_load_n(tid, __ATOMIC_ACQUIRE);
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%u/stat", number);
		file = number ? fopen(path, "r") : NULL;
		if (file && fgets(line, sizeof(line), file) && strrchr(line, ')'))
			state = strrchr(line, ')')[2];
		if (file)
			fclose(file);
		pass_time(1);
	}
	ck_assert_int_eq(state, 'S');
}

/* A kernel that waits for a word, and a thread that waits for the kernel. */
static pthread_t block(uint32_t *word, struct waiter *waiter)
{
	uint32_t one = 1;
	void *spin[] = {&word, &one};
	pthread_t thread;

	*word = 0;
	ck_cuda(launch("spin_until", 1, 1, waiter->stream, spin));
	waiter->tid = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_stream, waiter), 0);
	wait_asleep(&waiter->tid);
	return thread;
}

static int threads_release_each_other(int argument)
{
	struct waiter waiter;
	uint32_t *word, one = 1;
	uint64_t count = 1;
	void *fill[] = {&word, &one, &count};
	CUstream other;
	pthread_t thread;

	(void)argument;
	driver_open();
	/* The first lookup of a kernel waits for those that run. */
	kernel("spin_until");
	kernel("fill");
	word = shared_word();
	waiter.stream = new_stream();
	other = new_stream();
	for (int i = 0; i < 20; i++) {
		thread = block(word, &waiter);
		ck_cuda(launch("fill", 1, 1, other, fill));
		pthread_join(thread, NULL);
		thread = block(word, &waiter);
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
	}
	ck_cuda(cuCtxSynchronize());
	return 0;
}

TEST(limits, a_blocked_thread_does_not_hold_another_one_up)
{
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(threads_release_each_other, 0)), 0);
}

/*
 * Staging memory behind streams that stand still
 */

/* Asynchronous copies of a MiB each, behind a kernel that runs until the word is 1. */
static CUstream stand_still(uint32_t *word, CUdeviceptr to, const void *from, int copies)
{
	CUstream stream = new_stream();

	ck_cuda(launch_spin(word, 1, stream));
	for (int i = 0; i < copies; i++)
		ck_cuda(cuMemcpyHtoDAsync_v2(to, from, MIB, stream));
	return stream;
}

static int copy_beside_one(int unused)
{
	uint8_t *bytes = calloc(64, MIB);
	CUstream still, moving;
	CUdeviceptr device;
	uint32_t *words;

	(void)unused;
	driver_open();
	words = shared_word();
	ck_cuda(cuMemAlloc_v2(&device, 64 * MIB));
	moving = new_stream();
	still = stand_still(words, device, bytes, 1);
	ck_cuda(cuMemcpyHtoDAsync_v2(device, bytes, 64 * MIB, moving));
	ck_cuda(cuMemcpyDtoHAsync_v2(bytes, device, 64 * MIB, moving));
	ck_cuda(cuStreamSynchronize(moving));
	ck_assert_int_eq(cuStreamQuery(still), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&words[0], 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	free(bytes);
	return 0;
}

TEST(limits, a_stream_that_stands_still_holds_no_copy_of_another_one_up)
{
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(copy_beside_one, 0)), 0);
}

static struct {
	CUcontext context;
	CUdeviceptr device;
	const void *bytes;
} late;

static void *copy_late(void *stream)
{
	ck_cuda(cuCtxSetCurrent(late.context));
	ck_cuda(cuMemcpyHtoDAsync_v2(late.device, late.bytes, MIB, stream));
	ck_cuda(cuStreamSynchronize(stream));
	return NULL;
}

/* All of the staging memory's 24 large pieces wait behind three streams, and the second one goes on
 * first. */
static int copy_beside_three(int unused)
{
	static const int copies[] = {18, 5, 1};
	CUstream still[3], other;
	uint32_t *words;
	pthread_t thread;
	void *bytes = calloc(1, MIB);

	(void)unused;
	driver_open();
	words = shared_word();
	ck_cuda(cuCtxGetCurrent(&late.context));
	ck_cuda(cuMemAlloc_v2(&late.device, MIB));
	late.bytes = bytes;
	other = new_stream();
	for (int i = 0; i < 3; i++)
		still[i] = stand_still(words + i, late.device, bytes, copies[i]);
	ck_assert_int_eq(pthread_create(&thread, NULL, copy_late, other), 0);
	pass_time(50); /* it waits */
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_assert_int_eq(cuStreamQuery(still[0]), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&words[0], 1, __ATOMIC_RELEASE);
	__atomic_store_n(&words[2], 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	free(bytes);
	return 0;
}

TEST(limits, a_copy_waits_for_whichever_stream_goes_on)
{
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(exit_status(spawn(copy_beside_three, 0)), 0);
}

/*
 * Memory
 */

/* Takes all that it may have, twice over. */
static int takes_all(int pieces)
{
	enum { MOST = 64 };
	CUdeviceptr p[MOST];

	driver_open();
	for (int round = 0; round < 3; round++) {
		CUresult r = CUDA_SUCCESS;
		int count = 0;

		while (count < MOST && (r = cuMemAlloc_v2(&p[count], 16 * MIB)) == CUDA_SUCCESS)
			count++;
		if (r != CUDA_ERROR_OUT_OF_MEMORY || count > pieces || count < pieces - 1)
			return 2;
		/* It is a limit and no fault: what was there before works. */
		ck_cuda(cuMemsetD8_v2(p[count - 1], 1, 16 * MIB));
		ck_cuda(cuCtxSynchronize());
		ck_cuda(cuMemFree_v2(p[0]));
		ck_cuda(cuMemAlloc_v2(&p[0], 16 * MIB));
		while (count)
			ck_cuda(cuMemFree_v2(p[--count]));
	}
	return 0;
}

TEST(limits, memory_has_a_limit)
{
	pid_t pids[2];

	ck_assert(service_start_configured(&service, "memory_limit = 256M\n"));
	/* The limit is each client's own. */
	for (int i = 0; i < 2; i++)
		pids[i] = spawn(takes_all, 16);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(exit_status(pids[i]), 0);
	wait_closed(&service);
	ck_assert_uint_eq(held_bytes(), 0);
}

/* What was freed and is kept for later is there for memory of any kind. */
static int maps_what_it_freed(int unused)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	uint64_t keep = UINT64_MAX;
	size_t available, total;
	CUmemoryPool pool;
	CUdeviceptr p;

	(void)unused;
	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 48 * MIB));
	ck_cuda(cuMemFree_v2(p));
	ck_cuda(cuMemGetInfo_v2(&available, &total));
	ck_cuda(cuMemCreate(&handle, available / (2 * MIB) * 2 * MIB, &properties, 0));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	ck_cuda(cuMemAllocAsync(&p, 96 * MIB, NULL));
	ck_cuda(cuMemFreeAsync(p, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuMemCreate(&handle, 192 * MIB, &properties, 0));
	if (cuMemAlloc_v2(&p, 192 * MIB) != CUDA_ERROR_OUT_OF_MEMORY)
		return 1;
	ck_cuda(cuMemRelease(handle));
	return 0;
}

TEST(limits, kept_memory_is_there_for_mappings)
{
	ck_assert(service_start_configured(&service, "memory_limit = 256M\n"));
	ck_assert_int_eq(exit_status(spawn(maps_what_it_freed, 0)), 0);
	wait_closed(&service);
	ck_assert_uint_eq(held_bytes(), 0);
}

static int passed[2];

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* Memory of which only the descriptor is left. */
static int exports_and_ends(int unused)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	(void)unused;
	driver_open();
	ck_cuda(cuMemCreate(&handle, 160 * MIB, &shareable, 0));
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(passed[1], &fd, true);
	return 0;
}

static CUresult import(int fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult r = cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (r == CUDA_SUCCESS)
		ck_cuda(cuMemRelease(handle));
	return r;
}

/* The same of a program of its own: whether each can be imported. */
static int imports(int results)
{
	int fds[2];

	for (int i = 0; i < 2; i++)
		pass_fd(passed[0], &fds[i], false);
	driver_open();
	for (int i = 0; i < 2; i++)
		if (import(fds[i]) != (results >> i & 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE))
			return i + 1;
	return 0;
}

static uint64_t unheld_bytes(void)
{
	json_t *json = status();
	uint64_t bytes = (uint64_t)json_integer_value(
		json_object_get(json_object_get(json, "device"), "unheld_bytes"));

	json_decref(json);
	return bytes;
}

/* What nobody holds has the limit of a program, and ends with its descriptor. */
TEST(limits, memory_without_an_owner_has_a_limit)
{
	ck_assert(service_start_configured(&service, "memory_limit = 256M\n"));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, passed), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(exit_status(spawn(exports_and_ends, 0)), 0);
		wait_closed(&service);
		/* The first one is kept; both descriptors are in the socket. */
		ck_assert_uint_eq(unheld_bytes(), 160 * MIB);
	}
	ck_assert_int_eq(exit_status(spawn(imports, 1)), 0);
	wait_closed(&service);
	while (unheld_bytes())
		pass_time(50);
}

static int takes(int mib)
{
	CUdeviceptr p;

	driver_open();
	return cuMemAlloc_v2(&p, (size_t)mib * MIB) != CUDA_SUCCESS;
}

/* A new daemon does not know who has the descriptor. */
TEST(limits, memory_without_an_owner_ends_with_the_daemon)
{
	const char *backend = getenv("FRMPS_TEST_BACKEND");
	bool is_host = !backend || strcmp(backend, "host") == 0;

	setenv("FRMPS_HOST_MEMORY", "512M", 1);
	ck_assert(service_start(&service, NULL));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, passed), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(exit_status(spawn(exports_and_ends, 0)), 0);
	wait_closed(&service);
	ck_assert_uint_eq(unheld_bytes(), 320 * MIB);
	ck_assert_int_eq(exit_status(spawn(takes, 300)), is_host);
	ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
	ck_assert_int_eq(exit_status(spawn(imports, 0)), 0);
	ck_assert_int_eq(exit_status(spawn(takes, 300)), 0);
	unsetenv("FRMPS_HOST_MEMORY");
}

/*
 * Clients that do nothing
 */

static int idle(int progress, int orders)
{
	CUdeviceptr word;
	uint32_t by = 1;
	void *arguments[] = {&word, &by};

	driver_open();
	word = device_words(1, 0);
	ck_cuda(launch("count_up", 1, 1, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	return 0;
}

TEST(limits, an_idle_service_uses_no_processor)
{
	enum { CLIENTS = 16, SECONDS = 3 };
	struct child children[CLIENTS];
	unsigned long used = SECONDS;

	ck_assert(service_start(&service, NULL));
	for (int i = 0; i < CLIENTS; i++)
		children[i] = child_start(idle);
	for (int i = 0; i < CLIENTS; i++)
		child_wait(&children[i], 1);
	/* It may take a while to come to rest: a spare executor opens the new sessions as well. */
	for (int i = 0; i < 5 && used >= SECONDS; i++) {
		unsigned long before = service_ticks(&service);

		pass_time(SECONDS * 1000);
		used = service_ticks(&service) - before;
	}
	ck_assert_uint_lt(used, SECONDS);
	for (int i = 0; i < CLIENTS; i++)
		child_order(&children[i]);
	for (int i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
}

/*
 * Ends: with exit() and everything that it runs, unlike other children here
 */

static int ends_with_work_in_flight(int argument)
{
	uint64_t ns = 10000000;
	void *arguments[] = {&ns}, *pinned;
	CUstream stream;

	(void)argument;
	driver_open();
	stream = new_stream();
	ck_cuda(cuMemHostAlloc(&pinned, MIB, 0));
	for (int i = 0; i < 20; i++) {
		ck_cuda(launch("spin_ns", 1, 1, stream, arguments));
		ck_cuda(cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned, 3, MIB, stream));
	}
	exit(43);
}

static void *call_exit(void *main_tid)
{
	wait_asleep(main_tid);
	exit(44);
}

static int ends_while_a_thread_waits(int argument)
{
	uint32_t *word, one = 1, main_tid = (uint32_t)gettid();
	void *spin[] = {&word, &one};
	pthread_t thread;

	(void)argument;
	open_with_probe();
	word = shared_word();
	ck_cuda(launch("spin_until", 1, 1, NULL, spin));
	be_issued();
	ck_assert_int_eq(pthread_create(&thread, NULL, call_exit, &main_tid), 0);
	cuCtxSynchronize();
	return 45;
}

TEST(limits, a_program_ends_with_work_in_flight)
{
	struct child other;

	ck_assert(service_start(&service, NULL));
	other = child_start(survivor);
	child_wait(&other, 5);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(exit_status(spawn(ends_with_work_in_flight, 0)), 43);
	child_drain(&other);
	child_wait(&other, 5);
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	wait_closed(&service);
	ck_assert_int_eq(counter("promotions"), 0);
	ck_assert_uint_eq(held_bytes(), 0);
}

TEST(limits, a_program_ends_while_a_thread_waits)
{
	ck_assert(service_start_configured(&service, "orphan_seconds = 1\n"));
	ck_assert_int_eq(exit_status(spawn(ends_while_a_thread_waits, 0)), 44);
	ck_assert(service_log_wait(
		&service, "did not end within orphan_seconds: its kernels were ended", 1, 60));
	wait_closed(&service);
	ck_assert_int_eq(counter("promotions"), 0);
	ck_assert_uint_eq(held_bytes(), 0);
}

/*
 * Programs started by frmps-run: this file's program with one argument
 */

/* Outside a test there is no libcheck. */
static int works(void)
{
	uint32_t words[64] = {0};
	CUcontext context;
	CUdeviceptr p;
	int failed = 0;

	failed |= cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
	failed = failed || cuMemAlloc_v2(&p, sizeof(words)) || cuMemsetD32_v2(p, 77, 64);
	failed = failed || cuMemcpyDtoH_v2(words, p, sizeof(words));
	return failed || words[63] != 77;
}

static int run_program(const char *name)
{
	return strcmp(name, "works") == 0 ? works() : 42;
}

static int run_under(const char *option, const char *name)
{
	const char *run = getenv("FRMPS_TEST_RUN");
	char self[4096] = "";
	const char *const arguments[] = {run, option, "--socket", service.socket, self, name, NULL};
	pid_t pid;

	ck_assert_msg(run != NULL, "FRMPS_TEST_RUN does not name frmps-run");
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	pid = fork();
	if (pid == 0) {
		execv(run, (char *const *)arguments);
		_exit(98);
	}
	return exit_status(pid);
}

TEST(limits, without_a_service_nothing_is_run)
{
	ck_assert(service_start(&service, NULL));
	unsetenv("FRMPS_SOCKET");
	ck_assert_int_eq(run_under("--recovery=fail", "works"), 0);
	ck_assert_int_eq(run_under("--recovery=replay", "does-nothing"), 42);
	ck_assert_int_eq(service_stop(&service), 0);
	strcpy(service.socket, "/nonexistent/frmps.sock");
	ck_assert_int_eq(run_under("--recovery=fail", "does-nothing"), 69);
	ck_assert_int_eq(run_under("--allow-native", "does-nothing"), 42);
}

int main(int count, char **arguments)
{
	Suite *suite;
	TCase *tests;

	if (count == 2)
		return run_program(arguments[1]);
	suite = suite_create("limits");
	tests = tcase_create("limits");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "limits");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
