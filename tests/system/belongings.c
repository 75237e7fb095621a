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
	void *arguments[] = {&own->counter, &one}, *host_arguments[] = {&own->host, &one};

	own->big = belongings_filled(BIG_WORDS);
	own->second = belongings_filled(BIG_WORDS);
	own->small = belongings_filled(1000);
	own->counter = device_words(1, 0);
	own->host = host_words();
	own->counted = 0;
	params.func = kernel("count_up");
	params.blockDimX = params.blockDimY = params.blockDimZ = 1;
	params.kernelParams = arguments;
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	params.kernelParams = host_arguments;
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	ck_cuda(cuGraphInstantiateWithFlags(&own->graph, graph, 0));
	ck_cuda(cuStreamCreate(&own->stream, CU_STREAM_NON_BLOCKING));
}

int belongings_use(struct belongings *own)
{
	uint32_t count = 0;
	bool whole = true;
	CUresult r = cuGraphLaunch(own->graph, own->stream);

	r = r ? r : cuStreamSynchronize(own->stream);
	r = r ? r : is_whole(own->big, BIG_WORDS, &whole);
	r = r ? r : is_whole(own->second, BIG_WORDS, &whole);
	r = r ? r : is_whole(own->small, 1000, &whole);
	r = r ? r : cuMemcpyDtoH_v2(&count, own->counter, 4);
	own->counted++;
	if (r)
		return r == CUDA_ERROR_MPS_CLIENT_TERMINATED ? BELONGINGS_TAKEN : 3;
	return whole && count == own->counted && *(uint32_t *)(uintptr_t)own->host == own->counted ? 0 : 2;
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
