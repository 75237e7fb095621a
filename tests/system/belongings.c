// See belongings.h.

#include "tests/system/belongings.h"

#include <stdbool.h>
#include <stdlib.h>

#include "tests/system/program.h"

#define BIG_WORDS (UINT64_C(70) << 18) /* 70 MiB: more than is copied at a time */

uint32_t belongings_word(uint64_t i)
{
	return (uint32_t)(i * UINT64_C(2654435761) >> 7);
}

CUdeviceptr belongings_filled(uint64_t count)
{
	uint32_t *words = malloc(count * 4);
	CUdeviceptr memory;

	ck_assert_ptr_nonnull(words);
	for (uint64_t i = 0; i < count; i++)
		words[i] = belongings_word(i);
	ck_cuda(cuMemAlloc_v2(&memory, count * 4));
	ck_cuda(cuMemcpyHtoD_v2(memory, words, count * 4));
	free(words);
	return memory;
}

static CUresult is_whole(CUdeviceptr memory, uint64_t count, bool *ret_whole)
{
	uint32_t *words = malloc(count * 4);
	CUresult r = cuMemcpyDtoH_v2(words, memory, count * 4);

	for (uint64_t i = 0; !r && i < count; i++)
		*ret_whole &= words[i] == belongings_word(i);
	free(words);
	return r;
}

/* Words of host memory; another piece of it is mapped nowhere. */
static CUdeviceptr host_words(void)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	CUmemGenericAllocationHandle handle, spare;
	CUdeviceptr address;

	ck_cuda(cuMemCreate(&spare, 2 << 20, &properties, 0));
	ck_cuda(cuMemCreate(&handle, 2 << 20, &properties, 0));
	ck_cuda(cuMemAddressReserve(&address, 2 << 20, 0, 0, 0));
	ck_cuda(cuMemMap(address, 2 << 20, 0, handle, 0));
	return address;
}

void belongings_make(struct belongings *own)
{
	static uint32_t one = 1;
	CUgraphNode node;
	CUgraph graph;
	CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
	void *arguments[] = {&own->counter, &own->by}, *host_arguments[] = {&own->host, &one};

	own->big = belongings_filled(BIG_WORDS);
	own->second = belongings_filled(BIG_WORDS);
	own->small = belongings_filled(1000);
	own->counter = device_words(1, 0);
	own->host = host_words();
	own->counted = own->launched = 0;
	own->by = 1;
	params.func = kernel("count_up");
	params.blockDimX = params.blockDimY = params.blockDimZ = 1;
	params.kernelParams = arguments;
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&own->node, graph, NULL, 0, &params));
	own->params = params;
	params.kernelParams = host_arguments;
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	ck_cuda(cuGraphInstantiateWithFlags(&own->graph, graph, 0));
	ck_cuda(cuStreamCreate(&own->stream, CU_STREAM_NON_BLOCKING));
}

/* The graph counts by 1 and by 2 in turn. */
static CUresult change(struct belongings *own)
{
	void *arguments[] = {&own->counter, &own->by};

	own->by = 3 - own->by;
	own->params.kernelParams = arguments;
	return cuGraphExecKernelNodeSetParams_v2(own->graph, own->node, &own->params);
}

static CUresult launch_graph(struct belongings *own)
{
	own->counted += own->by;
	own->launched++;
	return cuGraphLaunch(own->graph, own->stream);
}

int belongings_use(struct belongings *own)
{
	uint32_t count = 0;
	bool whole = true;
	CUresult r = launch_graph(own);

	r = r ? r : cuStreamSynchronize(own->stream);
	r = r ? r : is_whole(own->big, BIG_WORDS, &whole);
	r = r ? r : is_whole(own->second, BIG_WORDS, &whole);
	r = r ? r : is_whole(own->small, 1000, &whole);
	r = r ? r : cuMemcpyDtoH_v2(&count, own->counter, 4);
	r = r ? r : change(own);
	if (r)
		return r == CUDA_ERROR_MPS_CLIENT_TERMINATED ? BELONGINGS_TAKEN : 3;
	return whole && count == own->counted && *(uint32_t *)(uintptr_t)own->host == own->launched ? 0 : 2;
}

int belongings_rounds;

int belongings_keeper(int progress, int orders)
{
	struct belongings own;
	int r;

	driver_open();
	belongings_make(&own);
	ck_cuda(cuCtxSynchronize());
	report(progress);
	for (int i = 0; i < belongings_rounds; i++) {
		ordered(orders, true);
		r = belongings_use(&own);
		if (r)
			return r;
		report(progress);
	}
	return 0;
}

int belongings_busy(int progress, int orders)
{
	struct belongings own;
	int r = 0;

	driver_open();
	belongings_make(&own);
	while (!r && !ordered(orders, false)) {
		for (int i = 0; i < 300; i++)
			ck_cuda(launch_graph(&own));
		r = belongings_use(&own);
		report(progress);
	}
	return r;
}

int array_keeper(int progress, int orders)
{
	const CUDA_ARRAY_DESCRIPTOR form = {64, 64, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	CUarray array;

	driver_open();
	ck_cuda(cuArrayCreate_v2(&array, &form));
	report(progress);
	ordered(orders, true);
	return cuArrayDestroy(array) ? 3 : 0;
}

int texture_keeper(int progress, int orders)
{
	const CUDA_TEXTURE_DESC texture = {0};
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
	CUtexObject object;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&resource.res.linear.devPtr, 4096));
	resource.res.linear.format = CU_AD_FORMAT_FLOAT;
	resource.res.linear.numChannels = 1;
	resource.res.linear.sizeInBytes = 4096;
	ck_cuda(cuTexObjectCreate(&object, &resource, &texture, NULL));
	report(progress);
	ordered(orders, true);
	return cuTexObjectDestroy(object) ? 3 : 0;
}

int held_tallier(int progress, int orders)
{
	setenv("FRMPS_TEST_KERNELS", getenv("FRMPS_TEST_HELD_KERNELS"), 1);
	return tallier(progress, orders);
}

int kernel_keeper(int progress, int orders)
{
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(launch_spin(word, 1, NULL));
	report(progress);
	ordered(orders, true);
	*(volatile uint32_t *)word = 1;
	return cuCtxSynchronize() ? 3 : 0;
}

struct child belongings_begin(child_function *function, int times)
{
	struct child child;

	belongings_rounds = times;
	child = child_start(function);
	child_wait(&child, 1);
	return child;
}
