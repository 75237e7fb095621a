// alone
//
// The first launch of a kernel for which the driver has to get something ready (the device's heap,
// the text of assertions, local memory, launches by kernels), while a kernel of another program
// runs, and goes on until the end of this one. It waits for nobody.

#include <cassert>
#include <sys/wait.h>

#include "check.h"

#define PATIENCE 20 /* seconds */

__global__ void spin(volatile int *flag)
{
	while (!*flag)
		;
}

__global__ void heap(int *out, int by)
{
	int *more = by ? nullptr : (int *)malloc(sizeof(*more));

	*out = more ? *more : by;
}

__global__ void asserting(int *out, int by)
{
	assert(by);
	*out = by;
}

template <int BYTES> __global__ void local(int *out, int by)
{
	volatile int room[BYTES / 4];

	for (int i = 0; i < by; i++)
		room[i * 7 % (BYTES / 4)] = by;
	*out = room[0];
}

__global__ void child(int *out)
{
	*out = 0;
}

__global__ void nested(int *out, int by)
{
	if (!by)
		child<<<1, 1>>>(out);
	*out = by;
}

static const struct {
	const char *name;
	void (*kernel)(int *out, int by);
} kinds[] = {{"heap", heap}, {"assert", asserting}, {"local memory", local<6000>}, {"nested", nested}};

static int run(int kind)
{
	int *out, result = 0;

	CHECK(cudaMalloc(&out, sizeof(*out)));
	kinds[kind].kernel<<<1, 32>>>(out, 1);
	CHECK(cudaMemcpy(&result, out, sizeof(result), cudaMemcpyDeviceToHost));
	return result == 1 ? 0 : 1;
}

/* Says that its kernel runs, and lets it end when nobody holds the other end any more. */
static int run_beside(int ready, int end)
{
	int *flag;
	char word = 1;

	CHECK(cudaHostAlloc(&flag, sizeof(*flag), 0));
	*flag = 0;
	spin<<<1, 1>>>(flag);
	CHECK(cudaGetLastError());
	EXPECT(write(ready, &word, 1) == 1);
	EXPECT(read(end, &word, 1) == 0);
	*(volatile int *)flag = 1;
	CHECK(cudaDeviceSynchronize());
	return 0;
}

/* Return: its exit status; -1: it is not over in time, and is killed */
static int end_of(pid_t pid)
{
	for (int i = 0; i < PATIENCE * 100; i++) {
		int status;

		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, nullptr, 0);
	return -1;
}

int main()
{
	int ready[2], end[2];
	bool all = true;
	char word;
	pid_t beside;

	EXPECT(!pipe(ready) && !pipe(end));
	beside = fork();
	if (!beside) {
		close(end[1]);
		_exit(run_beside(ready[1], end[0]));
	}
	close(end[0]);
	EXPECT(read(ready[0], &word, 1) == 1);
	for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			close(end[1]);
			_exit(run(i));
		}
		status = end_of(pid);
		printf("%s: %s\n", kinds[i].name, status < 0 ? "waits" : status ? "is wrong" : "is done");
		all &= !status;
	}
	close(end[1]);
	EXPECT(end_of(beside) == 0);
	return all ? 0 : 1;
}
