// The handles that stand for streams without being any: zero, legacy and per-thread, in every call
// that takes a stream.

#include "check.h"

__global__ void bump(int *word)
{
	atomicAdd(word, 1);
}

static void CUDART_CB count(void *argument)
{
	++*(int *)argument;
}

int main()
{
	const struct {
		const char *label;
		cudaStream_t stream;
	} cases[] = {{"zero", nullptr}, {"legacy", cudaStreamLegacy}, {"per thread", cudaStreamPerThread}};
	buffer<int> words(4);
	cudaEvent_t event;
	int calls = 0;

	CHECK(cudaEventCreate(&event));
	for (auto &each : cases) {
		int value = 0, priority, back = 0;
		unsigned flags;
		void *pooled;
		cudaStreamCaptureStatus capture;
		unsigned long long id;

		bump<<<1, 32, 0, each.stream>>>(words);
		CHECK(cudaGetLastError());
		CHECK(cudaMemsetAsync(words + 1, 1, 4, each.stream));
		CHECK(cudaMemcpyAsync(words + 2, words, 4, cudaMemcpyDeviceToDevice, each.stream));
		CHECK(cudaMemcpyAsync(&back, words + 2, 4, cudaMemcpyDeviceToHost, each.stream));
		CHECK(cudaMallocAsync(&pooled, 1000, each.stream));
		CHECK(cudaFreeAsync(pooled, each.stream));
		CHECK(cudaEventRecord(event, each.stream));
		CHECK(cudaStreamWaitEvent(each.stream, event, 0));
		CHECK(cudaLaunchHostFunc(each.stream, count, &calls));
		CHECK(cudaStreamSynchronize(each.stream));
		CHECK(cudaStreamQuery(each.stream));
		CHECK(cudaStreamGetFlags(each.stream, &flags));
		CHECK(cudaStreamGetPriority(each.stream, &priority));
		CHECK(cudaStreamIsCapturing(each.stream, &capture));
		CHECK(cudaStreamGetDevice(each.stream, &value));
		CHECK(cudaStreamGetId(each.stream, &id));
		printf("%s: value %d, flags %u, priority %d, capture %d, device %d\n", each.label, back,
			flags, priority, (int)capture, value);
	}
	printf("calls %d\n", calls);
	printf("destroy zero: %s\n", name_of(cudaStreamDestroy(nullptr)));
	printf("last: %s\n", name_of(cudaGetLastError()));
	return 0;
}
