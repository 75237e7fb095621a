// Tens of thousands of empty launches: in one stream, in many, with an event or a wait between,
// without parameters.

#include "check.h"

__global__ void nothing()
{
}

__global__ void bump(unsigned *word)
{
	++*word;
}

int main()
{
	const int streams = 16;
	cudaStream_t stream[streams];
	cudaEvent_t event;
	buffer<unsigned> words(streams);

	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	for (auto &each : stream)
		CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
	for (int i = 0; i < 20000; i++)
		nothing<<<1, 1>>>();
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < 32000; i++)
		bump<<<1, 1, 0, stream[i % streams]>>>(words + i % streams);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	for (unsigned word : words.read())
		EXPECT(word == 2000);
	for (int i = 0; i < 2000; i++) {
		bump<<<1, 1, 0, stream[0]>>>(words);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(event, stream[0]));
		if (i % 4 == 0)
			CHECK(cudaEventSynchronize(event));
	}
	for (int i = 0; i < 500; i++) {
		nothing<<<1024, 1024, 0, stream[i % streams]>>>();
		CHECK(cudaGetLastError());
		CHECK(cudaStreamSynchronize(stream[i % streams]));
	}
	CHECK(cudaDeviceSynchronize());
	printf("words %u %u\n", words.read()[0], words.read()[1]);
	for (auto each : stream)
		CHECK(cudaStreamDestroy(each));
	return 0;
}
