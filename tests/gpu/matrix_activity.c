// See matrix_activity.h.

#include "tests/gpu/matrix_activity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS	(UINT32_C(1) << 18) /* of what is copied or allocated */
#define CELLS	1024u		    /* of what a kernel of a new module writes */
#define THREADS 128u
#define CLUSTER 2u /* blocks */

static struct {
	bool (*round)(struct trouble *trouble, char *wrong);
	void *image; /* of the module */
	CUstream stream;
	CUdeviceptr here, there;
	uint32_t *out, *back; /* pinned */
	uint32_t rounds;
	uint64_t longest_ns;
} activity;

bool failed(struct trouble *trouble, CUresult code, const char *call)
{
	if (code != CUDA_SUCCESS && trouble->code == CUDA_SUCCESS)
		*trouble = (struct trouble){.code = code, .call = call};
	return code != CUDA_SUCCESS;
}

/*
 * Launches
 */

bool launch_form_of(const char *name, enum launch_form *ret_form)
{
	static const char *const names[] = {[LAUNCH_PLAIN] = "plain",
		[LAUNCH_COOPERATIVE] = "cooperative",
		[LAUNCH_CLUSTERS] = "clusters",
		[LAUNCH_GRAPH] = "graph"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (name && strcmp(names[i], name) == 0) {
			*ret_form = i;
			return true;
		}
	return false;
}

static CUresult launch_clusters(
	CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream, void **arguments)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {CLUSTER, 1, 1}};
	CUlaunchConfig config = {.gridDimX = blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = &attribute,
		.numAttrs = 1};

	return cu.launch_ex(&config, kernel, arguments, NULL);
}

static bool launch_graph(CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
	void **arguments, struct trouble *trouble)
{
	CUgraph graph;
	CUgraphExec exec;
	bool launched;

	if (failed(trouble, cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
		    "cuStreamBeginCapture"))
		return false;
	launched = !failed(trouble,
		cu.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
	if (failed(trouble, cu.capture_end(stream, &graph), "cuStreamEndCapture"))
		return false;
	if (launched && !failed(trouble, cu.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate")) {
		launched = !failed(trouble, cu.graph_launch(exec, stream), "cuGraphLaunch");
		/* It is destroyed when it has ended. */
		failed(trouble, cu.graph_exec_destroy(exec), "cuGraphExecDestroy");
	}
	failed(trouble, cu.graph_destroy(graph), "cuGraphDestroy");
	return launched && !trouble->code;
}

bool launch_as(enum launch_form form, CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
	void **arguments, struct trouble *trouble)
{
	switch (form) {
	case LAUNCH_GRAPH:
		return launch_graph(kernel, blocks, threads, stream, arguments, trouble);
	case LAUNCH_COOPERATIVE:
		return !failed(trouble,
			cu.launch_cooperative(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments),
			"cuLaunchCooperativeKernel");
	case LAUNCH_CLUSTERS:
		return !failed(trouble, launch_clusters(kernel, blocks, threads, stream, arguments),
			"cuLaunchKernelEx");
	case LAUNCH_PLAIN:
		break;
	}
	return !failed(trouble, cu.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL),
		"cuLaunchKernel");
}

/*
 * Activities
 */

static uint32_t word(uint32_t position)
{
	uint32_t x = position + activity.rounds * UINT32_C(2654435761);

	return x ^ x << 7 ^ x >> 9;
}

/* The kernel overwrite_cells does it in each cell. */
static uint32_t overwritten(uint32_t input, uint32_t round, uint32_t position)
{
	uint32_t x = input + round * UINT32_C(2654435761) + position;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static void found(const char *what, uint32_t position, uint32_t value, uint32_t expected, char *wrong)
{
	if (value != expected && !*wrong)
		snprintf(wrong, 96, "%s[%u] is %#x, not %#x", what, position, value, expected);
}

static bool use_module(CUmodule module, struct trouble *trouble, char *wrong)
{
	uint32_t count = CELLS, round = activity.rounds;
	uint64_t ns = 0;
	void *arguments[] = {&activity.there, &activity.here, &activity.here, &count, &round, &ns};
	CUfunction kernel;

	if (failed(trouble, cu.function(&kernel, module, "overwrite_cells"), "cuModuleGetFunction") ||
		failed(trouble,
			cu.launch(kernel, CELLS / THREADS, 1, 1, THREADS, 1, 1, 0, activity.stream, arguments,
				NULL),
			"cuLaunchKernel") ||
		failed(trouble,
			cu.dtoh_async(
				activity.back, activity.there, CELLS * sizeof(uint32_t), activity.stream),
			"cuMemcpyDtoHAsync") ||
		failed(trouble, cu.stream_sync(activity.stream), "cuStreamSynchronize"))
		return false;
	for (uint32_t i = 0; i < CELLS; i++)
		found("module", i, activity.back[i], overwritten(activity.out[i], round, i), wrong);
	return true;
}

static bool modules_round(struct trouble *trouble, char *wrong)
{
	CUmodule module;

	if (failed(trouble, cu.module_load(&module, activity.image), "cuModuleLoadData") ||
		!use_module(module, trouble, wrong))
		return false;
	return !failed(trouble, cu.module_unload(module), "cuModuleUnload");
}

static bool memory_round(struct trouble *trouble, char *wrong)
{
	uint32_t value = word(0), ends[2] = {0};
	CUdeviceptr memory;
	CUstream stream;

	if (failed(trouble, cu.alloc(&memory, WORDS * sizeof(uint32_t)), "cuMemAlloc") ||
		failed(trouble, cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate") ||
		failed(trouble, cu.set32_async(memory, value, WORDS, stream), "cuMemsetD32Async") ||
		failed(trouble, cu.stream_sync(stream), "cuStreamSynchronize") ||
		failed(trouble, cu.dtoh(&ends[0], memory, sizeof(uint32_t)), "cuMemcpyDtoH") ||
		failed(trouble, cu.dtoh(&ends[1], memory + (WORDS - 1) * sizeof(uint32_t), sizeof(uint32_t)),
			"cuMemcpyDtoH") ||
		failed(trouble, cu.stream_destroy(stream), "cuStreamDestroy") ||
		failed(trouble, cu.free(memory), "cuMemFree"))
		return false;
	for (uint32_t i = 0; i < 2; i++)
		found("allocation", i, ends[i], value, wrong);
	return true;
}

static bool copies_round(struct trouble *trouble, char *wrong)
{
	const size_t bytes = WORDS * sizeof(uint32_t);

	for (uint32_t i = 0; i < WORDS; i += 64)
		activity.out[i] = word(i);
	if (failed(trouble, cu.htod_async(activity.here, activity.out, bytes, activity.stream),
		    "cuMemcpyHtoDAsync") ||
		failed(trouble, cu.dtod_async(activity.there, activity.here, bytes, activity.stream),
			"cuMemcpyDtoDAsync") ||
		failed(trouble, cu.dtoh_async(activity.back, activity.there, bytes, activity.stream),
			"cuMemcpyDtoHAsync") ||
		failed(trouble, cu.stream_sync(activity.stream), "cuStreamSynchronize"))
		return false;
	for (uint32_t i = 0; i < WORDS; i++)
		found("copy", i, activity.back[i], activity.out[i], wrong);
	return true;
}

bool activity_open(const char *name)
{
	const size_t bytes = WORDS * sizeof(uint32_t);

	activity.round = strcmp(name, "modules") == 0  ? modules_round
			 : strcmp(name, "memory") == 0 ? memory_round
			 : strcmp(name, "copies") == 0 ? copies_round
						       : NULL;
	if (!activity.round)
		return false;
	activity.image = driver_read_file(getenv("FRMPS_BENCH_MODULE"));
	driver_check(cu.stream_create(&activity.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(cu.host_alloc((void **)&activity.out, bytes, 0), "cuMemHostAlloc");
	driver_check(cu.host_alloc((void **)&activity.back, bytes, 0), "cuMemHostAlloc");
	driver_check(cu.alloc(&activity.here, bytes), "cuMemAlloc");
	driver_check(cu.alloc(&activity.there, bytes), "cuMemAlloc");
	for (uint32_t i = 0; i < WORDS; i++)
		activity.out[i] = word(i);
	driver_check(cu.htod(activity.here, activity.out, bytes), "cuMemcpyHtoD");
	return true;
}

bool activity_round(struct trouble *trouble, char *wrong)
{
	uint64_t begin = now_ns(), took;
	bool done;

	if (!activity.round)
		return true;
	done = activity.round(trouble, wrong);
	took = now_ns() - begin;
	if (took > activity.longest_ns)
		activity.longest_ns = took;
	activity.rounds++;
	return done;
}

uint64_t activity_longest_ns(void)
{
	return activity.longest_ns;
}

void activity_forget(void)
{
	activity.longest_ns = 0;
}
