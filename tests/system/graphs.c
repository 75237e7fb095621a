// See graphs.h.

#include "tests/system/graphs.h"

#include <stdlib.h>

CUstream new_stream(void)
{
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

CUevent new_event(void)
{
	CUevent event;

	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

CUstreamCaptureStatus capture_status(CUstream stream)
{
	CUstreamCaptureStatus status;

	ck_cuda(cuStreamIsCapturing(stream, &status));
	return status;
}

CUresult count_up(CUstream stream, CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};

	return launch("count_up", 1, 1, stream, arguments);
}

CUresult fill(CUstream stream, CUdeviceptr out, uint32_t value, uint64_t count)
{
	void *arguments[] = {&out, &value, &count};

	return launch("fill", 4, 64, stream, arguments);
}

uint32_t word_at(CUdeviceptr address)
{
	uint32_t word;

	ck_cuda(cuMemcpyDtoH_v2(&word, address, sizeof(word)));
	return word;
}

void expect_words(CUdeviceptr address, uint32_t count, uint32_t value)
{
	uint32_t *words = malloc(count * sizeof(*words));

	ck_assert_ptr_nonnull(words);
	ck_cuda(cuMemcpyDtoH_v2(words, address, count * sizeof(*words)));
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(words[i], value);
	free(words);
}

CUDA_KERNEL_NODE_PARAMS kernel_params(const char *name, unsigned blocks, unsigned threads, void **arguments)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = kernel(name),
		.gridDimX = blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
}

CUgraphNode add_count(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params = kernel_params("count_up", 1, 1, arguments);
	CUgraphNode node;

	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, before, count, &params));
	return node;
}

CUgraphNode add_fill(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr out, uint32_t value)
{
	uint64_t words = WORDS;
	void *arguments[] = {&out, &value, &words};
	CUDA_KERNEL_NODE_PARAMS params = kernel_params("fill", 4, 64, arguments);
	CUgraphNode node;

	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, before, count, &params));
	return node;
}

CUgraphNode add_set(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr dst, uint32_t value)
{
	CUDA_MEMSET_NODE_PARAMS params = {.dst = dst,
		.value = value,
		.elementSize = 4,
		.width = WORDS,
		.height = 1,
		.pitch = WORDS * 4};
	CUgraphNode node;
	CUcontext context;

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphAddMemsetNode(&node, graph, before, count, &params, context));
	return node;
}

CUDA_MEMCPY3D copy_params(
	CUdeviceptr dst, CUdeviceptr src, void *dst_host, const void *src_host, size_t bytes)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = src_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.srcHost = src_host,
		.srcDevice = src,
		.srcPitch = bytes,
		.srcHeight = 1,
		.dstMemoryType = dst_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstHost = dst_host,
		.dstDevice = dst,
		.dstPitch = bytes,
		.dstHeight = 1,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1,
	};
}

CUgraphNode add_copy(CUgraph graph, const CUgraphNode *before, size_t count, CUDA_MEMCPY3D params)
{
	CUgraphNode node;
	CUcontext context;

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphAddMemcpyNode(&node, graph, before, count, &params, context));
	return node;
}

size_t node_count(CUgraph graph)
{
	size_t count = 0;

	ck_cuda(cuGraphGetNodes(graph, NULL, &count));
	return count;
}

CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

void run(CUgraphExec exec, CUstream stream)
{
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
}

void tell(void *user)
{
	struct told *told = user;

	told->seen[told->count++ % 4] = *told->word;
}

void end_broken(CUstream stream, CUresult expected)
{
	CUgraph graph = (CUgraph)(uintptr_t)1;

	ck_assert_int_eq(cuStreamEndCapture(stream, &graph), expected);
	ck_assert_ptr_null(graph);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}
