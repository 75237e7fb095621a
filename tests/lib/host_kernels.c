// The test kernels for the host backend: a shared object that the backend loads as a module.
// kernels.cu has the same kernels for a GPU, except those that only make sense here (scale and what
// follows it).

#include "tests/lib/host_kernels.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/host/kernel.h"

/* Crashes are meant: no sanitizer may report them instead. */
#define MEANT __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

static uint32_t global_words[4] = {11, 22, 33, 44};
static uint32_t constant_words[4] = {5, 6, 7, 8};
/* Only kernels know it. */
static _Atomic uint32_t tally = 1000;

static uint32_t scramble(uint32_t x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

/* Steps through `count` elements as a grid-stride loop does. */
#define FOR_ELEMENTS(i, count)                                                                               \
	HOST_FOR_THREADS(grid, thread)                                                                       \
	for (uint64_t i = host_global_thread(grid, block, thread), stride = all_threads(grid); i < (count);  \
		i += stride)

static uint64_t all_threads(const struct host_grid *grid)
{
	return (uint64_t)grid->grid.x * grid->block.x;
}

static void add_vectors(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *out = HOST_POINTER(uint32_t, params[0]);
	const uint32_t *a = HOST_POINTER(uint32_t, params[1]), *b = HOST_POINTER(uint32_t, params[2]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[3]))
	out[i] = a[i] + b[i];
}

static void fill(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *out = HOST_POINTER(uint32_t, params[0]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[2]))
	out[i] = HOST_VALUE(uint32_t, params[1]);
}

static void mix(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *out = HOST_POINTER(uint32_t, params[0]);
	const uint32_t *in = HOST_POINTER(uint32_t, params[1]);
	uint32_t round = HOST_VALUE(uint32_t, params[2]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[3]))
	out[i] = scramble(in[i] + round * UINT32_C(2654435761) + (uint32_t)i);
}

static void count_up(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	atomic_fetch_add(HOST_POINTER(_Atomic uint32_t, params[0]), HOST_VALUE(uint32_t, params[1]));
}

/* Its blocks have 32 by 2 threads. CUDA C++ has no word for that alone: on a GPU the kernel is one
 * of test_semantics.c. */
static void count_shaped(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	count_up(grid, block, params);
}

static void count_alone(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	count_up(grid, block, params);
}

/* What kernels do with cudaGraphSetConditional(). */
static void decide(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	_Atomic uint32_t *condition = HOST_POINTER(_Atomic uint32_t, params[0]);
	uint32_t value = atomic_load(HOST_POINTER(_Atomic uint32_t, params[1]));
	uint32_t below = HOST_VALUE(uint32_t, params[2]);

	(void)grid;
	(void)block;
	atomic_store(condition, below ? value < below : value);
}

/* Longer each time, up to two milliseconds: many kernels that wait run at a time on few processors,
 * which have no time for anything else if each is woken every few microseconds. */
static void nap(long *ns)
{
	const struct timespec time = {.tv_nsec = *ns};

	nanosleep(&time, NULL);
	*ns += *ns < 2000000 ? *ns / 8 : 0;
}

static void spin_until(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	long ns = 50000;

	(void)grid;
	(void)block;
	while (atomic_load(HOST_POINTER(_Atomic uint32_t, params[0])) != HOST_VALUE(uint32_t, params[1]))
		nap(&ns);
}

/* Counts its runs, says that it runs, and ends when it is told to. */
static void occupy(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	_Atomic uint32_t *words = HOST_POINTER(_Atomic uint32_t, params[0]);
	long ns = 50000;

	(void)grid;
	(void)block;
	atomic_fetch_add(&words[2], 1);
	atomic_store(&words[0], 1);
	while (!atomic_load(&words[1]))
		nap(&ns);
}

/* Counts for the trial (server/backend/trial.h). */
static void count_beside(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	_Atomic uint64_t *count = HOST_POINTER(_Atomic uint64_t, params[0]);
	uint64_t *results = HOST_POINTER(uint64_t, params[1]), counted = 0;
	_Atomic uint32_t *gate = HOST_POINTER(_Atomic uint32_t, params[2]);
	long ns = 50000;

	(void)grid;
	(void)block;
	while (!atomic_load(gate)) {
		counted++;
		atomic_fetch_add(count, 1);
		nap(&ns);
	}
	results[0] = results[1] = counted;
}

/* The same, and a step is taken twice. */
static void count_beside_wrong(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	count_beside(grid, block, params);
	atomic_fetch_add(HOST_POINTER(_Atomic uint64_t, params[0]), 1);
}

static uint64_t nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void spin_ns(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t ns = HOST_VALUE(uint64_t, params[0]), end = nanoseconds() + ns;
	const struct timespec time = {
		.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};

	(void)grid;
	(void)block;
	/* Programs that share few processors need them more than this does. */
	while (ns >= 100000 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
	while (nanoseconds() < end)
		;
}

static void read_limits(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t *out = HOST_POINTER(uint64_t, params[0]);

	(void)grid;
	for (unsigned i = 0; i < 5; i++)
		out[i] = block->limits[i];
}

static void mark_sms(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)block;
	for (uint32_t i = 0; i < 64; i++)
		if (grid->sms >> i & 1)
			HOST_POINTER(uint32_t, params[0])[i] = 1;
}

static void read_words(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	memcpy(HOST_POINTER(uint32_t, params[0]), global_words, sizeof(global_words));
	memcpy(HOST_POINTER(uint32_t, params[0]) + 4, constant_words, sizeof(constant_words));
}

static void tally_up(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	atomic_fetch_add(&tally, HOST_VALUE(uint32_t, params[0]));
}

static void read_tally(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*HOST_POINTER(uint32_t, params[0]) = atomic_load(&tally);
}

static void fetch_texels(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *out = HOST_POINTER(uint32_t, params[0]);
	const uint64_t *textures = HOST_POINTER(uint64_t, params[1]);
	uint32_t width = HOST_VALUE(uint32_t, params[3]), height = HOST_VALUE(uint32_t, params[4]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[2]))
	{
		out[i] = 0;
		for (uint32_t at = 0; at < width * height; at++)
			out[i] += *(const uint32_t *)host_texture(
				block, textures[i], at % width, at / width, 0);
	}
}

static void fetch_pairs(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t *out = HOST_POINTER(uint64_t, params[0]), texture = HOST_VALUE(uint64_t, params[1]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[2]))
	memcpy(&out[i], host_texture(block, texture, i, 0, 0), sizeof(out[i]));
}

static void bump_surfaces(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	const uint64_t *surfaces = HOST_POINTER(uint64_t, params[0]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[1]))
	*(uint32_t *)host_surface(block, surfaces[i], 0, 0, 0) += HOST_VALUE(uint32_t, params[2]);
}

static void scale(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	float *data = HOST_POINTER(float, params[0]);

	FOR_ELEMENTS(i, HOST_VALUE(uint64_t, params[1]))
	data[i] *= HOST_VALUE(float, params[2]);
}

static void reverse(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t count = HOST_VALUE(uint64_t, params[1]);
	uint32_t *out = HOST_POINTER(uint32_t, params[0]), *shared = block->shared;

	(void)grid;
	for (uint64_t i = 0; i < count; i++)
		shared[i] = out[i];
	for (uint64_t i = 0; i < count; i++)
		out[i] = shared[count - 1 - i];
}

static void echo(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint8_t *out = HOST_POINTER(uint8_t, params[5]);

	(void)grid;
	(void)block;
	*out++ = HOST_VALUE(uint8_t, params[0]);
	memcpy(out, params[1], 8);
	memcpy(out + 8, params[2], 2);
	memcpy(out + 10, params[3], sizeof(struct odd_inner));
	memcpy(out + 34, params[4], 4);
}

static void number_blocks(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t number = block->x + grid->grid.x * (block->y + grid->grid.y * block->z);

	HOST_POINTER(uint32_t, params[0])[number] = number + 1;
}

static MEANT void crash_write(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*HOST_POINTER(volatile uint32_t, params[0]) = 1;
}

/* Counts its runs, and faults when as many are to fault. */
static MEANT void crash_when_told(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	_Atomic uint32_t *words = HOST_POINTER(_Atomic uint32_t, params[0]);
	uint32_t run = atomic_fetch_add(&words[0], 1) + 1;
	long ns = 50000;

	(void)grid;
	(void)block;
	while (atomic_load(&words[1]) < run)
		nap(&ns);
	*HOST_POINTER(volatile uint32_t, params[1]) = 1;
}

/* What a GPU calls a trap: the launch failed. */
static void crash_trap(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
	abort();
}

/* An assertion that fails. */
static void crash_assert(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
	raise(SIGTRAP);
}

static MEANT void crash_illegal(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
#if defined(__x86_64__)
	__asm__ volatile("ud2");
#else
	raise(SIGILL);
#endif
}

static MEANT void crash_divide(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
#if defined(__x86_64__)
	__asm__ volatile("xor %%ecx, %%ecx\n\txor %%edx, %%edx\n\tmov $1, %%eax\n\tidiv %%ecx" ::
				 : "eax", "ecx", "edx");
#else
	raise(SIGFPE);
#endif
}

static MEANT uint32_t deeper(volatile uint32_t depth)
{
	volatile uint8_t room[4096];

	room[depth % sizeof(room)] = 1;
	return depth == UINT32_MAX ? 0 : deeper(depth + 1) + room[0];
}

static MEANT void crash_stack(
	const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
	deeper(0);
}

static void endless(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	volatile uint32_t word = 0;
	const struct timespec nap = {.tv_nsec = 1000000};

	(void)grid;
	(void)block;
	(void)params;
	while (word == 0)
		nanosleep(&nap, NULL);
}

#define P(layout, member) HOST_PARAM(struct layout##_params, member)
static const struct host_param add_vectors_list[] = {
	P(add_vectors, out), P(add_vectors, a), P(add_vectors, b), P(add_vectors, count)};
static const struct host_param fill_list[] = {P(fill, out), P(fill, value), P(fill, count)};
static const struct host_param mix_list[] = {P(mix, out), P(mix, in), P(mix, round), P(mix, count)};
static const struct host_param fetch_texels_list[] = {P(fetch_texels, out), P(fetch_texels, textures),
	P(fetch_texels, count), P(fetch_texels, width), P(fetch_texels, height)};
static const struct host_param fetch_pairs_list[] = {
	P(fetch_pairs, out), P(fetch_pairs, texture), P(fetch_pairs, count)};
static const struct host_param bump_surfaces_list[] = {
	P(bump_surfaces, surfaces), P(bump_surfaces, count), P(bump_surfaces, by)};
static const struct host_param scale_list[] = {P(scale, data), P(scale, count), P(scale, factor)};
static const struct host_param count_up_list[] = {P(count_up, word), P(count_up, by)};
static const struct host_param decide_list[] = {P(decide, handle), P(decide, word), P(decide, below)};
static const struct host_param spin_until_list[] = {P(spin_until, word), P(spin_until, value)};
static const struct host_param count_beside_list[] = {
	P(count_beside, counts), P(count_beside, results), P(count_beside, gate)};
static const struct host_param occupy_list[] = {P(occupy, words)};
static const struct host_param spin_ns_list[] = {P(spin_ns, ns)};
static const struct host_param read_limits_list[] = {P(read_limits, out)};
static const struct host_param mark_sms_list[] = {P(mark_sms, out)};
static const struct host_param read_words_list[] = {P(read_words, out)};
static const struct host_param tally_up_list[] = {P(tally_up, by)};
static const struct host_param read_tally_list[] = {P(read_tally, out)};
static const struct host_param reverse_list[] = {P(reverse, out), P(reverse, count)};
static const struct host_param echo_list[] = {
	P(echo, a), P(echo, b), P(echo, c), P(echo, d), P(echo, e), P(echo, out)};
static const struct host_param number_blocks_list[] = {P(number_blocks, out)};
static const struct host_param crash_write_list[] = {P(crash_write, address)};
static const struct host_param crash_when_told_list[] = {
	P(crash_when_told, words), P(crash_when_told, address)};

HOST_KERNELS(HOST_KERNEL(add_vectors, add_vectors_list), HOST_KERNEL(fill, fill_list),
	HOST_KERNEL(mix, mix_list), HOST_KERNEL(count_up, count_up_list),
	HOST_KERNEL_SHAPED(count_shaped, count_up_list, 32, 2, 1),
	HOST_KERNEL_ALONE(count_alone, count_up_list), HOST_KERNEL(decide, decide_list),
	HOST_KERNEL(spin_until, spin_until_list), HOST_KERNEL(occupy, occupy_list),
	HOST_KERNEL(count_beside, count_beside_list), HOST_KERNEL(count_beside_wrong, count_beside_list),
	HOST_KERNEL(spin_ns, spin_ns_list), HOST_KERNEL(fetch_texels, fetch_texels_list),
	HOST_KERNEL(fetch_pairs, fetch_pairs_list), HOST_KERNEL(bump_surfaces, bump_surfaces_list),
	HOST_KERNEL(mark_sms, mark_sms_list), HOST_KERNEL(read_words, read_words_list),
	HOST_KERNEL(read_limits, read_limits_list), HOST_KERNEL_KEEPS(tally_up, tally_up_list),
	HOST_KERNEL(read_tally, read_tally_list), HOST_KERNEL(crash_write, crash_write_list),
	HOST_KERNEL(crash_when_told, crash_when_told_list), HOST_KERNEL_PLAIN(crash_trap),
	HOST_KERNEL_PLAIN(crash_assert), HOST_KERNEL_PLAIN(endless), HOST_KERNEL(scale, scale_list),
	HOST_KERNEL(reverse, reverse_list), HOST_KERNEL(echo, echo_list),
	HOST_KERNEL(number_blocks, number_blocks_list), HOST_KERNEL_PLAIN(crash_illegal),
	HOST_KERNEL_PLAIN(crash_divide), HOST_KERNEL_PLAIN(crash_stack));
HOST_GLOBALS(HOST_GLOBAL(global_words), HOST_GLOBAL(constant_words));
HOST_VARIABLES(HOST_GLOBAL(tally));
