// Constants that are written in every way there is, and read by kernels right behind, while another
// process faults: values and addresses stay, and what is written afterwards arrives as before.

// alone: it faults on purpose

#include "beside.h"

#include <thread>

__constant__ unsigned scale = 3;
__constant__ unsigned table[8] = {11, 12, 13};
static __constant__ float ratio = 0.5f;
__device__ unsigned pointed = 7;
__constant__ unsigned *pointer = &pointed;

__global__ void use(unsigned *out)
{
	for (int i = 0; i < 8; i++)
		out[i] = scale * table[i] + (unsigned)(8 * ratio) + *pointer;
}

__global__ void count()
{
	++*pointer;
}

static void write_directly(unsigned by, cudaStream_t stream)
{
	unsigned words[2] = {by, by + 1};
	float half = 0.25f * by;
	void *at;
	buffer<unsigned> from(2);

	CHECK(cudaMemcpyToSymbol(scale, &by, sizeof(by)));
	CHECK(cudaMemcpyToSymbolAsync(table, words, sizeof(words), 0, cudaMemcpyHostToDevice, stream));
	CHECK(cudaMemcpy(from, words, sizeof(words), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpyToSymbolAsync(table, from, sizeof(words), 8, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaGetSymbolAddress(&at, table));
	CHECK(cudaMemsetAsync(static_cast<unsigned *>(at) + 4, (int)by, 4, stream));
	CHECK(cudaMemcpyToSymbol(ratio, &half, sizeof(half)));
	CHECK(cudaStreamSynchronize(stream));
}

/* A graph that writes to two places and reads them. */
static cudaGraphExec_t describe(unsigned *from, unsigned *out)
{
	void *arguments[] = {&out};
	cudaKernelNodeParams reader = {};
	cudaGraphNode_t first, second, third;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemcpyNodeToSymbol(&first, graph, nullptr, 0, table, from, 4, 20, cudaMemcpyHostToDevice));
	CHECK(cudaGraphAddMemcpyNodeToSymbol(
		&second, graph, &first, 1, table, from + 1, 4, 24, cudaMemcpyHostToDevice));
	reader.func = reinterpret_cast<void *>(use);
	reader.gridDim = reader.blockDim = dim3(1);
	reader.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&third, graph, &second, 1, &reader));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

/* One that was captured. */
static cudaGraphExec_t capture(unsigned *from, cudaStream_t stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	CHECK(cudaMemcpyToSymbolAsync(table, from + 2, 4, 28, cudaMemcpyHostToDevice, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

int main()
{
	culprit other;
	void *at, *later;
	unsigned *from;

	buffer<unsigned> out(8);
	cudaStream_t stream;
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMallocHost(&from, 12));
	CHECK(cudaGetSymbolAddress(&at, table));
	use<<<1, 1, 0, stream>>>(out);
	CHECK(cudaStreamSynchronize(stream));
	report("first", out.read());
	write_directly(4, stream);
	cudaGraphExec_t graph = describe(from, out), captured = capture(from, stream);
	for (unsigned i = 0; i < 300; i++) {
		if (i % 50 == 49)
			write_directly(i, stream);
		from[0] = i;
		from[1] = i + 1;
		from[2] = i + 2;
		CHECK(cudaGraphLaunch(captured, stream));
		CHECK(cudaGraphLaunch(graph, stream));
		std::vector<unsigned> seen = out.read();
		EXPECT(seen[6] - seen[5] == seen[7] - seen[6]);
		count<<<1, 1, 0, stream>>>();
		CHECK(cudaGetLastError());
		if (i == 100)
			other.go();
		/* What follows a fault takes some seconds. */
		if (i > 100)
			std::this_thread::sleep_for(std::chrono::milliseconds(25));
	}
	use<<<1, 1, 0, stream>>>(out);
	CHECK(cudaStreamSynchronize(stream));
	report("kept", out.read());
	CHECK(cudaGetSymbolAddress(&later, table));
	printf("the address stays: %d\n", at == later);
	other.report_end();
	return 0;
}
