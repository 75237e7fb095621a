// A separable convolution of an image: rows, then columns, the weights in constant memory, borders
// as zero.

#include "check.h"

const int radius = 6;

__constant__ float weights[2 * radius + 1];

template <bool columns> __global__ void convolve(const float *in, float *out, int width, int height)
{
	__shared__ float part[8][64 + 2 * radius];
	int along = blockIdx.x * 64 + threadIdx.x, across = blockIdx.y * 8 + threadIdx.y;
	int length = columns ? height : width, breadth = columns ? width : height;
	auto at = [&](int a, int b) { return columns ? a * width + b : b * width + a; };

	for (int i = threadIdx.x; i < 64 + 2 * radius; i += 64) {
		int from = (int)blockIdx.x * 64 + i - radius;

		part[threadIdx.y][i] =
			from >= 0 && from < length && across < breadth ? in[at(from, across)] : 0;
	}
	__syncthreads();
	if (along >= length || across >= breadth)
		return;
	float sum = 0;
	for (int i = 0; i <= 2 * radius; i++)
		sum += weights[i] * part[threadIdx.y][threadIdx.x + i];
	out[at(along, across)] = sum;
}

int main()
{
	const int width = 500, height = 333;
	std::vector<float> image = random_floats(width * height), kernel, result;
	buffer<float> in(image), middle(image.size()), out(image.size());

	for (int i = -radius; i <= radius; i++)
		kernel.push_back(1.0f / (float)(1 + i * i));
	CHECK(cudaMemcpyToSymbol(weights, kernel.data(), kernel.size() * sizeof(float)));
	convolve<false>
		<<<dim3((width + 63) / 64, (height + 7) / 8), dim3(64, 8)>>>(in, middle, width, height);
	convolve<true>
		<<<dim3((height + 63) / 64, (width + 7) / 8), dim3(64, 8)>>>(middle, out, width, height);
	CHECK(cudaGetLastError());
	result = out.read();
	for (int y = 0; y < height; y += 11)
		for (int x = 0; x < width; x += 7) {
			double sum = 0;

			for (int dy = -radius; dy <= radius; dy++)
				for (int dx = -radius; dx <= radius; dx++)
					if (x + dx >= 0 && x + dx < width && y + dy >= 0 && y + dy < height)
						sum += (double)kernel[dx + radius] * kernel[dy + radius] *
						       image[(y + dy) * width + x + dx];
			EXPECT(result[y * width + x] > sum - 1e-3 && result[y * width + x] < sum + 1e-3);
		}
	report("image", result);
	return 0;
}
