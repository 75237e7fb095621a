// Cost of entering code in ordinary memory by a trampoline, and its growth with the bytes that a
// launch carries. For a device that runs the service's trampolines, natively: this measures the
// driver and the device, not the service.
//
//   trampolines
//
// The kernel reads its first parameter and ends. "direct" is that kernel as the driver loads it,
// with so many bytes of parameters; "entered" is the same code in memory, entered by a trampoline
// with as many bytes. "entered_SIZE_shared" may have all of the shared memory, as the service's
// trampolines may.
//
//   issue   a launch of a burst: its share of the time from the first call to the last end
//   wait    a launch and a wait for its end
//   mark    as executor and program wait: the device writes a word behind the kernel
//   node    a node of a graph that is a chain of such kernels
//   change  cost of a change of such a node to its caller
//   renew   a node of the chain, launched after changes of all nodes
//   load    the driver's time for a trampoline

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"
#include "server/backend/trampoline_image.h"

enum { ROUNDS = 400, BURST = 256, WAITS = 5000, NODES = 100, LOADED = 60 };

static const uint32_t sizes[] = {32, 64, 128, 256, 512, 1024, 4096, 32760};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* LDC.64 R2, c[0][0x210]; EXIT, once the load is done */
static const uint64_t body[] = {UINT64_C(0x00008400ff027b82), UINT64_C(0x000e300000000a00),
	UINT64_C(0x000000000000794d), UINT64_C(0x001fea0003800000)};

static CUstream stream;
static CUdeviceptr code;
static volatile uint32_t *word; /* in pinned memory */

/* A kernel and the parameters of its launches. */
struct entry {
	CUfunction function;
	size_t bytes;
	uint8_t carried[32768];
	void *extra[5];
};

static void carry(struct entry *entry, uint32_t bytes)
{
	entry->bytes = bytes;
	memcpy(entry->carried + bytes - sizeof(code), &code, sizeof(code));
	entry->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	entry->extra[1] = entry->carried;
	entry->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	entry->extra[3] = &entry->bytes;
	entry->extra[4] = CU_LAUNCH_PARAM_END;
}

static void launch(struct entry *entry)
{
	driver_check(cu.launch(entry->function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, entry->extra),
		"cuLaunchKernel");
}

static void synchronize(void)
{
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
}

static void print(struct samples *samples, const char *entry, const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", entry, what);
	samples_print(samples, name, "us");
	samples_deinit(samples);
}

static void measure_marks(const char *name, struct entry *entry)
{
	struct samples marks;

	samples_init(&marks, WAITS);
	for (uint32_t i = 1; i <= WAITS; i++) {
		uint64_t begin = now_ns();

		launch(entry);
		driver_check(cu.write32(stream, (CUdeviceptr)(uintptr_t)word, i, 0), "cuStreamWriteValue32");
		while (*word != i)
			;
		samples_add(&marks, (double)(now_ns() - begin) / 1000);
	}
	*word = 0;
	print(&marks, name, "mark");
}

static void measure_launches(const char *name, struct entry *entry)
{
	struct samples bursts, waits;

	samples_init(&bursts, ROUNDS);
	samples_init(&waits, WAITS);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t begin = now_ns();

		for (int j = 0; j < BURST; j++)
			launch(entry);
		synchronize();
		samples_add(&bursts, (double)(now_ns() - begin) / 1000 / BURST);
	}
	for (int i = 0; i < WAITS; i++) {
		uint64_t begin = now_ns();

		launch(entry);
		synchronize();
		samples_add(&waits, (double)(now_ns() - begin) / 1000);
	}
	print(&bursts, name, "issue");
	print(&waits, name, "wait");
}

/* ---- graphs ---- */

struct chain {
	CUgraphExec exec;
	CUgraphNode nodes[NODES];
};

static void make_chain(struct chain *chain, struct entry *entry)
{
	size_t count = NODES;
	CUgraph graph;

	driver_check(cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
	for (int i = 0; i < NODES; i++)
		launch(entry);
	driver_check(cu.capture_end(stream, &graph), "cuStreamEndCapture");
	driver_check(cu.graph_nodes(graph, chain->nodes, &count), "cuGraphGetNodes");
	driver_check(cu.graph_instantiate(&chain->exec, graph, 0), "cuGraphInstantiate");
}

static void change_all(struct chain *chain, struct entry *entry, uint64_t number)
{
	const CUDA_KERNEL_NODE_PARAMS params = {.func = entry->function,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
		.extra = entry->extra};

	memcpy(entry->carried, &number, sizeof(number));
	for (int i = 0; i < NODES; i++)
		driver_check(cu.graph_exec_set_kernel(chain->exec, chain->nodes[i], &params),
			"cuGraphExecKernelNodeSetParams");
}

static double launch_chain(const struct chain *chain)
{
	uint64_t begin = now_ns();

	driver_check(cu.graph_launch(chain->exec, stream), "cuGraphLaunch");
	synchronize();
	return (double)(now_ns() - begin) / 1000 / NODES;
}

static void measure_graph(const char *name, struct entry *entry)
{
	struct samples nodes, changes, renewed;
	static struct chain chain;

	make_chain(&chain, entry);
	samples_init(&nodes, ROUNDS);
	samples_init(&changes, ROUNDS);
	samples_init(&renewed, ROUNDS);
	for (int i = 0; i < ROUNDS; i++)
		samples_add(&nodes, launch_chain(&chain));
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t begin = now_ns();

		change_all(&chain, entry, (uint64_t)i);
		samples_add(&changes, (double)(now_ns() - begin) / 1000 / NODES);
		samples_add(&renewed, launch_chain(&chain));
	}
	print(&nodes, name, "node");
	print(&changes, name, "change");
	print(&renewed, name, "renew");
	driver_check(cu.graph_exec_destroy(chain.exec), "cuGraphExecDestroy");
}

/* ---- images ---- */

/* Replaces the trampoline's code by the kernel's, which begins with the only instruction that reads
 * the last of so many bytes. */
static void make_direct(uint8_t *image, size_t bytes, uint32_t carried)
{
	const uint64_t first[] = {(uint64_t)(0x210 + carried - 8) << 38 | UINT64_C(0xff027b82), body[1]};
	uint8_t *at = memmem(image, bytes, first, sizeof(first));

	if (!at)
		abort();
	memcpy(at, body, sizeof(body));
}

static CUmodule load(const uint8_t *image)
{
	CUmodule module;

	driver_check(cu.module_load(&module, image), "cuModuleLoadData");
	return module;
}

static void measure(uint32_t bytes, bool direct, bool shared)
{
	const struct trampoline_class class = {24, 1, bytes};
	const struct trampoline_form form = {.classes = &class, .count = 1};
	struct entry *entry = calloc(1, sizeof(*entry));
	char kernel[TRAMPOLINE_NAME_BYTES], name[40];
	size_t count;
	uint8_t *image = trampoline_image(&form, &count);

	if (!entry || !image)
		abort();
	if (direct)
		make_direct(image, count, bytes);
	trampoline_name(&class, kernel);
	entry->function = driver_function(load(image), kernel);
	free(image);
	if (shared)
		driver_check(cu.function_set(entry->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				     227 * 1024),
			"cuFuncSetAttribute");
	carry(entry, bytes);
	snprintf(
		name, sizeof(name), "%s_%u%s", direct ? "direct" : "entered", bytes, shared ? "_shared" : "");
	measure_launches(name, entry);
	measure_marks(name, entry);
	measure_graph(name, entry);
	free(entry);
}

/* Twice as many as a set of the service has of a size. */
static void measure_load(void)
{
	struct trampoline_class classes[LOADED];
	const struct trampoline_form form = {.classes = classes, .count = LOADED};
	char kernel[TRAMPOLINE_NAME_BYTES];
	struct samples samples;

	for (uint32_t i = 0; i < LOADED; i++)
		classes[i] = (struct trampoline_class){24 + 8 * (i % 28), 1 + i / 28, 64};
	samples_init(&samples, 20);
	for (int i = 0; i < 20; i++) {
		uint64_t begin = now_ns();
		size_t bytes;
		uint8_t *image = trampoline_image(&form, &bytes);
		CUmodule module;

		if (!image)
			abort();
		module = load(image);
		for (uint32_t j = 0; j < LOADED; j++) {
			trampoline_name(&classes[j], kernel);
			driver_function(module, kernel);
		}
		samples_add(&samples, (double)(now_ns() - begin) / 1000 / LOADED);
		free(image);
		driver_check(cu.module_unload(module), "cuModuleUnload");
	}
	print(&samples, "trampoline", "load");
}

int main(void)
{
	driver_open();
	driver_check(cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(cu.alloc(&code, 4096), "cuMemAlloc");
	driver_check(cu.host_alloc((void **)(uintptr_t)&word, 4096, 0), "cuMemHostAlloc");
	driver_check(cu.htod(code, body, sizeof(body)), "cuMemcpyHtoD");
	measure(32, true, false);
	measure(256, true, false);
	measure(4096, true, false);
	for (uint32_t i = 0; i < SIZES; i++)
		measure(sizes[i], false, false);
	measure(256, false, true);
	measure_load();
	return 0;
}
