// The standard library on the device: arrays, tuples, optionals, complex numbers, atomics of
// several scopes, waits on them.

#include "check.h"

#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/tuple>
#include <cuda/std/utility>

__device__ cuda::std::optional<int> halve(int value)
{
	if (value % 2)
		return cuda::std::nullopt;
	return value / 2;
}

__global__ void compute(float *out, int *whole)
{
	int i = threadIdx.x;
	cuda::std::array<int, 5> row = {i, i + 1, i + 2, i + 3, i + 4};
	auto pair = cuda::std::make_tuple(i * 2, 0.5f);
	cuda::std::complex<float> z(0, 0), c(i / 64.0f - 1.5f, 0.3f);
	int steps = 0, sum = 0;

	for (int value : row)
		sum += halve(value).value_or(-1);
	while (steps < 100 && z.real() * z.real() + z.imag() * z.imag() < 4) {
		z = z * z + c;
		steps++;
	}
	out[i] = cuda::std::get<1>(pair) * cuda::std::get<0>(pair) + z.real();
	whole[i] = sum * 1000 + steps + (cuda::std::numeric_limits<short>::max)() % 10;
}

/* The first block writes and releases, the second acquires and reads. */
__global__ void hand_over(cuda::atomic<int, cuda::thread_scope_device> *flag, int *payload, int *seen)
{
	if (blockIdx.x == 0) {
		*payload = 4321;
		flag->store(1, cuda::std::memory_order_release);
		return;
	}
	for (int tries = 0; tries < 10000000 && !flag->load(cuda::std::memory_order_acquire); tries++)
		;
	*seen = flag->load() ? *payload : -1;
}

__global__ void count(int *word, int *highest)
{
	cuda::atomic_ref<int, cuda::thread_scope_device> total(*word), most(*highest);

	total.fetch_add(2, cuda::std::memory_order_relaxed);
	most.fetch_max((int)(blockIdx.x * blockDim.x + threadIdx.x));
}

int main()
{
	buffer<float> out(256);
	buffer<int> whole(256), words(8);

	compute<<<1, 256>>>(out, whole);
	hand_over<<<2, 1>>>((cuda::atomic<int, cuda::thread_scope_device> *)words.at, words + 1, words + 2);
	count<<<20, 100>>>(words + 3, words + 4);
	CHECK(cudaGetLastError());
	report("numbers", out.read());
	report("whole", whole.read());
	printf("seen %d, total %d, highest %d\n", words.read()[2], words.read()[3], words.read()[4]);
	EXPECT(words.read()[2] == 4321 && words.read()[3] == 4000);
	return 0;
}
