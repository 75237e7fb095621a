// Stream-ordered allocation: rounds of allocate, use, free in several streams; a pool of its own
// with attributes, trimming and an end; memory of a pool freed like any other; managed memory.

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                          \
	do {                                                                                                 \
		cudaError_t e_ = (call);                                                                     \
		if (e_ != cudaSuccess) {                                                                     \
			printf("%s: %s\n", #call, cudaGetErrorName(e_));                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

__global__ void fill(uint32_t *out, uint32_t value, uint32_t count)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		out[i] = value;
}

__global__ void add(const uint32_t *in, uint32_t count, unsigned long long *total)
{
	unsigned long long sum = 0;

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		sum += in[i];
	atomicAdd(total, sum);
}

/* A pool of managed memory: program and kernels write to it in turn. */
static void use_managed(cudaStream_t stream)
{
	cudaMemPoolProps properties = {};
	cudaPointerAttributes attributes;
	cudaMemPool_t pool;
	uint32_t *memory;

	properties.allocType = cudaMemAllocationTypeManaged;
	properties.location.type = cudaMemLocationTypeDevice;
	CHECK(cudaMemPoolCreate(&pool, &properties));
	CHECK(cudaMallocFromPoolAsync((void **)&memory, 1 << 20, pool, stream));
	fill<<<64, 256, 0, stream>>>(memory, 7, 1 << 18);
	CHECK(cudaStreamSynchronize(stream));
	memory[0] = 9;
	fill<<<1, 1, 0, stream>>>(memory + 1, 11, 1);
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaPointerGetAttributes(&attributes, memory));
	printf("managed: %u %u %u, type %d\n", memory[0], memory[1], memory[1000], (int)attributes.type);
	CHECK(cudaFreeAsync(memory, stream));
	CHECK(cudaMemPoolDestroy(pool));
}

static uint64_t number(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
	uint64_t value = 0;

	CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

int main()
{
	const int streams = 4, rounds = 100;
	const uint32_t words = 1 << 20;
	cudaStream_t stream[streams];
	unsigned long long *totals, sums[streams];
	cudaMemPool_t pool, own, seen;
	uint64_t keep = UINT64_MAX, zero = 0;
	int supported, flag;

	CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
	printf("pools %d\n", supported);
	CHECK(cudaMalloc(&totals, sizeof(sums)));
	CHECK(cudaMemset(totals, 0, sizeof(sums)));
	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	for (int i = 0; i < streams; i++)
		CHECK(cudaStreamCreateWithFlags(
			&stream[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < streams; i++) {
			uint32_t *memory, count = words >> (round % 5);

			CHECK(cudaMallocAsync(&memory, count * 4, stream[i]));
			fill<<<64, 256, 0, stream[i]>>>(memory, round + i, count);
			add<<<64, 256, 0, stream[i]>>>(memory, count, totals + i);
			CHECK(cudaGetLastError());
			CHECK(cudaFreeAsync(memory, stream[i]));
		}
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(sums, totals, sizeof(sums), cudaMemcpyDeviceToHost));
	for (int i = 0; i < streams; i++)
		printf("stream %d: %llu\n", i, sums[i]);
	printf("used %llu\n", (unsigned long long)number(pool, cudaMemPoolAttrUsedMemCurrent));
	printf("used before %d\n", number(pool, cudaMemPoolAttrUsedMemHigh) >= words * 4);
	CHECK(cudaMemPoolTrimTo(pool, 0));
	printf("reserved %llu\n", (unsigned long long)number(pool, cudaMemPoolAttrReservedMemCurrent));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
	printf("high %llu\n", (unsigned long long)number(pool, cudaMemPoolAttrUsedMemHigh));

	cudaMemPoolProps props = {};
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	CHECK(cudaMemPoolCreate(&own, &props));
	CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolReuseFollowEventDependencies, &flag));
	printf("follows events %d\n", flag);
	printf("threshold %llu\n", (unsigned long long)number(own, cudaMemPoolAttrReleaseThreshold));
	uint32_t *memory, *second;
	CHECK(cudaMallocFromPoolAsync(&memory, words * 4, own, stream[0]));
	CHECK(cudaDeviceSetMemPool(0, own));
	CHECK(cudaDeviceGetMemPool(&seen, 0));
	printf("current is own %d\n", seen == own);
	CHECK(cudaMallocAsync(&second, 4096, stream[0]));
	fill<<<64, 256, 0, stream[0]>>>(memory, 7, words);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(second, memory, 4096, cudaMemcpyDeviceToDevice, stream[0]));
	uint32_t word;
	CHECK(cudaMemcpyAsync(&word, second + 1023, 4, cudaMemcpyDeviceToHost, stream[0]));
	CHECK(cudaStreamSynchronize(stream[0]));
	printf("word %u\n", word);
	cudaPointerAttributes attributes;
	CHECK(cudaPointerGetAttributes(&attributes, memory));
	printf("type %d device %d\n", (int)attributes.type, attributes.device);
	CHECK(cudaFree(second));
	CHECK(cudaFreeAsync(memory, stream[0]));
	CHECK(cudaMemPoolDestroy(own));
	CHECK(cudaDeviceGetMemPool(&seen, 0));
	printf("current is default %d\n", seen == pool);
	use_managed(stream[0]);
	CHECK(cudaDeviceSynchronize());
	printf("done\n");
	return 0;
}
