// Contexts of the driver: made, pushed, popped, set, destroyed; the primary one; flags, ids; work
// and memory in each.

#include "check.h"
#include "ptx.h"

static unsigned work(unsigned addend)
{
	unsigned factor = 4, value = 0;
	CUmodule module;
	CUfunction function;
	CUdeviceptr out;

	CHECK(cuModuleLoadData(&module, ptx_adder("kernel", addend).c_str()));
	CHECK(cuModuleGetFunction(&function, module, "kernel"));
	CHECK(cuMemAlloc(&out, 4));
	CHECK(cuMemsetD32(out, 0, 1));
	void *arguments[] = {&out, &factor};
	CHECK(cuLaunchKernel(function, 1, 1, 1, 10, 1, 1, 0, nullptr, arguments, nullptr));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&value, out, 4));
	CHECK(cuMemFree(out));
	CHECK(cuModuleUnload(module));
	return value;
}

static void show(const char *label, CUcontext first, CUcontext second, CUcontext primary)
{
	CUcontext now;

	CHECK(cuCtxGetCurrent(&now));
	printf("%s: %s\n", label,
		now == nullptr	 ? "none"
		: now == first	 ? "first"
		: now == second	 ? "second"
		: now == primary ? "primary"
				 : "?");
}

int main()
{
	CUcontext first, second, primary, popped;
	CUdevice device, here;
	unsigned flags, version;
	unsigned long long id[2];
	int active;

	printf("before the start: %s\n", name_of(cuCtxGetCurrent(&first)));
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	show("start", nullptr, nullptr, nullptr);
	printf("allocation without a context: %s\n", name_of(cuMemAlloc((CUdeviceptr *)&id[0], 4)));
	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("primary: flags %u, active %d\n", flags, active);
	CHECK(cuCtxCreate(&first, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, device));
	CHECK(cuCtxCreate(&second, nullptr, 0, device));
	CHECK(cuDevicePrimaryCtxRetain(&primary, device));
	EXPECT(first != second && first != primary);
	show("two made", first, second, primary);
	printf("work in the second: %u\n", work(3));
	CHECK(cuCtxPopCurrent(&popped));
	show("one popped", first, second, primary);
	CHECK(cuCtxGetFlags(&flags));
	printf("flags %u\n", flags);
	printf("work in the first: %u\n", work(5));
	CHECK(cuCtxPushCurrent(primary));
	show("primary pushed", first, second, primary);
	printf("work in the primary: %u\n", work(7));
	CHECK(cuCtxGetDevice(&here));
	CHECK(cuCtxGetId(first, &id[0]));
	CHECK(cuCtxGetId(second, &id[1]));
	CHECK(cuCtxGetApiVersion(first, &version));
	printf("device %d, ids differ: %s, version %u\n", here, id[0] != id[1] ? "yes" : "no", version);
	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("primary: active %d\n", active);
	CHECK(cuCtxSetCurrent(second));
	show("second set", first, second, primary);
	CHECK(cuCtxDestroy(second));
	show("second destroyed", first, nullptr, primary);
	CHECK(cuCtxSetCurrent(first));
	CHECK(cuCtxDestroy(first));
	CHECK(cuDevicePrimaryCtxRelease(device));
	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	printf("primary: active %d\n", active);
	printf("released once more: %s\n", name_of(cuDevicePrimaryCtxRelease(device)));
	return 0;
}
