// Constants of modules: whatever a program writes at their address is what kernels read, in the
// order of its work; values and addresses outlive every executor.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define PATIENT	 "fault_stall_ms = 5000\nfault_patience_ms = 20000\nquarantine_faults = 1000\n"
#define SETTINGS 64

enum { EXACT = 0, WRONG = 2, TOLD = 3, ELSEWHERE = 4 };

static struct service service;

static void start(void)
{
	setenv("FRMPS_HOST_FAULT_MS", "50", 1);
	ck_assert(service_start_configured(&service, PATIENT));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * A program
 */

/* What it has, and what its kernels should see. */
static struct {
	CUdeviceptr settings, out, memory;
	uint32_t *pinned, *seen;
	CUstream stream;
	CUcontext context;
	uint32_t expected[SETTINGS], next;
} own;

static void open_program(void)
{
	size_t bytes = 0;

	if (getenv("FRMPS_TEST_MOVED_KERNELS"))
		setenv("FRMPS_TEST_KERNELS", getenv("FRMPS_TEST_MOVED_KERNELS"), 1);
	driver_open();
	ck_cuda(cuModuleGetGlobal_v2(&own.settings, &bytes, kernels(), "settings"));
	ck_assert_uint_eq(bytes, SETTINGS * 4);
	own.out = device_words(SETTINGS, 0);
	own.memory = device_words(SETTINGS, 0);
	ck_cuda(cuMemHostAlloc((void **)&own.pinned, SETTINGS * 4, 0));
	ck_cuda(cuMemHostAlloc((void **)&own.seen, SETTINGS * 4, 0));
	ck_cuda(cuStreamCreate(&own.stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuCtxGetCurrent(&own.context));
	memcpy(own.expected, (uint32_t[]){1, 2, 3}, 12);
	own.next = 100;
}

static CUdeviceptr place(uint32_t word)
{
	return own.settings + UINT64_C(4) * word;
}

/* Pinned words that are to be at some place; the device is done with them. */
static uint32_t *expect_words(uint32_t word, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		own.pinned[word + i] = own.expected[word + i] = own.next++;
	return own.pinned + word;
}

static uint32_t expect_value(uint32_t word, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		own.expected[word + i] = own.next;
	return own.next++;
}

static CUresult see_on(CUstream stream)
{
	void *arguments[] = {&own.out};
	CUresult error = launch("read_settings", 1, 1, stream, arguments);

	if (!error)
		error = cuMemcpyDtoHAsync_v2(own.seen, own.out, SETTINGS * 4, stream);
	return error ? error : cuStreamSynchronize(stream);
}

/* What kernels see, and what is at the address. */
static int look_on(CUstream stream)
{
	uint32_t there[SETTINGS];
	CUresult error = see_on(stream);

	if (!error)
		error = cuMemcpyDtoH_v2(there, own.settings, sizeof(there));
	if (error)
		return TOLD;
	return memcmp(own.seen, own.expected, sizeof(there)) || memcmp(there, own.expected, sizeof(there))
		       ? WRONG
		       : EXACT;
}

static int look(void)
{
	return look_on(own.stream);
}

/*
 * Ways to write there
 */

static void by_copy(void)
{
	ck_cuda(cuMemcpyHtoD_v2(place(0), expect_words(0, 4), 16));
}

static void by_async_copy(void)
{
	ck_cuda(cuMemcpyHtoDAsync_v2(place(4), expect_words(4, 4), 16, own.stream));
}

static void by_ordinary_copy(void)
{
	uint32_t words[4];

	memcpy(words, expect_words(8, 4), sizeof(words));
	ck_cuda(cuMemcpyHtoDAsync_v2(place(8), words, sizeof(words), own.stream));
}

static void by_set(void)
{
	ck_cuda(cuMemsetD32Async(place(12), expect_value(12, 3), 3, own.stream));
}

static void by_copy_on_device(void)
{
	ck_cuda(cuMemcpyHtoD_v2(own.memory, expect_words(16, 4), 16));
	ck_cuda(cuMemcpyDtoD_v2(place(16), own.memory, 16));
}

static void by_copy_of_any_kind(void)
{
	ck_cuda(cuMemcpy(place(20), (CUdeviceptr)(uintptr_t)expect_words(20, 4), 16));
}

static void by_peer_copy(void)
{
	ck_cuda(cuMemcpyHtoD_v2(own.memory, expect_words(24, 2), 8));
	ck_cuda(cuMemcpyPeerAsync(place(24), own.context, own.memory, own.context, 8, own.stream));
	ck_cuda(cuStreamSynchronize(own.stream));
}

static void by_batch(void)
{
	const uint64_t from = (uint64_t)(uintptr_t)expect_words(28, 4);
	CUdeviceptr to[] = {place(28), place(30)}, sources[] = {from, from + 8};
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes[] = {8, 8}, first = 0;

	ck_cuda(cuMemcpyBatchAsync_v2(to, sources, bytes, 2, &attributes, &first, 1, own.stream));
}

/* Two rows of two words each; what is between them belongs to the next one. */
static void by_box(void)
{
	uint32_t *first = expect_words(32, 2), *second = expect_words(36, 2);
	CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = own.pinned + 32,
		.srcPitch = 16,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = place(32),
		.dstPitch = 16,
		.WidthInBytes = 8,
		.Height = 2};

	ck_assert_ptr_eq(first + 4, second);
	ck_cuda(cuMemcpy2D_v2(&box));
}

static void by_set_of_rows(void)
{
	uint32_t value = expect_value(34, 2);

	own.next--;
	expect_value(38, 2);
	ck_cuda(cuMemsetD2D32_v2(place(34), 16, value, 2, 2));
}

static void by_word(void)
{
	ck_cuda(cuStreamWriteValue32_v2(own.stream, place(40), expect_value(40, 1), 0));
}

static void from_array(void)
{
	const CUDA_ARRAY_DESCRIPTOR form = {
		.Width = 4, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUarray array;

	ck_cuda(cuArrayCreate_v2(&array, &form));
	ck_cuda(cuMemcpyHtoA_v2(array, 0, expect_words(44, 4), 16));
	ck_cuda(cuMemcpyAtoD_v2(place(44), array, 0, 16));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuArrayDestroy(array));
}

/* A kernel that is given the address. */
static void by_kernel(void)
{
	CUdeviceptr word = place(41);
	uint32_t by = own.next++;
	void *arguments[] = {&word, &by};

	own.expected[41] += 2 * by;
	ck_cuda(launch("count_up", 2, 1, own.stream, arguments));
}

/* Two streams, one behind the other. */
static void on_another_stream(void)
{
	CUevent written;
	CUstream other;

	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuMemcpyHtoDAsync_v2(place(48), expect_words(48, 4), 16, other));
	ck_cuda(cuEventRecord(written, other));
	ck_cuda(cuStreamWaitEvent(own.stream, written, 0));
	ck_cuda(cuStreamDestroy_v2(other));
	ck_cuda(cuEventDestroy_v2(written));
}

/* Of a graph with a copy, a set and the kernel that reads what they wrote, and of one that was
 * captured. */
static CUgraphExec described, captured;
static CUgraphNode copy_node, set_node;
static CUgraph description;

static CUDA_MEMCPY3D graph_copy(uint32_t word, uint32_t count)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = own.pinned + word,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = place(word),
		.WidthInBytes = 4 * count,
		.Height = 1,
		.Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS graph_set(uint32_t word, uint32_t count, uint32_t value)
{
	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = place(word), .value = value, .elementSize = 4, .width = count, .height = 1};
}

static void run_described(void)
{
	memset(own.seen, 0, SETTINGS * 4);
	ck_cuda(cuMemsetD32_v2(own.out, 0, SETTINGS));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuGraphLaunch(described, own.stream));
	ck_cuda(cuStreamSynchronize(own.stream));
	/* What its own kernel saw. */
	ck_cuda(cuMemcpyDtoH_v2(own.seen, own.out, SETTINGS * 4));
	ck_assert_mem_eq(own.seen, own.expected, SETTINGS * 4);
}

static void describe_graph(void)
{
	void *arguments[] = {&own.out};
	CUDA_MEMCPY3D copy = graph_copy(52, 3);
	CUDA_MEMSET_NODE_PARAMS set = graph_set(56, 2, expect_value(56, 2));
	CUDA_KERNEL_NODE_PARAMS kernel_form = {.func = kernel("read_settings"),
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
	CUgraphNode reader;

	expect_words(52, 3);
	ck_cuda(cuGraphCreate(&description, 0));
	ck_cuda(cuGraphAddMemcpyNode(&copy_node, description, NULL, 0, &copy, own.context));
	ck_cuda(cuGraphAddMemsetNode(&set_node, description, &copy_node, 1, &set, own.context));
	ck_cuda(cuGraphAddKernelNode_v2(&reader, description, &set_node, 1, &kernel_form));
	ck_cuda(cuGraphInstantiateWithFlags(&described, description, 0));
}

static void by_graph(void)
{
	describe_graph();
	run_described();
}

/* The same executable graph writes elsewhere. */
static void by_changed_graph(void)
{
	CUDA_MEMCPY3D copy = graph_copy(53, 2);
	CUDA_MEMSET_NODE_PARAMS set = graph_set(57, 1, expect_value(57, 1));

	expect_words(53, 2);
	ck_cuda(cuGraphExecMemcpyNodeSetParams(described, copy_node, &copy, own.context));
	ck_cuda(cuGraphExecMemsetNodeSetParams(described, set_node, &set, own.context));
	run_described();
}

static void by_captured_copy(void)
{
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(own.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuMemcpyHtoDAsync_v2(place(60), expect_words(60, 4), 16, own.stream));
	ck_cuda(cuStreamEndCapture(own.stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&captured, graph, 0));
	ck_cuda(cuGraphLaunch(captured, own.stream));
	ck_cuda(cuGraphDestroy(graph));
}

/* A kernel of a graph that is given the address, and one behind it that reads. */
static void by_captured_kernel(void)
{
	CUdeviceptr word = place(42);
	uint32_t by = own.next++;
	void *adds[] = {&word, &by}, *reads[] = {&own.out};
	CUgraphExec exec;
	CUgraph graph;

	own.expected[42] += 2 * by;
	ck_cuda(cuStreamBeginCapture_v2(own.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(launch("count_up", 2, 1, own.stream, adds));
	ck_cuda(launch("read_settings", 1, 1, own.stream, reads));
	ck_cuda(cuStreamEndCapture(own.stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphLaunch(exec, own.stream));
	ck_cuda(cuStreamSynchronize(own.stream));
	ck_cuda(cuMemcpyDtoH_v2(own.seen, own.out, SETTINGS * 4));
	ck_assert_mem_eq(own.seen, own.expected, SETTINGS * 4);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
}

static void (*const ways[])(void) = {by_copy, by_async_copy, by_ordinary_copy, by_set, by_copy_on_device,
	by_copy_of_any_kind, by_peer_copy, by_batch, by_box, by_set_of_rows, by_word, by_kernel, from_array,
	on_another_stream, by_graph, by_changed_graph, by_captured_copy, by_captured_kernel};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

/* Each command, with a kernel right behind it. */
static int write_in_every_way(void)
{
	for (int i = 0; i < WAYS; i++) {
		ways[i]();
		if (look()) {
			fprintf(stderr, "way %d went wrong\n", i);
			return WRONG;
		}
	}
	return EXACT;
}

/* Writes in every way, waits for an order, and finds everything as it was, and the ways open. */
static int keeper(int progress, int orders)
{
	CUdeviceptr again;
	int end;

	setenv("FRMPS_RECOVERY", "fail", 1);
	open_program();
	end = look();
	if (!end)
		end = write_in_every_way();
	report(progress);
	ordered(orders, true);
	if (!end)
		end = look();
	ck_cuda(cuModuleGetGlobal_v2(&again, NULL, kernels(), "settings"));
	if (!end && again != own.settings)
		end = ELSEWHERE;
	/* The graph that was built for another executor. */
	if (!end) {
		run_described();
		ck_cuda(cuGraphLaunch(captured, own.stream));
		end = look();
	}
	ck_cuda(cuGraphExecDestroy(described));
	ck_cuda(cuGraphExecDestroy(captured));
	ck_cuda(cuGraphDestroy(description));
	return end ? end : write_in_every_way();
}

/* Asks where it is, and reads. */
static int asker(int progress, int orders)
{
	int end;

	setenv("FRMPS_RECOVERY", "fail", 1);
	open_program();
	end = look();
	report(progress);
	ordered(orders, true);
	return end ? end : look();
}

/* What a graph writes to may be somebody else's when its module is gone. */
static int unloader(int unused)
{
	CUdeviceptr settings;
	CUmodule module;
	void *image;

	(void)unused;
	open_program();
	image = read_file(getenv("FRMPS_TEST_KERNELS"));
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetGlobal_v2(&settings, NULL, module, "settings"));
	if (settings == own.settings)
		return ELSEWHERE;
	own.settings = settings;
	describe_graph();
	ck_cuda(cuGraphLaunch(described, own.stream));
	ck_cuda(cuStreamSynchronize(own.stream));
	ck_cuda(cuModuleUnload(module));
	return cuGraphLaunch(described, own.stream) ? TOLD : WRONG;
}

/* Writes word by word, and reads when that is done, over and over; what is cut is repeated. */
static int churner(int progress, int orders)
{
	CUresult error = CUDA_SUCCESS;
	bool fine = true;

	setenv("FRMPS_RECOVERY", "replay", 1);
	open_program();
	while (!error && fine && !ordered(orders, false)) {
		expect_words(0, SETTINGS);
		for (uint32_t i = 0; i < SETTINGS && !error; i++)
			error = cuMemcpyHtoDAsync_v2(place(i), own.pinned + i, 4, own.stream);
		if (!error)
			error = cuStreamSynchronize(own.stream);
		if (!error)
			error = see_on(own.stream);
		fine = error || !memcmp(own.seen, own.expected, SETTINGS * 4);
		report(progress);
	}
	if (error)
		return TOLD;
	return fine ? EXACT : WRONG;
}

static int culprit(int unused)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};

	(void)unused;
	driver_open();
	ck_cuda(launch("crash_write", 1, 1, NULL, arguments));
	return cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
}

/*
 * Tests
 */

static void expect_end(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), EXACT);
	ck_assert_int_eq(service_log_count(&service, "in its modules' variables"), 0);
	ck_assert_int_eq(service_log_count(&service, "has another address"), 0);
}

TEST(constants, kernels_read_what_is_written_in_any_way)
{
	struct child child = child_start(keeper);

	child_wait(&child, 1);
	expect_end(&child);
}

static child_function *const kinds[] = {keeper, asker};

TEST_LOOP(constants, constants_outlive_a_fault_that_is_contained, 0, 2)
{
	struct child child = child_start(kinds[_i]);

	child_wait(&child, 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
		status_await_faults(&service, i + 1);
	}
	expect_end(&child);
}

TEST_LOOP(constants, constants_outlive_their_executor, 0, 2)
{
	struct child child = child_start(kinds[_i]);

	child_wait(&child, 1);
	for (int i = 0; i < 2; i++) {
		kill(status_active(&service), SIGKILL);
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
	}
	expect_end(&child);
}

TEST(constants, a_graph_writes_to_no_module_that_is_gone)
{
	ck_assert_int_eq(exit_status(spawn(unloader, 0)), TOLD);
}

/* In the middle of it. */
TEST(constants, what_was_being_written_is_written_again)
{
	struct child child = child_start(churner);

	for (int i = 0; i < 3; i++) {
		child_drain(&child);
		child_wait(&child, 50);
		kill(status_active(&service), SIGKILL);
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
	}
	child_drain(&child);
	child_wait(&child, 50);
	expect_end(&child);
}

TEST(constants, who_has_asked_for_a_constant_can_be_moved)
{
	struct child child = child_start(keeper);
	char number[24], text[400], *answer = NULL;
	const char *argument = number;
	const struct wire_names arguments = {&argument, 1};

	child_wait(&child, 1);
	snprintf(number, sizeof(number), "%lld", status_session(&service, child.pid));
	ck_assert_msg(!ask_with(service.socket, "isolate", &arguments, 60, &answer, text, sizeof(text)), "%s",
		text);
	ck_assert_msg(strstr(answer, "\"moved\":true") || strstr(answer, "\"moved\": true"), "%s", answer);
	free(answer);
	expect_end(&child);
}

int main(void)
{
	Suite *suite = suite_create("constants");
	TCase *tests = tcase_create("constants");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "constants");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
