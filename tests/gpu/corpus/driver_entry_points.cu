// Functions of the driver found at run time: by version, in the default and the per-thread form,
// unknown ones, then called.

#include "check.h"

#include <cudaTypedefs.h>

static void ask(const char *name, unsigned version, unsigned long long flags)
{
	void *function = (void *)&function;
	cudaDriverEntryPointQueryResult result = (cudaDriverEntryPointQueryResult)99;
	cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, version, flags, &result);

	printf("%s of %u, flags %llu: %s, result %d, %s\n", name, version, flags, name_of(error), (int)result,
		function ? "a function" : "none");
	cudaGetLastError();
}

int main()
{
	PFN_cuMemAlloc_v3020 allocate;
	PFN_cuMemFree_v3020 release;
	PFN_cuMemsetD32_v3020 set;
	PFN_cuStreamSynchronize_v2000 wait;
	cudaDriverEntryPointQueryResult result;
	CUdeviceptr memory;
	unsigned value;

	CHECK(cudaFree(nullptr));
	CHECK(cudaGetDriverEntryPointByVersion(
		"cuMemAlloc", (void **)&allocate, 3020, cudaEnableDefault, &result));
	CHECK(cudaGetDriverEntryPointByVersion(
		"cuMemFree", (void **)&release, 3020, cudaEnableDefault, &result));
	CHECK(cudaGetDriverEntryPointByVersion(
		"cuMemsetD32", (void **)&set, 3020, cudaEnableLegacyStream, &result));
	CHECK(cudaGetDriverEntryPointByVersion(
		"cuStreamSynchronize", (void **)&wait, 12000, cudaEnablePerThreadDefaultStream, &result));
	CHECK(allocate(&memory, 4000));
	CHECK(set(memory, 0xabcd, 1000));
	CHECK(wait(nullptr));
	CHECK(cudaMemcpy(&value, (void *)(memory + 3996), 4, cudaMemcpyDeviceToHost));
	CHECK(release(memory));
	printf("value %x\n", value);
	EXPECT(value == 0xabcd);
	ask("cuLaunchKernel", 12000, cudaEnableDefault);
	ask("cuLaunchKernel", 3000, cudaEnableDefault);
	ask("cuMemAlloc_v2", 12000, cudaEnableDefault);
	ask("cuDoesNotExist", 12000, cudaEnableDefault);
	ask("cuGraphLaunch", 12000, cudaEnablePerThreadDefaultStream);
	ask("cuCtxCreate", 2000, cudaEnableDefault);
	ask("cuMemcpyHtoDAsync", 13000, cudaEnableLegacyStream);
	ask("cuLaunchKernel", 99000, cudaEnableDefault);
	return 0;
}
