// The last error: which calls set it, which clear it, what it is in another thread, names and texts
// of all codes.

#include "check.h"

#include <thread>

__global__ void nothing()
{
}

int main()
{
	void *memory;
	const char *text;

	CHECK(cudaFree(nullptr));
	printf("start: %s\n", name_of(cudaPeekAtLastError()));
	printf("allocation: %s\n", name_of(cudaMalloc(&memory, (size_t)1 << 46)));
	printf("peek: %s\n", name_of(cudaPeekAtLastError()));
	CHECK(cudaMalloc(&memory, 16)); // a call that succeeds leaves it
	printf("peek after success: %s\n", name_of(cudaPeekAtLastError()));
	std::thread([] { printf("other thread: %s\n", name_of(cudaPeekAtLastError())); }).join();
	printf("get: %s\n", name_of(cudaGetLastError()));
	printf("get again: %s\n", name_of(cudaGetLastError()));
	nothing<<<1, 5000>>>();
	CHECK(cudaDeviceSynchronize());
	printf("refused launch: %s\n", name_of(cudaGetLastError()));
	printf("copy of nothing: %s\n", name_of(cudaMemcpy(nullptr, nullptr, 16, cudaMemcpyHostToDevice)));
	printf("get: %s\n", name_of(cudaGetLastError()));
	printf("copy of no bytes: %s\n", name_of(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice)));
	printf("wrong kind: %s\n", name_of(cudaMemcpy(memory, memory, 16, (cudaMemcpyKind)77)));
	printf("get: %s\n", name_of(cudaGetLastError()));
	printf("free of a wrong address: %s\n", name_of(cudaFree((char *)memory + 4)));
	printf("get: %s\n", name_of(cudaGetLastError()));
	printf("wrong device: %s\n", name_of(cudaSetDevice(1000)));
	printf("get: %s\n", name_of(cudaGetLastError()));
	printf("not ready: %s\n", cudaGetErrorString(cudaErrorNotReady));
	CHECK(cudaFree(memory));
	for (int code : {0, 1, 2, 3, 4, 98, 100, 201, 400, 500, 600, 700, 701, 710, 716, 719, 720, 801, 900,
		     906, 999, 123456})
		printf("%d: %s: %s\n", code, cudaGetErrorName((cudaError_t)code),
			cudaGetErrorString((cudaError_t)code));
	for (int code = 0; code < 1100; code++)
		if (cuGetErrorString((CUresult)code, &text) == CUDA_SUCCESS)
			printf("%d: %s: %s\n", code, name_of((CUresult)code), text);
	printf("unknown code: %s\n", name_of(cuGetErrorString((CUresult)123456, &text)));
	return 0;
}
