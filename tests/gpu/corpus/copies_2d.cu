// Pitched memory and two-dimensional copies: whole, parts of rows, device to device, asynchronous,
// wrong pitches.

#include "check.h"

__global__ void add_coordinates(uint16_t *data, size_t pitch, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < width && y < height)
		((uint16_t *)((char *)data + y * pitch))[x] += (uint16_t)(x * 3 + y * 5);
}

int main()
{
	const int width = 301, height = 77;
	const size_t row = width * 2;
	std::vector<uint16_t> host(width * height), back(width * height, 0);
	uint16_t *a, *b;
	size_t pitch_a, pitch_b;

	for (size_t i = 0; i < host.size(); i++)
		host[i] = (uint16_t)(i * 7);
	CHECK(cudaMallocPitch(&a, &pitch_a, row, height));
	CHECK(cudaMallocPitch(&b, &pitch_b, row + 1000, height));
	printf("pitches %zu %zu\n", pitch_a, pitch_b);
	CHECK(cudaMemcpy2D(a, pitch_a, host.data(), row, row, height, cudaMemcpyHostToDevice));
	add_coordinates<<<dim3(2, height), 256>>>(a, pitch_a, width, height);
	CHECK(cudaGetLastError());
	CHECK(cudaMemset2D(b, pitch_b, 0x11, row + 1000, height));
	CHECK(cudaMemcpy2D(b, pitch_b, a, pitch_a, row, height, cudaMemcpyDeviceToDevice));
	CHECK(cudaMemcpy2D(back.data(), row, b, pitch_b, row, height, cudaMemcpyDeviceToHost));
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			EXPECT(back[y * width + x] == (uint16_t)(host[y * width + x] + x * 3 + y * 5));
	report("whole", back);
	/* A window of 50 x 20 at (30, 40) of one goes to (7, 3) of the other, and the whole comes
	 * back. */
	CHECK(cudaMemcpy2DAsync((char *)b + 3 * pitch_b + 7 * 2, pitch_b, (char *)a + 40 * pitch_a + 30 * 2,
		pitch_a, 50 * 2, 20, cudaMemcpyDeviceToDevice, 0));
	CHECK(cudaMemcpy2DAsync(back.data(), row, b, pitch_b, row, height, cudaMemcpyDefault, 0));
	CHECK(cudaStreamSynchronize(0));
	report("window", back);
	CHECK(cudaMemcpy2D(a, pitch_a, host.data(), row, 0, height, cudaMemcpyHostToDevice));
	printf("pitch too small: %s\n",
		name_of(cudaMemcpy2D(a, 100, host.data(), row, row, height, cudaMemcpyHostToDevice)));
	printf("last %s, then %s\n", name_of(cudaGetLastError()), name_of(cudaGetLastError()));
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	return 0;
}
