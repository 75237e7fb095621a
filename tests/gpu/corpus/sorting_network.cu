// A bitonic sort of keys with values: its large steps in global memory, the small ones in shared
// memory; hundreds of launches.

#include "check.h"

const int span = 1024;

static __device__ void order(uint32_t &a, uint32_t &b, uint32_t &x, uint32_t &y, bool up)
{
	if ((a > b) != up)
		return;
	uint32_t key = a, value = x;
	a = b;
	x = y;
	b = key;
	y = value;
}

__global__ void far_step(uint32_t *key, uint32_t *value, int size, int distance)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, low = 2 * i - (i & (distance - 1));

	order(key[low], key[low + distance], value[low], value[low + distance], (low & size) == 0);
}

__global__ void near_steps(uint32_t *key, uint32_t *value, int first_size, int last_size, int distance)
{
	__shared__ uint32_t k[span], v[span];
	int base = blockIdx.x * span, i = threadIdx.x;

	for (int at = i; at < span; at += span / 2) {
		k[at] = key[base + at];
		v[at] = value[base + at];
	}
	for (int size = first_size; size <= last_size; size *= 2)
		for (int d = min(size / 2, distance); d > 0; d /= 2) {
			int low = 2 * i - (i & (d - 1));

			__syncthreads();
			order(k[low], k[low + d], v[low], v[low + d], ((base + low) & size) == 0);
		}
	__syncthreads();
	for (int at = i; at < span; at += span / 2) {
		key[base + at] = k[at];
		value[base + at] = v[at];
	}
}

int main()
{
	const int count = 1 << 18;
	std::vector<uint32_t> words = random_words(count), places(count), sorted;

	for (int i = 0; i < count; i++)
		places[i] = i;
	buffer<uint32_t> key(words), value(places);
	near_steps<<<count / span, span / 2>>>(key, value, 2, span, span / 2);
	CHECK(cudaGetLastError());
	for (int size = 2 * span; size <= count; size *= 2) {
		for (int distance = size / 2; distance >= span; distance /= 2)
			far_step<<<count / 512, 256>>>(key, value, size, distance);
		near_steps<<<count / span, span / 2>>>(key, value, size, size, span / 2);
	}
	CHECK(cudaGetLastError());
	sorted = key.read();
	places = value.read();
	for (int i = 0; i < count; i++)
		EXPECT((i == 0 || sorted[i - 1] <= sorted[i]) && words[places[i]] == sorted[i]);
	report("sorted", sorted);
	report("places", places);
	return 0;
}
