// Transposition of a matrix: straightforward, and through tiles of shared memory.

#include "check.h"

const int tile = 32, rows = 8;

__global__ void plainly(const float *in, float *out, int width, int height)
{
	int x = blockIdx.x * tile + threadIdx.x;

	for (int y = blockIdx.y * tile + threadIdx.y; y < min((int)(blockIdx.y + 1) * tile, height);
		y += rows)
		if (x < width)
			out[x * height + y] = in[y * width + x];
}

__global__ void in_tiles(const float *in, float *out, int width, int height)
{
	__shared__ float part[tile][tile + 1];
	int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y * tile + threadIdx.y;

	for (int i = 0; i < tile; i += rows)
		if (x < width && y + i < height)
			part[threadIdx.y + i][threadIdx.x] = in[(y + i) * width + x];
	__syncthreads();
	x = blockIdx.y * tile + threadIdx.x;
	y = blockIdx.x * tile + threadIdx.y;
	for (int i = 0; i < tile; i += rows)
		if (x < height && y + i < width)
			out[(y + i) * height + x] = part[threadIdx.x][threadIdx.y + i];
}

int main()
{
	for (int width : {1, 33, 1024, 1999}) {
		const int height = 777;
		std::vector<float> matrix = random_floats(width * height), model(matrix.size());
		buffer<float> in(matrix), out(matrix.size());
		dim3 grid((width + tile - 1) / tile, (height + tile - 1) / tile), block(tile, rows);

		for (int y = 0; y < height; y++)
			for (int x = 0; x < width; x++)
				model[x * height + y] = matrix[y * width + x];
		plainly<<<grid, block>>>(in, out, width, height);
		CHECK(cudaGetLastError());
		EXPECT(out.read() == model);
		CHECK(cudaMemset(out, 0, out.bytes()));
		in_tiles<<<grid, block>>>(in, out, width, height);
		CHECK(cudaGetLastError());
		EXPECT(out.read() == model);
		report("transposed", model);
	}
	return 0;
}
