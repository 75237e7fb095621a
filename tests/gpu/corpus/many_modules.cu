// Sixty-four modules at once, each with its own kernel and variable of one name, unloaded in
// another order, then loaded again.

#include "check.h"
#include "ptx.h"

int main()
{
	const unsigned count = 64;
	std::vector<CUmodule> module(count);
	std::vector<CUfunction> function(count);
	unsigned factor = 1, model = 0;

	CHECK(cudaFree(nullptr));
	buffer<unsigned> out(1);
	void *arguments[] = {&out.at, &factor};
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < count; i++) {
			CHECK(cuModuleLoadData(&module[i], ptx_adder("kernel", i * i + 1).c_str()));
			CHECK(cuModuleGetFunction(&function[i], module[i], "kernel"));
		}
		for (unsigned turn = 0; turn < 5; turn++)
			for (unsigned i = 0; i < count; i++) {
				CHECK(cuLaunchKernel(
					function[i], 1, 1, 1, i + 1, 1, 1, 0, nullptr, arguments, nullptr));
				model += (i * i + 1) * (i + 1);
			}
		for (unsigned i = 0; i < count; i++) {
			CUdeviceptr variable;
			unsigned threads;
			size_t size;

			CHECK(cuModuleGetGlobal(&variable, &size, module[i], "kernel_count"));
			CHECK(cuMemcpyDtoH(&threads, variable, sizeof(threads)));
			EXPECT(threads == 5 * (i + 1));
		}
		for (unsigned i = 0; i < count; i++)
			CHECK(cuModuleUnload(module[i * 37 % count]));
		printf("sum %u\n", out.read()[0]);
		EXPECT(out.read()[0] == model);
	}
	return 0;
}
