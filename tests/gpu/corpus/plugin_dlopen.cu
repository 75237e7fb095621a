// A library with kernels, loaded and unloaded several times: its variable starts anew, what it
// allocated stays usable.
//
// plugin: tests/gpu/corpus/parts/plugin.cu

#include "check.h"

#include <dlfcn.h>

__global__ void fill(int *data, int value)
{
	data[threadIdx.x] = value + threadIdx.x;
}

int main()
{
	std::string path = own_path() + ".so";
	int *kept[4];

	for (int round = 0; round < 4; round++) {
		void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);

		if (library == nullptr)
			printf("not loaded\n");
		EXPECT(library != nullptr);
		auto count = (int (*)(int))dlsym(library, "plugin_count");
		auto allocate = (void *(*)(size_t))dlsym(library, "plugin_allocate");
		EXPECT(count != nullptr && allocate != nullptr);
		printf("round %d: %d", round, count(1));
		printf(" %d\n", count(round));
		kept[round] = (int *)allocate(64 * sizeof(int));
		EXPECT(kept[round] != nullptr);
		fill<<<1, 64>>>(kept[round], round * 100);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		EXPECT(dlclose(library) == 0);
	}
	for (int round = 0; round < 4; round++) {
		int value;

		CHECK(cudaMemcpy(&value, kept[round] + 63, sizeof(int), cudaMemcpyDeviceToHost));
		printf("kept %d\n", value);
		EXPECT(value == round * 100 + 63);
		CHECK(cudaFree(kept[round]));
	}
	return 0;
}
