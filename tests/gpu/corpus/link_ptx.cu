// The driver's linker: two texts into one image, one of them from a file, options and logs; a
// missing function is an error.

#include "check.h"

static const char caller[] = R"(
.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 result) helper(.param .b32 value);
.visible .entry main_kernel(.param .u64 out)
{
	.reg .b64 %rd<4>;
	.reg .b32 %r<4>;
	ld.param.u64 %rd1, [out];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	{
	.param .b32 value;
	st.param.b32 [value], %r1;
	.param .b32 result;
	call.uni (result), helper, (value);
	ld.param.b32 %r2, [result];
	}
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd2, %rd2, %rd3;
	st.global.u32 [%rd2], %r2;
	ret;
}
)";

static const char helper[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .func (.param .b32 result) helper(.param .b32 value)
{
	.reg .b32 %r<3>;
	ld.param.b32 %r1, [value];
	mad.lo.u32 %r2, %r1, %r1, 7;
	st.param.b32 [result], %r2;
	ret;
}
)";

static CUresult link(bool both, bool from_file, buffer<unsigned> &out)
{
	char error[4096] = "", info[4096] = "", path[] = "/tmp/frmps-corpus-XXXXXX";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
	void *values[] = {error, (void *)sizeof(error), info, (void *)sizeof(info), nullptr};
	CUlinkState state;
	CUmodule module;
	CUfunction function;
	CUresult result;
	void *image;
	size_t size;

	CHECK(cuLinkCreate(5, options, values, &state));
	CHECK(cuLinkAddData(
		state, CU_JIT_INPUT_PTX, (void *)caller, sizeof(caller), "caller", 0, nullptr, nullptr));
	if (both && !from_file)
		CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)helper, sizeof(helper), "helper", 0,
			nullptr, nullptr));
	if (both && from_file) {
		int descriptor = mkstemp(path);

		EXPECT(write(descriptor, helper, sizeof(helper) - 1) == (ssize_t)sizeof(helper) - 1);
		close(descriptor);
		CHECK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
		unlink(path);
	}
	result = cuLinkComplete(state, &image, &size);
	printf("completed: %s, log of errors %s\n", name_of(result), error[0] ? "written" : "empty");
	if (result == CUDA_SUCCESS) {
		CHECK(cuModuleLoadData(&module, image));
		CHECK(cuModuleGetFunction(&function, module, "main_kernel"));
		void *arguments[] = {&out.at};
		CHECK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
		for (unsigned i = 0; i < 64; i++)
			EXPECT(out.read()[i] == i * i + 7);
		report("values", out.read());
		CHECK(cuModuleUnload(module));
	}
	CHECK(cuLinkDestroy(state));
	return result;
}

/* A definition comes twice: neither this input nor the rest of the link is any good. */
static void link_twice()
{
	CUlinkState state;
	CUresult added;
	void *image;
	size_t size;

	CHECK(cuLinkCreate(0, nullptr, nullptr, &state));
	CHECK(cuLinkAddData(
		state, CU_JIT_INPUT_PTX, (void *)helper, sizeof(helper), "helper", 0, nullptr, nullptr));
	CHECK(cuLinkAddData(
		state, CU_JIT_INPUT_PTX, (void *)caller, sizeof(caller), "caller", 0, nullptr, nullptr));
	added = cuLinkAddData(
		state, CU_JIT_INPUT_PTX, (void *)helper, sizeof(helper), "again", 0, nullptr, nullptr);
	printf("added twice: %s, ", name_of(added));
	printf("completed: %s\n", name_of(cuLinkComplete(state, &image, &size)));
	CHECK(cuLinkDestroy(state));
}

int main()
{
	CHECK(cudaFree(nullptr));
	buffer<unsigned> out(64);
	CHECK(link(true, false, out));
	CHECK(cudaMemset(out, 0, out.bytes()));
	CHECK(link(true, true, out));
	EXPECT(link(false, false, out) != CUDA_SUCCESS);
	link_twice();
	return 0;
}
