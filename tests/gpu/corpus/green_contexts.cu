// A green context with some of the processors: work in a stream of it is right, or asking for it is
// refused as not supported.

#include "check.h"
#include "ptx.h"

/* Runs a kernel in a stream of a green context with eight processors or more. */
static CUresult use_green_context(CUdevice device, unsigned *result)
{
	CUdevResource all, part;
	CUdevResourceDesc description;
	CUgreenCtx green;
	CUcontext context;
	CUstream stream;
	CUmodule module;
	CUfunction function;
	CUdeviceptr out;
	unsigned groups = 1, factor = 2;

	CUresult asked = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
	if (asked != CUDA_SUCCESS)
		return asked;
	CHECK(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
	EXPECT(groups == 1 && part.sm.smCount >= 8);
	CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
	CHECK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(cuCtxFromGreenCtx(&context, green));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	CHECK(cuModuleLoadData(&module, ptx_adder("kernel", 3).c_str()));
	CHECK(cuModuleGetFunction(&function, module, "kernel"));
	CHECK(cuMemAlloc(&out, 4));
	CHECK(cuMemsetD32Async(out, 0, 1, stream));
	void *arguments[] = {&out, &factor};
	CHECK(cuLaunchKernel(function, 100, 1, 1, 10, 1, 1, 0, stream, arguments, nullptr));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(result, out, 4));
	CHECK(cuMemFree(out));
	CHECK(cuModuleUnload(module));
	CHECK(cuStreamDestroy(stream));
	CHECK(cuCtxSetCurrent(nullptr));
	CHECK(cuGreenCtxDestroy(green));
	return CUDA_SUCCESS;
}

int main()
{
	unsigned result = 0;

	CHECK(cuInit(0));
	CUresult status = use_green_context(0, &result);
	EXPECT(status == CUDA_ERROR_NOT_SUPPORTED || result == 6000);
	printf("right or refused\n");
	return 0;
}
