// Two translation units linked on the device: a function, a kernel and variables of one are used by
// the other.
//
// options: -rdc=true tests/gpu/corpus/parts/separate.cu

#include "check.h"
#include "parts/separate.h"

__global__ void own_kernel(int *data)
{
	data[threadIdx.x] = other_function(data[threadIdx.x]);
}

int main()
{
	const int factor = 7;
	buffer<int> data(std::vector<int>(32, 5));
	int counter;

	own_kernel<<<1, 32>>>(data);
	other_kernel<<<1, 32>>>(data);
	CHECK(cudaGetLastError());
	printf("value %d\n", data.read()[31]);
	EXPECT(data.read()[31] == 1016);
	CHECK(cudaMemcpyToSymbol(shared_factor, &factor, sizeof(factor)));
	own_kernel<<<1, 32>>>(data);
	CHECK(cudaGetLastError());
	printf("value %d\n", data.read()[0]);
	CHECK(cudaMemcpyFromSymbol(&counter, shared_counter, sizeof(counter)));
	printf("counter %d\n", counter);
	return 0;
}
