// Variables of constant and of device memory: copies to and from them with offsets, their address
// and size, their first values.

#include "check.h"

__constant__ float weights[16] = {1, 2, 3, 4};
__device__ int table[1000] = {7, 8, 9};
__device__ int counter = 40;
static __device__ double hidden[3] = {0.5, 1.5, 2.5};

__global__ void use(float *out)
{
	out[threadIdx.x] = weights[threadIdx.x] * (float)table[threadIdx.x] + (float)hidden[threadIdx.x % 3];
	if (threadIdx.x == 0)
		counter += 2;
}

int main()
{
	const float some[4] = {10, 20, 30, 40};
	std::vector<int> ramp(1000), back(1000);
	buffer<float> out(16);
	buffer<int> source(std::vector<int>(4, 77));
	cudaStream_t stream;
	void *address;
	size_t size;
	int value;

	use<<<1, 16>>>(out);
	CHECK(cudaGetLastError());
	report("first values", out.read());
	for (int i = 0; i < 1000; i++)
		ramp[i] = i * i;
	CHECK(cudaMemcpyToSymbol(weights, some, sizeof(some), 4 * sizeof(float)));
	CHECK(cudaMemcpyToSymbol(table, ramp.data(), 4000));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMemcpyToSymbolAsync(table, source.at, 16, 40, cudaMemcpyDeviceToDevice, stream));
	use<<<1, 16, 0, stream>>>(out);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyFromSymbolAsync(back.data(), table, 4000, 0, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	report("changed", out.read());
	report("table", back);
	EXPECT(back[9] == 81 && back[10] == 77 && back[13] == 77 && back[14] == 196);
	CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
	printf("counter %d\n", value);
	CHECK(cudaGetSymbolSize(&size, table));
	CHECK(cudaGetSymbolAddress(&address, table));
	CHECK(cudaMemcpy(&value, (int *)address + 5, sizeof(int), cudaMemcpyDeviceToHost));
	printf("size %zu, sixth %d\n", size, value);
	CHECK(cudaGetSymbolSize(&size, weights));
	CHECK(cudaGetSymbolAddress(&address, weights));
	CHECK(cudaMemset(address, 0, size));
	use<<<1, 16>>>(out);
	CHECK(cudaGetLastError());
	report("zeroed", out.read());
	printf("too far: %s\n", name_of(cudaMemcpyToSymbol(weights, some, sizeof(some), 61)));
	printf("no symbol: %s\n", name_of(cudaGetSymbolSize(&size, some)));
	cudaGetLastError();
	return 0;
}
