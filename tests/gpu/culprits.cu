// The programs of real_culprits.py in CUDA C, with the runtime.
//
// usage: culprits CASE
//
// Each case runs its kernel once with a harmless argument, says "ready", and waits for a line. Then
// it launches the kernel that faults, says "launched", waits for the device, and prints what the
// runtime answered: an object in JSON, and "done".

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "corpus/descend.h"

static constexpr unsigned THREADS = 256, GRID = 4096, GRID_OF_RECURSION = 1024;

__global__ void recurse(unsigned *out, unsigned depth)
{
	unsigned *mine = out + blockIdx.x * blockDim.x + threadIdx.x;

	*mine = descend(mine, depth);
}

__global__ void fill(unsigned *out)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = i;
}

__global__ void wait_for(volatile unsigned *flag)
{
	while (!*flag)
		;
}

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "culprits: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static bool is(const char *name, const char *other)
{
	return strcmp(name, other) == 0;
}

/* Launches the kernel of a case. @memory: GRID * THREADS words and one more, all 0 before the first
 * launch */
static bool launch(const char *name, unsigned *memory, bool harmless)
{
	unsigned *misaligned = reinterpret_cast<unsigned *>(reinterpret_cast<char *>(memory) + 1);
	unsigned depth = harmless ? 2 : 1u << 30;

	if (is(name, "recursion-many"))
		recurse<<<GRID_OF_RECURSION, THREADS>>>(memory, depth);
	else if (is(name, "recursion-one"))
		recurse<<<1, THREADS>>>(memory, depth);
	else if (is(name, "null"))
		fill<<<GRID, THREADS>>>(harmless ? memory : nullptr);
	else if (is(name, "misaligned"))
		fill<<<GRID, THREADS>>>(harmless ? memory : misaligned);
	else if (is(name, "endless"))
		wait_for<<<1, THREADS>>>(harmless ? memory + 1 : memory);
	else
		return false;
	return true;
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const unsigned one = 1;
	const size_t bytes = (size_t(GRID) * THREADS + 1) * sizeof(unsigned);
	const char *name = argc == 2 ? argv[1] : "";
	unsigned *memory;
	cudaError_t error;

	check(cudaMalloc(&memory, bytes), "cudaMalloc");
	check(cudaMemset(memory, 0, bytes), "cudaMemset");
	check(cudaMemcpy(memory + 1, &one, sizeof(one), cudaMemcpyHostToDevice), "cudaMemcpy");
	if (!launch(name, memory, true)) {
		fprintf(stderr, "usage: culprits recursion-many|recursion-one|null|misaligned|endless\n");
		return 2;
	}
	check(cudaDeviceSynchronize(), "the harmless kernel");
	say("ready");
	if (getchar() == EOF)
		return 1;
	launch(name, memory, false);
	say("launched");
	error = cudaDeviceSynchronize();
	printf("{\"code\": %d, \"text\": \"%s: %s\"}\n", int(error), cudaGetErrorName(error),
		cudaGetErrorString(error));
	say("done");
	return 0;
}
