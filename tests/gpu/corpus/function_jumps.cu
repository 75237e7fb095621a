// Functions with tables of jumps, which the device linker puts beside those of each kernel that may
// call them: from kernels with few and many parameters, with tables of their own, by calls and by
// pointers, with assertions, in a graph, and beside a fault.

#include "check.h"

#include <cassert>

struct large {
	int values[1000];
};

__device__ int counts[8];

__device__ __noinline__ int choose(int way, int value)
{
	switch (way) {
	case 0:
		return value * 3;
	case 1:
		return value ^ 77;
	case 2:
		return value - 9;
	case 3:
		return __popc(value);
	case 4:
		return value * value;
	case 5:
		return value / 7;
	case 6:
		return __clz(value);
	default:
		return value << 3;
	}
}

__device__ __noinline__ int count(int way, int value)
{
	assert(way < 100);
	switch (way % 9) {
	case 0:
		atomicAdd(&counts[0], value);
		return 1;
	case 1:
		atomicAdd(&counts[1], 1);
		return choose(value & 7, value);
	case 2:
		atomicMax(&counts[2], value);
		return value + 2;
	case 3:
		return choose(3, value) + 5;
	case 4:
		atomicXor(&counts[4], value);
		return ~value;
	case 5:
		return value % 11;
	case 6:
		return choose(6, value) * 2;
	case 7:
		return value * 5;
	default:
		return -1;
	}
}

typedef int (*function)(int, int);
__device__ function functions[] = {choose, count};

__global__ void few(int *out)
{
	out[threadIdx.x] = choose(threadIdx.x & 7, out[threadIdx.x]);
}

__global__ void many(int *out, large constants, int ways)
{
	__shared__ int sums[256];
	int value = constants.values[threadIdx.x];

	switch (ways) {
	case 1:
		value += 4;
		break;
	case 2:
		value = value * 3 + 1;
		break;
	case 3:
		value ^= 0x55;
		break;
	case 4:
		value = __brev(value) >> 8;
		break;
	case 5:
		value %= 13;
		break;
	}
	sums[threadIdx.x] = functions[threadIdx.x & 1](threadIdx.x % 9, value);
	__syncthreads();
	out[threadIdx.x] = sums[255 - threadIdx.x] + out[threadIdx.x];
}

__global__ void far_away(int *nowhere)
{
	*nowhere = choose(nowhere != nullptr, 5);
}

static unsigned sum(const std::vector<int> &values)
{
	unsigned all = 17;

	for (int value : values)
		all = all * 31 + (unsigned)value;
	return all;
}

int main()
{
	std::vector<int> start(256);
	large constants;
	int seen[8];
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	for (int i = 0; i < 256; i++)
		start[i] = i * i - 300;
	for (int i = 0; i < 1000; i++)
		constants.values[i] = i * 7919 % 1009;
	buffer<int> data(start);
	few<<<1, 256>>>(data);
	CHECK(cudaGetLastError());
	printf("few %u\n", sum(data.read()));
	for (int ways = 0; ways < 7; ways++) {
		many<<<1, 256>>>(data, constants, ways);
		CHECK(cudaGetLastError());
		printf("many %d %u\n", ways, sum(data.read()));
	}
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	few<<<1, 256, 0, stream>>>(data);
	many<<<1, 256, 0, stream>>>(data, constants, 3);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++)
		CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("graph %u\n", sum(data.read()));
	CHECK(cudaMemcpyFromSymbol(seen, counts, sizeof(seen)));
	for (int i = 0; i < 5; i++)
		printf("count %d\n", seen[i]);
	far_away<<<1, 1>>>((int *)0x123456000);
	printf("%s\n", name_of(cudaDeviceSynchronize()));
	return 0;
}
