// Results that are kept in variables which only kernels know, of a file, of a kernel and behind a
// pointer, while another process faults: they go on as if nothing had been.

// alone: it faults on purpose

#include "beside.h"

#include <thread>

__device__ unsigned counter = 100;
static __device__ unsigned steps[2] = {3, 4};
static __device__ unsigned pointed;
static __device__ unsigned *pointer = &pointed;

__global__ void count()
{
	static unsigned inner = 7;

	counter += steps[counter % 2];
	inner++;
	*pointer += inner;
}

__global__ void read(unsigned *out)
{
	out[0] = counter;
	out[1] = pointed;
}

int main()
{
	culprit other;
	buffer<unsigned> out(2);
	for (int i = 0; i < 300; i++) {
		count<<<1, 1>>>();
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		if (i == 100)
			other.go();
		/* What follows a fault takes some seconds. */
		if (i > 100)
			std::this_thread::sleep_for(std::chrono::milliseconds(25));
	}
	read<<<1, 1>>>(out);
	CHECK(cudaGetLastError());
	report("kept", out.read());
	other.report_end();
	return 0;
}
