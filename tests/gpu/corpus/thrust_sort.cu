// Thrust: sorting, sums, scans, selection, sets and reductions by key of device vectors, in a
// stream as well.

#include "check.h"

#include <algorithm>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>

struct square {
	__host__ __device__ uint32_t operator()(uint32_t value) const
	{
		return value * value;
	}
};

struct upper_half {
	__host__ __device__ uint32_t operator()(uint32_t value) const
	{
		return value >> 16;
	}
};

struct odd {
	__host__ __device__ bool operator()(uint32_t value) const
	{
		return value % 2;
	}
};

template <class V> static void show(const char *label, const V &values)
{
	std::vector<uint32_t> host(values.size());

	thrust::copy(values.begin(), values.end(), host.begin());
	report(label, host);
}

int main()
{
	const size_t count = 500000;
	std::vector<uint32_t> words = random_words(count), sorted = words;
	thrust::device_vector<uint32_t> data(words.begin(), words.end()), index(count), out(count), keys,
		sums;
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	std::sort(sorted.begin(), sorted.end());
	thrust::sequence(index.begin(), index.end());
	thrust::sort_by_key(data.begin(), data.end(), index.begin());
	for (size_t i = 0; i < count; i += 9973)
		EXPECT(data[i] == sorted[i] && words[index[i]] == sorted[i]);
	show("sorted", data);
	show("order", index);
	printf("sum %u, largest %u\n", thrust::reduce(data.begin(), data.end()),
		thrust::reduce(data.begin(), data.end(), 0u, thrust::maximum<uint32_t>()));
	thrust::transform(data.begin(), data.end(), out.begin(), square());
	thrust::inclusive_scan(out.begin(), out.end(), out.begin());
	show("scan of squares", out);
	out.erase(thrust::copy_if(data.begin(), data.end(), out.begin(), odd()), out.end());
	printf("odd ones %zu\n", out.size());
	thrust::transform(data.begin(), data.end(), data.begin(), upper_half());
	keys.resize(count);
	sums.resize(count);
	thrust::fill(index.begin(), index.end(), 1);
	auto ends =
		thrust::reduce_by_key(data.begin(), data.end(), index.begin(), keys.begin(), sums.begin());
	keys.resize(ends.first - keys.begin());
	sums.resize(ends.second - sums.begin());
	show("keys", keys);
	show("sums", sums);
	data.assign(words.begin(), words.end());
	thrust::stable_sort(
		thrust::cuda::par.on(stream), data.begin(), data.end(), thrust::greater<uint32_t>());
	CHECK(cudaStreamSynchronize(stream));
	show("descending", data);
	return 0;
}
