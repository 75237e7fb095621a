// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// What one program may expect of the driver: copies, sets, kernels, modules, streams, events, default
// streams, waits on words, host functions, threads. Every test runs in a process of its own against one
// service. Run against NVIDIA's library, the same tests must pass: they say what the driver does, not what we
// do.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

START_TEST(device_is_described)
{
	char name[128] = "";
	int count, value;
	size_t total;
	CUuuid uuid;
	CUdevice device;

	ck_assert_int_eq(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	ck_cuda(cuInit(0));
	ck_cuda(cuDeviceGetCount(&count));
	ck_assert_int_ge(count, 1);
	ck_cuda(cuDeviceGet(&device, 0));
	ck_assert_int_eq(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
	ck_cuda(cuDeviceGetName(name, sizeof(name), device));
	ck_assert_uint_gt(strlen(name), 0);
	ck_cuda(cuDeviceTotalMem_v2(&total, device));
	ck_assert_uint_gt(total, 1 << 20);
	ck_cuda(cuDeviceGetUuid(&uuid, device));
	ck_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
	ck_assert_int_eq(value, 32);
	ck_cuda(cuDriverGetVersion(&value));
	ck_assert_int_ge(value, 13000);
}
END_TEST

typedef CUresult value_call(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags);

/* What a program finds that asks for calls as old as those of the first drivers with such operations. */
START_TEST(the_first_stream_memory_operations_are_gone)
{
	static const struct {
		int attribute, value;
	} told[] = {{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 0},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1}};
	CUdriverProcAddressQueryResult status;
	CUdeviceptr word;
	void *call;

	driver_open();
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
		int value = -1;

		ck_cuda(cuDeviceGetAttribute(&value, (CUdevice_attribute)told[i].attribute, 0));
		ck_assert_int_eq(value, told[i].value);
	}
	word = device_words(1, 0);
	ck_cuda(cuGetProcAddress_v2("cuStreamWriteValue32", &call, 8000, 0, &status));
	ck_assert_int_eq(((value_call *)call)(NULL, word, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuGetProcAddress_v2("cuStreamWriteValue32", &call, 12000, 0, &status));
	ck_cuda(((value_call *)call)(NULL, word, 1, 0));
	ck_cuda(cuCtxSynchronize());
}
END_TEST

START_TEST(kernel_adds_vectors)
{
	uint64_t count = 100003;
	CUdeviceptr a, b, out;
	uint32_t *result = malloc(count * 4);
	void *arguments[] = {&out, &a, &b, &count};

	driver_open();
	a = device_words(count, 3);
	b = device_words(count, 5);
	ck_cuda(cuMemAlloc_v2(&out, count * 4));
	ck_cuda(launch("add_vectors", 64, 128, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(result, out, count * 4));
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(result[i], i * 8);
	ck_cuda(cuMemFree_v2(a));
	ck_cuda(cuMemFree_v2(b));
	ck_cuda(cuMemFree_v2(out));
	ck_assert_int_eq(cuMemFree_v2(out), CUDA_ERROR_INVALID_VALUE);
	free(result);
}
END_TEST

static const size_t sizes[] = {1, 4, 511, 4096, 65537, (1 << 20) + 3, (5 << 20) + 1, 70 << 20};

START_TEST(bytes_come_back_as_they_went)
{
	size_t bytes = sizes[_i];
	uint8_t *out = malloc(bytes), *in = malloc(bytes), *pinned;
	CUdeviceptr a, b;

	driver_open();
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(i * 31 + (i >> 11));
	ck_cuda(cuMemAlloc_v2(&a, bytes));
	ck_cuda(cuMemAlloc_v2(&b, bytes));
	ck_cuda(cuMemHostAlloc((void **)&pinned, bytes, 0));
	/* pageable → device → device → pinned → device → pageable */
	ck_cuda(cuMemcpyHtoD_v2(a, out, bytes));
	ck_cuda(cuMemcpyDtoD_v2(b, a, bytes));
	ck_cuda(cuMemcpyDtoH_v2(pinned, b, bytes));
	ck_assert_int_eq(memcmp(out, pinned, bytes), 0);
	memset(pinned, 0x77, bytes);
	ck_cuda(cuMemcpyHtoDAsync_v2(a, pinned, bytes, NULL));
	ck_cuda(cuMemcpyDtoHAsync_v2(in, a, bytes, NULL));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(in[0], 0x77);
	ck_assert_int_eq(memcmp(in, pinned, bytes), 0);
	ck_cuda(cuMemsetD8_v2(a, 0x5a, bytes));
	ck_cuda(cuMemcpy((CUdeviceptr)(uintptr_t)in, a, bytes));
	ck_assert_uint_eq(in[bytes - 1], 0x5a);
	ck_cuda(cuMemFreeHost(pinned));
	ck_cuda(cuMemFree_v2(a));
	ck_cuda(cuMemFree_v2(b));
	free(in);
	free(out);
}
END_TEST

START_TEST(boxes_are_copied)
{
	enum { WIDTH = 300, HEIGHT = 77 };
	uint8_t out[HEIGHT][WIDTH], in[HEIGHT][WIDTH];
	size_t pitch;
	CUdeviceptr box;
	CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = out,
		.srcPitch = WIDTH,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};
	CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = in,
		.dstPitch = WIDTH,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};

	driver_open();
	for (int y = 0; y < HEIGHT; y++)
		for (int x = 0; x < WIDTH; x++)
			out[y][x] = (uint8_t)(x * y + y);
	memset(in, 0, sizeof(in));
	ck_cuda(cuMemAllocPitch_v2(&box, &pitch, WIDTH, HEIGHT, 4));
	ck_assert_uint_ge(pitch, WIDTH);
	up.dstDevice = down.srcDevice = box;
	up.dstPitch = down.srcPitch = pitch;
	ck_cuda(cuMemsetD2D8_v2(box, pitch, 0xee, WIDTH, HEIGHT));
	ck_cuda(cuMemcpy2D_v2(&up));
	ck_cuda(cuMemcpy2D_v2(&down));
	ck_assert_int_eq(memcmp(in, out, sizeof(in)), 0);
}
END_TEST

START_TEST(globals_belong_to_their_module)
{
	uint32_t words[8], changed[4] = {1, 2, 3, 4};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUdeviceptr global, other, none, out;
	CUmodule second;
	size_t bytes;
	void *arguments[] = {&out};

	driver_open();
	ck_cuda(cuModuleLoadData(&second, image));
	ck_cuda(cuModuleGetGlobal_v2(&global, &bytes, kernels(), "global_words"));
	ck_assert_uint_eq(bytes, 16);
	ck_cuda(cuModuleGetGlobal_v2(&other, NULL, second, "global_words"));
	ck_assert_uint_ne(global, other);
	ck_assert_int_eq(cuModuleGetGlobal_v2(&none, NULL, second, "no_such_words"), CUDA_ERROR_NOT_FOUND);
	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuMemcpyHtoD_v2(global, changed, 16));
	ck_cuda(launch("read_words", 1, 1, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_assert_int_eq(memcmp(words, changed, 16), 0);
	ck_assert_uint_eq(words[4], 5);
	ck_cuda(cuMemcpyDtoH_v2(words, other, 16));
	ck_assert_uint_eq(words[0], 11);
	ck_cuda(cuModuleUnload(second));
	free(image);
}
END_TEST

static int is_active(void)
{
	unsigned flags;
	int active;

	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

/* A reset ends the context and takes no retain back. */
START_TEST(retains_outlive_a_reset)
{
	driver_attach();
	driver_attach();
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	ck_assert(!is_active());
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	driver_attach();
	for (int i = 0; i < 3; i++) {
		ck_assert(is_active());
		ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	}
	ck_assert(!is_active());
	ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

/* A library and its kernels outlive the context; its globals do not. */
START_TEST(libraries_begin_anew_with_the_next_context)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	uint32_t words[8], changed[4] = {1, 2, 3, 4};
	CUdeviceptr global, out;
	CUkernel read_words;
	CUlibrary library;
	int value = 0;
	void *arguments[] = {&out};

	driver_attach();
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	free(image);
	ck_cuda(cuLibraryGetKernel(&read_words, library, "read_words"));
	ck_cuda(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, read_words, 0));
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemAlloc_v2(&out, 32));
		ck_cuda(cuLaunchKernel((CUfunction)read_words, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
		ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
		ck_assert_uint_eq(words[0], 11);
		ck_cuda(cuLibraryGetGlobal(&global, NULL, library, "global_words"));
		ck_cuda(cuMemcpyHtoD_v2(global, changed, 16));
		ck_cuda(cuLaunchKernel((CUfunction)read_words, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
		ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
		ck_assert_uint_eq(words[0], 1);
		if (round == 0)
			ck_cuda(cuDevicePrimaryCtxReset_v2(0));
		while (is_active())
			ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
		driver_attach();
		ck_assert_int_eq(cuMemFree_v2(out), CUDA_ERROR_INVALID_VALUE);
	}
	ck_cuda(cuKernelGetAttribute(
		&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, read_words, 0));
	ck_assert_int_eq(value, 50);
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	ck_cuda(cuLibraryUnload(library));
}
END_TEST

/* A library in several contexts at a time */

struct divided {
	CUlibrary library;
	CUkernel read_words;
};

static struct divided load_divided(void)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	struct divided divided;

	ck_cuda(cuLibraryLoadData(&divided.library, image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryGetKernel(&divided.read_words, divided.library, "read_words"));
	free(image);
	return divided;
}

/* The first word that the kernel reads in the current context, or in that of a stream. */
static uint32_t read_first(CUfunction read_words, CUstream stream)
{
	uint32_t words[8];
	CUdeviceptr out;
	void *arguments[] = {&out};

	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuLaunchKernel(read_words, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_cuda(cuMemFree_v2(out));
	return words[0];
}

/* Changes the variable of the current context. Return: its address */
static CUdeviceptr write_first(CUlibrary library, uint32_t value)
{
	CUdeviceptr global;

	ck_cuda(cuLibraryGetGlobal(&global, NULL, library, "global_words"));
	ck_cuda(cuMemcpyHtoD_v2(global, &value, 4));
	return global;
}

START_TEST(contexts_have_variables_of_their_own)
{
	struct divided divided;
	CUdeviceptr first, second;
	CUcontext primary, other;
	CUfunction functions[2];
	CUmodule modules[2];
	CUstream stream;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&primary));
	divided = load_divided();
	first = write_first(divided.library, 1);
	ck_cuda(cuKernelGetFunction(&functions[0], divided.read_words));
	ck_cuda(cuLibraryGetModule(&modules[0], divided.library));
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	second = write_first(divided.library, 2);
	ck_assert_uint_ne(first, second);
	ck_cuda(cuKernelGetFunction(&functions[1], divided.read_words));
	ck_cuda(cuLibraryGetModule(&modules[1], divided.library));
	ck_assert_ptr_ne(functions[0], functions[1]);
	ck_assert_ptr_ne(modules[0], modules[1]);
	ck_assert_uint_eq(read_first(functions[1], NULL), 2);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, stream), 2);
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	ck_assert_uint_eq(read_first(functions[0], NULL), 1);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	/* The next one begins anew. */
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_cuda(cuLibraryUnload(divided.library));
}
END_TEST

/* The context ends in which the library was used first; the other one's variables stay what they are. */
START_TEST(a_library_outlives_the_first_of_its_contexts)
{
	CUcontext primary, other;
	struct divided divided;
	int value = 0;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	divided = load_divided();
	write_first(divided.library, 2);
	ck_cuda(cuKernelSetAttribute(
		CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, divided.read_words, 0));
	ck_cuda(cuCtxSetCurrent(primary));
	write_first(divided.library, 1);
	ck_cuda(cuCtxSetCurrent(other));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 2);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	ck_cuda(cuKernelGetAttribute(
		&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, divided.read_words, 0));
	ck_assert_int_eq(value, 50);
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	ck_cuda(cuLibraryUnload(divided.library));
	ck_cuda(cuCtxDestroy_v2(other));
}
END_TEST

/* As cuBLAS loads what it has unpacked. */
START_TEST(a_library_is_loaded_with_an_option_and_no_values)
{
	CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUlibrary library;
	CUkernel kernel;

	driver_open();
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, &option, NULL, 1));
	ck_cuda(cuLibraryGetKernel(&kernel, library, "fill"));
	ck_cuda(cuLibraryUnload(library));
	free(image);
}
END_TEST

START_TEST(wrong_calls_are_refused_at_the_call)
{
	CUdeviceptr p;
	uint64_t count = 1;
	uint32_t value = 1;
	void *arguments[] = {&p, &value, &count};
	CUfunction function;
	CUmodule module;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4));
	ck_assert_int_eq(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetFunction(&function, kernels(), "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(launch("fill", 1, 4096, NULL, arguments), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(launch("fill", 0, 1, NULL, arguments), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_ne(cuModuleLoadData(&module, "this is no image"), CUDA_SUCCESS);
	ck_cuda(cuCtxSynchronize());
}
END_TEST

START_TEST(too_much_memory_is_an_error_and_no_more)
{
	CUdeviceptr p;
	size_t free_bytes, total;

	driver_open();
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_assert_uint_le(free_bytes, total);
	ck_assert_int_eq(cuMemAlloc_v2(&p, total * 2), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(cuMemAlloc_v2(&p, 1 << 20));
	ck_cuda(cuMemFree_v2(p));
}
END_TEST

START_TEST(a_stream_keeps_its_order)
{
	uint64_t count = 5000;
	CUdeviceptr a, b;
	uint32_t *result = malloc(count * 4), expected;
	CUstream stream;

	driver_open();
	a = device_words(count, 1);
	b = device_words(count, 0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 0; round < 3000; round++) {
		CUdeviceptr *out = round % 2 ? &a : &b, *in = round % 2 ? &b : &a;
		void *arguments[] = {out, in, &round, &count};

		ck_cuda(launch("mix", 8, 64, stream, arguments));
	}
	ck_cuda(cuMemcpyDtoHAsync_v2(result, a, count * 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < count; i++) {
		expected = i;
		for (uint32_t round = 0; round < 3000; round++)
			expected = mixed(expected, round, i);
		ck_assert_uint_eq(result[i], expected);
	}
	ck_cuda(cuStreamDestroy_v2(stream));
	free(result);
}
END_TEST

/* A pinned word that kernels and the test both see. */
static uint32_t *shared_word(void)
{
	uint32_t *word;

	ck_cuda(cuMemHostAlloc((void **)&word, 4096, 0));
	memset(word, 0, 4096);
	return word;
}

static CUresult launch_spin(uint32_t *word, uint32_t value, CUstream stream)
{
	void *arguments[] = {&word, &value};

	return launch("spin_until", 1, 1, stream, arguments);
}

START_TEST(streams_do_not_wait_for_each_other)
{
	CUstream busy, free_stream;
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, busy));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, free_stream));
	ck_cuda(cuStreamSynchronize(free_stream));
	ck_assert_uint_eq(word[1], 7);
	ck_assert_int_eq(cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(busy));
	ck_cuda(cuStreamQuery(busy));
}
END_TEST

START_TEST(events_order_streams)
{
	CUstream first, second;
	CUevent event;
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventQuery(event));
	ck_cuda(launch_spin(word, 1, first));
	ck_cuda(cuEventRecord(event, first));
	ck_cuda(cuStreamWaitEvent(second, event, 0));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, second));
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 0);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(second));
	ck_assert_uint_eq(word[1], 7);
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuEventDestroy_v2(event));
}
END_TEST

START_TEST(events_measure_time)
{
	uint64_t ns = 20000000;
	void *arguments[] = {&ns};
	CUevent begin, end;
	float ms = 0;

	driver_open();
	ck_cuda(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	ck_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
	ck_assert_int_eq(cuEventElapsedTime_v2(&ms, begin, end), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuEventRecord(begin, NULL));
	ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	ck_cuda(cuEventRecord(end, NULL));
	ck_assert_int_eq(cuEventElapsedTime_v2(&ms, begin, end), CUDA_ERROR_NOT_READY);
	ck_cuda(cuEventSynchronize(end));
	ck_cuda(cuEventElapsedTime_v2(&ms, begin, end));
	ck_assert_float_ge(ms, 19.9f);
}
END_TEST

/* Who has waited for an event knows when it was, at once. */
START_TEST(time_is_known_when_an_event_is_over)
{
	CUevent start, end;
	CUstream stream;
	float ms;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&start, CU_EVENT_DEFAULT));
	ck_cuda(cuEventCreate(&end, CU_EVENT_DEFAULT));
	for (int i = 0; i < 2000; i++) {
		ck_cuda(cuEventRecord(start, stream));
		ck_cuda(cuEventRecord(end, stream));
		while (cuEventQuery(end) == CUDA_ERROR_NOT_READY)
			;
		ck_cuda(cuEventElapsedTime(&ms, start, end));
		ck_assert(ms >= 0);
	}
}
END_TEST

START_TEST(legacy_default_stream_waits_and_is_waited_for)
{
	CUstream blocking, free_stream;
	CUdeviceptr d;
	uint32_t *word;

	driver_open();
	word = shared_word();
	d = (CUdeviceptr)(uintptr_t)(word + 1);
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, blocking));
	ck_cuda(cuMemsetD32Async(d, 2, 1, NULL));
	ck_cuda(cuMemsetD32Async(d + 4, 3, 1, free_stream));
	ck_cuda(cuStreamSynchronize(free_stream));
	ck_assert_uint_eq(word[2], 3);
	ck_assert_uint_eq(word[1], 0);
	ck_assert_int_eq(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(word[1], 2);
	/* And the other way round. */
	ck_cuda(launch_spin(word, 4, NULL));
	ck_cuda(cuMemsetD32Async(d, 5, 1, blocking));
	ck_assert_int_eq(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 2);
	__atomic_store_n(word, 4, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(blocking));
	ck_assert_uint_eq(word[1], 5);
}
END_TEST

static void write_late(void *word)
{
	pass_time(50);
	*(uint32_t *)word = 7;
}

/* Such a copy is made by the program's side, when it is the stream's turn. */
START_TEST(copies_from_host_to_host_wait_for_the_legacy_stream)
{
	CUstream blocking;
	uint32_t *words;

	driver_open();
	words = shared_word();
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuLaunchHostFunc(NULL, write_late, &words[0]));
	ck_cuda(cuMemcpyAsync(
		(CUdeviceptr)(uintptr_t)&words[1], (CUdeviceptr)(uintptr_t)&words[0], 4, blocking));
	ck_cuda(cuStreamSynchronize(blocking));
	ck_assert_uint_eq(words[1], 7);
}
END_TEST

START_TEST(streams_wait_for_words)
{
	CUstream waits, writes;
	CUdeviceptr d;
	uint32_t *word;

	driver_open();
	word = shared_word();
	d = (CUdeviceptr)(uintptr_t)word;
	ck_cuda(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamWaitValue32_v2(waits, d, 5, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemsetD32Async(d + 4, 9, 1, waits));
	ck_cuda(cuMemsetD32Async(d + 8, 1, 1, writes));
	ck_cuda(cuStreamSynchronize(writes));
	ck_assert_int_eq(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(word[1], 0);
	ck_cuda(cuStreamWriteValue32_v2(writes, d, 6, 0));
	ck_cuda(cuStreamSynchronize(waits));
	ck_assert_uint_eq(word[1], 9);
	/* Released by the program itself. */
	ck_cuda(cuStreamWaitValue32_v2(waits, d + 16, 1, CU_STREAM_WAIT_VALUE_EQ));
	ck_cuda(cuMemsetD32Async(d + 20, 4, 1, waits));
	__atomic_store_n(word + 4, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(waits));
	ck_assert_uint_eq(word[5], 4);
}
END_TEST

/* More streams than can exist at a time, each destroyed before its work ends. */
START_TEST(streams_are_destroyed_faster_than_they_end)
{
	uint64_t ns = 200000;
	void *arguments[] = {&ns};
	CUstream stream;

	driver_open();
	for (int i = 0; i < 5000; i++) {
		ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		ck_cuda(launch("spin_ns", 1, 1, stream, arguments));
		ck_cuda(cuStreamDestroy_v2(stream));
	}
	ck_cuda(cuCtxSynchronize());
}
END_TEST

struct order {
	uint32_t *word;
	uint32_t seen, calls;
};

static void note(void *data)
{
	struct order *order = data;

	order->seen = *order->word;
	order->calls++;
}

START_TEST(host_functions_run_in_order_and_once)
{
	struct order order = {0};
	CUstream stream;

	driver_open();
	order.word = shared_word();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 1; i <= 50; i++) {
		ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)order.word, i, 1, stream));
		ck_cuda(cuLaunchHostFunc(stream, note, &order));
	}
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)order.word, 99, 1, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(order.calls, 50);
	ck_assert_uint_eq(order.seen, 50);
	ck_assert_uint_eq(*order.word, 99);
}
END_TEST

static void *count_in_thread(void *data)
{
	CUdeviceptr word = *(CUdeviceptr *)data;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};
	CUdevice device = 0;
	CUcontext context;
	CUstream stream;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, device));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 1000; i++)
		ck_cuda(launch("count_up", 2, 32, stream, arguments));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	return NULL;
}

START_TEST(many_threads_launch)
{
	pthread_t threads[8];
	CUdeviceptr word;
	uint32_t total;

	driver_open();
	word = device_words(1, 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_in_thread, &word), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuMemcpyDtoH_v2(&total, word, 4));
	ck_assert_uint_eq(total, 8 * 1000 * 2);
}
END_TEST

static void *synchronize(void *stream)
{
	CUcontext context;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamSynchronize(stream));
	return NULL;
}

START_TEST(a_blocked_thread_is_released_by_another_ones_launch)
{
	CUstream blocked, other;
	uint32_t *word;
	pthread_t thread;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&blocked, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, blocked));
	ck_assert_int_eq(pthread_create(&thread, NULL, synchronize, blocked), 0);
	for (int i = 0; i < 2000; i++)
		ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, other));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)word, 1, 1, other));
	pthread_join(thread, NULL);
	ck_cuda(cuStreamSynchronize(other));
}
END_TEST

START_TEST(a_forked_child_gets_an_error_and_the_parent_goes_on)
{
	CUdeviceptr p;
	uint32_t word = 5;
	int status;
	pid_t child;

	if (getenv("FRMPS_TEST_NATIVE"))
		return;
	driver_open();
	p = device_words(1, 0);
	child = fork();
	if (child == 0)
		_exit(cuMemcpyDtoH_v2(&word, p, 4) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	ck_assert_uint_eq(word, 0);
}
END_TEST

START_TEST(contexts_are_stacked_and_destroyed)
{
	CUcontext primary, made, current;
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&made, 0, 0));
	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, made);
	ck_cuda(cuMemAlloc_v2(&p, 100));
	ck_cuda(cuCtxPopCurrent_v2(&current));
	ck_assert_ptr_eq(current, made);
	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, primary);
	ck_cuda(cuCtxDestroy_v2(made));
	ck_assert_int_eq(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("semantics");
	TCase *tests = tcase_create("semantics");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	tcase_add_test(tests, device_is_described);
	tcase_add_test(tests, the_first_stream_memory_operations_are_gone);
	tcase_add_test(tests, kernel_adds_vectors);
	tcase_add_loop_test(tests, bytes_come_back_as_they_went, 0, sizeof(sizes) / sizeof(*sizes));
	tcase_add_test(tests, boxes_are_copied);
	tcase_add_test(tests, globals_belong_to_their_module);
	tcase_add_test(tests, retains_outlive_a_reset);
	tcase_add_test(tests, libraries_begin_anew_with_the_next_context);
	tcase_add_test(tests, contexts_have_variables_of_their_own);
	tcase_add_test(tests, a_library_outlives_the_first_of_its_contexts);
	tcase_add_test(tests, a_library_is_loaded_with_an_option_and_no_values);
	tcase_add_test(tests, wrong_calls_are_refused_at_the_call);
	tcase_add_test(tests, too_much_memory_is_an_error_and_no_more);
	tcase_add_test(tests, a_stream_keeps_its_order);
	tcase_add_test(tests, streams_do_not_wait_for_each_other);
	tcase_add_test(tests, events_order_streams);
	tcase_add_test(tests, events_measure_time);
	tcase_add_test(tests, time_is_known_when_an_event_is_over);
	tcase_add_test(tests, legacy_default_stream_waits_and_is_waited_for);
	tcase_add_test(tests, copies_from_host_to_host_wait_for_the_legacy_stream);
	tcase_add_test(tests, streams_wait_for_words);
	tcase_add_test(tests, streams_are_destroyed_faster_than_they_end);
	tcase_add_test(tests, host_functions_run_in_order_and_once);
	tcase_add_test(tests, many_threads_launch);
	tcase_add_test(tests, a_blocked_thread_is_released_by_another_ones_launch);
	tcase_add_test(tests, a_forked_child_gets_an_error_and_the_parent_goes_on);
	tcase_add_test(tests, contexts_are_stacked_and_destroyed);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
