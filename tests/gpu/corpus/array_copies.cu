// Copies of CUDA arrays: to and from host, device and other arrays, windows, asynchronous, and the
// driver's own calls.

#include "check.h"

int main()
{
	const int width = 120, height = 45;
	const size_t row = width * sizeof(float);
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<float> image = random_floats(width * height), back(image.size(), 0), line(64, 0);
	cudaArray_t first, second;
	CUDA_ARRAY_DESCRIPTOR flat = {64, 0, CU_AD_FORMAT_FLOAT, 1}, seen;
	CUDA_ARRAY3D_DESCRIPTOR deep = {20, 10, 5, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, deep_seen;
	CUarray array;
	cudaStream_t stream;
	buffer<float> device(image.size());

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMallocArray(&first, &format, width, height));
	CHECK(cudaMallocArray(&second, &format, width, height));
	CHECK(cudaMemcpy2DToArray(first, 0, 0, image.data(), row, row, height, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy2DArrayToArray(second, 0, 0, first, 0, 0, row, height, cudaMemcpyDeviceToDevice));
	CHECK(cudaMemcpy2DFromArray(back.data(), row, second, 0, 0, row, height, cudaMemcpyDeviceToHost));
	EXPECT(back == image);
	CHECK(cudaMemcpy2DFromArrayAsync(
		device, row, first, 0, 0, row, height, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaMemcpy2DToArrayAsync(
		second, 40, 7, device + 5 * width + 3, row, 200, 20, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaMemcpy2DFromArrayAsync(
		back.data(), row, second, 0, 0, row, height, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++) {
			bool inside = x >= 10 && x < 60 && y >= 7 && y < 27;

			EXPECT(back[y * width + x] ==
				image[inside ? (y - 2) * width + x - 7 : y * width + x]);
		}
	report("window", back);
	CHECK(cudaFreeArray(first));
	CHECK(cudaFreeArray(second));

	CHECK(cuArrayCreate(&array, &flat));
	CHECK(cuArrayGetDescriptor(&seen, array));
	printf("descriptor %zu x %zu, format %d, %u channels\n", seen.Width, seen.Height, (int)seen.Format,
		seen.NumChannels);
	CHECK(cuMemcpyHtoA(array, 0, image.data(), 256));
	CHECK(cuMemcpyAtoD((CUdeviceptr)device.at, array, 16, 200));
	CHECK(cuMemcpyDtoA(array, 128, (CUdeviceptr)device.at, 64));
	CHECK(cuMemcpyAtoH(line.data(), array, 0, 256));
	for (int i = 0; i < 64; i++)
		EXPECT(line[i] == image[i < 32 || i >= 48 ? i : i - 28]);
	report("line", line);
	CHECK(cuArrayDestroy(array));
	CHECK(cuArray3DCreate(&array, &deep));
	CHECK(cuArray3DGetDescriptor(&deep_seen, array));
	printf("descriptor %zu x %zu x %zu, format %d, %u channels, flags %u\n", deep_seen.Width,
		deep_seen.Height, deep_seen.Depth, (int)deep_seen.Format, deep_seen.NumChannels,
		deep_seen.Flags);
	CHECK(cuArrayDestroy(array));
	return 0;
}
