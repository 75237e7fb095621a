// exit() called by a thread that has work under way, while others sleep with theirs; main returning
// over live threads.

#include "check.h"

#include <thread>

__global__ void work(int *word)
{
	spin_for(50000000);
	atomicAdd(word, 1);
}

static int run(bool by_thread)
{
	std::vector<std::thread> threads;
	static buffer<int> word(1); // outlives main: destroyed by exit()
	static int ready = 0;

	for (int t = 0; t < 4; t++)
		threads.emplace_back([=] {
			cudaStream_t stream;

			CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
			work<<<1, 1, 0, stream>>>(word);
			CHECK(cudaGetLastError());
			__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
			while (t != 3 || !by_thread || __atomic_load_n(&ready, __ATOMIC_SEQ_CST) != 4)
				usleep(10000); // the process ends around it
			exit(31);
		});
	for (auto &thread : threads)
		thread.detach();
	EXPECT(wait_until([] { return __atomic_load_n(&ready, __ATOMIC_SEQ_CST) == 4; }));
	while (by_thread)
		usleep(10000);
	return 30;
}

int main()
{
	alarm(100);
	printf("by main: %d\n", in_child([] { return run(false); }));
	printf("by a thread: %d\n", in_child([] { return run(true); }));
	return 0;
}
