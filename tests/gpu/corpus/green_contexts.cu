// Green contexts with the runtime: kernels run on the multiprocessors of their context, which programs
// split again and again, make current, capture in, and wait for.

#include "check.h"

#include <cuda.h>

__global__ void mark(unsigned *out)
{
	long long begin = clock64();
	unsigned sm;

	while (clock64() - begin < 100000)
		;
	asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
	if (threadIdx.x == 0)
		out[sm] = 1;
}

static unsigned *marks;

static int count_marks()
{
	static unsigned seen[1024];
	int count = 0;

	CHECK(cudaMemcpy(seen, marks, sizeof(seen), cudaMemcpyDeviceToHost));
	for (unsigned each : seen)
		count += each;
	return count;
}

static int count(cudaStream_t stream)
{
	CHECK(cudaMemsetAsync(marks, 0, 4096, stream));
	mark<<<4096, 32, 0, stream>>>(marks);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));
	return count_marks();
}

static CUgreenCtx make(CUdevResource *resource)
{
	CUdevResourceDesc description;
	CUgreenCtx green;

	CHECK(cuDevResourceGenerateDesc(&description, resource, 1));
	CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* Splits what is left again and again, each time through a green context. */
static void split_in_turn()
{
	const unsigned sizes[] = {8, 16, 32};
	CUdevResource left, piece, rest;

	CHECK(cuDeviceGetDevResource(0, &left, CU_DEV_RESOURCE_TYPE_SM));
	for (unsigned size : sizes) {
		unsigned groups = 1;
		CUstream stream;

		CHECK(cuDevSmResourceSplitByCount(&piece, &groups, &left, &rest, 0, size));
		CHECK(cuGreenCtxStreamCreate(&stream, make(&piece), CU_STREAM_NON_BLOCKING, 0));
		printf("of %u: %u, runs on %d, and %u are left\n", left.sm.smCount, piece.sm.smCount,
			count(stream), rest.sm.smCount);
		CHECK(cuGreenCtxGetDevResource(make(&rest), &left, CU_DEV_RESOURCE_TYPE_SM));
	}
}

__global__ void wait_a_while(long long clocks)
{
	long long begin = clock64();

	while (clock64() - begin < clocks)
		;
}

/* The runtime's calls go to the context that is current; it waits for the whole device. */
static void make_current(CUgreenCtx green)
{
	CUcontext context;
	cudaStream_t made, other, outside;
	cudaEvent_t event;
	unsigned *memory;
	int device = -1;

	CHECK(cuCtxFromGreenCtx(&context, green));
	CHECK(cuCtxPushCurrent(context));
	CHECK(cudaGetDevice(&device));
	CHECK(cudaStreamCreate(&made));
	printf("device %d, default stream %d, a stream made here %d\n", device, count(0), count(made));
	CHECK(cudaMalloc(&memory, 4096));
	CHECK(cudaMemset(memory, 1, 4096));
	CHECK(cudaEventCreate(&event));
	CHECK(cudaEventRecord(event, 0));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cuCtxPopCurrent(nullptr));
	CHECK(cudaStreamCreateWithFlags(&outside, cudaStreamNonBlocking));
	wait_a_while<<<1, 1, 0, outside>>>(100000000);
	CHECK(cuCtxPushCurrent(context));
	wait_a_while<<<1, 1, 0, other>>>(100000000);
	CHECK(cudaDeviceSynchronize());
	printf("synchronised: %s, %s\n", name_of(cudaStreamQuery(outside)), name_of(cudaStreamQuery(other)));
	CHECK(cuCtxPopCurrent(nullptr));
	CHECK(cudaStreamWaitEvent(0, event, 0));
	CHECK(cudaStreamSynchronize(0));
	CHECK(cudaFree(memory));
	printf("afterwards %d\n", count(0));
}

static void capture(CUgreenCtx green)
{
	CUstream stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	mark<<<4096, 32, 0, stream>>>(marks);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaMemset(marks, 0, 4096));
	CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaDeviceSynchronize());
	printf("captured: %d\n", count_marks());
}

int main()
{
	CUdevResource all, piece;
	unsigned groups = 1;
	CUgreenCtx green;

	CHECK(cudaMalloc(&marks, 4096));
	printf("everywhere: %d\n", count(0));
	split_in_turn();
	CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(cuDevSmResourceSplitByCount(&piece, &groups, &all, nullptr, 0, 24));
	green = make(&piece);
	make_current(green);
	capture(green);
	CHECK(cuGreenCtxDestroy(green));
	printf("at last %d\n", count(0));
	return 0;
}
