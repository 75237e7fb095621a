// The fault matrix's kernels for the host backend, a module of it: matrix_kernels.cu has the same
// ones for a GPU. Faults are real signals: those of the processor where it raises them for C code,
// else the same signal with the same details sent to the thread.
//
// Waiting kernels sleep: there are more of them than processors.

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/host/kernel.h"

/* Crashes are meant: no sanitizer may report them instead. */
#define MEANT __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

#define KERNEL(name)                                                                                         \
	static MEANT void name(                                                                              \
		const struct host_grid *grid, const struct host_block_index *block, void **params)

static uint32_t stepped(uint32_t cell, uint32_t round, uint32_t position)
{
	uint32_t x = cell + round * UINT32_C(2654435761) + position;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static void wait_ns(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (nanosleep(&left, &left))
		;
}

struct pass_time_params {
	uint64_t ns;
};

KERNEL(pass_time)
{
	(void)grid;
	(void)block;
	wait_ns(HOST_VALUE(uint64_t, params[0]));
}

struct cells_params {
	uint64_t cells, input, counters;
	uint32_t count, round;
	uint64_t ns;
};

/* Blocks run one after the other: the last one does the work, so that it lasts as long as on a
 * GPU. */
static bool is_last(const struct host_grid *grid, const struct host_block_index *block)
{
	return block->x == grid->grid.x - 1;
}

static MEANT void change(_Atomic uint32_t *counters, uint32_t round, void **params)
{
	uint32_t *cells = HOST_POINTER(uint32_t, params[0]);
	uint32_t count = HOST_VALUE(uint32_t, params[3]);

	atomic_fetch_add(&counters[0], 1);
	for (uint32_t i = 0; i < count / 2; i++)
		cells[i] = stepped(cells[i], round, i);
	wait_ns(HOST_VALUE(uint64_t, params[5]));
	for (uint32_t i = count / 2; i < count; i++)
		cells[i] = stepped(cells[i], round, i);
	atomic_fetch_add(&counters[1], 1);
}

KERNEL(change_cells)
{
	if (is_last(grid, block))
		change(HOST_POINTER(_Atomic uint32_t, params[2]), HOST_VALUE(uint32_t, params[4]), params);
}

/* Only kernels know them. */
static _Atomic uint32_t kept[2];

KERNEL(change_cells_kept)
{
	if (is_last(grid, block))
		change(kept, HOST_VALUE(uint32_t, params[4]), params);
}

/* A constant. */
static uint32_t told;

KERNEL(change_cells_told)
{
	if (is_last(grid, block))
		change(HOST_POINTER(_Atomic uint32_t, params[2]), told, params);
}

struct kept_params {
	uint64_t counters;
};

KERNEL(read_kept)
{
	uint32_t *counters = HOST_POINTER(uint32_t, params[0]);

	(void)grid;
	(void)block;
	for (int i = 0; i < 2; i++)
		counters[i] = atomic_load(&kept[i]);
}

KERNEL(overwrite_cells)
{
	uint32_t *cells = HOST_POINTER(uint32_t, params[0]), round = HOST_VALUE(uint32_t, params[4]);
	const uint32_t *input = HOST_POINTER(uint32_t, params[1]);
	uint32_t count = HOST_VALUE(uint32_t, params[3]);

	if (!is_last(grid, block))
		return;
	for (uint32_t i = 0; i < count / 2; i++)
		cells[i] = stepped(input[i], round, i);
	wait_ns(HOST_VALUE(uint64_t, params[5]));
	for (uint32_t i = count / 2; i < count; i++)
		cells[i] = stepped(input[i], round, i);
}

struct fault_params {
	uint64_t memory, address;
	uint32_t lane; /* for a GPU */
};

#define FAULT_ARGUMENTS()                                                                                    \
	volatile uint32_t *memory = HOST_POINTER(volatile uint32_t, params[0]);                              \
	uint64_t address = HOST_VALUE(uint64_t, params[1]);                                                  \
	(void)grid;                                                                                          \
	(void)block;                                                                                         \
	(void)memory;                                                                                        \
	(void)address

/* Sends this thread the signal that its kernel would have raised. */
static void send_signal(int number, int code, uint64_t address)
{
	siginfo_t info = {.si_signo = number, .si_code = code};

	info.si_addr = (void *)(uintptr_t)address; /* NOLINT: an address that a GPU would have named */
	syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, &info);
}

KERNEL(fault_none)
{
	FAULT_ARGUMENTS();
	memory[0] = (uint32_t)address;
}

KERNEL(fault_write)
{
	FAULT_ARGUMENTS();
	*(volatile uint32_t *)(uintptr_t)address = 1;
}

KERNEL(fault_read)
{
	FAULT_ARGUMENTS();
	memory[0] = *(volatile uint32_t *)(uintptr_t)address;
}

/* The processor reads from odd addresses without complaint. */
KERNEL(fault_misaligned)
{
	FAULT_ARGUMENTS();
	send_signal(SIGBUS, BUS_ADRALN, address);
}

KERNEL(fault_shared)
{
	FAULT_ARGUMENTS();
	((volatile uint8_t *)block->shared)[UINT64_C(1) << 47] = 1;
}

static MEANT uint32_t deeper(volatile uint32_t depth)
{
	volatile uint8_t room[4096];

	room[depth % sizeof(room)] = 1;
	return depth == UINT32_MAX ? 0 : deeper(depth + 1) + room[0];
}

KERNEL(fault_stack)
{
	FAULT_ARGUMENTS();
	memory[0] = deeper(0);
}

/* The launch failed, which is all that a driver says of it. */
KERNEL(fault_trap)
{
	FAULT_ARGUMENTS();
#if defined(__x86_64__)
	__asm__ volatile("xor %%ecx, %%ecx\n\txor %%edx, %%edx\n\tmov $1, %%eax\n\tidiv %%ecx" ::
				 : "eax", "ecx", "edx");
#else
	raise(SIGFPE);
#endif
}

KERNEL(fault_assert)
{
	FAULT_ARGUMENTS();
	abort();
}

KERNEL(fault_jump)
{
	FAULT_ARGUMENTS();
	((void (*)(void))(uintptr_t)address)();
}

KERNEL(fault_illegal)
{
	FAULT_ARGUMENTS();
#if defined(__x86_64__)
	__asm__ volatile("ud2");
#else
	raise(SIGILL);
#endif
}

KERNEL(fault_endless)
{
	FAULT_ARGUMENTS();
	while (memory[1] != UINT32_MAX)
		wait_ns(1000000);
}

#define P(layout, member) HOST_PARAM(struct layout##_params, member)
static const struct host_param pass_time_list[] = {P(pass_time, ns)};
static const struct host_param cells_list[] = {
	P(cells, cells), P(cells, input), P(cells, counters), P(cells, count), P(cells, round), P(cells, ns)};
static const struct host_param kept_list[] = {P(kept, counters)};
static const struct host_param fault_list[] = {P(fault, memory), P(fault, address), P(fault, lane)};

HOST_KERNELS(HOST_KERNEL(pass_time, pass_time_list), HOST_KERNEL(change_cells, cells_list),
	HOST_KERNEL_KEEPS(change_cells_kept, cells_list), HOST_KERNEL(change_cells_told, cells_list),
	HOST_KERNEL(read_kept, kept_list), HOST_KERNEL(overwrite_cells, cells_list),
	HOST_KERNEL(fault_none, fault_list), HOST_KERNEL(fault_write, fault_list),
	HOST_KERNEL(fault_read, fault_list), HOST_KERNEL(fault_misaligned, fault_list),
	HOST_KERNEL(fault_shared, fault_list), HOST_KERNEL(fault_stack, fault_list),
	HOST_KERNEL(fault_trap, fault_list), HOST_KERNEL(fault_assert, fault_list),
	HOST_KERNEL(fault_jump, fault_list), HOST_KERNEL(fault_illegal, fault_list),
	HOST_KERNEL(fault_endless, fault_list));
HOST_VARIABLES(HOST_GLOBAL(kept));
HOST_CONSTANTS(HOST_GLOBAL(told));
