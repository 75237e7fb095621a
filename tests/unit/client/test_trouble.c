// The shim when the service reports errors, faults, pauses, hangs or dies, and when threads are
// cancelled.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/state/session.h"
#include "client/submit/callback.h"
#include "tests/unit/client/shim.h"

TEST(trouble, a_late_error_is_reported_once)
{
	OK(cuCtxSynchronize());
	word_set(&loopback->late, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	while (word_acquire(&loopback->late))
		usleep(1000);
	FAILS(cuCtxSynchronize(), LAUNCH_OUT_OF_RESOURCES);
	OK(cuCtxSynchronize());
}

static void let_err_late(void)
{
	word_set(&loopback->late, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	while (word_acquire(&loopback->late))
		usleep(1000);
}

/* What a graph has allocated and left to the program. */
static CUdeviceptr memory_of_graph(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;
	CUdeviceptr p;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&p, 64, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	return p;
}

/* Whoever is told the error of a command by a call that frees has freed. */
TEST(trouble, a_late_error_keeps_no_memory)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	let_err_late();
	FAILS(cuMemFree_v2(p), LAUNCH_OUT_OF_RESOURCES);
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	OK(cuMemAllocAsync(&p, 64, NULL));
	let_err_late();
	FAILS(cuMemFree_v2(p), LAUNCH_OUT_OF_RESOURCES);
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	p = memory_of_graph();
	let_err_late();
	FAILS(cuMemFree_v2(p), LAUNCH_OUT_OF_RESOURCES);
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
}

/* Nor is it lost where memory is short and a pool has some. */
TEST(trouble, a_late_error_waits_for_a_call_that_tells_it)
{
	uint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr p;

	word_set(&loopback->room, 100 * MiB);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&p, 60 * MiB, NULL));
	OK(cuMemFreeAsync(p, NULL));
	let_err_late();
	OK(cuMemAlloc_v2(&p, 90 * MiB));
	FAILS(cuCtxSynchronize(), LAUNCH_OUT_OF_RESOURCES);
	OK(cuMemFree_v2(p));
}

TEST(trouble, a_fault_is_sticky)
{
	CUdeviceptr p;
	CUcontext c;
	int value;

	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	word_set(&loopback->fault, CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	FAILS(cuMemsetD8Async(p, 1, 64, NULL), ILLEGAL_ADDRESS);
	FAILS(cuMemAlloc_v2(&p, 64), ILLEGAL_ADDRESS);
	FAILS(cuMemFree_v2(p), ILLEGAL_ADDRESS);
	OK(cuCtxGetCurrent(&c));
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

TEST(trouble, a_fault_ends_callbacks)
{
	shim_pause();
	OK(cuLaunchHostFunc(NULL, shim_append, NULL));
	OK(cuStreamAddCallback(NULL, shim_on_stream, NULL, 0));
	word_set(&loopback->fault, CUDA_ERROR_LAUNCH_FAILED);
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	while (*(volatile CUresult *)&shim_callback.status == CUDA_ERROR_UNKNOWN)
		usleep(1000);
	ck_assert_int_eq(shim_callback.status, CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(shim_ran, 1);
}

TEST(trouble, a_dead_service_ends_waits)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	loopback_kill();
	FAILS(cuCtxSynchronize(), MPS_RPC_FAILURE);
	FAILS(cuMemAlloc_v2(&p, 64), MPS_RPC_FAILURE);
}

static CUevent polled;

static CUresult poll_event(void)
{
	return cuEventQuery(polled);
}

static CUresult poll_stream(void)
{
	return cuStreamQuery(NULL);
}

static CUresult poll_time(void)
{
	float ms;

	return cuEventElapsedTime(&ms, polled, polled);
}

static CUresult (*const polls[])(void) = {poll_event, poll_stream, poll_time};

TEST_LOOP(trouble, a_dead_service_ends_polling, 0, 3)
{
	CUdeviceptr p;
	CUresult r;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuEventCreate(&polled, 0));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	OK(cuEventRecord(polled, NULL));
	FAILS(polls[_i](), NOT_READY);
	loopback_kill();
	while ((r = polls[_i]()) == CUDA_ERROR_NOT_READY)
		continue;
	ck_assert_int_eq(r, CUDA_ERROR_MPS_RPC_FAILURE);
}

TEST(trouble, a_dead_service_ends_requests)
{
	CUdeviceptr p;

	loopback_kill();
	FAILS(cuMemAlloc_v2(&p, 64 * MiB), MPS_RPC_FAILURE);
	FAILS(cuCtxSynchronize(), MPS_RPC_FAILURE);
}

TEST(trouble, a_full_ring_of_a_dead_service_ends)
{
	CUdeviceptr p;
	CUresult r = CUDA_SUCCESS;

	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	loopback_kill();
	for (int i = 0; r == CUDA_SUCCESS && i < 100000; ++i) {
		CUstream stream;

		r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		for (int k = 0; r == CUDA_SUCCESS && k < 100; ++k)
			r = cuMemsetD8Async(p, 1, 64, stream);
	}
	ck_assert_int_eq(r, CUDA_ERROR_MPS_RPC_FAILURE);
}

/* ---- a copy that a fault finds in the middle ---- */

#define ROWS 3

static size_t page_bytes;
static uint8_t *rows; /* a page each; the second one cannot be read */
static int met[2], let[2];

/* The copy has come to the second row: says so, and makes it one like the others when it is told
 * to. */
static void on_second_row(int number, siginfo_t *info, void *unused)
{
	uint8_t *at = info->si_addr;
	char byte;

	(void)unused;
	if (at < rows + page_bytes || at >= rows + 2 * page_bytes) {
		signal(number, SIG_DFL);
		return;
	}
	if (write(met[1], "", 1) != 1 || read(let[0], &byte, 1) != 1)
		_exit(1);
	mprotect(rows + page_bytes, page_bytes, PROT_READ | PROT_WRITE);
}

static void make_rows(void)
{
	struct sigaction action = {.sa_sigaction = on_second_row, .sa_flags = SA_SIGINFO};

	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	rows = mmap(NULL, ROWS * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rows, MAP_FAILED);
	for (unsigned int i = 0; i < ROWS; ++i)
		memset(rows + i * page_bytes, (int)i + 1, 16);
	ck_assert_int_eq(mprotect(rows + page_bytes, page_bytes, PROT_NONE), 0);
	ck_assert_int_eq(pipe(met), 0);
	ck_assert_int_eq(pipe(let), 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
}

/* Takes memory that was freed before, and writes into it. */
static void use_freed_memory(void)
{
	void *blocks[256];

	for (size_t i = 0; i < 256; ++i) {
		blocks[i] = malloc(16 * (i + 1));
		memset(blocks[i], 0x5a, 16 * (i + 1));
	}
	for (size_t i = 0; i < 256; ++i)
		free(blocks[i]);
}

static word32 objects_gone;

static void count_object(void *unused)
{
	(void)unused;
	atomic_fetch_add(&objects_gone, 1);
}

static CUgraphExec graph_of_copy(volatile uint8_t (*out)[16])
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = rows,
		.srcPitch = page_bytes,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = (void *)(uintptr_t)out,
		.dstPitch = 16,
		.WidthInBytes = 16,
		.Height = ROWS,
		.Depth = 1};
	CUuserObject object;
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	OK(cuUserObjectCreate(&object, NULL, count_object, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, shim_context));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

TEST(trouble, a_graph_outlives_its_copy_in_a_fault)
{
	static volatile uint8_t out[ROWS][16];
	CUgraphExec exec, other;
	char byte;

	make_rows();
	exec = graph_of_copy(out);
	other = graph_of_copy(out);
	OK(cuGraphLaunch(exec, NULL));
	ck_assert_int_eq(read(met[0], &byte, 1), 1);
	word_set(&loopback->fault, CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	OK(cuGraphExecDestroy(exec));
	use_freed_memory();
	ck_assert_uint_eq(word_acquire(&objects_gone), 0);
	ck_assert_int_eq(write(let[1], "", 1), 1);
	while (!callback_is_idle(session_self()))
		sched_yield();
	for (unsigned int i = 0; i < ROWS; ++i)
		ck_assert_uint_eq(out[i][15], i + 1);
	/* Now both. */
	OK(cuGraphExecDestroy(other));
	while (word_acquire(&objects_gone) < 2)
		sched_yield();
	for (int i = 0; i < 2; ++i) {
		close(met[i]);
		close(let[i]);
	}
}

/* ---- threads that are cancelled in a call ---- */

/* More than there are large pieces of staging memory. */
#define CANCELLED 30

static CUdeviceptr device_bytes;
static uint8_t *bytes;
static CUgraph graph;
static CUgraphExec exec;

static CUresult copy(void)
{
	return cuMemcpyHtoD_v2(device_bytes, bytes, MiB);
}

static CUresult launch_graph(void)
{
	return cuGraphLaunch(exec, NULL);
}

static CUresult print_graph(void)
{
	return cuGraphDebugDotPrint(graph, "/dev/null", 0);
}

static CUresult (*const calls[])(void) = {copy, launch_graph, print_graph};

static CUresult cancelled_call;

/* No assertion in between: libcheck's message would be what ends it. */
static void *call_cancelled(void *number)
{
	cancelled_call = cuCtxSetCurrent(shim_context);
	pthread_cancel(pthread_self());
	if (cancelled_call == CUDA_SUCCESS)
		cancelled_call = calls[(intptr_t)number]();
	pthread_testcancel();
	return NULL;
}

/* The loopback's executor always says that it sleeps, so every command rings. */
TEST_LOOP(trouble, a_cancelled_thread_leaves_nothing_taken, 0, sizeof(calls) / sizeof(*calls))
{
	CUDA_HOST_NODE_PARAMS params = {.fn = shim_append};
	CUgraphNode node;
	pthread_t thread;
	void *result;

	bytes = shim_pattern(MiB, 3);
	OK(cuMemAlloc_v2(&device_bytes, MiB));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < CANCELLED; ++i) {
		ck_assert_int_eq(pthread_create(&thread, NULL, call_cancelled, (void *)(intptr_t)_i), 0);
		pthread_join(thread, &result);
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		OK(cancelled_call);
	}
	OK(calls[_i]());
	OK(cuCtxSynchronize());
	free(bytes);
}

static word32 is_waiting;

static void *release_who_waits(void *unused)
{
	(void)unused;
	while (!word_acquire(&is_waiting))
		sched_yield();
	word_set(&loopback->held, 0);
	return NULL;
}

static void hold(void)
{
	word_set(&loopback->held, 1);
	while (word_acquire(&session_self()->connection.view.server->state) != SHM_SESSION_HELD)
		sched_yield();
}

TEST(trouble, a_promotion_is_only_a_pause)
{
	pthread_t helper;
	uint8_t out[64];
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	for (int i = 1; i <= 10; ++i) {
		word_set(&is_waiting, 0);
		hold();
		OK(cuMemsetD8Async(p, (unsigned char)i, 64, NULL));
		ck_assert_int_eq(pthread_create(&helper, NULL, release_who_waits, NULL), 0);
		word_release(&is_waiting, 1);
		OK(cuCtxSynchronize());
		ck_assert(!word_acquire(&loopback->held));
		pthread_join(helper, NULL);
	}
	OK(cuMemcpyDtoH_v2(out, p, 64));
	ck_assert_uint_eq(out[63], 10);
}

int main(void)
{
	Suite *suite = suite_create("trouble");
	TCase *trouble = suite_case(suite, "trouble");

	tcase_add_checked_fixture(trouble, shim_setup, shim_teardown);
	suite_add(trouble, "trouble");
	return suite_run(suite);
}
