// Stream priorities: the range, what a stream says of itself, values outside the range, work in
// each.

#include "check.h"

__global__ void bump(int *word)
{
	atomicAdd(word, 1);
}

int main()
{
	int least, greatest, priority;
	unsigned flags;
	buffer<int> word(1);

	CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	printf("range %d %d\n", least, greatest);
	for (int asked = least + 1; asked >= greatest - 1; asked--) {
		cudaStream_t stream;

		CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked));
		CHECK(cudaStreamGetPriority(stream, &priority));
		CHECK(cudaStreamGetFlags(stream, &flags));
		printf("asked %d, got %d, flags %u\n", asked, priority, flags);
		for (int i = 0; i < 20; i++)
			bump<<<3, 32, 0, stream>>>(word);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaStreamDestroy(stream));
	}
	CHECK(cudaStreamGetPriority(0, &priority));
	CHECK(cudaStreamGetFlags(0, &flags));
	printf("default stream: %d, flags %u\n", priority, flags);
	printf("bumps %d\n", word.read()[0]);
	return 0;
}
