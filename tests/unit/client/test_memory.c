// The shim as a program sees it: memory, copies, fills.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/link/connect.h"
#include "tests/lib/scarce.h"
#include "tests/unit/client/shim.h"

TEST(memory, allocations)
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

TEST(memory, memory_runs_out_and_comes_back)
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

TEST_LOOP(memory_2, memory_that_is_freed_without_memory_is_given_back_later, 0, 2)
{
	const size_t bytes = _i ? 1020 * MiB : 1000 * MiB;
	CUdeviceptr a, b;
	CUresult r;

	word_set(&loopback->room, 1024 * MiB);
	OK(cuMemAlloc_v2(&a, 1000 * MiB));
	scarce_begin();
	r = cuMemFree_v2(a);
	scarce_end();
	ck_assert_int_eq(r, CUDA_SUCCESS);
	/* In what was freed, or in its room. */
	OK(cuMemAlloc_v2(&b, bytes));
	OK(cuMemFree_v2(b));
}

TEST(memory_2, small_memory_that_is_freed_without_memory_is_used_again)
{
	CUdeviceptr all[200];
	CUresult r = CUDA_SUCCESS;
	uint32_t maps;

	for (int i = 0; i < 200; ++i)
		OK(cuMemAlloc_v2(&all[i], MiB));
	maps = loopback->maps;
	scarce_begin();
	for (int i = 0; i < 200; ++i)
		r = r ? r : cuMemFree_v2(all[i]);
	scarce_end();
	ck_assert_int_eq(r, CUDA_SUCCESS);
	for (int i = 0; i < 200; ++i)
		OK(cuMemAlloc_v2(&all[i], MiB));
	ck_assert_uint_eq(loopback->maps, maps);
}

/* Mappings may take the place of others all the same, as where a limit is just reached. */
static void let_mappings_change(void)
{
	struct rlimit limit;
	char text[64] = "";
	int fd = open("/proc/self/statm", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || getrlimit(RLIMIT_AS, &limit) < 0)
		abort();
	close(fd);
	limit.rlim_cur = strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
	if (setrlimit(RLIMIT_AS, &limit) < 0)
		abort();
}

TEST(memory_2, pinned_memory_that_is_freed_without_memory_is_used_again)
{
	const size_t bytes = 128 * MiB;
	CUresult r;
	char *a;

	OK(cuMemAllocHost_v2((void **)&a, bytes));
	scarce_begin();
	let_mappings_change();
	r = cuMemFreeHost(a);
	scarce_end();
	ck_assert_int_eq(r, CUDA_SUCCESS);
	OK(cuMemAllocHost_v2((void **)&a, bytes));
	memset(a, 1, bytes);
	OK(cuMemFreeHost(a));
}

TEST_LOOP(memory_3, repeated_allocations_ask_the_service_once, 0, 2)
{
	const size_t bytes = (_i ? 64 : 10) * MiB;
	CUdeviceptr p, small;
	uint32_t maps;

	/* Others are spare as well. */
	OK(cuMemAlloc_v2(&small, 4096));
	OK(cuMemAlloc_v2(&p, 60 * MiB));
	OK(cuMemFree_v2(small));
	OK(cuMemFree_v2(p));
	OK(cuMemAlloc_v2(&p, bytes));
	OK(cuMemFree_v2(p));
	maps = loopback->maps;
	for (int i = 0; i < 50; ++i) {
		OK(cuMemAlloc_v2(&p, bytes));
		OK(cuMemFree_v2(p));
	}
	ck_assert_uint_eq(loopback->maps, maps);
}

TEST(memory_3, pinned_memory)
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
	OK(cuMemHostRegister_v2(foreign, sizeof(foreign), 0));
	FAILS(cuMemHostRegister_v2(foreign + 3, 4, 0), HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostUnregister(foreign));
	FAILS(cuMemHostRegister_v2((void *)4096, 4096, 0), INVALID_VALUE);
	FAILS(cuMemHostRegister_v2(a, 4, 0), INVALID_VALUE);
	FAILS(cuMemHostUnregister(foreign), HOST_MEMORY_NOT_REGISTERED);
	FAILS(cuMemHostAlloc((void **)&b, 4, 0x80), INVALID_VALUE);
	OK(cuMemFreeHost(a));
	FAILS(cuMemFreeHost(a), INVALID_VALUE);
	OK(cuMemFreeHost(b));
}

TEST(memory_3, what_pointers_are)
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

TEST(copies, ordinary_memory_goes_there_and_back)
{
	round_trip(1);
	round_trip(4096);
	round_trip(4097);
	round_trip(100000);
	round_trip(5 * MiB + 3);
	round_trip(70 * MiB + 1);
}

TEST(copies, pinned_memory_goes_there_and_back)
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

TEST(copies, any_memory_to_any_memory)
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

TEST(copies, copies_that_are_refused)
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

TEST(copies, rectangles_and_boxes)
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
	FAILS(cuMemcpy2D_v2(&flat), INVALID_VALUE);
	there.srcPitch = W - 1;
	FAILS(cuMemcpy3D_v2(&there), INVALID_VALUE);
	free(in);
}

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

/* Nothing of what was submitted runs meanwhile. */
TEST(memory_3, freed_memory_follows_its_stream)
{
	uint64_t keep = UINT64_MAX;
	CUdeviceptr a, b, c;
	CUmemoryPool pool;
	CUstream s, t;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	shim_pause();
	OK(cuMemAllocAsync(&a, 1 * MiB, s));
	OK(cuMemFreeAsync(a, s));
	FAILS(cuMemFreeAsync(a, s), INVALID_VALUE);
	OK(cuMemAllocAsync(&b, 1 * MiB, s));
	ck_assert_uint_eq(b, a);
	OK(cuMemFreeAsync(b, s));
	OK(cuMemAllocAsync(&b, 1 * MiB, t));
	ck_assert(b + MiB <= a || a + MiB <= b);
	shim_resume();
	OK(cuStreamSynchronize(s));
	OK(cuMemAllocAsync(&c, 1 * MiB, t));
	ck_assert_uint_eq(c, a);
	OK(cuMemFreeAsync(b, t));
	OK(cuMemFree_v2(c));
	FAILS(cuMemFree_v2(c), INVALID_VALUE);
}

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	uint64_t number = 0;

	OK(cuMemPoolGetAttribute(pool, attribute, &number));
	return number;
}

TEST(memory_3, pools_give_back_what_is_beyond_the_threshold)
{
	uint64_t threshold = 8 * MiB;
	CUdeviceptr a, b;
	CUmemoryPool pool;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAllocAsync(&a, 8 * MiB, NULL));
	OK(cuMemAllocAsync(&b, 20 * MiB, NULL));
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 28 * MiB);
	OK(cuMemFreeAsync(b, NULL));
	OK(cuMemFreeAsync(a, NULL));
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 28 * MiB);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MiB);
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 28 * MiB);
	OK(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	FAILS(cuMemPoolDestroy(pool), INVALID_VALUE);
}

TEST(memory_3, pools_do_not_starve_the_others)
{
	uint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr a;

	word_set(&loopback->room, 100 * MiB);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&a, 60 * MiB, NULL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemAlloc_v2(&a, 90 * MiB));
	OK(cuMemFree_v2(a));
	OK(cuMemAllocAsync(&a, 90 * MiB, NULL));
}

TEST(memory_3, reservations_lie_apart)
{
	CUdeviceptr a, b, c;

	FAILS(cuMemAddressReserve(&a, 0, 0, 0, 0), INVALID_VALUE);
	FAILS(cuMemAddressReserve(&a, 100, 0, 0, 0), INVALID_VALUE);
	FAILS(cuMemAddressReserve(&a, 4 * MiB, 3, 0, 0), INVALID_VALUE);
	FAILS(cuMemAddressReserve(&a, 4 * MiB + 4096, 0, 0, 0), INVALID_VALUE);
	OK(cuMemAddressReserve(&a, 6 * MiB, 0, 0, 0));
	OK(cuMemAddressReserve(&b, 4 * MiB, 16 * MiB, 0, 0));
	ck_assert_uint_eq(a % (2 * MiB), 0);
	ck_assert_uint_eq(b % (16 * MiB), 0);
	ck_assert(b >= a + 6 * MiB || a >= b + 4 * MiB);
	FAILS(cuMemAddressFree(a, 4 * MiB), INVALID_VALUE);
	OK(cuMemAddressFree(a, 6 * MiB));
	FAILS(cuMemAddressFree(a, 6 * MiB), INVALID_VALUE);
	/* The first gap that fits, or the one that is asked for. */
	OK(cuMemAddressReserve(&c, 2 * MiB, 0, 0, 0));
	ck_assert_uint_eq(c, a);
	OK(cuMemAddressFree(c, 2 * MiB));
	OK(cuMemAddressReserve(&c, 2 * MiB, 0, b + 8 * MiB, 0));
	ck_assert_uint_eq(c, b + 8 * MiB);
	OK(cuMemAddressReserve(&a, 2 * MiB, 0, b + 8 * MiB, 0));
	ck_assert_uint_ne(a, c);
	/* Nobody else's: not the program's own memory, and not where nothing is. */
	FAILS(cuMemcpyDtoD_v2(a, c, 4), INVALID_VALUE);
}

/* Programs expect that making memory fails without memory, and mapping it does not. */
TEST(memory_3, spare_memory_is_given_back_for_a_mapping)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr a;

	word_set(&loopback->room, 100 * MiB);
	OK(cuMemAlloc_v2(&a, 60 * MiB));
	OK(cuMemFree_v2(a));
	OK(cuMemAddressReserve(&a, 90 * MiB, 0, 0, 0));
	OK(cuMemCreate(&handle, 90 * MiB, &properties, 0));
	OK(cuMemMap(a, 90 * MiB, 0, handle, 0));
	FAILS(cuMemAlloc_v2(&a, 60 * MiB), OUT_OF_MEMORY);
}

#define PLACE (WINDOW_BASE + 100 * WINDOW_BYTES)

static bool was_free(uint64_t address)
{
	uint64_t window = (address - WINDOW_BASE) / WINDOW_BYTES;

	return word_relaxed(&loopback->free_windows[window / 64]) >> window % 64 & 1;
}

/* What fails if somebody has it. */
static bool is_free_here(uint64_t address)
{
	void *at = mmap((void *)(uintptr_t)address, 4096, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != MAP_FAILED)
		munmap(at, 4096);
	return (uintptr_t)at == address;
}

TEST(memory_3, large_reservations_have_windows)
{
	CUdeviceptr a, b, c, d;
	char word[4] = {0};

	word_set(&loopback->window_at, PLACE);
	/* What finds room in the session's own window asks nobody. */
	OK(cuMemAddressReserve(&d, 64 * MiB, 0, 0, 0));
	OK(cuMemAddressFree(d, 64 * MiB));
	ck_assert_uint_eq(loopback->window_bytes, 0);
	OK(cuMemAddressReserve(&a, 160 * GiB + 2 * MiB, 0, 0, 0));
	ck_assert_uint_eq(a, PLACE);
	ck_assert_uint_eq(loopback->window_bytes, 160 * GiB + 2 * MiB);
	ck_assert(!is_free_here(a) && !is_free_here(a + 160 * GiB));
	/* Nothing of the program is there but what it maps. */
	FAILS(cuMemcpyHtoD_v2(a + GiB, word, 4), INVALID_VALUE);
	/* The window behind it is free but for the session's own. */
	OK(cuMemAddressReserve(&b, 160 * GiB, 0, 0, 0));
	ck_assert(was_free(a) && was_free(a + 160 * GiB));
	ck_assert(!was_free(d));
	ck_assert_uint_eq(loopback->windows, 2);
	OK(cuMemAddressFree(a, 160 * GiB + 2 * MiB));
	ck_assert_uint_eq(loopback->windows, 1);
	ck_assert(is_free_here(a));
	ck_assert(!is_free_here(b));
	/* Smaller ones share one, which stays as long as one of them does. */
	OK(cuMemAddressReserve(&a, 20 * GiB, 0, 0, 0));
	OK(cuMemAddressReserve(&c, 20 * GiB, GiB, 0, 0));
	ck_assert_uint_eq(loopback->windows, 2);
	OK(cuMemAddressFree(a, 20 * GiB));
	ck_assert_uint_eq(loopback->windows, 2);
	OK(cuMemAddressFree(c, 20 * GiB));
	OK(cuMemAddressFree(b, 160 * GiB));
	ck_assert_uint_eq(loopback->windows, 0);
	FAILS(cuMemAddressFree(b, 160 * GiB), INVALID_VALUE);
}

TEST(memory_3, reservations_are_where_they_are_wished)
{
	CUdeviceptr a, b;

	word_set(&loopback->window_at, PLACE + 6 * MiB);
	OK(cuMemAddressReserve(&a, 2 * MiB, 0, PLACE + 6 * MiB, 0));
	ck_assert_uint_eq(a, PLACE + 6 * MiB);
	ck_assert_uint_eq(loopback->window_bytes, 2 * MiB);
	OK(cuMemAddressReserve(&b, 2 * MiB, 0, a + 2 * MiB, 0));
	ck_assert_uint_eq(b, a + 2 * MiB);
	OK(cuMemAddressFree(b, 2 * MiB));
	/* The service has something there, or the program itself: then it is anywhere. */
	OK(cuMemAddressReserve(&b, 2 * MiB, 0, a + GiB, 0));
	ck_assert_uint_ne(b, a + GiB);
	OK(cuMemAddressFree(b, 2 * MiB));
	OK(cuMemAddressReserve(&b, 4 * MiB, 0, a - 2 * MiB, 0));
	ck_assert(b >= a + 2 * MiB || a >= b + 4 * MiB);
	OK(cuMemAddressFree(b, 4 * MiB));
	OK(cuMemAddressFree(a, 2 * MiB));
	ck_assert_uint_eq(loopback->windows, 0);
	FAILS(cuMemAddressReserve(&a, (size_t)1 << 47, 0, 0, 0), OUT_OF_MEMORY);
}

TEST(memory_3, windows_that_cannot_be_had_are_given_back)
{
	void *mine = mmap((void *)(uintptr_t)PLACE, 4096, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CUdeviceptr a;

	ck_assert_ptr_eq(mine, (void *)(uintptr_t)PLACE);
	word_set(&loopback->window_at, PLACE);
	OK(cuMemAddressReserve(&a, 160 * GiB, 0, 0, 0));
	ck_assert(!was_free(PLACE));
	ck_assert_uint_eq(a, PLACE + 160 * GiB);
	ck_assert_uint_eq(loopback->windows, 1);
	/* A service that has none left. */
	word_set(&loopback->window_at, 0);
	FAILS(cuMemAddressReserve(&a, 160 * GiB, 0, 0, 0), OUT_OF_MEMORY);
	ck_assert_uint_eq(loopback->windows, 1);
	munmap(mine, 4096);
}

TEST(memory_3, physical_memory_counts_its_users)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAllocationProp wish = properties;
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr a;

	wish.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	FAILS(cuMemCreate(&handle, 2 * MiB, &wish, 0), NOT_SUPPORTED);
	FAILS(cuMemCreate(&handle, MiB, &properties, 0), INVALID_VALUE);
	OK(cuMemAddressReserve(&a, 8 * MiB, 0, 0, 0));
	OK(cuMemCreate(&handle, 2 * MiB, &properties, 0));
	OK(cuMemMap(a, 2 * MiB, 0, handle, 0));
	FAILS(cuMemMap(a + 7 * MiB, 2 * MiB, 0, handle, 0), INVALID_VALUE);
	FAILS(cuMemMap(a + 8 * MiB, 2 * MiB, 0, handle, 0), INVALID_VALUE);
	FAILS(cuMemAddressFree(a, 8 * MiB), INVALID_VALUE);
	OK(cuMemRelease(handle));
	ck_assert_uint_eq(loopback->handles, 1);
	/* What is only mapped has no handle until one asks for it. */
	FAILS(cuMemMap(a + 2 * MiB, 2 * MiB, 0, handle, 0), INVALID_VALUE);
	FAILS(cuMemRelease(handle), INVALID_VALUE);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(a + MiB)));
	OK(cuMemMap(a + 2 * MiB, 2 * MiB, 0, again, 0));
	OK(cuMemRelease(again));
	OK(cuMemcpyDtoD_v2(a + MiB, a + MiB / 2, 2 * MiB));
	FAILS(cuMemcpyDtoD_v2(a + 3 * MiB, a, 2 * MiB), INVALID_VALUE);
	OK(cuMemUnmap(a, 4 * MiB));
	ck_assert_uint_eq(loopback->handles, 0);
	OK(cuMemUnmap(a, 4 * MiB)); /* as the driver has it */
	FAILS(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)a), INVALID_VALUE);
	OK(cuMemCreate(&again, 2 * MiB, &properties, 0));
	ck_assert_uint_ne(again, handle);
	FAILS(cuMemRelease(handle), INVALID_VALUE);
	OK(cuMemRelease(again));
	OK(cuMemAddressFree(a, 8 * MiB));
}

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *memory = suite_case(suite, "memory");
	TCase *copies = suite_case(suite, "copies");

	tcase_add_checked_fixture(memory, shim_setup, shim_teardown);
	suite_add(memory, "memory");
	if (SCARCE_POSSIBLE) {
		suite_add(memory, "memory_2");
	}
	suite_add(memory, "memory_3");
	tcase_add_checked_fixture(copies, shim_setup, shim_teardown);
	suite_add(copies, "copies");
	tcase_add_test(copies, fills);
	return suite_run(suite);
}
