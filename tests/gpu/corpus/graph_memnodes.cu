// Memory of graphs: allocation and free nodes, stream-ordered memory that is captured, memory that
// outlives a launch.
#include "check.h"

__global__ void write(unsigned *words, unsigned seed, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		words[i] = i * 2654435761u + seed;
}

__global__ void fold(unsigned *out, const unsigned *words, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		out[i] ^= words[count - 1 - i];
}

static unsigned long long attribute(cudaGraphMemAttributeType which)
{
	unsigned long long value;

	CHECK(cudaDeviceGetGraphMemAttribute(0, which, &value));
	return value;
}

int main()
{
	const int count = 1 << 16;
	buffer<unsigned> out(count);
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	unsigned *a, *b;
	size_t nodes;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMallocAsync(&a, count * sizeof(unsigned), stream));
	write<<<32, 128, 0, stream>>>(a, 1, count);
	CHECK(cudaGetLastError());
	CHECK(cudaMallocAsync(&b, count * sizeof(unsigned), stream));
	CHECK(cudaMemcpyAsync(b, a, count * sizeof(unsigned), cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaFreeAsync(a, stream));
	fold<<<32, 128, 0, stream>>>(out, b, count);
	CHECK(cudaGetLastError());
	CHECK(cudaFreeAsync(b, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
	printf("nodes %zu, two addresses: %s\n", nodes, a && b && a != b ? "yes" : "no");
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		report("captured", out.read());
	}
	printf("used now: %s, used at most: %s\n", attribute(cudaGraphMemAttrUsedMemCurrent) ? "some" : "none",
		attribute(cudaGraphMemAttrUsedMemHigh) ? "some" : "none");
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));

	/* Not freed in the graph. */
	cudaGraphNode_t alloc;
	cudaMemAllocNodeParams params = {};
	params.poolProps.allocType = cudaMemAllocationTypePinned;
	params.poolProps.location.type = cudaMemLocationTypeDevice;
	params.bytesize = count * sizeof(unsigned);
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
	cudaMemsetParams set = {};
	set.dst = params.dptr;
	set.value = 0x55;
	set.elementSize = 1;
	set.width = params.bytesize;
	set.height = 1;
	cudaGraphNode_t fill;
	CHECK(cudaGraphAddMemsetNode(&fill, graph, &alloc, 1, &set));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 2; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		fold<<<32, 128, 0, stream>>>(out, (unsigned *)params.dptr, count);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamSynchronize(stream));
		report("outlives", out.read());
		printf("again while it is there: %s\n", name_of(cudaGraphLaunch(exec, stream)));
		cudaGetLastError();
		if (i == 0)
			CHECK(cudaFreeAsync(params.dptr, stream));
		else
			CHECK(cudaFree(params.dptr));
		CHECK(cudaStreamSynchronize(stream));
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaDeviceGraphMemTrim(0));
	printf("reserved at the end: %s\n", attribute(cudaGraphMemAttrReservedMemCurrent) ? "some" : "none");
	return 0;
}
