// Every memset of the runtime and the driver: bytes, halves, words, rows; unaligned starts,
// asynchronous ones, pinned memory.

#include "check.h"

int main()
{
	const size_t size = 1 << 20;
	cudaStream_t stream;
	uint8_t *pinned;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	buffer<uint8_t> device(size);
	CUdeviceptr at = (CUdeviceptr)device.at;
	CHECK(cudaMemset(device, 0x5a, size));
	CHECK(cudaMemset(device + 3, 0x33, 1001));
	report("bytes", device.read());
	CHECK(cuMemsetD8(at + 5000, 0x77, 333));
	CHECK(cuMemsetD16(at + 6000, 0x1234, 333));
	CHECK(cuMemsetD32(at + 8000, 0xdeadbeef, 333));
	report("units", device.read());
	CHECK(cuMemsetD2D8(at + 16384, 512, 0x01, 100, 20));
	CHECK(cuMemsetD2D16(at + 32768, 512, 0x0203, 100, 20));
	CHECK(cuMemsetD2D32(at + 65536, 512, 0x04050607, 100, 20));
	CHECK(cudaMemset2D(device + 131072, 1024, 0x08, 999, 30));
	report("rows", device.read());
	CHECK(cudaMemsetAsync(device + 1, 0x99, 70001, stream));
	CHECK(cuMemsetD8Async(at + 200000, 0x11, 7, stream));
	CHECK(cuMemsetD16Async(at + 300000, 0x2222, 7777, stream));
	CHECK(cuMemsetD32Async(at + 400000, 0x33333333, 7777, stream));
	CHECK(cuMemsetD2D32Async(at + 500000, 2048, 0x44444444, 77, 7, stream));
	CHECK(cudaMemset2DAsync(device + 600000, 3000, 0x55, 2999, 50, stream));
	CHECK(cudaStreamSynchronize(stream));
	report("asynchronous", device.read());
	CHECK(cudaMallocHost(&pinned, 10000));
	memset(pinned, 0, 10000);
	CHECK(cudaMemsetAsync(pinned + 10, 0x66, 5000, stream));
	CHECK(cudaStreamSynchronize(stream));
	report("pinned", std::vector<uint8_t>(pinned, pinned + 10000));
	CHECK(cudaMemset(device, 0, 0));
	printf("unaligned words: %s\n", name_of(cuMemsetD32(at + 2, 1, 1)));
	printf("unaligned halves: %s\n", name_of(cuMemsetD16(at + 1, 1, 1)));
	printf("nowhere: %s\n", name_of(cudaMemset(nullptr, 0, 16)));
	cudaGetLastError();
	CHECK(cudaFreeHost(pinned));
	return 0;
}
