// Events of one process waited for in another, beside shared memory: the other one's copy comes
// after the kernel here.

#include "check.h"

__global__ void hold(const int *gate, int *out)
{
	*out = spin_until(gate, 1) ? 1234 : -1;
}

struct message {
	cudaIpcMemHandle_t memory;
	cudaIpcEventHandle_t event;
};

/* The descriptors are pipes: one brings a message, the other takes a byte when the wait is
 * queued. */
static int other_process(int in, int out)
{
	message m;
	cudaEvent_t event;
	cudaStream_t stream;
	int *word, *value;

	alarm(60);
	EXPECT(read(in, &m, sizeof(m)) == sizeof(m));
	CHECK(cudaMallocHost(&value, sizeof(int)));
	CHECK(cudaIpcOpenMemHandle((void **)&word, m.memory, cudaIpcMemLazyEnablePeerAccess));
	CHECK(cudaIpcOpenEventHandle(&event, m.event));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	printf("query: %s\n", name_of(cudaEventQuery(event)));
	CHECK(cudaStreamWaitEvent(stream, event, 0));
	CHECK(cudaMemcpyAsync(value, word, sizeof(int), cudaMemcpyDeviceToHost, stream));
	EXPECT(write(out, "x", 1) == 1);
	CHECK(cudaStreamSynchronize(stream));
	printf("value %d, query: %s\n", *value, name_of(cudaEventQuery(event)));
	CHECK(cudaEventDestroy(event));
	CHECK(cudaIpcCloseMemHandle(word));
	return 8;
}

int main(int argc, char **argv)
{
	int to_other[2], from_other[2], status, *gate;
	std::string path = own_path();
	message m;
	cudaEvent_t event;
	cudaStream_t stream;
	char byte;

	if (argc == 3)
		return other_process(atoi(argv[1]), atoi(argv[2]));
	EXPECT(pipe(to_other) == 0 && pipe(from_other) == 0);
	CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
	buffer<int> word(1);
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
	CHECK(cudaIpcGetMemHandle(&m.memory, word));
	CHECK(cudaIpcGetEventHandle(&m.event, event));
	*(volatile int *)gate = 0;
	hold<<<1, 1, 0, stream>>>(gate, word);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(event, stream));
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		execl(path.c_str(), path.c_str(), std::to_string(to_other[0]).c_str(),
			std::to_string(from_other[1]).c_str(), (char *)nullptr);
		_exit(99);
	}
	close(from_other[1]);
	EXPECT(write(to_other[1], &m, sizeof(m)) == sizeof(m));
	EXPECT(read(from_other[0], &byte, 1) == 1); // the end of the other process ends the wait, too
	*(volatile int *)gate = 1;
	EXPECT(waitpid(child, &status, 0) == child);
	CHECK(cudaStreamSynchronize(stream));
	printf("status %d, word %d\n", status_of(status), word.read()[0]);
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	printf("of an ordinary event: %s\n", name_of(cudaIpcGetEventHandle(&m.event, event)));
	cudaGetLastError();
	return 0;
}
