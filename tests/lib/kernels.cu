// The system tests' kernels for a GPU. tests/lib/host_kernels.c has the same kernels for the host
// backend, with the same names, parameters and results.

#include <cassert>
#include <cstdint>

extern "C" {

__device__ uint32_t global_words[4] = {11, 22, 33, 44};
__constant__ uint32_t constant_words[4] = {5, 6, 7, 8};
__constant__ uint32_t settings[64] = {1, 2, 3};
/* Only kernels know it. */
__device__ uint32_t tally = 1000;

__device__ static uint32_t scramble(uint32_t x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

__device__ static uint64_t first(void)
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ static uint64_t step(void)
{
	return gridDim.x * (uint64_t)blockDim.x;
}

__global__ void add_vectors(uint32_t *out, const uint32_t *a, const uint32_t *b, uint64_t count)
{
	for (uint64_t i = first(); i < count; i += step())
		out[i] = a[i] + b[i];
}

__global__ void fill(uint32_t *out, uint32_t value, uint64_t count)
{
	for (uint64_t i = first(); i < count; i += step())
		out[i] = value;
}

/* out is a pure function of in, round and position: overwrites, never reads what it wrote. */
__global__ void mix(uint32_t *out, const uint32_t *in, uint32_t round, uint64_t count)
{
	for (uint64_t i = first(); i < count; i += step())
		out[i] = scramble(in[i] + round * 2654435761u + (uint32_t)i);
}

/* Reads what it writes: repeating it would be seen. */
__global__ void count_up(uint32_t *word, uint32_t by)
{
	if (threadIdx.x == 0)
		atomicAdd(word, by);
}

__global__ void __cluster_dims__(1, 1, 1) count_alone(uint32_t *word, uint32_t by)
{
	if (threadIdx.x == 0)
		atomicAdd(word, by);
}

/* A condition becomes the word, or whether that is below a number. */
__global__ void decide(cudaGraphConditionalHandle handle, const uint32_t *word, uint32_t below)
{
	cudaGraphSetConditional(handle, below ? *word < below : *word);
}

/* A word for each multiprocessor on which its blocks run. They take long enough for all of these to
 * get some. */
__global__ void mark_sms(uint32_t *out)
{
	uint64_t begin = clock64();
	uint32_t sm;

	while (clock64() - begin < 50000)
		;
	asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
	if (threadIdx.x == 0)
		out[sm] = 1;
}

__global__ void spin_until(const volatile uint32_t *word, uint32_t value)
{
	while (*word != value)
		;
	__threadfence_system();
}

/* Says that it runs, and ends when it is told to. */
__global__ void occupy(volatile uint32_t *words)
{
	words[2]++;
	words[0] = 1;
	while (!words[1])
		;
}

__global__ void spin_ns(uint64_t ns)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < ns);
}

__global__ void read_words(uint32_t *out)
{
	for (int i = 0; i < 4; i++) {
		out[i] = global_words[i];
		out[i + 4] = constant_words[i];
	}
}

__global__ void tally_up(uint32_t by)
{
	atomicAdd(&tally, by);
}

__global__ void read_tally(uint32_t *out)
{
	*out = tally;
}

__global__ void read_settings(uint32_t *out)
{
	for (int i = 0; i < 64; i++)
		out[i] = settings[i];
}

__global__ void fetch_texels(
	uint32_t *out, const cudaTextureObject_t *textures, uint64_t count, uint32_t width, uint32_t height)
{
	for (uint64_t i = first(); i < count; i += step()) {
		uint32_t sum = 0;

		for (uint32_t at = 0; at < width * height; at++)
			sum += tex2D<unsigned int>(textures[i], at % width + 0.5f, at / width + 0.5f);
		out[i] = sum;
	}
}

/* Of linear memory. */
__global__ void fetch_pairs(float2 *out, cudaTextureObject_t texture, uint64_t count)
{
	for (uint64_t i = first(); i < count; i += step())
		out[i] = tex1Dfetch<float2>(texture, (int)i);
}

__global__ void bump_surfaces(const cudaSurfaceObject_t *surfaces, uint64_t count, uint32_t by)
{
	for (uint64_t i = first(); i < count; i += step())
		surf2Dwrite(surf2Dread<unsigned int>(surfaces[i], 0, 0) + by, surfaces[i], 0, 0);
}

__global__ void crash_write(uint64_t address)
{
	*(volatile uint32_t *)address = 1;
}

/* Counts its runs, and faults when as many are to fault. */
__global__ void crash_when_told(volatile uint32_t *words, uint64_t address)
{
	uint32_t run = words[0] + 1;

	words[0] = run;
	while (words[1] < run)
		;
	*(volatile uint32_t *)address = 1;
}

__global__ void crash_trap(void)
{
	asm volatile("trap;");
}

__global__ void crash_assert(void)
{
	assert(blockDim.x == 0);
}

__global__ void endless(void)
{
	/* A loop without an effect may be left out by the compiler. */
	for (;;)
		asm volatile("nanosleep.u32 1000;");
}
}
