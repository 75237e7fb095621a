// A matrix product in tiles of shared memory, launched over and over in one stream.

#include "check.h"

template <int tile> __global__ void multiply(const float *a, const float *b, float *c, int n)
{
	__shared__ float part_a[tile][tile], part_b[tile][tile];
	int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
	float sum = 0;

	for (int k = 0; k < n; k += tile) {
		part_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
		part_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
		__syncthreads();
		for (int i = 0; i < tile; i++)
			sum += part_a[threadIdx.y][i] * part_b[i][threadIdx.x];
		__syncthreads();
	}
	c[row * n + column] = sum;
}

int main()
{
	const int n = 320;
	std::vector<float> a = random_floats(n * n, 3), b = random_floats(n * n, 4), c;
	buffer<float> device_a(a), device_b(b), device_c(n * n);

	for (int i = 0; i < 50; i++)
		multiply<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(device_a, device_b, device_c, n);
	CHECK(cudaGetLastError());
	c = device_c.read();
	for (int row = 0; row < n; row += 7)
		for (int column = 0; column < n; column += 5) {
			double sum = 0;

			for (int k = 0; k < n; k++)
				sum += (double)a[row * n + k] * b[k * n + column];
			EXPECT(c[row * n + column] > sum - 1e-2 && c[row * n + column] < sum + 1e-2);
		}
	report("tile 16", c);
	multiply<32><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(device_a, device_b, device_c, n);
	CHECK(cudaGetLastError());
	report("tile 32", device_c.read());
	return 0;
}
