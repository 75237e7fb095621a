// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Results that are kept in variables which only kernels know, of a file, of a kernel and behind a pointer, while
// another process faults: they go on as if nothing had been.

// alone: it faults on purpose

#include "check.h"

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

__global__ void far_away(int *at)
{
	at[(size_t)1 << 40] = 1;
}

/* Faults when it is told to. */
static int fault(int orders)
{
	int *word;
	char byte;

	if (::read(orders, &byte, 1) != 1)
		return 2;
	CHECK(cudaMalloc(&word, 64));
	far_away<<<1, 1>>>(word);
	return cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 0 : 3;
}

int main()
{
	int orders[2], status = 0;
	pid_t child;

	EXPECT(pipe(orders) == 0);
	/* Before the runtime is used. */
	child = fork();
	if (child == 0)
		_exit(fault(orders[0]));
	buffer<unsigned> out(2);
	for (int i = 0; i < 300; i++) {
		count<<<1, 1>>>();
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		if (i == 100)
			EXPECT(write(orders[1], "!", 1) == 1);
		/* What follows a fault takes some seconds. */
		if (i > 100)
			std::this_thread::sleep_for(std::chrono::milliseconds(25));
	}
	read<<<1, 1>>>(out);
	CHECK(cudaGetLastError());
	report("kept", out.read());
	EXPECT(waitpid(child, &status, 0) == child);
	printf("the other's status %d\n", status_of(status));
	return 0;
}
