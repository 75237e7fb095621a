// Faults of kernels, each in a process of its own: what the waits and all later calls return. This
// process goes on unharmed.
//
// alone: it faults on purpose

#include "check.h"

__global__ void far_away(int *at)
{
	at[(size_t)1 << 40] = 1;
}

__global__ void misaligned(char *at)
{
	*(volatile int *)(at + 1) = 1;
}

__global__ void trapped(int *)
{
	__trap();
}

__global__ void right(int *at)
{
	*at = 7;
}

static int fault(int kind)
{
	int *word, value = 0;
	cudaStream_t stream;
	cudaEvent_t event;

	CHECK(cudaMalloc(&word, 64));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&event));
	right<<<1, 1, 0, stream>>>(word);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));
	if (kind == 0)
		far_away<<<1, 1, 0, stream>>>(word);
	else if (kind == 1)
		misaligned<<<1, 1, 0, stream>>>((char *)word);
	else
		trapped<<<1, 1, 0, stream>>>(word);
	printf("launch: %s\n", name_of(cudaGetLastError()));
	printf("wait: %s\n", name_of(cudaDeviceSynchronize()));
	printf("last: %s\n", name_of(cudaGetLastError()));
	printf("again: %s\n", name_of(cudaGetLastError()));
	printf("stream: %s\n", name_of(cudaStreamSynchronize(stream)));
	right<<<1, 1, 0, stream>>>(word);
	printf("launch: %s\n", name_of(cudaGetLastError()));
	printf("copy: %s\n", name_of(cudaMemcpy(&value, word, sizeof(int), cudaMemcpyDeviceToHost)));
	printf("allocation: %s\n", name_of(cudaMalloc(&word, 16)));
	printf("record: %s\n", name_of(cudaEventRecord(event, stream)));
	printf("query: %s\n", name_of(cudaStreamQuery(stream)));
	printf("free: %s\n", name_of(cudaFree(word)));
	printf("device count: %s\n", name_of(cudaGetDeviceCount(&value)));
	return 5;
}

int main()
{
	for (int kind = 0; kind < 3; kind++)
		printf("status %d\n", in_child([=] { return fault(kind); }));
	buffer<int> word(1);
	right<<<1, 1>>>(word);
	CHECK(cudaGetLastError());
	printf("here %d\n", word.read()[0]);
	return 0;
}
