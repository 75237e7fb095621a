// A timer's signals interrupt the program all the time while it launches, copies and waits; the
// handlers come and nothing is lost.

#include "check.h"

#include <csignal>
#include <sys/time.h>

static volatile sig_atomic_t ticks;

static void tick(int)
{
	ticks = ticks + 1;
}

__global__ void work(unsigned *word)
{
	spin_for(200000);
	++*word;
}

int main()
{
	struct sigaction action = {};
	struct itimerval every = {{0, 500}, {0, 500}}, never = {};
	buffer<unsigned> word(1);
	cudaEvent_t event;
	unsigned value;

	action.sa_handler = tick; // without SA_RESTART
	EXPECT(sigaction(SIGALRM, &action, nullptr) == 0);
	EXPECT(setitimer(ITIMER_REAL, &every, nullptr) == 0);
	CHECK(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming));
	for (unsigned i = 1; i <= 1000; i++) {
		work<<<1, 1>>>(word);
		CHECK(cudaGetLastError());
		if (i % 3 == 0) {
			CHECK(cudaEventRecord(event));
			CHECK(cudaEventSynchronize(event));
		} else if (i % 3 == 1) {
			CHECK(cudaMemcpy(&value, word, sizeof(value), cudaMemcpyDeviceToHost));
			EXPECT(value == i);
		} else {
			CHECK(cudaDeviceSynchronize());
		}
		void *memory;
		CHECK(cudaMalloc(&memory, 100000));
		CHECK(cudaFree(memory));
	}
	EXPECT(setitimer(ITIMER_REAL, &never, nullptr) == 0);
	printf("word %u, ticks came: %s\n", word.read()[0], ticks > 10 ? "yes" : "no");
	EXPECT(word.read()[0] == 1000);
	return 0;
}
