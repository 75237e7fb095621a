// The driver's module calls with PTX: loading, functions, globals, launches in both ways of passing
// arguments, lists, absent names.

#include "check.h"
#include "ptx.h"

int main()
{
	std::string text = ptx_adder("first", 3);
	CUmodule module, owner;
	CUfunction function, listed[2];
	CUdeviceptr count;
	const char *name;
	unsigned functions, value = 0, factor = 10;
	size_t size, offset, bytes;
	int attribute;

	CHECK(cudaFree(nullptr)); // makes the primary context
	buffer<unsigned> out(1);
	CHECK(cuModuleLoadData(&module, text.c_str()));
	CHECK(cuModuleGetFunction(&function, module, "first"));
	CHECK(cuModuleGetGlobal(&count, &size, module, "first_count"));
	printf("variable of %zu bytes\n", size);
	void *arguments[] = {&out.at, &factor};
	CHECK(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
	struct {
		unsigned *at;
		unsigned factor;
	} packed = {out.at, 100};
	bytes = 12;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
		CU_LAUNCH_PARAM_END};
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
	printf("sum %u\n", out.read()[0]);
	EXPECT(out.read()[0] == 128 * 30 + 300);
	CHECK(cuMemcpyDtoH(&value, count, sizeof(value)));
	printf("threads %u\n", value);
	CHECK(cuModuleGetFunctionCount(&functions, module));
	CHECK(cuModuleEnumerateFunctions(listed, 1, module));
	CHECK(cuFuncGetName(&name, listed[0]));
	CHECK(cuFuncGetModule(&owner, function));
	printf("functions %u, %s, module the same: %s\n", functions, name, owner == module ? "yes" : "no");
	for (size_t i = 0;; i++) {
		CUresult result = cuFuncGetParamInfo(function, i, &offset, &bytes);

		if (result != CUDA_SUCCESS) {
			printf("parameter %zu: %s\n", i, name_of(result));
			break;
		}
		printf("parameter %zu: offset %zu, size %zu\n", i, offset, bytes);
	}
	CHECK(cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
	printf("PTX version %d", attribute);
	CHECK(cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
	printf(", binary version %d\n", attribute);
	printf("absent function: %s\n", name_of(cuModuleGetFunction(&function, module, "absent")));
	printf("absent variable: %s\n", name_of(cuModuleGetGlobal(&count, &size, module, "absent")));
	CHECK(cuModuleUnload(module));
	printf("no image: %s\n", name_of(cuModuleLoadData(&module, "this is not an image")));
	printf("no file: %s\n", name_of(cuModuleLoad(&module, "/nonexistent/file")));
	return 0;
}
