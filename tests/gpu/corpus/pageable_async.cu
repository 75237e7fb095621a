// Asynchronous copies of ordinary host memory: the source may be reused at once, a destination is
// there after the wait.

#include "check.h"

__global__ void flip(uint8_t *data, size_t size)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < size;
		i += (size_t)gridDim.x * blockDim.x)
		data[i] ^= 0xff;
}

int main()
{
	const size_t sizes[] = {1, 64, 4097, 65536, 1000001, 33000000};
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (size_t size : sizes) {
		std::vector<uint8_t> model(size), source(size), back(size);
		buffer<uint8_t> device(size);

		for (size_t i = 0; i < size; i++)
			model[i] = (uint8_t)(i * 31 + i / 1000);
		source = model;
		CHECK(cudaMemcpyAsync(device, source.data(), size, cudaMemcpyHostToDevice, stream));
		memset(source.data(), 0xee, size);
		flip<<<64, 256, 0, stream>>>(device, size);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpyAsync(back.data(), device, size, cudaMemcpyDeviceToHost, stream));
		CHECK(cudaStreamSynchronize(stream));
		for (size_t i = 0; i < size; i++)
			EXPECT(back[i] == (uint8_t)~model[i]);
		report("back", back);
		/* The direction found from the addresses. */
		CHECK(cudaMemcpyAsync(device, model.data(), size, cudaMemcpyDefault, stream));
		CHECK(cudaMemcpyAsync(back.data(), device, size, cudaMemcpyDefault, stream));
		CHECK(cudaStreamSynchronize(stream));
		EXPECT(back == model);
	}
	int here = 5, there = 0;
	CHECK(cudaMemcpyAsync(&there, &here, sizeof(int), cudaMemcpyHostToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("host to host %d\n", there);
	CHECK(cudaMemcpyAsync(&there, &here, 0, cudaMemcpyHostToHost, stream));
	CHECK(cudaStreamDestroy(stream));
	return 0;
}
