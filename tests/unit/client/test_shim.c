// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The shim as a program sees it, against the service of loopback.c: start, contexts, memory, copies, streams,
// events, host functions, and what happens when the service hangs, dies or faults.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/entry/api.h"
#include "client/link/connect.h"
#include "protocol/command.h"
#include "tests/lib/suite.h"
#include "tests/unit/client/loopback.h"

#define OK(call)	  ck_assert_int_eq((call), CUDA_SUCCESS)
#define FAILS(call, code) ck_assert_int_eq((call), CUDA_ERROR_##code)
#define MiB		  ((size_t)1 << 20)

static CUcontext context;

static void setup_service(void)
{
	setenv("FRMPS_LOG", "off", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	loopback_start();
}

static void setup(void)
{
	setup_service();
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

static void teardown(void)
{
	/* Nobody else ever closes them: the shim leaves that to the end of the process. */
	if (connection.control_fd >= 0)
		close(connection.control_fd);
	if (connection.doorbell_fd >= 0)
		close(connection.doorbell_fd);
	ck_assert(loopback_stop());
}

/* Bytes that differ from place to place. */
static uint8_t *pattern(size_t bytes, unsigned int seed)
{
	uint8_t *p = malloc(bytes);

	for (size_t i = 0; i < bytes; ++i)
		p[i] = (uint8_t)((i * 2654435761u >> 7) + seed);
	return p;
}

static void pause_service(void)
{
	word_set(&loopback->paused, 1);
}

static void resume_service(void)
{
	word_set(&loopback->paused, 0);
}

/* Start */

START_TEST(nothing_works_before_cuinit)
{
	int count = -1, version;
	CUcontext c;

	OK(cuDriverGetVersion(&version));
	ck_assert_int_eq(version, CUDA_ABI_VERSION);
	FAILS(cuDeviceGetCount(&count), NOT_INITIALIZED);
	FAILS(cuCtxGetCurrent(&c), NOT_INITIALIZED);
	FAILS(cuMemFree_v2(0x1000), NOT_INITIALIZED);
	ck_assert_int_eq(count, -1);
	ck_assert_uint_eq(loopback->greetings, 0);
}
END_TEST

START_TEST(no_service_is_an_error)
{
	setenv("FRMPS_SOCKET", "/nonexistent/socket", 1);
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	FAILS(cuInit(0), MPS_CONNECTION_FAILED);
	FAILS(cuCtxSynchronize(), NOT_INITIALIZED);
}
END_TEST

START_TEST(a_hanging_service_is_an_error)
{
	setenv("FRMPS_CONNECT_TIMEOUT", "0.2", 1);
	word_set(&loopback->mute, 1);
	FAILS(cuInit(0), MPS_SERVER_NOT_READY);
	word_set(&loopback->mute, 0);
	unsetenv("FRMPS_CONNECT_TIMEOUT");
	OK(cuInit(0));
}
END_TEST

START_TEST(hidden_devices_are_no_devices)
{
	int count;

	setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
	FAILS(cuInit(0), NO_DEVICE);
	ck_assert_uint_eq(loopback->greetings, 0);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-00", 1);
	FAILS(cuInit(0), NO_DEVICE);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-f0f1f2f3-f4f5", 1);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 1);
}
END_TEST

START_TEST(device_questions)
{
	char name[64], bus[16];
	int value;
	CUdevice device;

	FAILS(cuInit(1), INVALID_VALUE);
	OK(cuDeviceGet(&device, 0));
	FAILS(cuDeviceGet(&device, 1), INVALID_DEVICE);
	OK(cuDeviceGetName(name, sizeof(name), 0));
	ck_assert_str_eq(name, "Loopback");
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
	ck_assert_int_eq(value, 1024);
	FAILS(cuDeviceGetAttribute(&value, (CUdevice_attribute)5000, 0), INVALID_VALUE);
	OK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
	ck_assert_str_eq(bus, "0000:1b:00.0");
	OK(cuDeviceGetByPCIBusId(&device, bus));
	FAILS(cuDeviceGetByPCIBusId(&device, "0000:1c:00.0"), INVALID_DEVICE);
	OK(cuDeviceCanAccessPeer(&value, 0, 0));
	ck_assert_int_eq(value, 0);
}
END_TEST

START_TEST(a_forked_child_has_no_driver)
{
	int status;
	pid_t pid;
	CUcontext c;
	uint32_t before = loopback->count;

	pid = fork();
	if (pid == 0) {
		int version, bad = 0;

		bad += cuMemFree_v2(0x1000) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuCtxGetCurrent(&c) != CUDA_ERROR_NOT_INITIALIZED;
		bad += cuDriverGetVersion(&version) != CUDA_SUCCESS;
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_eq(loopback->count, before);
	OK(cuCtxSynchronize());
}
END_TEST

/* Contexts */

START_TEST(the_stack_of_contexts)
{
	CUcontext a, b, c;
	CUdevice device;

	OK(cuCtxCreate_v2(&a, 0, 0));
	OK(cuCtxCreate_v4(&b, NULL, CU_CTX_SCHED_SPIN, 0));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, b);
	OK(cuCtxPushCurrent_v2(a));
	OK(cuCtxPopCurrent_v2(&c));
	ck_assert_ptr_eq(c, a);
	OK(cuCtxDestroy_v2(b));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, a);
	FAILS(cuCtxDestroy_v2(b), CONTEXT_IS_DESTROYED);
	OK(cuCtxSetCurrent(context));
	OK(cuCtxSetCurrent(NULL));
	OK(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, context);
	OK(cuCtxSetCurrent(NULL));
	FAILS(cuCtxGetDevice(&device), INVALID_CONTEXT);
	FAILS(cuCtxSynchronize(), INVALID_CONTEXT);
	FAILS(cuCtxPopCurrent_v2(&c), INVALID_CONTEXT);
	FAILS(cuCtxPushCurrent_v2((CUcontext)0x1234), INVALID_CONTEXT);
	OK(cuCtxSetCurrent(b));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
}
END_TEST

START_TEST(the_primary_context)
{
	unsigned int flags;
	unsigned long long before, after;
	CUcontext again;
	CUdeviceptr p;
	int active;

	OK(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, context);
	OK(cuCtxGetId(context, &before));
	OK(cuMemAlloc_v2(&p, 64 * MiB));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	FAILS(cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	FAILS(cuDevicePrimaryCtxSetFlags_v2(0, 3), INVALID_VALUE);
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, context);
	OK(cuCtxGetId(context, &after));
	ck_assert(before != after);
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	OK(cuCtxGetFlags(&flags));
	ck_assert_uint_eq(flags, CU_CTX_SCHED_BLOCKING_SYNC);
}
END_TEST

START_TEST(a_reset_frees_everything)
{
	CUdeviceptr p;
	CUstream stream;
	CUevent event;
	void *host;

	OK(cuMemAlloc_v2(&p, 100 * MiB));
	OK(cuMemHostAlloc(&host, 100, 0));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	FAILS(cuMemFree_v2(p), INVALID_VALUE);
	FAILS(cuMemFreeHost(host), INVALID_VALUE);
	FAILS(cuStreamSynchronize(stream), INVALID_HANDLE);
	FAILS(cuEventQuery(event), INVALID_HANDLE);
	ck_assert_uint_le(loopback->mapped, 64 * MiB);
}
END_TEST

START_TEST(limits_are_shadows)
{
	size_t value;

	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	ck_assert_uint_eq(value, 1024);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	ck_assert_uint_eq(value, 4096);
	FAILS(cuCtxGetLimit(&value, CU_LIMIT_CIG_ENABLED), UNSUPPORTED_LIMIT);
	FAILS(cuCtxGetLimit(&value, (CUlimit)99), INVALID_VALUE);
}
END_TEST

/* Memory */

START_TEST(allocations)
{
	CUdeviceptr a, b, base;
	size_t bytes, pitch, available, total;

	FAILS(cuMemAlloc_v2(&a, 0), INVALID_VALUE);
	FAILS(cuMemAlloc_v2(NULL, 1), INVALID_VALUE);
	OK(cuMemAlloc_v2(&a, 1000));
	OK(cuMemAlloc_v2(&b, 5 * MiB));
	ck_assert_uint_eq(a % 512, 0);
	ck_assert_uint_eq(b % (2 * MiB), 0);
	OK(cuMemGetAddressRange_v2(&base, &bytes, a + 999));
	ck_assert_uint_eq(base, a);
	ck_assert_uint_eq(bytes, 1000);
	FAILS(cuMemGetAddressRange_v2(&base, &bytes, a + 1000), NOT_FOUND);
	OK(cuMemGetInfo_v2(&available, &total));
	ck_assert_uint_eq(total - available, 8 * MiB);
	OK(cuMemGetInfo_v2(NULL, NULL));
	FAILS(cuMemFree_v2(a + 1), INVALID_VALUE);
	OK(cuMemFree_v2(a));
	FAILS(cuMemFree_v2(a), INVALID_VALUE);
	OK(cuMemFree_v2(b));
	OK(cuMemAllocPitch_v2(&a, &pitch, 1000, 7, 4));
	ck_assert_uint_eq(pitch, 1024);
	FAILS(cuMemAllocPitch_v2(&a, &pitch, 1000, 7, 3), INVALID_VALUE);
}
END_TEST

START_TEST(memory_runs_out_and_comes_back)
{
	CUdeviceptr a, b, c;

	word_set(&loopback->room, 100 * MiB);
	OK(cuMemAlloc_v2(&a, 60 * MiB));
	FAILS(cuMemAlloc_v2(&b, 60 * MiB), OUT_OF_MEMORY);
	FAILS(cuMemAlloc_v2(&b, (size_t)1 << 50), OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&b, 100));
	OK(cuMemFree_v2(a));
	/* The 60 MiB are spare and must be given back for this. */
	OK(cuMemAlloc_v2(&c, 90 * MiB));
	OK(cuMemFree_v2(c));
	OK(cuMemFree_v2(b));
	OK(cuMemAlloc_v2(&c, 100 * MiB));
}
END_TEST

START_TEST(repeated_allocations_ask_the_service_once)
{
	CUdeviceptr p;
	uint32_t maps;

	OK(cuMemAlloc_v2(&p, 10 * MiB));
	OK(cuMemFree_v2(p));
	maps = loopback->maps;
	for (int i = 0; i < 50; ++i) {
		OK(cuMemAlloc_v2(&p, 10 * MiB));
		OK(cuMemFree_v2(p));
	}
	ck_assert_uint_eq(loopback->maps, maps);
}
END_TEST

START_TEST(pinned_memory)
{
	char *a, *b, foreign[16];
	CUdeviceptr p;
	unsigned int flags;

	OK(cuMemHostAlloc((void **)&a, 4, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	OK(cuMemAllocHost_v2((void **)&b, 40 * MiB));
	memset(a, 1, 4);
	memset(b, 2, 40 * MiB);
	OK(cuMemHostGetDevicePointer_v2(&p, b + 5, 0));
	ck_assert_uint_eq(p, (uintptr_t)b + 5);
	OK(cuMemHostGetFlags(&flags, a));
	ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
	FAILS(cuMemHostGetDevicePointer_v2(&p, foreign, 0), INVALID_VALUE);
	FAILS(cuMemHostRegister_v2(foreign, sizeof(foreign), 0), NOT_SUPPORTED);
	FAILS(cuMemHostRegister_v2(a, 4, 0), HOST_MEMORY_ALREADY_REGISTERED);
	FAILS(cuMemHostUnregister(foreign), HOST_MEMORY_NOT_REGISTERED);
	FAILS(cuMemHostAlloc((void **)&b, 4, 0x80), INVALID_VALUE);
	OK(cuMemFreeHost(a));
	FAILS(cuMemFreeHost(a), INVALID_VALUE);
	OK(cuMemFreeHost(b));
}
END_TEST

START_TEST(what_pointers_are)
{
	CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	CUcontext owner;
	unsigned int type, managed = 7;
	CUdeviceptr device_pointer, p;
	void *host_pointer, *host;
	void *data[] = {&owner, &type, &device_pointer, &host_pointer, &managed, NULL};
	int ordinal;

	data[5] = &ordinal;
	OK(cuMemAlloc_v2(&p, 100));
	OK(cuPointerGetAttributes(6, list, data, p + 10));
	ck_assert_ptr_eq(owner, context);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_uint_eq(device_pointer, p + 10);
	ck_assert_ptr_null(host_pointer);
	ck_assert_uint_eq(managed, 0);
	ck_assert_int_eq(ordinal, 0);
	OK(cuMemHostAlloc(&host, 100, 0));
	OK(cuPointerGetAttributes(6, list, data, (CUdeviceptr)(uintptr_t)host));
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	ck_assert_ptr_eq(host_pointer, host);
	managed = 7;
	OK(cuPointerGetAttributes(6, list, data, (CUdeviceptr)(uintptr_t)&ordinal));
	ck_assert_ptr_null(owner);
	ck_assert_uint_eq(type, 0);
	ck_assert_uint_eq(managed, 0);
	ck_assert_int_eq(ordinal, CU_DEVICE_INVALID);
	FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
		INVALID_VALUE);
	FAILS(cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), INVALID_VALUE);
}
END_TEST

/* Copies and fills */

static void round_trip(size_t bytes)
{
	uint8_t *in = pattern(bytes, 1), *out = calloc(bytes + 1, 1);
	CUdeviceptr p, q;

	OK(cuMemAlloc_v2(&p, bytes + 7));
	OK(cuMemAlloc_v2(&q, bytes + 7));
	OK(cuMemcpyHtoD_v2(p + 7, in, bytes));
	OK(cuMemcpyDtoD_v2(q + 3, p + 7, bytes));
	OK(cuMemcpyDtoH_v2(out, q + 3, bytes));
	ck_assert_int_eq(memcmp(in, out, bytes), 0);
	ck_assert_uint_eq(out[bytes], 0);
	OK(cuMemFree_v2(p));
	OK(cuMemFree_v2(q));
	free(in);
	free(out);
}

START_TEST(ordinary_memory_goes_there_and_back)
{
	round_trip(1);
	round_trip(4096);
	round_trip(4097);
	round_trip(100000);
	round_trip(5 * MiB + 3);
	round_trip(70 * MiB + 1);
}
END_TEST

START_TEST(pinned_memory_goes_there_and_back)
{
	size_t bytes = 3 * MiB + 5;
	uint8_t *in = pattern(bytes, 2), *a, *b;
	CUstream stream;
	CUdeviceptr p;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc((void **)&a, bytes, 0));
	OK(cuMemHostAlloc((void **)&b, bytes, 0));
	OK(cuMemAlloc_v2(&p, bytes));
	memcpy(a, in, bytes);
	memset(b, 0, bytes);
	OK(cuMemcpyHtoDAsync_v2(p, a, bytes, stream));
	OK(cuMemcpyDtoHAsync_v2(b, p, bytes, stream));
	OK(cuStreamSynchronize(stream));
	ck_assert_int_eq(memcmp(in, b, bytes), 0);
	memset(b, 0, bytes);
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)b, (CUdeviceptr)(uintptr_t)a, bytes));
	ck_assert_int_eq(memcmp(in, b, bytes), 0);
	/* No staging for any of it. */
	ck_assert_uint_eq(loopback_count(FRMPS_OP_COPY), 3);
	free(in);
}
END_TEST

START_TEST(any_memory_to_any_memory)
{
	uint8_t *in = pattern(1000, 3), out[1000], *pinned;
	CUdeviceptr p;

	OK(cuMemHostAlloc((void **)&pinned, 1000, 0));
	OK(cuMemAlloc_v2(&p, 1000));
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)in, 1000));
	OK(cuMemcpy(p, (CUdeviceptr)(uintptr_t)pinned, 1000));
	OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)out, p, 1000, NULL));
	ck_assert_int_eq(memcmp(in, out, 1000), 0);
	memset(out, 0, 1000);
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, (CUdeviceptr)(uintptr_t)pinned, 1000));
	ck_assert_int_eq(memcmp(in, out, 1000), 0);
	OK(cuMemcpyPeer(p, context, p + 500, context, 500));
	OK(cuMemcpyDtoH_v2(out, p, 500));
	ck_assert_int_eq(memcmp(in + 500, out, 500), 0);
	free(in);
}
END_TEST

START_TEST(copies_that_are_refused)
{
	uint8_t bytes[64];
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 2 * MiB));
	OK(cuMemcpyHtoD_v2(p, bytes, 0));
	OK(cuMemcpyHtoD_v2(0, NULL, 0));
	FAILS(cuMemcpyHtoD_v2(p + 2 * MiB - 10, bytes, 11), INVALID_VALUE);
	FAILS(cuMemcpyHtoD_v2(p, bytes, SIZE_MAX), INVALID_VALUE);
	FAILS(cuMemcpyDtoH_v2(bytes, p - 1, 1), INVALID_VALUE);
	FAILS(cuMemsetD32_v2(p + 2, 0, 1), INVALID_VALUE);
	FAILS(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)bytes, 0, 1), INVALID_VALUE);
	FAILS(cuMemsetD8_v2(p, 0, 2 * MiB + 1), INVALID_VALUE);
	FAILS(cuMemsetD32_v2(p, 0, SIZE_MAX / 2), INVALID_VALUE);
	FAILS(cuMemcpyHtoDAsync_v2(p, bytes, 1, (CUstream)0x700000), INVALID_HANDLE);
	FAILS(cuMemcpyPeer(p, (CUcontext)0x10, p, context, 1), INVALID_CONTEXT);
	OK(cuMemFree_v2(p));
	FAILS(cuMemcpyHtoD_v2(p, bytes, 1), INVALID_VALUE);
}
END_TEST

START_TEST(rectangles_and_boxes)
{
	enum { W = 100, H = 30, D = 5, PITCH = 128, ROWS = 40 };
	uint8_t *in = pattern(PITCH * ROWS * D, 4), out[W * H * D];
	CUDA_MEMCPY3D there = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = in,
		.srcPitch = PITCH,
		.srcHeight = ROWS,
		.srcXInBytes = 3,
		.srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = 512,
		.dstHeight = H,
		.WidthInBytes = W,
		.Height = H,
		.Depth = D};
	CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcPitch = 512,
		.srcHeight = H,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = out,
		.WidthInBytes = W,
		.Height = H,
		.Depth = D};
	CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.WidthInBytes = 1,
		.Height = 1};
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 512 * H * D));
	there.dstDevice = back.srcDevice = p;
	OK(cuMemcpy3D_v2(&there));
	OK(cuMemcpy3D_v2(&back));
	for (int z = 0; z < D; ++z)
		for (int y = 0; y < H; ++y)
			ck_assert_int_eq(
				memcmp(out + (z * H + y) * W, in + (z * ROWS + y + 2) * PITCH + 3, W), 0);
	FAILS(cuMemcpy2D_v2(&flat), NOT_SUPPORTED);
	there.srcPitch = W - 1;
	FAILS(cuMemcpy3D_v2(&there), INVALID_VALUE);
	free(in);
}
END_TEST

START_TEST(fills)
{
	uint8_t out[64 * 8];
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, sizeof(out)));
	OK(cuMemsetD8_v2(p, 0x11, sizeof(out)));
	OK(cuMemsetD16Async(p, 0x2233, 2, NULL));
	OK(cuMemsetD32Async_ptsz(p + 4, 0x44556677, 1, NULL));
	OK(cuMemsetD2D8_v2(p + 64, 64, 0x99, 3, 2));
	OK(cuMemsetD8_v2(p, 0xff, 0));
	OK(cuMemcpyDtoH_v2(out, p, sizeof(out)));
	ck_assert_mem_eq(out, "\x33\x22\x33\x22\x77\x66\x55\x44\x11", 9);
	ck_assert_mem_eq(out + 64, "\x99\x99\x99\x11", 4);
	ck_assert_mem_eq(out + 128, "\x99\x99\x99\x11", 4);
	ck_assert_uint_eq(out[192], 0x11);
}
END_TEST

/* Streams and events */

START_TEST(stream_handles)
{
	CUstream a, b;
	unsigned int flags;
	unsigned long long id, other;
	CUcontext c;
	int priority;

	OK(cuStreamCreateWithPriority(&a, CU_STREAM_NON_BLOCKING, -99));
	OK(cuStreamGetPriority(a, &priority));
	ck_assert_int_eq(priority, -5);
	OK(cuStreamGetFlags(a, &flags));
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetCtx(a, &c));
	ck_assert_ptr_eq(c, context);
	OK(cuStreamGetId(a, &id));
	OK(cuStreamGetId(NULL, &other));
	ck_assert(id != other);
	OK(cuStreamGetId_ptsz(NULL, &id));
	ck_assert(id != other);
	ck_assert_uint_eq((uintptr_t)a % 8, 0);
	OK(cuStreamDestroy_v2(a));
	FAILS(cuStreamQuery(a), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(a), INVALID_HANDLE);
	OK(cuStreamCreate(&b, 0));
	ck_assert_ptr_ne(a, b);
	FAILS(cuStreamQuery(a), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(NULL), INVALID_HANDLE);
	FAILS(cuStreamDestroy_v2(CU_STREAM_PER_THREAD), INVALID_HANDLE);
	FAILS(cuStreamCreate(&b, 4), INVALID_VALUE);
	FAILS(cuStreamQuery((CUstream)0xdeadbeef), INVALID_HANDLE);
}
END_TEST

START_TEST(streams_say_when_they_are_done)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamQuery(stream));
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, stream));
	FAILS(cuStreamQuery(stream), NOT_READY);
	FAILS(cuStreamQuery(NULL), NOT_READY);
	resume_service();
	OK(cuStreamSynchronize(stream));
	OK(cuStreamQuery(stream));
	OK(cuStreamQuery(NULL));
}
END_TEST

START_TEST(polling_ends)
{
	CUstream stream;
	CUdeviceptr p;
	CUresult r;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuMemsetD8Async(p, 1, 64, stream));
	while ((r = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
		continue;
	OK(r);
	/* One mark for all the questions. */
	ck_assert_uint_le(loopback_count(FRMPS_OP_MARK), 1);
}
END_TEST

START_TEST(slots_are_used_again)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	for (int i = 0; i < 5000; ++i) {
		OK(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		if (i % 3)
			OK(cuMemsetD8Async(p, 1, 64, stream));
		OK(cuStreamDestroy_v2(stream));
		if (i % 500 == 0)
			OK(cuCtxSynchronize());
	}
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(the_default_stream_joins)
{
	CUstream a, b, free_stream;
	CUdeviceptr p;
	unsigned int before;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&a, 0));
	OK(cuStreamCreate(&b, 0));
	OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSynchronize());
	before = loopback_count(FRMPS_OP_DEPEND);
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, a));
	OK(cuMemsetD8Async(p, 2, 64, b));
	OK(cuMemsetD8Async(p, 3, 64, free_stream));
	OK(cuMemsetD8Async(p, 4, 64, NULL)); /* waits for a and b */
	OK(cuMemsetD8Async(p, 5, 64, NULL));
	OK(cuMemsetD8Async(p, 6, 64, free_stream));
	OK(cuMemsetD8Async(p, 7, 64, a)); /* waits for the default stream */
	OK(cuMemsetD8Async(p, 8, 64, a));
	OK(cuMemsetD8Async(p, 9, 64, CU_STREAM_PER_THREAD)); /* waits as well */
	resume_service();
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND) - before, 4);
}
END_TEST

START_TEST(events)
{
	CUevent event, untimed, unrecorded;
	CUstream a, b;
	CUdeviceptr p;
	float ms = -1;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&unrecorded, 0));
	FAILS(cuEventCreate(&event, CU_EVENT_INTERPROCESS), INVALID_VALUE);
	OK(cuEventQuery(event));
	OK(cuEventSynchronize(event));
	OK(cuStreamWaitEvent(b, event, 0));
	FAILS(cuEventElapsedTime(&ms, event, event), INVALID_HANDLE);
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, a));
	OK(cuEventRecord(event, a));
	OK(cuEventRecordWithFlags(untimed, a, 0));
	FAILS(cuEventRecordWithFlags(untimed, a, 1), INVALID_VALUE);
	FAILS(cuEventQuery(event), NOT_READY);
	FAILS(cuEventElapsedTime(&ms, event, event), NOT_READY);
	OK(cuStreamWaitEvent(b, event, 0));
	OK(cuStreamWaitEvent(a, event, 0));
	OK(cuMemsetD8Async(p, 2, 64, b));
	resume_service();
	OK(cuEventSynchronize(event));
	OK(cuEventQuery(event));
	OK(cuEventElapsedTime_v2(&ms, event, event));
	ck_assert_float_eq(ms, 1.5f);
	FAILS(cuEventElapsedTime(&ms, event, untimed), INVALID_HANDLE);
	FAILS(cuEventElapsedTime(&ms, unrecorded, event), INVALID_HANDLE);
	OK(cuCtxSynchronize());
	/* The wait inside a's own order needs no command. */
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND), 1);
	OK(cuEventDestroy_v2(event));
	FAILS(cuEventRecord(event, a), INVALID_HANDLE);
	FAILS(cuEventDestroy_v2(event), INVALID_HANDLE);
	OK(cuStreamQuery(a));
}
END_TEST

START_TEST(event_slots_are_used_again)
{
	CUevent event;
	CUstream stream;

	OK(cuStreamCreate(&stream, 0));
	for (int i = 0; i < 70000; ++i) {
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		if (i % 16 == 0)
			OK(cuEventRecord(event, stream));
		OK(cuEventDestroy_v2(event));
	}
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(an_event_outlives_its_stream)
{
	CUevent event;
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, stream));
	OK(cuEventRecord(event, stream));
	OK(cuStreamDestroy_v2(stream));
	FAILS(cuEventQuery(event), NOT_READY);
	resume_service();
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy_v2(event));
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(words_in_memory)
{
	CUstreamBatchMemOpParams batch[3] = {0};
	CUstream stream;
	volatile uint32_t *word;
	CUdeviceptr p;

	OK(cuMemHostAlloc((void **)&word, 64, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = (CUdeviceptr)(uintptr_t)word;
	OK(cuStreamWaitValue32_v2(stream, p, 5, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue64_v2(stream, p + 8, 77, 0));
	FAILS(cuStreamQuery(stream), NOT_READY);
	word[0] = 5;
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word[2], 77);
	FAILS(cuStreamWriteValue32(stream, p + 1, 1, 0), INVALID_VALUE);
	FAILS(cuStreamWriteValue32(stream, 0, 1, 0), INVALID_VALUE);
	FAILS(cuStreamWriteValue32(stream, p, 1, 8), INVALID_VALUE);
	batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	batch[0].writeValue.address = p;
	batch[0].writeValue.value = 6;
	batch[1].operation = CU_STREAM_MEM_OP_BARRIER;
	batch[2].operation = (CUstreamBatchMemOpType)99;
	FAILS(cuStreamBatchMemOp_v2(stream, 3, batch, 0), INVALID_VALUE);
	OK(cuStreamBatchMemOp_v2(stream, 2, batch, 0));
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word[0], 6);
}
END_TEST

START_TEST(nothing_is_captured)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;

	OK(cuStreamIsCapturing(NULL, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamGetCaptureInfo_v2(NULL, &status, NULL, NULL, NULL, NULL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}
END_TEST

/* Host functions */

static int order[64], ran;

static void append(void *user)
{
	order[ran++] = (int)(intptr_t)user;
}

static CUresult callback_status = CUDA_ERROR_UNKNOWN;
static CUstream callback_stream_seen;

static void on_stream(CUstream stream, CUresult status, void *user)
{
	callback_stream_seen = stream;
	callback_status = status;
	append(user);
}

START_TEST(host_functions_run_in_order)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 20; ++i)
		OK(cuLaunchHostFunc(stream, append, (void *)(intptr_t)i));
	OK(cuStreamAddCallback(stream, on_stream, (void *)(intptr_t)20, 0));
	FAILS(cuStreamAddCallback(stream, on_stream, NULL, 1), INVALID_VALUE);
	FAILS(cuLaunchHostFunc(stream, NULL, NULL), INVALID_VALUE);
	OK(cuStreamSynchronize(stream));
	ck_assert_int_eq(ran, 21);
	for (int i = 0; i < 21; ++i)
		ck_assert_int_eq(order[i], i);
	ck_assert_int_eq(callback_status, CUDA_SUCCESS);
	ck_assert_ptr_eq(callback_stream_seen, stream);
}
END_TEST

/* Many threads */

#define THREADS	 8
#define COMMANDS 4000

static CUdeviceptr shared_memory;

static void *submit_much(void *arg)
{
	CUstream stream = arg;
	CUevent event;

	if (cuCtxSetCurrent(context) != CUDA_SUCCESS || cuEventCreate(&event, 2) != CUDA_SUCCESS)
		return "setup";
	for (int i = 0; i < COMMANDS; ++i) {
		CUstream to = i % 5 == 0 ? NULL : i % 7 == 0 ? CU_STREAM_PER_THREAD : stream;

		if (cuMemsetD8Async(shared_memory, 1, 16, to) != CUDA_SUCCESS)
			return "set";
		if (i % 11 == 0 && cuEventRecord(event, to) != CUDA_SUCCESS)
			return "record";
		if (i % 13 == 0 && cuStreamWaitEvent(stream, event, 0) != CUDA_SUCCESS)
			return "wait";
		if (i % 500 == 0 && cuStreamSynchronize(to) != CUDA_SUCCESS)
			return "synchronize";
	}
	return cuEventDestroy_v2(event) == CUDA_SUCCESS ? NULL : "destroy";
}

START_TEST(threads_keep_the_order)
{
	pthread_t threads[THREADS];
	CUstream streams[THREADS / 2];
	void *failed;

	OK(cuMemAlloc_v2(&shared_memory, 16));
	for (int i = 0; i < THREADS / 2; ++i)
		OK(cuStreamCreate(&streams[i], i % 2));
	for (int i = 0; i < THREADS; ++i)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_much, streams[i / 2]), 0);
	for (int i = 0; i < THREADS; ++i) {
		pthread_join(threads[i], &failed);
		ck_assert_msg(!failed, "%s", (char *)failed);
	}
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(the_credit_is_kept)
{
	CUstream stream;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 30000; ++i)
		OK(cuMemsetD8Async(p, (unsigned char)i, 1, stream));
	OK(cuStreamSynchronize(stream));
}
END_TEST

/* Trouble */

START_TEST(a_late_error_is_reported_once)
{
	OK(cuCtxSynchronize());
	word_set(&loopback->late, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	while (word_acquire(&loopback->late))
		usleep(1000);
	FAILS(cuCtxSynchronize(), LAUNCH_OUT_OF_RESOURCES);
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(a_fault_is_sticky)
{
	CUdeviceptr p;
	CUcontext c;
	int value;

	OK(cuMemAlloc_v2(&p, 64));
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	word_set(&loopback->fault, CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	FAILS(cuMemsetD8Async(p, 1, 64, NULL), ILLEGAL_ADDRESS);
	FAILS(cuMemAlloc_v2(&p, 64), ILLEGAL_ADDRESS);
	FAILS(cuMemFree_v2(p), ILLEGAL_ADDRESS);
	OK(cuCtxGetCurrent(&c));
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
}
END_TEST

START_TEST(a_fault_ends_callbacks)
{
	pause_service();
	OK(cuLaunchHostFunc(NULL, append, NULL));
	OK(cuStreamAddCallback(NULL, on_stream, NULL, 0));
	word_set(&loopback->fault, CUDA_ERROR_LAUNCH_FAILED);
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	while (*(volatile CUresult *)&callback_status == CUDA_ERROR_UNKNOWN)
		usleep(1000);
	ck_assert_int_eq(callback_status, CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(ran, 1);
}
END_TEST

START_TEST(a_dead_service_ends_waits)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	pause_service();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	loopback_kill();
	FAILS(cuCtxSynchronize(), MPS_RPC_FAILURE);
	FAILS(cuMemAlloc_v2(&p, 64), MPS_RPC_FAILURE);
}
END_TEST

START_TEST(a_dead_service_ends_requests)
{
	CUdeviceptr p;

	loopback_kill();
	FAILS(cuMemAlloc_v2(&p, 64 * MiB), MPS_RPC_FAILURE);
	FAILS(cuCtxSynchronize(), MPS_RPC_FAILURE);
}
END_TEST

START_TEST(a_full_ring_of_a_dead_service_ends)
{
	CUdeviceptr p;
	CUresult r = CUDA_SUCCESS;

	OK(cuMemAlloc_v2(&p, 64));
	pause_service();
	loopback_kill();
	for (int i = 0; r == CUDA_SUCCESS && i < 100000; ++i) {
		CUstream stream;

		r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		for (int k = 0; r == CUDA_SUCCESS && k < 100; ++k)
			r = cuMemsetD8Async(p, 1, 64, stream);
	}
	ck_assert_int_eq(r, CUDA_ERROR_MPS_RPC_FAILURE);
}
END_TEST

static void *release_soon(void *unused)
{
	(void)unused;
	usleep(50000);
	resume_service();
	word_set(&loopback->held, 0);
	return NULL;
}

START_TEST(a_promotion_is_only_a_pause)
{
	pthread_t helper;
	uint8_t out[64];
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	for (int i = 1; i <= 10; ++i) {
		word_set(&loopback->held, 1);
		OK(cuMemsetD8Async(p, (unsigned char)i, 64, NULL));
		ck_assert_int_eq(pthread_create(&helper, NULL, release_soon, NULL), 0);
		OK(cuCtxSynchronize());
		pthread_join(helper, NULL);
	}
	OK(cuMemcpyDtoH_v2(out, p, 64));
	ck_assert_uint_eq(out[63], 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shim");
	TCase *start = suite_case(suite, "start"), *contexts = suite_case(suite, "contexts");
	TCase *memory = suite_case(suite, "memory"), *copies = suite_case(suite, "copies");
	TCase *streams = suite_case(suite, "streams"), *trouble = suite_case(suite, "trouble");

	tcase_add_checked_fixture(start, setup_service, teardown);
	tcase_add_test(start, nothing_works_before_cuinit);
	tcase_add_test(start, no_service_is_an_error);
	tcase_add_test(start, a_hanging_service_is_an_error);
	tcase_add_test(start, hidden_devices_are_no_devices);
	tcase_add_checked_fixture(contexts, setup, teardown);
	tcase_add_test(contexts, device_questions);
	tcase_add_test(contexts, a_forked_child_has_no_driver);
	tcase_add_test(contexts, the_stack_of_contexts);
	tcase_add_test(contexts, the_primary_context);
	tcase_add_test(contexts, a_reset_frees_everything);
	tcase_add_test(contexts, limits_are_shadows);
	tcase_add_checked_fixture(memory, setup, teardown);
	tcase_add_test(memory, allocations);
	tcase_add_test(memory, memory_runs_out_and_comes_back);
	tcase_add_test(memory, repeated_allocations_ask_the_service_once);
	tcase_add_test(memory, pinned_memory);
	tcase_add_test(memory, what_pointers_are);
	tcase_add_checked_fixture(copies, setup, teardown);
	tcase_add_test(copies, ordinary_memory_goes_there_and_back);
	tcase_add_test(copies, pinned_memory_goes_there_and_back);
	tcase_add_test(copies, any_memory_to_any_memory);
	tcase_add_test(copies, copies_that_are_refused);
	tcase_add_test(copies, rectangles_and_boxes);
	tcase_add_test(copies, fills);
	tcase_add_checked_fixture(streams, setup, teardown);
	tcase_add_test(streams, stream_handles);
	tcase_add_test(streams, streams_say_when_they_are_done);
	tcase_add_test(streams, polling_ends);
	tcase_add_test(streams, slots_are_used_again);
	tcase_add_test(streams, the_default_stream_joins);
	tcase_add_test(streams, events);
	tcase_add_test(streams, event_slots_are_used_again);
	tcase_add_test(streams, an_event_outlives_its_stream);
	tcase_add_test(streams, words_in_memory);
	tcase_add_test(streams, nothing_is_captured);
	tcase_add_test(streams, host_functions_run_in_order);
	tcase_add_test(streams, threads_keep_the_order);
	tcase_add_test(streams, the_credit_is_kept);
	tcase_add_checked_fixture(trouble, setup, teardown);
	tcase_add_test(trouble, a_late_error_is_reported_once);
	tcase_add_test(trouble, a_fault_is_sticky);
	tcase_add_test(trouble, a_fault_ends_callbacks);
	tcase_add_test(trouble, a_dead_service_ends_waits);
	tcase_add_test(trouble, a_dead_service_ends_requests);
	tcase_add_test(trouble, a_full_ring_of_a_dead_service_ends);
	tcase_add_test(trouble, a_promotion_is_only_a_pause);
	return suite_run(suite);
}
