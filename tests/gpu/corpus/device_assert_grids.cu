// Assertions that fail in every thread of many blocks, in one process after another, and then a
// kernel that prints: nothing of the lines that nobody has read may be in anybody's way. Which of
// the lines come is another matter in each run.
//
// alone: it faults on purpose

#include "check.h"

#include <cassert>
#include <fcntl.h>

#define THREADS 128

__global__ void insist(const int *values, int most)
{
	assert(values[blockIdx.x * blockDim.x + threadIdx.x] <= most);
}

__global__ void print(int number)
{
	printf("number %d\n", number);
}

static int run(int blocks, const char *path)
{
	int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	EXPECT(descriptor >= 0 && dup2(descriptor, 2) == 2);
	buffer<int> device(std::vector<int>(blocks * THREADS, 5));
	insist<<<blocks, THREADS>>>(device, 5);
	CHECK(cudaDeviceSynchronize());
	insist<<<blocks, THREADS>>>(device, 4);
	printf("%d blocks: %s\n", blocks, name_of(cudaDeviceSynchronize()));
	return 3;
}

/* Whether there is a line of the assertion, and each that looks like one is whole. */
static bool is_told(const char *path)
{
	char line[1000];
	int lines = 0, whole = 0;
	FILE *file = fopen(path, "r");

	EXPECT(file != nullptr);
	while (fgets(line, sizeof(line), file)) {
		bool is_line = strstr(line, "Assertion") != nullptr;

		lines += is_line;
		whole += is_line && strstr(line, "void insist(const int *, int): block: [") &&
			 strstr(line, "] Assertion `values[blockIdx.x * blockDim.x + threadIdx.x] <= most` failed.\n");
	}
	fclose(file);
	return whole > 0 && whole == lines;
}

int main()
{
	char path[] = "/tmp/frmps-corpus-XXXXXX";
	int descriptor = mkstemp(path);

	EXPECT(descriptor >= 0);
	for (int blocks : {1, 1000, 8192, 8192}) {
		printf("status %d\n", in_child([&] { return run(blocks, path); }));
		printf("text: %s\n", is_told(path) ? "there" : "MISSING");
	}
	unlink(path);
	print<<<1, 1>>>(7);
	CHECK(cudaDeviceSynchronize());
	printf("end\n");
	return 0;
}
