// Managed memory: processor and device in turns on the same addresses, a linked list that both
// walk, copies, fills, advice and prefetches with what the queries then say.

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                          \
	do {                                                                                                 \
		cudaError_t e_ = (call);                                                                     \
		if (e_ != cudaSuccess) {                                                                     \
			printf("%s: %s\n", #call, cudaGetErrorName(e_));                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

struct node {
	node *next;
	uint32_t value;
};

__global__ void add_one(uint32_t *data, uint32_t count)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] += 1;
}

__global__ void walk(node *first, unsigned long long *total)
{
	for (node *at = first; at; at = at->next) {
		*total += at->value;
		at->value = 0;
	}
}

__global__ void count_up(unsigned *counter)
{
	atomicAdd(counter, 1);
}

int main()
{
	const uint32_t words = 1 << 20, nodes = 1000;
	uint32_t *data, *plain;
	unsigned long long sum = 0, *total;
	unsigned *counter;
	node *list;
	int value, managed;

	CHECK(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
	printf("managed %d\n", managed);
	CHECK(cudaMallocManaged(&data, words * 4));
	for (uint32_t i = 0; i < words; i++)
		data[i] = i;
	for (int round = 0; round < 3; round++) {
		add_one<<<64, 256>>>(data, words);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		data[round] += 1000;
	}
	for (uint32_t i = 0; i < words; i++)
		sum += data[i];
	printf("sum %llu\n", sum);

	CHECK(cudaMallocManaged(&list, nodes * sizeof(*list)));
	CHECK(cudaMallocManaged(&total, sizeof(*total)));
	CHECK(cudaMallocManaged(&counter, sizeof(*counter), cudaMemAttachHost));
	for (uint32_t i = 0; i < nodes; i++)
		list[i] = {i + 1 < nodes ? &list[i + 1] : nullptr, i * 3};
	*total = 5;
	*counter = 7;
	walk<<<1, 1>>>(list, total);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	count_up<<<100, 128>>>(counter);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	printf("list %llu %u, counter %u\n", *total, list[nodes - 1].value, *counter);

	CHECK(cudaMalloc(&plain, words * 4));
	CHECK(cudaMemcpy(plain, data, words * 4, cudaMemcpyDefault));
	CHECK(cudaMemset(data, 0, words * 4));
	CHECK(cudaMemcpy(data, plain, words * 2, cudaMemcpyDefault));
	CHECK(cudaDeviceSynchronize());
	sum = 0;
	for (uint32_t i = 0; i < words; i++)
		sum += data[i];
	printf("half %llu\n", sum);

	cudaPointerAttributes attributes;
	CHECK(cudaPointerGetAttributes(&attributes, data + 5));
	printf("type %d device %d host %d\n", (int)attributes.type, attributes.device,
		attributes.hostPointer == data + 5 && attributes.devicePointer == data + 5);
	cudaMemLocation device = {};
	device.type = cudaMemLocationTypeDevice;
	CHECK(cudaMemAdvise(data, words * 4, cudaMemAdviseSetReadMostly, device));
	CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), cudaMemRangeAttributeReadMostly, data, words * 4));
	printf("read mostly %d\n", value);
	CHECK(cudaMemAdvise(data, words * 4, cudaMemAdviseUnsetReadMostly, device));
	CHECK(cudaMemAdvise(data, words * 2, cudaMemAdviseSetPreferredLocation, device));
	CHECK(cudaMemRangeGetAttribute(
		&value, sizeof(value), cudaMemRangeAttributePreferredLocation, data, words * 2));
	printf("preferred %d\n", value);
	CHECK(cudaMemRangeGetAttribute(
		&value, sizeof(value), cudaMemRangeAttributePreferredLocation, data, words * 4));
	printf("preferred by some %d\n", value);
	CHECK(cudaMemPrefetchAsync(data, words * 4, device, 0, nullptr));
	add_one<<<64, 256>>>(data, words);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	printf("after prefetch %u %u\n", data[0], data[words - 1]);
	printf("not managed: %s\n", cudaGetErrorName(cudaMemPrefetchAsync(plain, 4096, device, 0, nullptr)));
	CHECK(cudaFree(data));
	CHECK(cudaFree(list));
	CHECK(cudaFree(total));
	CHECK(cudaFree(counter));
	printf("done\n");
	return 0;
}
