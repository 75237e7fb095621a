// Forks: before CUDA is used both processes may use it; after, the child's calls fail and the
// parent goes on.

#include "check.h"

__global__ void bump(int *word)
{
	atomicAdd(word, 1);
}

static int use(int by)
{
	buffer<int> word(1);

	for (int i = 0; i < by; i++)
		bump<<<1, 32>>>(word);
	CHECK(cudaGetLastError());
	printf("bumped %d\n", word.read()[0]);
	return by;
}

static int use_after(buffer<int> *word)
{
	void *memory;
	int count = -1;
	cudaStream_t stream;

	printf("allocation: %s\n", name_of(cudaMalloc(&memory, 16)));
	printf("stream: %s\n", name_of(cudaStreamCreate(&stream)));
	bump<<<1, 1>>>(*word);
	printf("launch: %s\n", name_of(cudaGetLastError()));
	printf("wait: %s\n", name_of(cudaDeviceSynchronize()));
	printf("copy: %s\n", name_of(cudaMemcpy(&count, *word, sizeof(int), cudaMemcpyDeviceToHost)));
	printf("driver: %s\n", name_of(cuDeviceGetCount(&count)));
	fflush(stdout);
	_exit(11);
}

int main()
{
	printf("status %d\n", in_child([] { return use(3); }));
	use(5);
	printf("status %d\n",
		in_child([] { return 12; })); // a child that does nothing with CUDA, and its exit
	buffer<int> word(1);
	bump<<<1, 32>>>(word);
	CHECK(cudaGetLastError());
	printf("status %d\n", in_child([&] { return use_after(&word); }));
	bump<<<1, 32>>>(word);
	CHECK(cudaGetLastError());
	printf("here %d\n", word.read()[0]);
	EXPECT(word.read()[0] == 64);
	return 0;
}
