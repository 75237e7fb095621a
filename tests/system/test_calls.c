// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Calls that cannot succeed: each one too early, in a forked child and with nothing; with what was destroyed.
// The tests run against NVIDIA's library as well and must pass there, but for those that say otherwise.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

/* ---- every call there is ---- */

static const char *const calls[] = {
#define NAME_FULL(symbol)  #symbol,
#define NAME_LOCAL(symbol) #symbol,
#define NAME_REFUSED(symbol)
#define API(symbol, base, since, variant, kind, note) NAME_##kind(symbol)
#include "client/api.def"
#undef API
};

/* As many words as any call takes, in registers and behind them; structs that go by value are in them. */
typedef CUresult any_call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static CUresult call_with_nothing(const char *symbol)
{
	any_call *call = (any_call *)dlsym(RTLD_DEFAULT, symbol);

	ck_assert_msg(call, "no %s", symbol);
	return call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* What may be called before cuInit. */
static bool is_early(const char *symbol)
{
	static const char *const early[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName",
		"cuGetErrorString", "cuGetExportTable", "cuGetProcAddress", "cuGetProcAddress_v2",
		"cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory", "cuLogsRegisterCallback",
		"cuLogsUnregisterCallback", "cuProfilerInitialize"};

	for (size_t i = 0; i < sizeof(early) / sizeof(*early); i++)
		if (!strcmp(symbol, early[i]))
			return true;
	return false;
}

/* Return: how many calls did not say that the driver is not initialised. */
static int count_too_early(void)
{
	int wrong = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		CUresult r = is_early(calls[i]) ? CUDA_ERROR_NOT_INITIALIZED : call_with_nothing(calls[i]);

		if (r != CUDA_ERROR_NOT_INITIALIZED)
			fprintf(stderr, "%s is %d\n", calls[i], (int)r);
		wrong += r != CUDA_ERROR_NOT_INITIALIZED;
	}
	return wrong;
}

/* Whatever else is wrong with them. */
START_TEST(calls_come_too_early)
{
	ck_assert_int_eq(is_native() ? 0 : count_too_early(), 0);
}
END_TEST

static int call_in_child(int unused)
{
	(void)unused;
	return count_too_early() || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
}

START_TEST(a_forked_child_has_nothing)
{
	CUstream stream;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuMemsetD8Async_ptsz(device_words(1, 0), 1, 4, NULL));
	ck_assert_int_eq(exit_status(spawn(call_in_child, 0)), 0);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

/* Calls with all arguments zero: errors, or what they mean; never the end of the program, which NVIDIA's
 * library does not promise. */
START_TEST(nothing_is_asked_of_everything)
{
	CUcontext context;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuCtxGetCurrent(&context));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		call_with_nothing(calls[i]);
		/* Some of them ended the context, or took it away. */
		ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
		ck_cuda(cuCtxSetCurrent(context));
	}
	ck_cuda(cuCtxSynchronize());
}
END_TEST

/* ---- what is no more ---- */

static CUresult launch_function(CUfunction function, CUstream stream)
{
	CUdeviceptr word = 0;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* NVIDIA's library follows handles of streams, events and graphs' nodes wherever they lead. */
START_TEST(destroyed_streams_and_events_are_refused)
{
	CUstream stream, other;
	CUdeviceptr word;
	CUevent event;
	float time;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuStreamCreate(&other, 0));
	ck_cuda(cuEventCreate(&event, 0));
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemsetD8Async(word, 1, 4, stream));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda(cuEventSynchronize(event));
	ck_assert_int_ne(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuStreamSynchronize(stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuMemsetD8Async(word, 1, 4, stream), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventRecord(event, stream), CUDA_SUCCESS);
	ck_cuda(cuEventDestroy_v2(event));
	ck_assert_int_ne(cuEventDestroy_v2(event), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventRecord(event, other), CUDA_SUCCESS);
	ck_assert_int_ne(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
	ck_assert_int_ne(cuEventElapsedTime(&time, event, event), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

START_TEST(what_was_destroyed_is_refused)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUfunction function;
	CUmodule module;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;

	driver_attach();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuModuleUnload(module));
	ck_assert_int_eq(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(launch_function(function, stream), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemFree_v2(word));
	ck_assert_int_eq(cuMemFree_v2(word), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemsetD8_v2(word, 1, 4), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert_int_eq(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

START_TEST(nothing_else_is_left_of_them)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUfunction function;
	CUgraphExec exec;
	CUmodule module;
	CUgraphNode node;
	CUdeviceptr word;
	CUgraph graph;
	size_t bytes;
	int value;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuModuleUnload(module));
	ck_assert_int_ne(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function), CUDA_SUCCESS);
	ck_assert_int_ne(cuModuleGetFunction(&function, module, "count_up"), CUDA_SUCCESS);
	ck_cuda(cuMemAlloc_v2(&word, 4));
	ck_cuda(cuMemFree_v2(word));
	ck_assert_int_ne(cuMemGetAddressRange_v2(&word, &bytes, word), CUDA_SUCCESS);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert_int_ne(cuGraphDestroyNode(node), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
	ck_cuda(cuGraphLaunch(exec, NULL));
	ck_cuda(cuGraphExecDestroy(exec));
	ck_assert_int_ne(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("calls");
	TCase *tests = tcase_create("calls");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	tcase_add_test(tests, calls_come_too_early);
	tcase_add_test(tests, a_forked_child_has_nothing);
	tcase_add_test(tests, nothing_is_asked_of_everything);
	tcase_add_test(tests, destroyed_streams_and_events_are_refused);
	tcase_add_test(tests, what_was_destroyed_is_refused);
	tcase_add_test(tests, nothing_else_is_left_of_them);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
