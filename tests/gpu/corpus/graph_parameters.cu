// Kernels as graph nodes with parameters of all sizes, captured; then other parameters for the
// executable graph. And a kernel that needs the addresses of many variables.

#include "check.h"

template <int words> struct block {
	uint32_t word[words];
};

template <int words> __global__ void copy(block<words> in, uint32_t *out)
{
	for (int i = threadIdx.x; i < words; i += blockDim.x)
		out[i] = in.word[i] * 3 + 1;
}

template <int words> static void fill(block<words> *ret, uint32_t by)
{
	for (int i = 0; i < words; i++)
		ret->word[i] = by * 1000003u + i;
}

template <int words> static void expect(const buffer<uint32_t> &out, uint32_t by)
{
	std::vector<uint32_t> back = out.read();

	for (int i = 0; i < words; i++)
		EXPECT(back[i] == (by * 1000003u + i) * 3 + 1);
}

template <int words> static void run()
{
	buffer<uint32_t> out(words);
	block<words> in;
	uint32_t *at = out.at;
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaGraphNode_t node;
	size_t count = 1;
	void *arguments[] = {&in, &at};
	cudaKernelNodeParams params = {};

	CHECK(cudaStreamCreate(&stream));
	fill(&in, 1);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	copy<<<2, 128, 0, stream>>>(in, at);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	expect<words>(out, 1);
	CHECK(cudaGraphGetNodes(graph, &node, &count));
	for (uint32_t by = 2; by < 5; by++) {
		fill(&in, by);
		params.func = (void *)copy<words>;
		params.gridDim = dim3(2);
		params.blockDim = dim3(128);
		params.kernelParams = arguments;
		CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		expect<words>(out, by);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaStreamDestroy(stream));
	printf("%d words: right\n", words);
}

#define TEN(what, n)                                                                                         \
	what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7) what(n##8)   \
		what(n##9)
#define HUNDRED(what, n)                                                                                     \
	TEN(what, n##0)                                                                                      \
	TEN(what, n##1) TEN(what, n##2) TEN(what, n##3) TEN(what, n##4) TEN(what, n##5) TEN(what, n##6)      \
		TEN(what, n##7) TEN(what, n##8) TEN(what, n##9)
#define ALL(what)                                                                                            \
	HUNDRED(what, 1) HUNDRED(what, 2) HUNDRED(what, 3) HUNDRED(what, 4) HUNDRED(what, 5) HUNDRED(what, 6)
#define DEFINE(n) __device__ uint32_t variable_##n = n;
#define COUNT(n)  sum += atomicAdd(&variable_##n, 1);

ALL(DEFINE)

__global__ void count_all(uint32_t *out)
{
	uint32_t sum = 0;

	ALL(COUNT)
	*out = sum;
}

static void run_many()
{
	buffer<uint32_t> out(1);
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	uint32_t sum = 0;

	for (uint32_t n = 100; n < 700; n++)
		sum += n;
	CHECK(cudaStreamCreate(&stream));
	count_all<<<1, 1, 0, stream>>>(out);
	CHECK(cudaStreamSynchronize(stream));
	EXPECT(out.read()[0] == sum);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	count_all<<<1, 1, 0, stream>>>(out);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 1; i < 4; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		EXPECT(out.read()[0] == sum + 600 * i);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaStreamDestroy(stream));
	printf("600 variables: right\n");
}

int main()
{
	run_many();
	run<1>();
	run<10>();
	run<26>();
	run<58>();
	run<122>();
	run<250>();
	run<320>();
	run<1000>();
	run<1022>(); // with the pointer 4096 bytes
	run<1024>();
	run<4000>();
	run<8188>(); // with the pointer 32760 bytes
	return 0;
}
