// A process beside the program that writes to an unmapped address when it is told to.

#pragma once

#include "check.h"

__global__ void far_away(int *at)
{
	at[(size_t)1 << 40] = 1;
}

/* Faults when it is told to. */
static int fault(int orders)
{
	int *word;
	char byte;

	if (::read(orders, &byte, 1) != 1)
		return 2;
	CHECK(cudaMalloc(&word, 64));
	far_away<<<1, 1>>>(word);
	return cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 0 : 3;
}

/* To be made before the runtime is used. */
struct culprit {
	int orders[2];
	pid_t pid;

	culprit()
	{
		EXPECT(pipe(orders) == 0);
		pid = fork();
		if (pid == 0)
			_exit(fault(orders[0]));
	}

	void go()
	{
		EXPECT(write(orders[1], "!", 1) == 1);
	}

	void report_end()
	{
		int status = 0;

		EXPECT(waitpid(pid, &status, 0) == pid);
		printf("the other's status %d\n", status_of(status));
	}
};
