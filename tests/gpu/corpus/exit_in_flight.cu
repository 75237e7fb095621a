// Processes that end while their kernels and copies run: by return, exit, _exit, a signal; each
// ends in time with its status.

#include "check.h"

#include <csignal>

__global__ void work(int *word)
{
	spin_for(300000000);
	atomicAdd(word, 1);
}

static int end_with(int kind)
{
	static char source[1 << 16];
	int *word;
	char *bulk;
	cudaStream_t stream[3];

	CHECK(cudaMalloc(&word, 4));
	CHECK(cudaMalloc(&bulk, 64 << 20));
	for (auto &each : stream) {
		CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
		work<<<4, 32, 0, each>>>(word);
		CHECK(cudaGetLastError());
		CHECK(cudaMemsetAsync(bulk, 1, 64 << 20, each));
		CHECK(cudaMemcpyAsync(bulk, source, sizeof(source), cudaMemcpyHostToDevice, each));
	}
	printf("in flight\n");
	fflush(stdout);
	if (kind == 1)
		exit(21);
	if (kind == 2)
		_exit(22);
	if (kind == 3)
		raise(SIGKILL);
	if (kind == 4)
		raise(SIGTERM);
	return 20;
}

int main()
{
	for (int kind = 0; kind < 5; kind++) {
		double begin = seconds();

		printf("status %d", in_child([=] { return end_with(kind); }));
		printf(", in time: %s\n", seconds() - begin < 30 ? "yes" : "no");
	}
	buffer<int> word(1);
	work<<<1, 1>>>(word);
	CHECK(cudaGetLastError());
	printf("here %d\n", word.read()[0]);
	return 0;
}
