// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The shim as a program sees it: memory, copies, fills.

#include <stdlib.h>
#include <string.h>

#include "tests/unit/client/shim.h"

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
	OK(cuMemFree_v2(0));
	OK(cuMemFreeHost(NULL));
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
	ck_assert_ptr_eq(owner, shim_context);
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

static void round_trip(size_t bytes)
{
	uint8_t *in = shim_pattern(bytes, 1), *out = calloc(bytes + 1, 1);
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
	uint8_t *in = shim_pattern(bytes, 2), *a, *b;
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
	/* No staging for any of it, and no device between two buffers of the host. */
	ck_assert_uint_eq(loopback_count(FRMPS_OP_COPY), 2);
	free(in);
}
END_TEST

START_TEST(any_memory_to_any_memory)
{
	uint8_t *in = shim_pattern(1000, 3), out[1000], *pinned;
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
	OK(cuMemcpyPeer(p, shim_context, p + 500, shim_context, 500));
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
	FAILS(cuMemcpyPeer(p, (CUcontext)0x10, p, shim_context, 1), INVALID_CONTEXT);
	OK(cuMemFree_v2(p));
	FAILS(cuMemcpyHtoD_v2(p, bytes, 1), INVALID_VALUE);
}
END_TEST

START_TEST(rectangles_and_boxes)
{
	enum { W = 100, H = 30, D = 5, PITCH = 128, ROWS = 40 };
	uint8_t *in = shim_pattern(PITCH * ROWS * D, 4), out[W * H * D];
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

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *memory = suite_case(suite, "memory");
	TCase *copies = suite_case(suite, "copies");

	tcase_add_checked_fixture(memory, shim_setup, shim_teardown);
	tcase_add_test(memory, allocations);
	tcase_add_test(memory, memory_runs_out_and_comes_back);
	tcase_add_test(memory, repeated_allocations_ask_the_service_once);
	tcase_add_test(memory, pinned_memory);
	tcase_add_test(memory, what_pointers_are);
	tcase_add_checked_fixture(copies, shim_setup, shim_teardown);
	tcase_add_test(copies, ordinary_memory_goes_there_and_back);
	tcase_add_test(copies, pinned_memory_goes_there_and_back);
	tcase_add_test(copies, any_memory_to_any_memory);
	tcase_add_test(copies, copies_that_are_refused);
	tcase_add_test(copies, rectangles_and_boxes);
	tcase_add_test(copies, fills);
	return suite_run(suite);
}
