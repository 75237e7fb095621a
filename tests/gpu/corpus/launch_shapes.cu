// Kernels whose text demands shapes of launches: what is refused at the call, also in graphs and
// captures; their attributes and occupancy; grids that count clusters; the order of a module's list.

#include "check.h"

static const char text[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry any(.param .u64 out) { ret; }
.visible .entry one_size(.param .u64 out) .reqntid 32, 4, 1 { ret; }
.visible .entry bounded(.param .u64 out) .maxntid 100 { ret; }
.visible .entry own_clusters(.param .u64 out) .reqnctapercluster 2, 1, 1 { ret; }
.visible .entry small_clusters(.param .u64 out) .maxclusterrank 4 { ret; }
.visible .entry wants_clusters(.param .u64 out) .explicitcluster { ret; }
)";

static const char *const names[] = {
	"any", "one_size", "bounded", "own_clusters", "small_clusters", "wants_clusters"};

__global__ void __block_size__((64, 1, 1), (2, 1, 1)) in_clusters(unsigned *blocks)
{
	if (threadIdx.x == 0)
		atomicAdd(blocks, 1);
}

static CUdeviceptr out;
static void *arguments[] = {&out};

static CUlaunchAttribute clusters(unsigned x)
{
	CUlaunchAttribute attribute = {};

	attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attribute.value.clusterDim = {x, 1, 1};
	return attribute;
}

static CUresult launch(CUfunction function, unsigned blocks, dim3 block, unsigned cluster, CUstream stream)
{
	CUlaunchAttribute attribute = clusters(cluster);
	CUlaunchConfig config = {blocks, 1, 1, block.x, block.y, block.z, 0, stream, &attribute, cluster > 0};

	return cuLaunchKernelEx(&config, function, arguments, nullptr);
}

/* Return: how the capture ended */
static CUresult captured(CUfunction function, unsigned blocks, dim3 block, unsigned cluster, CUresult *result)
{
	CUstream stream;
	CUgraph graph = nullptr;
	CUresult end;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	*result = launch(function, blocks, block, cluster, stream);
	end = cuStreamEndCapture(stream, &graph);
	if (graph)
		CHECK(cuGraphDestroy(graph));
	CHECK(cuStreamDestroy(stream));
	return end;
}

static CUresult node(CUfunction function, unsigned blocks, dim3 block)
{
	CUDA_KERNEL_NODE_PARAMS params = {};
	CUgraphNode node;
	CUgraph graph;
	CUresult result;

	params.func = function;
	params.gridDimX = blocks;
	params.gridDimY = params.gridDimZ = 1;
	params.blockDimX = block.x;
	params.blockDimY = block.y;
	params.blockDimZ = block.z;
	params.kernelParams = arguments;
	CHECK(cuGraphCreate(&graph, 0));
	result = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
	CHECK(cuGraphDestroy(graph));
	return result;
}

static void show_launches(const char *name, CUfunction function)
{
	for (dim3 block : {dim3(1), dim3(32), dim3(100), dim3(101), dim3(128), dim3(32, 4), dim3(4, 32),
		     dim3(1024), dim3(1025)}) {
		CUresult direct = launch(function, 4, block, 0, nullptr), in_capture;
		CUresult end = captured(function, 4, block, 0, &in_capture);

		printf("%s, blocks of %u by %u: %s, captured %s and %s, as a node %s\n", name, block.x,
			block.y, name_of(direct), name_of(in_capture), name_of(end),
			name_of(node(function, 4, block)));
	}
	for (unsigned cluster : {1, 2, 3, 4, 8, 16}) {
		dim3 block = strcmp(name, "one_size") == 0 ? dim3(32, 4) : dim3(64);
		CUresult direct = launch(function, 48, block, cluster, nullptr), in_capture;
		CUresult end = captured(function, 48, block, cluster, &in_capture);

		printf("%s, clusters of %u: %s, captured %s and %s\n", name, cluster, name_of(direct),
			name_of(in_capture), name_of(end));
	}
	CHECK(cuCtxSynchronize());
}

static void show_facts(const char *name, CUfunction function)
{
	printf("%s:", name);
	for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
		int value = 0;

		CHECK(cuFuncGetAttribute(&value, (CUfunction_attribute)i, function));
		if (i == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
			i >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)
			printf(" %d", value);
	}
	printf("; fit:");
	for (int size : {32, 100, 101, 128, 256, 1024, 1025}) {
		int blocks = -1;

		CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, size, 0));
		printf(" %d", blocks);
	}
	printf("; clusters:");
	for (unsigned cluster : {0, 1, 2, 4, 8, 16}) {
		CUlaunchAttribute attribute = clusters(cluster);
		CUlaunchConfig config = {480, 1, 1, 64, 1, 1, 0, nullptr, &attribute, cluster > 0};
		int count = -1;
		CUresult result = cuOccupancyMaxActiveClusters(&count, function, &config);

		if (result == CUDA_SUCCESS)
			printf(" %d", count);
		else
			printf(" %s", name_of(result));
	}
	printf("; another width: %s\n",
		name_of(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4)));
}

static void show_order(CUmodule module)
{
	unsigned count;

	CHECK(cuModuleGetFunctionCount(&count, module));
	std::vector<CUfunction> functions(count);
	CHECK(cuModuleEnumerateFunctions(functions.data(), count, module));
	for (CUfunction function : functions) {
		const char *name;

		CHECK(cuFuncGetName(&name, function));
		printf("%s ", name);
	}
	printf("\n");
}

/* The runtime multiplies and divides by itself: so the driver is asked. */
static void show_grids(void)
{
	buffer<unsigned> blocks(std::vector<unsigned>(1, 0));
	CUdeviceptr word = (CUdeviceptr)(unsigned *)blocks;
	void *words[] = {&word};
	cudaFunction_t function;

	CHECK(cudaGetFuncBySymbol(&function, (const void *)in_clusters));
	for (unsigned size : {1, 3, 4}) {
		CUresult result = cuLaunchKernel(
			(CUfunction)function, size, 1, 1, 64, 1, 1, 0, nullptr, words, nullptr);

		CHECK(cuCtxSynchronize());
		printf("a grid of %u: %s, %u blocks so far\n", size, name_of(result), blocks.read()[0]);
	}
}

int main()
{
	CUmodule module;

	CHECK(cudaFree(nullptr));
	CHECK(cuMemAlloc(&out, 4096));
	CHECK(cuModuleLoadData(&module, text));
	for (const char *name : names) {
		CUfunction function;

		CHECK(cuModuleGetFunction(&function, module, name));
		show_launches(name, function);
		show_facts(name, function);
	}
	show_order(module);
	show_grids();
	return 0;
}
