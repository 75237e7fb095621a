// The fault matrix's kernels for a GPU. matrix_host_kernels.c has the same ones for the host
// backend, with the same names and parameters, but for those whose blocks wait for one another.
// What they are for is said in matrix_worker.c. SURVIVOR or CULPRIT is defined: whose module it is.

#include <cassert>
#include <cooperative_groups.h>
#include <cstdint>

extern "C" {

__device__ static void wait_ns(uint64_t ns)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < ns);
}

__global__ void pass_time(uint64_t ns)
{
	wait_ns(ns);
}

#ifdef SURVIVOR

__device__ static uint32_t stepped(uint32_t cell, uint32_t round, uint32_t position)
{
	uint32_t x = cell + round * 2654435761u + position;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

__device__ static void change_half(
	volatile uint32_t *cells, uint32_t *counters, uint32_t count, uint32_t round, uint32_t half)
{
	uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;

	if (!half && !first)
		atomicAdd(&counters[0], 1);
	for (uint32_t i = half * (count / 2) + first; i < (half ? count : count / 2); i += step)
		cells[i] = stepped(cells[i], round, i);
	if (half && !first)
		atomicAdd(&counters[1], 1);
}

__device__ static void change(volatile uint32_t *cells, uint32_t *counters, uint32_t count, uint32_t round, uint64_t ns)
{
	change_half(cells, counters, count, round, 0);
	wait_ns(ns);
	change_half(cells, counters, count, round, 1);
}

/* A black box: half of the cells are changed at its beginning, half at its end. */
__global__ void change_cells(
	volatile uint32_t *cells, const uint32_t *, uint32_t *counters, uint32_t count, uint32_t round, uint64_t ns)
{
	change(cells, counters, count, round, ns);
}

/* The same with counters that only kernels know. */
__device__ uint32_t kept[2];

__global__ void change_cells_kept(
	volatile uint32_t *cells, const uint32_t *, uint32_t *, uint32_t count, uint32_t round, uint64_t ns)
{
	change(cells, kept, count, round, ns);
}

__global__ void read_kept(uint32_t *counters)
{
	counters[0] = kept[0];
	counters[1] = kept[1];
}

/* The same with its number from a constant. */
__constant__ uint32_t told;

__global__ void change_cells_told(
	volatile uint32_t *cells, const uint32_t *, uint32_t *counters, uint32_t count, uint32_t, uint64_t ns)
{
	change(cells, counters, count, told, ns);
}

/* The same with half of its changes before all blocks of the grid, or of the cluster, wait for one
 * another. */
__global__ void change_cells_cooperatively(
	volatile uint32_t *cells, const uint32_t *, uint32_t *counters, uint32_t count, uint32_t round, uint64_t ns)
{
	change_half(cells, counters, count, round, 0);
	cooperative_groups::this_grid().sync();
	wait_ns(ns);
	change_half(cells, counters, count, round, 1);
}

__global__ void change_cells_in_clusters(
	volatile uint32_t *cells, const uint32_t *, uint32_t *counters, uint32_t count, uint32_t round, uint64_t ns)
{
	change_half(cells, counters, count, round, 0);
	cooperative_groups::this_cluster().sync();
	wait_ns(ns);
	change_half(cells, counters, count, round, 1);
}

/* May be repeated: what it writes depends on nothing that it writes. */
__global__ void overwrite_cells(
	volatile uint32_t *cells, const uint32_t *input, uint32_t *, uint32_t count, uint32_t round, uint64_t ns)
{
	uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;

	for (uint32_t i = first; i < count / 2; i += step)
		cells[i] = stepped(input[i], round, i);
	wait_ns(ns);
	for (uint32_t i = count / 2 + first; i < count; i += step)
		cells[i] = stepped(input[i], round, i);
}

#else

__device__ static __noinline__ uint32_t recurse(uint32_t depth, volatile uint32_t *memory)
{
	volatile uint32_t local[64];

	for (unsigned i = 0; i < 64; i++)
		local[i] = depth + i;
	if (depth == 1u << 30)
		return local[*memory & 63];
	return recurse(depth + 1, memory) + local[(*memory + depth) & 63];
}

/* One thread of each warp does it, or all of them if the lane is none. */
#define FAULT(name, ...)                                                                                     \
	__global__ void fault_##name(volatile uint32_t *memory, uint64_t address, uint32_t lane)                 \
	{                                                                                                        \
		if (lane >= 32 || threadIdx.x % 32 == lane) {                                                        \
			__VA_ARGS__                                                                                      \
		}                                                                                                    \
	}

FAULT(none, memory[0] = (uint32_t)address;)
FAULT(write, *(volatile uint32_t *)address = 1;)
FAULT(read, memory[0] = *(volatile uint32_t *)address;)
FAULT(misaligned, *(volatile uint32_t *)address = 1;)
FAULT(shared, asm volatile("st.shared.u32 [%0], %1;" ::"r"(0xfffff0), "r"(1) : "memory");)
FAULT(stack, memory[0] = recurse((uint32_t)address, memory);)
FAULT(trap, asm volatile("trap;");)
FAULT(assert, assert(address == 1);)
FAULT(jump, ((void (*)(uint32_t))address)(1);)
/* matrix.py makes the instruction with this constant an illegal one. */
FAULT(illegal, memory[0] = (uint32_t)address ^ 0x5eedface;)
FAULT(endless, while (memory[1] != 0xffffffff);)

#endif
}
