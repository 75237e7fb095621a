// Memory of one process used by another: this program runs itself with a handle, the other one
// changes the memory in place.

#include "check.h"

__global__ void change(uint32_t *data, size_t count, uint32_t by)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
		i += (size_t)gridDim.x * blockDim.x)
		data[i] = data[i] * 3 + by;
}

const size_t count = 1 << 20;

static int other_process(const char *text, uint32_t by)
{
	cudaIpcMemHandle_t handle;
	uint32_t *data, first;

	for (size_t i = 0; i < sizeof(handle); i++) {
		unsigned byte;

		EXPECT(sscanf(text + 2 * i, "%2x", &byte) == 1);
		((unsigned char *)&handle)[i] = (unsigned char)byte;
	}
	CHECK(cudaIpcOpenMemHandle((void **)&data, handle, cudaIpcMemLazyEnablePeerAccess));
	change<<<64, 256>>>(data, count, by);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(&first, data, 4, cudaMemcpyDeviceToHost));
	printf("the other process: first %u\n", first);
	CHECK(cudaIpcCloseMemHandle(data));
	printf("closed again: %s\n", name_of(cudaIpcCloseMemHandle(data)));
	return 6;
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return other_process(argv[1], (uint32_t)atoi(argv[2]));
	std::vector<uint32_t> words = random_words(count);
	buffer<uint32_t> data(words);
	cudaIpcMemHandle_t handle;
	std::string text, path = own_path();

	CHECK(cudaDeviceSynchronize());
	CHECK(cudaIpcGetMemHandle(&handle, data));
	for (size_t i = 0; i < sizeof(handle); i++) {
		char two[3];

		snprintf(two, sizeof(two), "%02x", ((unsigned char *)&handle)[i]);
		text += two;
	}
	for (uint32_t by = 1; by <= 2; by++) {
		int status;

		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			execl(path.c_str(), path.c_str(), text.c_str(), std::to_string(by).c_str(),
				(char *)nullptr);
			_exit(99);
		}
		EXPECT(waitpid(child, &status, 0) == child);
		printf("status %d\n", status_of(status));
		for (auto &word : words)
			word = word * 3 + by;
		EXPECT(data.read() == words);
	}
	report("changed", words);
	int word;
	printf("of host memory: %s\n", name_of(cudaIpcGetMemHandle(&handle, &word)));
	cudaGetLastError();
	return 0;
}
