// Context-free libraries: kernels and variables of one, its module in a context, lists, attributes,
// unloading; the runtime's form.

#include "check.h"
#include "ptx.h"

__global__ void own(unsigned *out)
{
	*out += 1;
}

int main()
{
	std::string text = ptx_adder("held", 5);
	CUlibrary library, owner;
	CUkernel kernel, listed;
	CUfunction function;
	CUmodule module;
	CUdeviceptr variable;
	const char *name;
	unsigned kernels, factor = 2, count = 77;
	size_t size, offset;
	int threads;

	CHECK(cuInit(0));
	CHECK(cuLibraryLoadData(
		&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0)); // no context yet
	CHECK(cuLibraryGetKernel(&kernel, library, "held"));
	CHECK(cuLibraryGetKernelCount(&kernels, library));
	CHECK(cuLibraryEnumerateKernels(&listed, 1, library));
	CHECK(cuKernelGetName(&name, kernel));
	CHECK(cuKernelGetLibrary(&owner, kernel));
	printf("kernels %u, %s, %s\n", kernels, name,
		listed == kernel && owner == library ? "the same" : "others");
	CHECK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
	CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, kernel, 0));
	printf("threads %d\n", threads);
	buffer<unsigned> out(1); // here the primary context is made
	CHECK(cuKernelGetParamInfo(kernel, 1, &offset, &size));
	printf("second parameter: offset %zu, size %zu\n", offset, size);
	void *arguments[] = {&out.at, &factor};
	CHECK(cuLaunchKernel((CUfunction)kernel, 2, 1, 1, 8, 1, 1, 65536, nullptr, arguments, nullptr));
	CHECK(cuKernelGetFunction(&function, kernel));
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
	CHECK(cuLibraryGetModule(&module, library));
	CHECK(cuModuleGetFunction(&function, module, "held"));
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
	printf("sum %u\n", out.read()[0]);
	EXPECT(out.read()[0] == 180);
	CHECK(cuLibraryGetGlobal(&variable, &size, library, "held_count"));
	CHECK(cuMemcpyDtoH(&count, variable, sizeof(count)));
	printf("count %u of %zu bytes\n", count, size);
	printf("absent kernel: %s\n", name_of(cuLibraryGetKernel(&kernel, library, "absent")));
	printf("absent variable: %s\n", name_of(cuLibraryGetGlobal(&variable, &size, library, "absent")));
	printf("absent managed: %s\n", name_of(cuLibraryGetManaged(&variable, &size, library, "absent")));
	CHECK(cuLibraryUnload(library));

	cudaLibrary_t second;
	cudaKernel_t held;
	cudaFunction_t symbol;
	CHECK(cudaLibraryLoadData(&second, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
	CHECK(cudaLibraryGetKernel(&held, second, "held"));
	CHECK(cudaLaunchKernel((const void *)held, dim3(1), dim3(4), arguments, 0, 0));
	CHECK(cudaGetFuncBySymbol(&symbol, (const void *)own));
	CHECK(cuLaunchKernel(symbol, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
	printf("sum %u\n", out.read()[0]);
	CHECK(cudaLibraryUnload(second));
	return 0;
}
