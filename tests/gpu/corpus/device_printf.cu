// Text printed by kernels reaches standard output, in order, at the waits of the host: formats,
// long lines, several streams.
//
// compared: errors

#include "check.h"

__global__ void greet(int number)
{
	if (threadIdx.x == 0)
		printf("block says %d, %5.2f, %s, %c, %llx, %%\n", number, number * 1.5, "a string", 'x',
			0x123456789abull);
}

__global__ void in_order()
{
	for (unsigned turn = 0; turn < blockDim.x; turn++) {
		if (turn == threadIdx.x)
			printf("thread %u\n", threadIdx.x);
		__syncthreads();
	}
}

__global__ void long_line()
{
	int written = printf("%s%s%08x|%-8d|%+d|%e|%p\n", "a rather long piece of text without an end, ",
		"and another one", 255, 42, 7, 1234.5, (void *)0);

	printf("returned %d, of nothing %d\n", written, printf(""));
}

__global__ void many(int lines)
{
	for (int i = 0; i < lines; i++)
		printf("%d\n", i);
}

int main()
{
	cudaStream_t stream;

	setvbuf(stdout, nullptr, _IONBF, 0);
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	printf("host before\n");
	for (int i = 0; i < 3; i++)
		greet<<<1, 64>>>(i);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	printf("host between\n");
	in_order<<<1, 8, 0, stream>>>();
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));
	long_line<<<1, 1>>>();
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	many<<<1, 1>>>(500);
	CHECK(cudaGetLastError());
	int word = 0;
	buffer<int> device(1);
	CHECK(cudaMemcpy(&word, device, sizeof(int), cudaMemcpyDeviceToHost));
	CHECK(cudaDeviceSynchronize());
	printf("host after\n");
	greet<<<1, 1>>>(99);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceReset());
	printf("host at the end\n");
	return 0;
}
