// Waits for and writes of words in memory as stream operations: 32 and 64 bits, each comparison,
// batches, host and device memory.

#include "check.h"

static CUdeviceptr address(const void *pointer)
{
	return (CUdeviceptr)pointer;
}

int main()
{
	volatile uint32_t *host;
	uint32_t *words;
	cudaStream_t first, second;

	CHECK(cudaHostAlloc(&words, 4096, cudaHostAllocMapped));
	memset(words, 0, 4096);
	host = words;
	buffer<uint32_t> device(64);
	CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cuStreamWaitValue32(first, address(words), 5, CU_STREAM_WAIT_VALUE_GEQ));
	CHECK(cuStreamWriteValue32(first, address(words + 16), 77, CU_STREAM_WRITE_VALUE_DEFAULT));
	printf("before: %s, %u\n", name_of(cudaStreamQuery(first)), host[16]);
	host[0] = 4;
	printf("too little: %s\n", name_of(cudaStreamQuery(first)));
	host[0] = 6;
	CHECK(cudaStreamSynchronize(first));
	printf("enough: %u\n", host[16]);

	/* One stream waits for what the other writes, in device memory, several times. */
	for (uint32_t i = 1; i <= 100; i++) {
		CHECK(cuStreamWaitValue32(second, address(device), i, CU_STREAM_WAIT_VALUE_EQ));
		CHECK(cuStreamWriteValue32(second, address(device + 1), i, 0));
		CHECK(cuStreamWriteValue32(first, address(device), i, 0));
		CHECK(cuStreamWaitValue32(first, address(device + 1), i, CU_STREAM_WAIT_VALUE_GEQ));
	}
	CHECK(cuStreamWriteValue64(first, address(device + 8), 0x123456789abcdefull, 0));
	CHECK(cuStreamWaitValue64(
		first, address(device + 8), 0x100000000000000ull, CU_STREAM_WAIT_VALUE_AND));
	CHECK(cudaStreamSynchronize(first));
	CHECK(cudaStreamSynchronize(second));
	report("device", device.read());

	CUstreamBatchMemOpParams batch[4] = {};
	batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	batch[0].waitValue.address = address(words + 32);
	batch[0].waitValue.value = 1;
	batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	for (int i = 1; i < 4; i++) {
		batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		batch[i].writeValue.address = address(words + 32 + i);
		batch[i].writeValue.value = 100 * i;
	}
	CHECK(cuStreamBatchMemOp(first, 4, batch, 0));
	host[32] = 1;
	CHECK(cudaStreamSynchronize(first));
	printf("batch %u %u %u\n", host[33], host[34], host[35]);
	EXPECT(host[33] == 100 && host[35] == 300);
	printf("odd address: %s\n", name_of(cuStreamWriteValue32(first, address((char *)words + 2), 1, 0)));
	printf("unknown flag: %s\n", name_of(cuStreamWaitValue32(first, address(words), 1, 0x100)));
	printf("no address: %s\n", name_of(cuStreamWriteValue32(first, 0, 1, 0)));
	CHECK(cudaFreeHost(words));
	return 0;
}
