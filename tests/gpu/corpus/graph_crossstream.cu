// A capture over several streams that fork and join by events, its dependencies, and launches of
// one graph on several streams between other work.
#include "check.h"

__global__ void append(unsigned *hash, unsigned value)
{
	*hash = (*hash ^ value) * 16777619u;
}

__global__ void join(unsigned *to, const unsigned *a, const unsigned *b)
{
	*to = *to * 31 + *a * 7 + *b;
}

int main()
{
	const int branches = 4;
	buffer<unsigned> hashes(branches + 1);
	cudaStream_t streams[branches], third;
	cudaEvent_t fork, joined[branches];
	cudaStreamCaptureStatus status;
	cudaGraphExec_t exec;
	cudaGraph_t graph, into;
	const cudaGraphNode_t *nodes;
	unsigned long long id;
	size_t count;

	for (int i = 0; i < branches; i++) {
		CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming));
	}
	CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));

	CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
	append<<<1, 1, 0, streams[0]>>>(hashes + branches, 11);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(fork, streams[0]));
	for (int i = 1; i < branches; i++)
		CHECK(cudaStreamWaitEvent(streams[i], fork, 0));
	for (int i = 0; i < branches; i++)
		for (int j = 0; j <= i; j++)
			append<<<1, 1, 0, streams[i]>>>(hashes + i, 100 * i + j);
	CHECK(cudaGetLastError());
	for (int i = 1; i < branches; i++) {
		CHECK(cudaEventRecord(joined[i], streams[i]));
		CHECK(cudaStreamWaitEvent(streams[0], joined[i], 0));
	}
	CHECK(cudaStreamGetCaptureInfo(streams[0], &status, &id, &into, &nodes, nullptr, &count));
	printf("status %d, next node waits for %zu\n", (int)status, count);
	for (int i = 0; i + 1 < branches; i++)
		join<<<1, 1, 0, streams[0]>>>(hashes + branches, hashes + i, hashes + i + 1);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamIsCapturing(streams[1], &status));
	printf("joined stream %d", (int)status);
	CHECK(cudaStreamEndCapture(streams[0], &graph));
	CHECK(cudaStreamIsCapturing(streams[1], &status));
	printf(", afterwards %d, same graph %d\n", (int)status, graph == into);
	CHECK(cudaGraphGetNodes(graph, nullptr, &count));
	printf("nodes %zu", count);
	CHECK(cudaGraphGetRootNodes(graph, nullptr, &count));
	printf(", roots %zu", count);
	CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
	printf(", edges %zu\n", count);

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 8; i++) {
		/* Launches of one graph follow each other, whatever their streams. */
		CHECK(cudaGraphLaunch(exec, streams[i % branches]));
		CHECK(cudaEventRecord(joined[0], streams[i % branches]));
		CHECK(cudaStreamWaitEvent(third, joined[0], 0));
		append<<<1, 1, 0, third>>>(hashes + branches, i);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(fork, third));
		for (int j = 0; j < branches; j++)
			CHECK(cudaStreamWaitEvent(streams[j], fork, 0));
	}
	report("hashes", hashes.read());
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
