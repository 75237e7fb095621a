// Matrix products on the tensor cores (wmma): half, bfloat16, tf32, 8-bit integers, double.

#include "check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

/* One warp computes one m x n tile of c = a b; a is row-major, b column-major, n columns each. */
template <class In, class Fragment, class Out, int m, int n, int k>
__global__ void multiply(const In *a, const In *b, Out *c, int size)
{
	wmma::fragment<wmma::matrix_a, m, n, k, Fragment, wmma::row_major> part_a;
	wmma::fragment<wmma::matrix_b, m, n, k, Fragment, wmma::col_major> part_b;
	wmma::fragment<wmma::accumulator, m, n, k, Out> sum;
	int row = blockIdx.y * m, column = blockIdx.x * n;

	wmma::fill_fragment(sum, (Out)0);
	for (int i = 0; i < size; i += k) {
		wmma::load_matrix_sync(part_a, a + row * size + i, size);
		wmma::load_matrix_sync(part_b, b + column * size + i, size);
		wmma::mma_sync(sum, part_a, part_b, sum);
	}
	wmma::store_matrix_sync(c + row * size + column, sum, size, wmma::mem_row_major);
}

template <class In, class Fragment, class Out, int m, int n, int k> static void run(const char *label)
{
	const int size = 128;
	std::vector<uint32_t> words = random_words(2 * size * size);
	std::vector<In> a, b;

	/* Small integers: every product and sum is exact in every format. */
	for (int i = 0; i < size * size; i++) {
		a.push_back((In)(float)((int)(words[i] % 7) - 3));
		b.push_back((In)(float)((int)(words[size * size + i] % 5) - 2));
	}
	buffer<In> device_a(a), device_b(b);
	buffer<Out> device_c(size * size);
	multiply<In, Fragment, Out, m, n, k>
		<<<dim3(size / n, size / m), 32>>>(device_a, device_b, device_c, size);
	CHECK(cudaGetLastError());
	std::vector<Out> c = device_c.read();
	for (int row = 0; row < size; row++)
		for (int column = 0; column < size; column++) {
			int sum = 0;

			for (int i = 0; i < size; i++)
				sum += (int)(float)a[row * size + i] * (int)(float)b[column * size + i];
			EXPECT((int)(float)c[row * size + column] == sum);
		}
	report(label, c);
}

int main()
{
	run<__half, __half, float, 16, 16, 16>("half");
	run<__half, __half, __half, 32, 8, 16>("half to half");
	run<__nv_bfloat16, __nv_bfloat16, float, 16, 16, 16>("bfloat16");
	run<float, wmma::precision::tf32, float, 16, 16, 8>("tf32");
	run<signed char, signed char, int, 16, 16, 16>("8-bit integers");
	run<double, double, double, 8, 8, 4>("double");
	return 0;
}
