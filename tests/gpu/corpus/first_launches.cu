// alone
//
// The first launch of a kernel for which the driver has to get something ready (the text of
// assertions, and what prints), while a kernel of another program runs, and goes on until the end
// of this one. It waits for nobody. Kernels that use the device's heap, launch kernels or need much
// local memory do wait through the service: the driver loads them.

#include <cassert>
#include <sys/wait.h>

#include "check.h"

#define PATIENCE 20 /* seconds */

__global__ void spin(volatile int *flag)
{
	while (!*flag)
		;
}

__global__ void asserting(int *out, int by)
{
	assert(by);
	*out = by;
}

__global__ void printing(int *out, int by)
{
	if (!by)
		printf("nothing\n");
	*out = by;
}

static const struct {
	const char *name;
	void (*kernel)(int *out, int by);
} kinds[] = {{"assert", asserting}, {"printf", printing}};

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
