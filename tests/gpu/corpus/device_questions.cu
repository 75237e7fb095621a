// Questions about a device and itself as a peer, execution affinity, atomics on host memory;
// retains over a reset; settings of a graph's kernel node that the runtime and the driver name
// differently.

#include "check.h"

__global__ void nothing(int)
{
}

static void ask_peers()
{
	int value;
	unsigned capability = 0;
	CUatomicOperation add = CU_ATOMIC_OPERATION_INTEGER_ADD;
	CUcontext current;

	for (int attribute = 1; attribute <= 5; attribute++)
		printf("attribute %d: %s\n", attribute,
			name_of(cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)attribute, 0, 0)));
	printf("atomics: %s\n", name_of(cuDeviceGetP2PAtomicCapabilities(&capability, &add, 1, 0, 0)));
	CHECK(cuCtxGetCurrent(&current));
	printf("enable: %s\n", name_of(cuCtxEnablePeerAccess(current, 0)));
	printf("enable with flags: %s\n", name_of(cuCtxEnablePeerAccess(current, 1)));
	printf("disable: %s\n", name_of(cuCtxDisablePeerAccess(current)));
	printf("of none: %s\n", name_of(cuCtxEnablePeerAccess(nullptr, 0)));
}

static void ask_device()
{
	CUexecAffinityParam affinity = {};
	CUatomicOperation operation = CU_ATOMIC_OPERATION_CAS;
	unsigned capability = 77;
	int processors;

	CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
	CHECK(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
	printf("affinity: %s\n", (int)affinity.param.smCount.val == processors ? "all" : "some");
	printf("of another kind: %s\n", name_of(cuCtxGetExecAffinity(&affinity, (CUexecAffinityType)7)));
	CHECK(cuDeviceGetHostAtomicCapabilities(&capability, &operation, 1, 0));
	printf("exchanges on host memory: %u\n", capability);
	printf("none asked for: %s\n",
		name_of(cuDeviceGetHostAtomicCapabilities(&capability, &operation, 0, 0)));
}

static void ask_graph()
{
	cudaGraph_t graph;
	cudaGraphNode_t node;
	cudaKernelNodeParams given = {}, seen;
	CUDA_KERNEL_NODE_PARAMS raw;
	int value = 1;
	void *arguments[] = {&value};

	given.func = (void *)nothing;
	given.gridDim = given.blockDim = dim3(1);
	given.kernelParams = arguments;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &given));
	CHECK(cudaGraphKernelNodeGetParams(node, &seen));
	CHECK(cuGraphKernelNodeGetParams(node, &raw));
	printf("node: %s, function %s, kernel %s\n", seen.func == (void *)nothing ? "the symbol" : "another",
		raw.func ? "told" : "not told", raw.kern ? "told" : "not told");
	CHECK(cudaGraphDestroy(graph));
}

static void count_retains()
{
	CUcontext context;
	unsigned flags;
	int active;

	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuDevicePrimaryCtxReset(0));
	CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	printf("after the reset: %s\n", active ? "active" : "inactive");
	CHECK(cuDevicePrimaryCtxRelease(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuCtxSynchronize());
}

int main()
{
	CHECK(cudaFree(nullptr));
	ask_peers();
	ask_device();
	ask_graph();
	count_retains();
	return 0;
}
