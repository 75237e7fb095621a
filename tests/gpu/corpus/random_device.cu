// cuRAND called in kernels: states kept in memory between launches, an estimate of pi, a walk.

#include "check.h"

#include <curand_kernel.h>

template <class State> __global__ void start(State *state)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	curand_init(1234, i, 0, &state[i]);
}

template <class State> __global__ void throw_darts(State *state, unsigned long long *inside, int darts)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	State mine = state[i];
	unsigned hits = 0;

	for (int dart = 0; dart < darts; dart++) {
		float x = curand_uniform(&mine), y = curand_uniform(&mine);

		hits += x * x + y * y <= 1;
	}
	state[i] = mine;
	atomicAdd(inside, (unsigned long long)hits);
}

template <class State> __global__ void walk(State *state, float *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float at = 0;

	for (int step = 0; step < 100; step++)
		at += curand_normal(&state[i]);
	out[i] = at;
}

template <class State> static void run(const char *label)
{
	const int blocks = 32, threads = 128, darts = 500;
	buffer<State> state(blocks * threads);
	buffer<unsigned long long> inside(1);
	buffer<float> out(blocks * threads);

	start<<<blocks, threads>>>(state.at);
	CHECK(cudaGetLastError());
	for (int round = 0; round < 4; round++)
		throw_darts<<<blocks, threads>>>(state.at, inside.at, darts);
	walk<<<blocks, threads>>>(state.at, out.at);
	CHECK(cudaGetLastError());
	double pi = 4.0 * inside.read()[0] / (4.0 * blocks * threads * darts);
	EXPECT(pi > 3.13 && pi < 3.15);
	printf("%s: %llu inside\n", label, inside.read()[0]);
	report(label, out.read());
}

int main()
{
	run<curandStateXORWOW_t>("XORWOW");
	run<curandStatePhilox4_32_10_t>("Philox");
	run<curandStateMRG32k3a_t>("MRG32k3a");
	return 0;
}
