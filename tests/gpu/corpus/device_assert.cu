// Assertions in kernels, each in a process of its own: the text on standard error, the error that
// every later call returns.
//
// compared: errors
// alone: it faults on purpose

#include "check.h"

#include <cassert>
#include <fcntl.h>

__global__ void insist(const int *values, int most)
{
	assert(values[threadIdx.x] <= most);
}

/* Runs the kernel and prints what the calls say; what comes on standard error goes to a file. */
static int run(int most, const char *path)
{
	int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	EXPECT(descriptor >= 0 && dup2(descriptor, 2) == 2);
	std::vector<int> values(64, 5);
	values[33] = 9;
	buffer<int> device(values);
	insist<<<dim3(1, 1), 64>>>(device, most);
	printf("launch: %s\n", name_of(cudaGetLastError()));
	cudaError_t error = cudaDeviceSynchronize();
	printf("wait: %s (%s)\n", name_of(error), cudaGetErrorString(error));
	void *more;
	printf("allocation: %s\n", name_of(cudaMalloc(&more, 16)));
	printf("last: %s\n", name_of(cudaGetLastError()));
	return error == cudaSuccess ? 0 : 3;
}

/* Prints the lines that name an assertion. */
static void show(const char *path)
{
	char line[1000];
	FILE *file = fopen(path, "r");

	EXPECT(file != nullptr);
	while (fgets(line, sizeof(line), file))
		if (strstr(line, "Assertion"))
			printf("text: %s", line);
	fclose(file);
}

int main()
{
	char path[] = "/tmp/frmps-corpus-XXXXXX";
	int descriptor = mkstemp(path);

	EXPECT(descriptor >= 0);
	for (int most : {9, 7}) {
		printf("status %d\n", in_child([&] { return run(most, path); }));
		show(path);
	}
	unlink(path);
	buffer<int> device(std::vector<int>(64, 1)); // this process is not touched by any of it
	insist<<<1, 64>>>(device, 1);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	printf("end\n");
	return 0;
}
