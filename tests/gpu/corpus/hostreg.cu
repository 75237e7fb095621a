// Host memory: allocated with every flag, registered by the program, copied in stream order behind
// host functions, reached by a kernel through the device pointer of mapped memory.

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

static const uint32_t words = 1 << 20;

__global__ void twice(uint32_t *data, uint32_t count)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] *= 2;
}

static void fill(void *user)
{
	uint32_t *data = (uint32_t *)user;

	for (uint32_t i = 0; i < words; i++)
		data[i] = i;
}

static uint64_t sum(const uint32_t *data)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < words; i++)
		total += data[i];
	return total;
}

int main()
{
	const unsigned flags[] = {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped,
		cudaHostAllocWriteCombined, cudaHostAllocPortable | cudaHostAllocMapped};
	uint32_t *device, *host, *seen;
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&device, words * 4));
	for (unsigned flag : flags) {
		unsigned got;

		CHECK(cudaHostAlloc(&host, words * 4, flag));
		fill(host);
		CHECK(cudaHostGetDevicePointer(&seen, host, 0));
		twice<<<64, 256, 0, stream>>>(seen, words);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaHostGetFlags(&got, host));
		printf("flags %u: %llu, write-combined %d\n", flag, (unsigned long long)sum(host),
			(got & cudaHostAllocWriteCombined) != 0);
		CHECK(cudaFreeHost(host));
	}

	/* Registered: the copies come when it is their turn. */
	uint32_t *own = (uint32_t *)malloc(words * 4 + 64);
	uint32_t *odd = own + 3;
	CHECK(cudaHostRegister(odd, words * 4, cudaHostRegisterDefault));
	printf("again: %s\n", cudaGetErrorName(cudaHostRegister(odd, words * 4, cudaHostRegisterDefault)));
	cudaGetLastError();
	CHECK(cudaLaunchHostFunc(stream, fill, odd));
	CHECK(cudaMemcpyAsync(device, odd, words * 4, cudaMemcpyHostToDevice, stream));
	twice<<<64, 256, 0, stream>>>(device, words);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(odd, device, words * 4, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaMemcpyAsync(device, odd, words * 2, cudaMemcpyHostToDevice, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("registered %llu\n", (unsigned long long)sum(odd));
	CHECK(cudaMemcpy2DAsync(device, 64, odd, 128, 48, 1000, cudaMemcpyHostToDevice, stream));
	CHECK(cudaMemcpyAsync(odd, device, words * 4, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("rows %llu\n", (unsigned long long)sum(odd));
	CHECK(cudaHostUnregister(odd));
	printf("once more: %s\n", cudaGetErrorName(cudaHostUnregister(odd)));
	cudaGetLastError();
	free(own);

	/* Registered and mapped: a kernel works on it. */
	uint32_t *pages = (uint32_t *)aligned_alloc(4096, words * 4);
	fill(pages);
	CHECK(cudaHostRegister(pages, words * 4, cudaHostRegisterMapped));
	CHECK(cudaHostGetDevicePointer(&seen, pages, 0));
	twice<<<64, 256, 0, stream>>>(seen, words);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(device, pages, words * 4, cudaMemcpyHostToDevice, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("mapped %llu\n", (unsigned long long)sum(pages));
	CHECK(cudaHostUnregister(pages));
	printf("kept %llu\n", (unsigned long long)sum(pages));
	CHECK(cudaMemcpy(pages, device, words * 4, cudaMemcpyDeviceToHost));
	printf("copied %llu\n", (unsigned long long)sum(pages));
	free(pages);
	printf("done\n");
	return 0;
}
