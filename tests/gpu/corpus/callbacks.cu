// Host functions and stream callbacks: their order among kernels and copies, their arguments,
// several streams at once.

#include "check.h"

#include <atomic>
#include <mutex>

__global__ void put(int *at, int value)
{
	*at = value;
}

struct step {
	int number;
	int *word;
	std::vector<int> *seen;
	std::atomic<int> *running;
};

static void CUDART_CB host_function(void *argument)
{
	step *s = (step *)argument;

	s->seen->push_back(s->number * 1000 + *(volatile int *)s->word);
}

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *argument)
{
	step *s = (step *)argument;

	s->seen->push_back(status == cudaSuccess ? -s->number : -1000000);
	s->running->fetch_sub(1);
}

int main()
{
	const int streams = 4, steps = 25;
	cudaStream_t stream[streams];
	std::vector<int> seen[streams];
	std::vector<step> arguments(streams * steps);
	std::atomic<int> running(streams * steps);
	buffer<int> device(streams);
	int *host;

	CHECK(cudaMallocHost(&host, streams * sizeof(int)));
	for (auto &each : stream)
		CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
	for (int i = 0; i < steps; i++)
		for (int s = 0; s < streams; s++) {
			step *argument = &arguments[i * streams + s];

			*argument = {i, host + s, &seen[s], &running};
			put<<<1, 1, 0, stream[s]>>>(device + s, i + s);
			CHECK(cudaGetLastError());
			CHECK(cudaMemcpyAsync(
				host + s, device + s, sizeof(int), cudaMemcpyDeviceToHost, stream[s]));
			CHECK(cudaLaunchHostFunc(stream[s], host_function, argument));
			CHECK(cudaStreamAddCallback(stream[s], callback, argument, 0));
		}
	for (int s = 0; s < streams; s++) {
		CHECK(cudaStreamSynchronize(stream[s]));
		EXPECT(seen[s].size() == 2 * steps);
		for (int i = 0; i < steps; i++)
			EXPECT(seen[s][2 * i] == i * 1000 + i + s && seen[s][2 * i + 1] == -i);
		report("seen", seen[s]);
	}
	printf("still running %d\n", running.load());
	printf("no function: %s\n", name_of(cudaLaunchHostFunc(0, nullptr, nullptr)));
	cudaGetLastError();
	return 0;
}
