// Executable graphs that change: parameters of single nodes, a whole graph captured anew, what
// cannot be changed.
#include "check.h"

__global__ void scale(float *data, float factor, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] = data[i] * factor + 1;
}

__global__ void shift(float *data, float by, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] += by;
}

static cudaGraph_t capture(cudaStream_t stream, float *data, int steps, float factor, bool shifts, int count)
{
	cudaGraph_t graph;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < steps; i++)
		if (shifts)
			shift<<<16, 64, 0, stream>>>(data, factor, count);
		else
			scale<<<16, 64, 0, stream>>>(data, factor, count);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamEndCapture(stream, &graph));
	return graph;
}

int main()
{
	const int count = 5000;
	buffer<float> data(random_floats(count)), second(random_floats(count, 7));
	cudaStream_t stream;
	cudaGraphExec_t exec;
	cudaGraphExecUpdateResultInfo info;
	cudaGraphNode_t nodes[8];
	size_t room = 8;
	int whole = count;

	CHECK(cudaStreamCreate(&stream));
	cudaGraph_t graph = capture(stream, data, 3, 0.5f, false, count);
	CHECK(cudaGraphGetNodes(graph, nodes, &room));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	report("first", data.read());

	/* Launches that are on their way keep what they had. */
	for (int i = 0; i < 20; i++) {
		float factor = 0.9f + 0.01f * i, *where = i % 2 ? second.at : data.at;
		void *arguments[] = {&where, &factor, &whole};
		cudaKernelNodeParams params = {};

		params.func = (void *)scale;
		params.gridDim = dim3(i % 5 + 1);
		params.blockDim = dim3(32);
		params.kernelParams = arguments;
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[i % 3], &params));
	}
	CHECK(cudaGraphLaunch(exec, stream));
	report("single nodes", data.read());
	report("single nodes, elsewhere", second.read());

	for (int i = 0; i < 5; i++) {
		cudaGraph_t next = capture(stream, data, 3, 1.0f / (i + 1), false, count);
		CHECK(cudaGraphExecUpdate(exec, next, &info));
		CHECK(cudaGraphDestroy(next));
		CHECK(cudaGraphLaunch(exec, stream));
	}
	report("captured anew", data.read());

	cudaGraph_t longer = capture(stream, data, 4, 1, false, count);
	cudaError_t error = cudaGraphExecUpdate(exec, longer, &info);
	printf("longer: %s, %d\n", name_of(error), (int)info.result);
	cudaGetLastError();
	cudaGraph_t other = capture(stream, data, 3, 2, true, count);
	error = cudaGraphExecUpdate(exec, other, &info);
	printf("another kernel: %s, %d\n", name_of(error), (int)info.result);
	cudaGetLastError();
	CHECK(cudaGraphLaunch(exec, stream));
	report("at last", data.read());
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(other));
	CHECK(cudaGraphDestroy(longer));
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
