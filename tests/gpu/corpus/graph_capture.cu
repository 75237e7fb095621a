// Stream capture in each mode: what becomes a node, what is refused and how the capture ends then,
// replay.
#include "check.h"

__global__ void step(unsigned *words, unsigned round, int count)
{
	for (int i = threadIdx.x; i < count; i += blockDim.x)
		words[i] = words[i] * 1664525u + round;
}

static const char *status_of_stream(cudaStream_t stream)
{
	cudaStreamCaptureStatus status;

	CHECK(cudaStreamIsCapturing(stream, &status));
	return status == cudaStreamCaptureStatusNone ? "none"
	       : status == cudaStreamCaptureStatusActive ? "active"
							  : "invalidated";
}

/* A call that has no place in a capture. */
template <class F> static void refused(const char *label, cudaStream_t stream, cudaStreamCaptureMode mode, F call)
{
	cudaGraph_t graph = nullptr;

	CHECK(cudaStreamBeginCapture(stream, mode));
	cudaError_t error = call();
	printf("%s: %s, then %s", label, name_of(error), status_of_stream(stream));
	error = cudaStreamEndCapture(stream, &graph);
	printf(", end %s, %s\n", name_of(error), graph ? "a graph" : "no graph");
	if (graph)
		CHECK(cudaGraphDestroy(graph));
	cudaGetLastError();
}

int main()
{
	const int count = 4096;
	buffer<unsigned> words(random_words(count)), copy(count);
	std::vector<unsigned> host(count), source = random_words(count, 9);
	cudaStreamCaptureMode modes[] = {
		cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
	cudaStream_t stream, other, blocking;
	cudaEvent_t event, captured;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	void *p;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cudaStreamCreate(&blocking));
	CHECK(cudaEventCreate(&event));
	CHECK(cudaEventCreate(&captured));
	CHECK(cudaEventRecord(event, other));
	step<<<1, 128, 0, stream>>>(words, 1, count);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));

	for (auto mode : modes) {
		size_t nodes;

		CHECK(cudaStreamBeginCapture(stream, mode));
		CHECK(cudaMemcpyAsync(words, source.data(), words.bytes(), cudaMemcpyHostToDevice, stream));
		for (unsigned round = 0; round < 10; round++)
			step<<<1, 128, 0, stream>>>(words, round, count);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpyAsync(copy, words, words.bytes(), cudaMemcpyDeviceToDevice, stream));
		CHECK(cudaMemsetAsync(words, 0, words.bytes(), stream));
		CHECK(cudaMemcpyAsync(host.data(), copy, words.bytes(), cudaMemcpyDeviceToHost, stream));
		printf("%s", status_of_stream(stream));
		CHECK(cudaStreamEndCapture(stream, &graph));
		CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
		printf(", %zu nodes\n", nodes);
		CHECK(cudaGraphInstantiate(&exec, graph, 0));
		for (int replay = 0; replay < 3; replay++) {
			source[replay]++;
			CHECK(cudaGraphLaunch(exec, stream));
			CHECK(cudaStreamSynchronize(stream));
			report("replay", host);
		}
		CHECK(cudaGraphExecDestroy(exec));
		CHECK(cudaGraphDestroy(graph));
	}

	auto relaxed = cudaStreamCaptureModeRelaxed;
	refused("synchronize the stream", stream, relaxed, [&] { return cudaStreamSynchronize(stream); });
	refused("query the stream", stream, relaxed, [&] { return cudaStreamQuery(stream); });
	refused("synchronize the device", stream, relaxed, [&] { return cudaDeviceSynchronize(); });
	refused("wait for an event outside", stream, relaxed, [&] { return cudaStreamWaitEvent(stream, event, 0); });
	refused("query a captured event", stream, relaxed, [&] {
		CHECK(cudaEventRecord(captured, stream));
		return cudaEventQuery(captured);
	});
	refused("allocate, global", stream, cudaStreamCaptureModeGlobal, [&] { return cudaMalloc(&p, 1 << 20); });
	refused("allocate, relaxed", stream, relaxed, [&] { return cudaMalloc(&p, 1 << 20); });
	refused("query another event, global", stream, cudaStreamCaptureModeGlobal,
		[&] { return cudaEventQuery(event); });
	refused("query another stream, global", stream, cudaStreamCaptureModeGlobal,
		[&] { return cudaStreamQuery(other); });
	refused("legacy stream beside a blocking one", blocking, relaxed, [&] {
		return cudaMemsetAsync(copy, 0, 4, 0);
	});
	refused("begin twice", stream, relaxed, [&] { return cudaStreamBeginCapture(stream, relaxed); });
	refused("another stream not joined", stream, relaxed, [&] {
		CHECK(cudaEventRecord(captured, stream));
		CHECK(cudaStreamWaitEvent(other, captured, 0));
		return cudaMemsetAsync(copy, 0, 4, other);
	});
	printf("legacy stream: %s\n", name_of(cudaStreamBeginCapture(cudaStreamLegacy, relaxed)));
	printf("end without begin: %s\n", name_of(cudaStreamEndCapture(stream, &graph)));
	CHECK(cudaDeviceSynchronize());
	return 0;
}
