// NVRTC and the driver's compiler: a source compiled at run time, options of the JIT, its logs, of
// a wrong source too.
//
// libraries: nvrtc

#include "check.h"
#include "ptx.h"

#include <nvrtc.h>

static const char source[] = R"(
#ifndef FACTOR
#error FACTOR is missing
#endif
template <typename T> __global__ void scale(T *data) { data[threadIdx.x] *= (T)FACTOR; }
extern "C" __global__ void plain(int *data) { data[threadIdx.x] += FACTOR; }
)";

static std::string compile(bool to_cubin, std::string *lowered)
{
	const char *options[] = {
		to_cubin ? "--gpu-architecture=sm_90" : "--gpu-architecture=compute_90", "-DFACTOR=6"};
	nvrtcProgram program;
	const char *name;
	size_t size;

	CHECK(nvrtcCreateProgram(&program, source, "source.cu", 0, nullptr, nullptr));
	CHECK(nvrtcAddNameExpression(program, "scale<float>"));
	CHECK(nvrtcCompileProgram(program, 2, options));
	CHECK(nvrtcGetLoweredName(program, "scale<float>", &name));
	*lowered = name;
	CHECK(to_cubin ? nvrtcGetCUBINSize(program, &size) : nvrtcGetPTXSize(program, &size));
	std::string image(size, '\0');
	CHECK(to_cubin ? nvrtcGetCUBIN(program, &image[0]) : nvrtcGetPTX(program, &image[0]));
	CHECK(nvrtcDestroyProgram(&program));
	return image;
}

static void spoiled()
{
	char error[4096] = "", info[4096] = "";
	std::string text = ptx_adder("spoiled", 1);
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
	void *values[] = {error, (void *)sizeof(error), info, (void *)sizeof(info), (void *)1};
	CUmodule module;

	text.replace(text.find("mul.lo.u32"), 10, "mul.no.u32");
	printf("wrong text: %s\n", name_of(cuModuleLoadDataEx(&module, text.c_str(), 5, options, values)));
	printf("%s", error);
	printf("log of errors %s\n", error[0] ? "written" : "empty");
	text = ptx_adder("verbose", (unsigned)getpid()); // not in the driver's cache of compiled texts
	CHECK(cuModuleLoadDataEx(&module, text.c_str(), 5, options, values));
	printf("log says how many registers: %s\n", strstr(info, "registers") ? "yes" : "no");
	CHECK(cuModuleUnload(module));
}

int main()
{
	std::vector<float> ones(32, 1.5f);
	CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_WALL_TIME,
		CU_JIT_TARGET_FROM_CUCONTEXT};
	CUmodule module;
	CUfunction function;
	int registers;

	CHECK(cudaFree(nullptr));
	buffer<float> data(ones);
	for (bool to_cubin : {false, true}) {
		std::string lowered, image = compile(to_cubin, &lowered);
		void *values[] = {(void *)32, (void *)3, nullptr, nullptr};
		void *arguments[] = {&data.at};

		printf("lowered name %s\n", lowered.c_str());
		CHECK(cuModuleLoadDataEx(&module, image.c_str(), 4, options, values));
		CHECK(cuModuleGetFunction(&function, module, lowered.c_str()));
		CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
		CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
		printf("value %g, at most 32 registers: %s\n", data.read()[31],
			registers <= 32 ? "yes" : "no");
		CHECK(cuModuleGetFunction(&function, module, "plain"));
		CHECK(cuModuleUnload(module));
	}
	EXPECT(data.read()[0] == 54);
	spoiled();
	nvrtcProgram program;
	CHECK(nvrtcCreateProgram(&program, source, "source.cu", 0, nullptr, nullptr));
	printf("without the macro: %s\n", nvrtcGetErrorString(nvrtcCompileProgram(program, 0, nullptr)));
	CHECK(nvrtcDestroyProgram(&program));
	return 0;
}
