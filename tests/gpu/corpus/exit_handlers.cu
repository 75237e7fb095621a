// CUDA in handlers that run at the end: registered before and after its first use, and in the
// destructor of a static object.

#include "check.h"

__global__ void bump(int *word)
{
	atomicAdd(word, 1);
}

static int *word;

static void say(const char *label)
{
	int value = -1;

	bump<<<1, 1>>>(word);
	cudaError_t launched = cudaGetLastError();
	cudaError_t copied = cudaMemcpy(&value, word, sizeof(int), cudaMemcpyDeviceToHost);
	printf("%s: %s, %s, %d\n", label, name_of(launched), name_of(copied), value);
	fflush(stdout);
}

static void registered_before()
{
	say("registered before");
}

static void registered_after()
{
	say("registered after");
}

struct late {
	~late()
	{
		cudaError_t error = cudaFree(word);

		printf("static object: %s\n", name_of(error));
		fflush(stdout);
	}
};

int main()
{
	atexit(registered_before);
	CHECK(cudaMalloc(&word, sizeof(int)));
	CHECK(cudaMemset(word, 0, sizeof(int)));
	static late object; // destroyed between the two handlers
	atexit(registered_after);
	say("main");
	return 0;
}
