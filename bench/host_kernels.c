// The benchmarks' kernels for the host backend, with the names and parameters of the PTX kernels in
// bench/lib/driver.c, bench/fault.c and bench/shares.c. A fault is a real signal.

#include <stdlib.h>
#include <time.h>

#include "tests/host/kernel.h"

/* These faults are deliberate: no sanitizer may report them instead. */
#define MEANT __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

static uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void empty(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
}

struct spin_params {
	uint64_t out, ns;
};

static void spin(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t begin = nanoseconds(), *out = HOST_POINTER(uint64_t, params[0]);

	(void)grid;
	(void)block;
	while (nanoseconds() - begin < HOST_VALUE(uint64_t, params[1]))
		;
	if (out)
		*out = nanoseconds();
}

struct tally_params {
	uint64_t cells, ns;
	uint32_t round;
};

/* Waits asleep: there may be more blocks than processors. */
static void tally(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	volatile uint32_t *cells = HOST_POINTER(volatile uint32_t, params[0]);
	uint64_t ns = HOST_VALUE(uint64_t, params[1]);
	uint32_t round = HOST_VALUE(uint32_t, params[2]);
	struct timespec left = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	(void)grid;
	(void)block;
	if (cells[0] != round)
		cells[2] = 1;
	cells[0] = round + 1;
	while (nanosleep(&left, &left))
		;
	if (cells[1] != round)
		cells[2] = 1;
	cells[1] = round + 1;
}

struct work_params {
	uint64_t out;
	uint32_t rounds;
};

/* Waits asleep, as long as the whole grid would take. */
static void work(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t ns = (uint64_t)HOST_VALUE(uint32_t, params[1]) * 160;
	struct timespec left = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	(void)grid;
	if (block->x)
		return;
	while (nanosleep(&left, &left))
		;
}

struct fault_params {
	uint64_t address;
};

static MEANT void fault_write(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*(volatile uint32_t *)(uintptr_t)HOST_VALUE(uint64_t, params[0]) = 1;
}

/* The driver reports such a fault only as a failed launch. */
static MEANT void fault_trap(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
	abort();
}

static const struct host_param tally_list[] = {HOST_PARAM(struct tally_params, cells),
	HOST_PARAM(struct tally_params, ns), HOST_PARAM(struct tally_params, round)};
static const struct host_param fault_list[] = {HOST_PARAM(struct fault_params, address)};

static const struct host_param spin_list[] = {
	HOST_PARAM(struct spin_params, out), HOST_PARAM(struct spin_params, ns)};

static const struct host_param work_list[] = {
	HOST_PARAM(struct work_params, out), HOST_PARAM(struct work_params, rounds)};

HOST_KERNELS(HOST_KERNEL_PLAIN(empty), HOST_KERNEL(spin, spin_list), HOST_KERNEL(tally, tally_list),
	HOST_KERNEL(work, work_list), HOST_KERNEL(fault_write, fault_list),
	HOST_KERNEL(fault_trap, fault_list));
