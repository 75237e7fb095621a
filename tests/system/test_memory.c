// What programs may expect of memory beyond cuMemAlloc: virtual memory management, stream-ordered
// allocation, registered and managed memory, sharing between processes. Every test runs in a
// process of its own against one service. NVIDIA's library passes all but the tests of what the
// service does in another way (client/README.md).

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* ---- virtual memory management ---- */

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc read_write = {
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static size_t granularity(void)
{
	size_t bytes = 0;

	ck_cuda(cuMemGetAllocationGranularity(&bytes, &shareable, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return bytes;
}

/* Memory mapped at an address, and nothing of its handle left. */
static void map_there(CUdeviceptr address, size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	ck_cuda(cuMemCreate(&handle, bytes, &shareable, 0));
	ck_cuda(cuMemMap(address, bytes, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, bytes, &read_write, 1));
	ck_cuda(cuMemRelease(handle));
}

static void fill_words(CUdeviceptr address, uint32_t value, uint64_t count)
{
	void *arguments[] = {&address, &value, &count};

	ck_cuda(launch("fill", 16, 64, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
}

static uint32_t word_at(CUdeviceptr address)
{
	uint32_t word = 0;

	ck_cuda(cuMemcpyDtoH_v2(&word, address, sizeof(word)));
	return word;
}

TEST(memory, a_mapping_is_memory)
{
	size_t grain, free_before, free_between, total;
	CUmemGenericAllocationHandle handle, again;
	unsigned long long flags = 77;
	CUmemAllocationProp properties;
	CUdeviceptr address, base;
	size_t bytes;

	driver_open();
	grain = granularity();
	ck_assert_uint_gt(grain, 0);
	/* What its code needs is not of this. */
	kernel("fill");
	ck_cuda(cuMemGetInfo_v2(&free_before, &total));
	ck_cuda(cuMemCreate(&handle, 16 * grain, &shareable, 0));
	ck_cuda(cuMemAddressReserve(&address, 64 * grain, 0, 0, 0));
	ck_assert_uint_eq(address % grain, 0);
	ck_cuda(cuMemMap(address + grain, 16 * grain, 0, handle, 0));
	ck_cuda(cuMemGetInfo_v2(&free_between, &total));
	ck_assert_uint_le(free_between + 16 * grain, free_before);
	ck_cuda(cuMemGetAccess(&flags, &read_write.location, address + grain));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_cuda(cuMemSetAccess(address + grain, 16 * grain, &read_write, 1));
	ck_cuda(cuMemGetAccess(&flags, &read_write.location, address + 2 * grain));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	fill_words(address + grain, 11, 16 * grain / 4);
	ck_assert_uint_eq(word_at(address + grain), 11);
	ck_assert_uint_eq(word_at(address + 17 * grain - 4), 11);
	ck_cuda(cuMemGetAddressRange_v2(&base, &bytes, address + 3 * grain));
	ck_assert_uint_eq(base, address + grain);
	ck_assert_uint_eq(bytes, 16 * grain);

	/* A handle counts; a mapping holds its memory, too. */
	ck_cuda(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + grain)));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemGetAllocationPropertiesFromHandle(&properties, again));
	ck_assert_int_eq(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
	ck_assert_int_eq(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	ck_cuda(cuMemRelease(again));
	ck_assert_uint_eq(word_at(address + 2 * grain), 11);
	ck_cuda(cuMemUnmap(address + grain, 16 * grain));
	ck_cuda(cuMemAddressFree(address, 64 * grain));
	ck_cuda(cuMemGetInfo_v2(&free_between, &total));
	ck_assert_uint_ge(free_between + grain, free_before);
}

/* As frameworks do it: far more addresses than memory, grown and shrunk piece by piece. */
TEST(memory, a_segment_grows_and_shrinks)
{
	size_t grain, free_bytes, total, room;
	CUdeviceptr segments[3];

	driver_open();
	grain = granularity();
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	room = (160 * GIB + grain - 1) / grain * grain;
	for (int i = 0; i < 3; i++)
		ck_cuda(cuMemAddressReserve(&segments[i], room, 0, 0, 0));
	for (int i = 0; i < 3; i++) {
		CUdeviceptr at = segments[i];

		for (int piece = 0; piece < 6; piece++)
			map_there(at + piece * grain, grain);
		/* Copies and fills do not see the seams. */
		ck_cuda(cuMemsetD32_v2(at, 5 + i, 6 * grain / 4));
		ck_cuda(cuMemcpyDtoD_v2(at + 3 * grain + 64, at + 64, 2 * grain + 128));
		fill_words(at + grain / 2, 9, 2 * grain / 4);
		ck_assert_uint_eq(word_at(at + 6 * grain - 4), 5 + i);
		ck_assert_uint_eq(word_at(at + grain), 9);
		ck_cuda(cuMemUnmap(at + 2 * grain, grain));
		ck_assert_int_eq(cuMemcpyDtoD_v2(at, at + 2 * grain, 64), CUDA_ERROR_INVALID_VALUE);
		map_there(at + 2 * grain, grain);
		ck_assert_uint_eq(word_at(at + grain), 9);
		ck_cuda(cuMemUnmap(at, 6 * grain));
	}
	for (int i = 0; i < 3; i++)
		ck_cuda(cuMemAddressFree(segments[i], room));
}

/* Return: how many of 160 GiB each were given, at most `most` */
static int reserve_many(CUdeviceptr *ret_at, int most)
{
	int count = 0;

	while (count < most && cuMemAddressReserve(&ret_at[count], 160 * GIB, 0, 0, 0) == CUDA_SUCCESS)
		count++;
	return count;
}

static void free_many(const CUdeviceptr *at, int count)
{
	for (int i = 0; i < count; i++)
		ck_cuda(cuMemAddressFree(at[i], 160 * GIB));
}

TEST(memory, addresses_are_not_scarce)
{
	enum { MANY = 64 };
	const size_t room = 160 * GIB;
	CUmemGenericAllocationHandle low, high;
	CUdeviceptr at[MANY];
	size_t grain;

	driver_open();
	grain = granularity();
	ck_cuda(cuMemCreate(&low, grain, &shareable, 0));
	ck_cuda(cuMemCreate(&high, grain, &shareable, 0));
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(reserve_many(at, MANY), MANY);
		for (uint32_t i = 0; i < MANY; i++) {
			CUdeviceptr last = at[i] + room - grain;

			for (uint32_t other = 0; other < i; other++)
				ck_assert(at[i] >= at[other] + room || at[other] >= at[i] + room);
			ck_cuda(cuMemMap(at[i], grain, 0, low, 0));
			ck_cuda(cuMemMap(last, grain, 0, high, 0));
			ck_cuda(cuMemSetAccess(at[i], grain, &read_write, 1));
			ck_cuda(cuMemSetAccess(last, grain, &read_write, 1));
			ck_cuda(cuMemsetD32_v2(at[i], 100 + i, grain / 4));
			fill_words(last, 1000 + i, grain / 4);
			ck_assert_uint_eq(word_at(at[i] + grain - 4), 100 + i);
			ck_assert_uint_eq(word_at(last + grain - 4), 1000 + i);
			ck_cuda(cuMemUnmap(at[i], grain));
			ck_cuda(cuMemUnmap(last, grain));
		}
		free_many(at, MANY);
	}
	ck_cuda(cuMemRelease(low));
	ck_cuda(cuMemRelease(high));
}

TEST(memory, reservations_are_of_any_size_and_place)
{
	enum { SMALL = 2000 };
	static CUdeviceptr small[SMALL];
	const size_t alignments[] = {4096, 2 * MIB, GIB, 64 * GIB, 1024 * GIB};
	CUdeviceptr a, b, c = 0;
	size_t grain;

	driver_open();
	grain = granularity();
	for (int i = 0; i < SMALL; i++)
		ck_cuda(cuMemAddressReserve(&small[i], i % 2 ? grain : 32 * grain, 0, 0, 0));
	map_there(small[SMALL - 1], grain);
	fill_words(small[SMALL - 1], 7, grain / 4);
	ck_assert_uint_eq(word_at(small[SMALL - 1] + grain - 4), 7);
	ck_assert_int_ne(cuMemAddressFree(small[SMALL - 1], grain), CUDA_SUCCESS);
	ck_cuda(cuMemUnmap(small[SMALL - 1], grain));
	for (int i = 0; i < SMALL; i++)
		ck_cuda(cuMemAddressFree(small[i], i % 2 ? grain : 32 * grain));
	/* A wish is followed where the addresses are free, also in the midst of nowhere. */
	ck_cuda(cuMemAddressReserve(&a, 300 * GIB, 0, 0, 0));
	ck_cuda(cuMemAddressFree(a, 300 * GIB));
	ck_cuda(cuMemAddressReserve(&b, 100 * GIB, 0, a + 100 * GIB, 0));
	ck_assert_uint_eq(b, a + 100 * GIB);
	ck_cuda(cuMemAddressReserve(&a, 8 * GIB, 0, b, 0));
	ck_assert_uint_ne(a, b);
	ck_cuda(cuMemAddressReserve(&c, 8 * GIB, 0, b + 100 * GIB, 0));
	ck_assert_uint_eq(c, b + 100 * GIB);
	map_there(c, grain);
	fill_words(c, 8, grain / 4);
	ck_assert_uint_eq(word_at(c), 8);
	ck_cuda(cuMemUnmap(c, grain));
	ck_cuda(cuMemAddressFree(b, 100 * GIB));
	ck_cuda(cuMemAddressFree(c, 8 * GIB));
	ck_cuda(cuMemAddressFree(a, 8 * GIB));
	for (size_t i = 0; i < sizeof(alignments) / sizeof(*alignments); i++) {
		ck_cuda(cuMemAddressReserve(&a, 2 * grain, alignments[i], 0, 0));
		ck_assert_uint_eq(a % alignments[i], 0);
		ck_cuda(cuMemAddressFree(a, 2 * grain));
	}
	ck_cuda(cuMemAddressReserve(&a, 20 * 1024 * GIB, 0, 0, 0));
	map_there(a + 20 * 1024 * GIB - grain, grain);
	fill_words(a + 20 * 1024 * GIB - grain, 9, grain / 4);
	ck_assert_uint_eq(word_at(a + 20 * 1024 * GIB - 4), 9);
	ck_cuda(cuMemUnmap(a, 20 * 1024 * GIB - grain)); /* nothing is there */
	ck_cuda(cuMemUnmap(a + 20 * 1024 * GIB - grain, grain));
	ck_cuda(cuMemAddressFree(a, 20 * 1024 * GIB));
	ck_assert_int_ne(cuMemAddressReserve(&a, UINT64_C(1) << 47, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuMemAddressReserve(&a, 12345, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemAddressReserve(&a, grain, 3 * MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(memory, reserving_in_a_loop_uses_nothing_up)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t grain;

	driver_open();
	grain = granularity();
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	for (uint32_t i = 0; i < 1000; i++) {
		size_t room = (i % 7 + 1) * 40 * GIB;

		ck_cuda(cuMemAddressReserve(&at, room, 0, 0, 0));
		ck_cuda(cuMemMap(at + room - grain, grain, 0, handle, 0));
		ck_cuda(cuMemSetAccess(at + room - grain, grain, &read_write, 1));
		ck_cuda(cuMemsetD32_v2(at + room - 4, i, 1));
		ck_assert_uint_eq(word_at(at + room - 4), i);
		ck_cuda(cuMemUnmap(at + room - grain, grain));
		ck_cuda(cuMemAddressFree(at, room));
	}
	ck_cuda(cuMemRelease(handle));
}

/* As a framework with a pool for each of its streams. */
TEST(memory, thirty_segments_grow_side_by_side)
{
	enum { MANY = 30, PIECES = 4 };
	CUdeviceptr at[MANY], base;
	size_t grain, bytes;
	unsigned long long flags;

	driver_open();
	grain = granularity();
	ck_assert_int_eq(reserve_many(at, MANY), MANY);
	for (int piece = 0; piece < PIECES; piece++)
		for (uint32_t i = 0; i < MANY; i++) {
			map_there(at[i] + piece * grain, grain);
			ck_cuda(cuMemsetD32_v2(at[i], 10 * i + piece, (piece + 1) * grain / 4));
		}
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_uint_eq(word_at(at[i]), 10 * i + PIECES - 1);
		ck_assert_uint_eq(word_at(at[i] + PIECES * grain - 4), 10 * i + PIECES - 1);
		ck_cuda(cuMemGetAddressRange_v2(&base, &bytes, at[i] + 2 * grain + 5));
		ck_assert_uint_eq(base, at[i] + 2 * grain);
		ck_assert_uint_eq(bytes, grain);
		ck_cuda(cuMemGetAccess(&flags, &read_write.location, at[i] + 3 * grain));
		ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		ck_cuda(cuMemSetAccess(at[i] + grain, 2 * grain, &read_write, 1));
		/* Two of them with one call, then the others. */
		ck_cuda(cuMemUnmap(at[i] + grain, 2 * grain));
		ck_assert_int_eq(cuMemUnmap(at[i] + 3 * grain, 2 * grain), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_ne(cuMemAddressFree(at[i], 160 * GIB), CUDA_SUCCESS);
		ck_cuda(cuMemUnmap(at[i], grain));
		ck_cuda(cuMemUnmap(at[i] + 3 * grain, grain));
	}
	free_many(at, MANY);
}

/* Memory ends where it is made; addresses do not. */
TEST(memory, memory_runs_out_where_it_is_made)
{
	enum { MOST = 8192 };
	static CUmemGenericAllocationHandle handles[MOST];
	size_t free_bytes, total, piece = 256 * MIB;
	CUdeviceptr at, more;
	CUresult r = CUDA_SUCCESS;
	int count = 0;

	driver_open();
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_cuda(cuMemAddressReserve(&at, 4 * total, 0, 0, 0));
	while (count < MOST && r == CUDA_SUCCESS) {
		r = cuMemCreate(&handles[count], piece, &shareable, 0);
		if (r == CUDA_SUCCESS)
			ck_cuda(cuMemMap(at + count * piece, piece, 0, handles[count], 0));
		count += r == CUDA_SUCCESS;
	}
	ck_assert_int_eq(r, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_gt(count, 2);
	ck_cuda(cuMemSetAccess(at, count * piece, &read_write, 1));
	ck_cuda(cuMemAddressReserve(&more, 4 * total, 0, 0, 0));
	ck_cuda(cuMemAddressFree(more, 4 * total));
	for (int turn = 0; turn < 3; turn++) {
		ck_cuda(cuMemUnmap(at + (count - 1) * piece, piece));
		ck_cuda(cuMemRelease(handles[count - 1]));
		ck_cuda(cuMemCreate(&handles[count - 1], piece, &shareable, 0));
		ck_cuda(cuMemMap(at + (count - 1) * piece, piece, 0, handles[count - 1], 0));
	}
	ck_cuda(cuMemSetAccess(at, count * piece, &read_write, 1));
	fill_words(at + (count - 1) * piece, 5, 1024);
	ck_assert_uint_eq(word_at(at + (count - 1) * piece), 5);
	ck_cuda(cuMemUnmap(at, count * piece));
	while (count)
		ck_cuda(cuMemRelease(handles[--count]));
	ck_cuda(cuMemAddressFree(at, 4 * total));
}

TEST(memory, one_memory_has_two_addresses)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t grain;

	driver_open();
	grain = granularity();
	ck_cuda(cuMemAddressReserve(&address, 4 * grain, 0, 0, 0));
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	ck_cuda(cuMemMap(address, grain, 0, handle, 0));
	ck_cuda(cuMemMap(address + 2 * grain, grain, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, grain, &read_write, 1));
	ck_cuda(cuMemSetAccess(address + 2 * grain, grain, &read_write, 1));
	ck_cuda(cuMemRelease(handle));
	fill_words(address, 21, grain / 4);
	ck_assert_uint_eq(word_at(address + 3 * grain - 4), 21);
	ck_cuda(cuMemUnmap(address, grain));
	fill_words(address + 2 * grain, 22, grain / 4);
	ck_assert_uint_eq(word_at(address + 2 * grain), 22);
	ck_cuda(cuMemUnmap(address + 2 * grain, grain));
	ck_cuda(cuMemAddressFree(address, 4 * grain));
}

TEST(memory, wrong_mappings_are_refused)
{
	CUmemAllocationProp strange = shareable;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address, other;
	size_t grain;

	driver_open();
	grain = granularity();
	ck_assert_int_eq(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemCreate(&handle, grain + 1, &shareable, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemCreate(&handle, 1024 * GIB, &shareable, 0), CUDA_ERROR_OUT_OF_MEMORY);
	strange.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	ck_assert_int_eq(cuMemCreate(&handle, grain, &strange, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemAddressReserve(&address, 8 * grain, 0, 0, 0));
	ck_cuda(cuMemAddressReserve(&other, 8 * grain, 0, 0, 0));
	ck_assert(other >= address + 8 * grain || address >= other + 8 * grain);
	ck_cuda(cuMemCreate(&handle, 2 * grain, &shareable, 0));
	ck_assert_int_eq(cuMemMap(address, 2 * grain, grain, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuMemMap(address, 4 * grain, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuMemMap(address, grain, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuMemMap(address, 2 * grain, 0, handle, 0));
	ck_assert_int_eq(cuMemMap(address, 2 * grain, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemMap(address + grain, 2 * grain, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemUnmap(address, grain), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuMemSetAccess(address + 2 * grain, grain, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemUnmap(address, 2 * grain));
	ck_cuda(cuMemUnmap(address, 2 * grain)); /* as the driver has it */
	ck_assert_int_eq(cuMemRelease(handle + 77), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemAddressFree(address, 8 * grain));
	ck_cuda(cuMemAddressFree(other, 8 * grain));
}

/* Reservations are whole granules, and a wish for a place is one that can be fulfilled. */
TEST(memory, wrong_reservations_are_refused)
{
	static const struct {
		size_t bytes, alignment, offset;
	} rows[] = {{MIB, 0, 0}, {MIB, MIB, 0}, {3 * MIB, 0, 0}, {2 * MIB + 4096, 0, 0}, {2 * MIB, 0, 4096},
		{2 * MIB, 0, MIB}, {2 * MIB, 4 * MIB, 2 * MIB}};
	CUdeviceptr at, there;

	driver_open();
	ck_cuda(cuMemAddressReserve(&there, 8 * MIB, 4 * MIB, 0, 0));
	ck_cuda(cuMemAddressFree(there, 8 * MIB));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_int_eq(cuMemAddressReserve(&at, rows[i].bytes, rows[i].alignment,
					 rows[i].offset ? there + rows[i].offset : 0, 0),
			CUDA_ERROR_INVALID_VALUE);
}

static CUresult create_with(const CUmemAllocationProp *properties, size_t bytes)
{
	CUmemGenericAllocationHandle handle;
	CUresult r = cuMemCreate(&handle, bytes, properties, 0);

	if (r == CUDA_SUCCESS)
		ck_cuda(cuMemRelease(handle));
	return r;
}

/* The granularity is the same for all, and the size comes first. */
TEST(memory, strange_memory_is_refused_as_natively)
{
	CUmemAllocationProp strange[8];
	const CUresult results[8] = {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE,
		CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE,
		CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUDA_SUCCESS};
	CUmemGenericAllocationHandle handle;
	CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
	CUmemAccessDesc access = {.location = where, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;
	unsigned long long flags;
	size_t found, grain;
	int value;

	driver_open();
	grain = granularity();
	for (int i = 0; i < 8; i++)
		strange[i] = shareable;
	strange[0].location.id = 99;
	strange[1].location.type = CU_MEM_LOCATION_TYPE_INVALID;
	strange[2].requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
	strange[3].win32HandleMetaData = &found;
	strange[4].allocFlags.reserved[3] = 1;
	strange[5].allocFlags.compressionType = 2;
	strange[6].requestedHandleTypes = (CUmemAllocationHandleType)17;
	strange[7].allocFlags.usage = 1;
	for (int i = 0; i < 8; i++) {
		found = 0;
		ck_cuda(cuMemGetAllocationGranularity(&found, &strange[i], CU_MEM_ALLOC_GRANULARITY_MINIMUM));
		ck_assert_uint_eq(found, grain);
		ck_assert_int_eq(create_with(&strange[i], grain), results[i]);
		ck_assert_int_eq(create_with(&strange[i], grain / 2), CUDA_ERROR_INVALID_VALUE);
	}
	ck_assert_int_eq(cuMemGetAllocationGranularity(&found, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	ck_assert_int_eq(cuMemExportToShareableHandle(&value, handle, CU_MEM_HANDLE_TYPE_WIN32, 0),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemImportFromShareableHandle(&handle, NULL, CU_MEM_HANDLE_TYPE_NONE),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemAddressReserve(&address, grain, 0, 0, 0));
	ck_cuda(cuMemMap(address, grain, 0, handle, 0));
	ck_cuda(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
	ck_assert_int_eq(value, 0);
	ck_assert_int_eq(cuMemSetAccess(address, grain, &access, 1), CUDA_ERROR_INVALID_VALUE);
	access.location = strange[0].location;
	ck_assert_int_eq(cuMemSetAccess(address, grain, &access, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemGetAccess(&flags, &where, address), CUDA_ERROR_INVALID_DEVICE);
	where.type = CU_MEM_LOCATION_TYPE_INVALID;
	ck_assert_int_eq(cuMemGetAccess(&flags, &where, address), CUDA_ERROR_INVALID_DEVICE);
	ck_cuda(cuMemSetAccess(address, grain, &read_write, 1));
	ck_cuda(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
	ck_assert_int_eq(value, 3);
	ck_cuda(cuMemUnmap(address, grain));
	ck_cuda(cuMemAddressFree(address, grain));
	ck_cuda(cuMemRelease(handle));
}

static int pair[2];

static void exchange(bool sends)
{
	char byte = 1;

	ck_assert_int_eq(sends ? write(pair[1], &byte, 1) : read(pair[0], &byte, 1), 1);
}

/* Waits until nobody has the other end. */
static void exchange_ends(void)
{
	char byte;

	close(pair[0]);
	ck_assert_int_eq(read(pair[1], &byte, 1), 0);
}

/* Imports what it is sent, adds to it, and says so. */
static int importer(int unused)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t grain;
	int fd;

	(void)unused;
	pass_fd(pair[1], &fd, false);
	driver_open();
	grain = granularity();
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ck_cuda(cuMemAddressReserve(&address, 2 * grain, 0, 0, 0));
	ck_cuda(cuMemMap(address, 2 * grain, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, 2 * grain, &read_write, 1));
	ck_cuda(cuMemRelease(handle));
	if (word_at(address + grain) != 41)
		return 1;
	fill_words(address, 42, 2 * grain / 4);
	exchange(true);
	/* The memory is the program's own now, whatever the exporter does. */
	pass_fd(pair[1], &fd, false);
	if (word_at(address + 2 * grain - 4) != 43)
		return 2;
	ck_cuda(cuMemUnmap(address, 2 * grain));
	return 0;
}

TEST(memory, memory_is_shared_by_descriptor)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t grain;
	pid_t child;
	int fd = -1;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(importer, 0);
	driver_open();
	grain = granularity();
	ck_cuda(cuMemAddressReserve(&address, 2 * grain, 0, 0, 0));
	ck_cuda(cuMemCreate(&handle, 2 * grain, &shareable, 0));
	ck_cuda(cuMemMap(address, 2 * grain, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, 2 * grain, &read_write, 1));
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ck_assert_int_ge(fd, 0);
	fill_words(address, 41, 2 * grain / 4);
	pass_fd(pair[0], &fd, true);
	exchange(false);
	ck_assert_uint_eq(word_at(address), 42);
	fill_words(address, 43, 2 * grain / 4);
	ck_cuda(cuMemUnmap(address, 2 * grain));
	ck_cuda(cuMemRelease(handle));
	pass_fd(pair[0], &fd, true);
	ck_assert_int_eq(exit_status(child), 0);
	close(fd);
	fd = memfd_create("something else", 0);
	ck_assert_int_ne(cuMemImportFromShareableHandle(
				 &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		CUDA_SUCCESS);
}

/* ---- host memory with a handle ---- */

static const CUmemAllocationProp node = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
static const CUmemAllocationProp anywhere = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
static const CUmemAllocationProp *const places[] = {&node, &anywhere};

enum { MAKE_FIRST = 2, ORDERS = 4 };

static size_t host_granularity(const CUmemAllocationProp *where)
{
	size_t bytes = 0;

	ck_cuda(cuMemGetAllocationGranularity(&bytes, where, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return bytes;
}

static CUdeviceptr reserve(size_t bytes)
{
	CUdeviceptr address;

	ck_cuda(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	return address;
}

/* For both: device and processor. Return: as the processor sees it */
static volatile uint32_t *map_for_both(
	CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle, CUmemLocation where)
{
	const CUmemAccessDesc access[] = {
		read_write, {.location = where, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};

	ck_cuda(cuMemMap(address, bytes, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, bytes, access, 2));
	return (uint32_t *)(uintptr_t)address;
}

static void expect_host_memory(CUdeviceptr address, size_t bytes, CUmemLocation where)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	unsigned long long flags = 77;
	CUmemorytype type;
	CUdeviceptr base;
	void *pointer;
	size_t size;

	ck_cuda(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 4));
	ck_assert_int_eq(type, CU_MEMORYTYPE_HOST);
	ck_cuda(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4));
	ck_assert_uint_eq((uintptr_t)pointer, address + 4);
	ck_cuda(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 4));
	ck_assert_uint_eq((uintptr_t)pointer, address + 4);
	/* The driver says that it begins at 0 (580.159.04). */
	ck_cuda(cuMemGetAddressRange_v2(&base, &size, address + 4));
	ck_assert(is_native() || (base == address && size == bytes));
	ck_cuda(cuMemGetAccess(&flags, &read_write.location, address));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cuda(cuMemGetAccess(&flags, &where, address));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cuda(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
	ck_cuda(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
	ck_assert_int_eq(properties.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	ck_cuda(cuMemRelease(handle));
}

/* Programs make the memory first, or reserve the addresses first. */
TEST_LOOP(memory, host_memory_has_a_handle, 0, ORDERS)
{
	const CUmemAllocationProp *where = places[_i % 2];
	size_t grain, bytes;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address = 0, copy;
	volatile uint32_t *words;
	int value = 0;

	driver_open();
	ck_cuda(cuDeviceGetAttribute(
		&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	ck_assert_int_eq(value, 1);
	grain = host_granularity(where);
	bytes = 4 * grain;
	if (_i < MAKE_FIRST)
		ck_cuda(cuMemCreate(&handle, bytes, where, 0));
	address = reserve(2 * bytes);
	if (_i >= MAKE_FIRST)
		ck_cuda(cuMemCreate(&handle, bytes, where, 0));
	words = map_for_both(address, bytes, handle, where->location);
	expect_host_memory(address, bytes, where->location);
	/* Like all new memory. */
	ck_assert_uint_eq(words[0] | words[bytes / 4 - 1], 0);

	fill_words(address, 11, bytes / 4);
	ck_assert_uint_eq(words[0], 11);
	ck_assert_uint_eq(words[bytes / 4 - 1], 11);
	words[5] = 12;
	copy = device_words(bytes / 4, 0);
	ck_cuda(cuMemcpy(copy, address, bytes));
	ck_assert_uint_eq(word_at(copy + 20), 12);
	ck_cuda(cuMemsetD32_v2(copy, 13, bytes / 4));
	ck_cuda(cuMemcpyDtoH_v2((void *)(uintptr_t)address, copy, bytes));
	ck_assert_uint_eq(words[bytes / 4 - 1], 13);
	ck_cuda(cuMemsetD32Async(address, 14, 6, NULL));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(words[5], 14);
	ck_assert_uint_eq(words[6], 13);

	/* Elsewhere, there again, and both at once: it is the same memory. */
	ck_cuda(cuMemUnmap(address, bytes));
	words = map_for_both(address + bytes, bytes, handle, where->location);
	ck_assert_uint_eq(words[5], 14);
	map_for_both(address, bytes, handle, where->location);
	ck_cuda(cuMemRelease(handle));
	fill_words(address, 15, 1);
	ck_assert_uint_eq(words[0], 15);
	ck_assert_uint_eq(words[6], 13);
	ck_cuda(cuMemUnmap(address, 2 * bytes));
	ck_assert_int_ne(cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
	ck_cuda(cuMemAddressFree(address, 2 * bytes));
	ck_cuda(cuMemFree_v2(copy));
}

/* Device memory is as before, whatever the program had for the processor in between. */
TEST(memory, device_memory_is_mapped_beside_host_memory)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr host[8], device[8];
	size_t grain;

	driver_open();
	grain = host_granularity(&node);
	for (uint32_t i = 0; i < 8; i++) {
		ck_cuda(cuMemCreate(&handle, grain, &node, 0));
		host[i] = reserve(grain);
		map_for_both(host[i], grain, handle, node.location)[0] = i;
		ck_cuda(cuMemRelease(handle));
		device[i] = reserve(16 * grain);
		map_there(device[i], grain);
		ck_cuda(cuMemcpy(device[i], host[i], 4));
	}
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(word_at(device[i]), i);
		ck_cuda(cuMemUnmap(host[i], grain));
		ck_cuda(cuMemUnmap(device[i], grain));
		ck_cuda(cuMemAddressFree(host[i], grain));
		ck_cuda(cuMemAddressFree(device[i], 16 * grain));
	}
}

TEST(memory, wrong_host_memory_is_refused)
{
	CUmemAllocationProp strange = anywhere;
	CUmemGenericAllocationHandle handle, other;
	CUdeviceptr address, device;
	size_t grain;

	driver_open();
	grain = host_granularity(&node);
	strange.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ck_assert_int_eq(cuMemCreate(&handle, grain, &strange, 0), CUDA_ERROR_INVALID_VALUE);
	strange = node;
	strange.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	ck_assert_int_eq(cuMemCreate(&handle, grain, &strange, 0), CUDA_ERROR_INVALID_VALUE);
	strange.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 4711};
	ck_assert_int_ne(cuMemCreate(&handle, grain, &strange, 0), CUDA_SUCCESS);
	if (is_native())
		return;
	/* One kind of memory where addresses are reserved for the other. */
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	device = reserve(grain);
	ck_cuda(cuMemCreate(&other, grain, &node, 0));
	address = reserve(grain);
	ck_assert_int_eq(cuMemMap(address, grain, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuMemMap(device, grain, 0, other, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuMemMap(address, grain, 0, other, 0));
	ck_cuda(cuMemMap(device, grain, 0, handle, 0));
}

/* Runs a kernel for a while, and says when it does. */
static int runs_for_a_while(int progress, int orders)
{
	uint32_t *word;
	CUdeviceptr address;
	uint64_t ns = 300000000;
	void *arguments[] = {&ns};

	driver_open();
	word = shared_word();
	address = (CUdeviceptr)(uintptr_t)word;
	ordered(orders, true);
	ck_cuda(cuStreamWriteValue32_v2(NULL, address, 1, 0));
	ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	while (!*(volatile uint32_t *)word)
		sched_yield();
	report(progress);
	ck_cuda(cuCtxSynchronize());
	ordered(orders, true);
	return 0;
}

/* What is unmapped stays pinned for as long as something runs, and the addresses are the program's
 * all the same. */
TEST(memory, host_memory_is_mapped_again_beside_a_long_kernel)
{
	CUmemGenericAllocationHandle handle;
	volatile uint32_t *words;
	CUdeviceptr address;
	struct child other;
	size_t grain;

	other = child_start(runs_for_a_while);
	driver_open();
	grain = host_granularity(&node);
	ck_cuda(cuMemCreate(&handle, grain, &node, 0));
	address = reserve(grain);
	words = map_for_both(address, grain, handle, node.location);
	words[0] = 31;
	child_order(&other);
	child_wait(&other, 1);
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemUnmap(address, grain));
		words = map_for_both(address, grain, handle, node.location);
		ck_assert_uint_eq(words[0], 31);
	}
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
}

/* Adds one to each word of host memory that it is sent, and gives the memory back. */
static int adds_to_host_memory(int unused)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	volatile uint32_t *words;
	CUdeviceptr address;
	size_t grain;
	int fd;

	(void)unused;
	pass_fd(pair[1], &fd, false);
	driver_open();
	grain = granularity();
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ck_cuda(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
	ck_assert_int_eq(properties.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	address = reserve(2 * grain);
	words = map_for_both(address, 2 * grain, handle, node.location);
	ck_cuda(cuMemRelease(handle));
	for (size_t i = 0; i < 2 * grain / 4; i++)
		words[i]++;
	exchange(true);
	/* It is the program's own now, whatever the exporter does. */
	pass_fd(pair[1], &fd, false);
	ck_assert_uint_eq(words[2 * grain / 4 - 1], 43);
	fill_words(address, 44, 2 * grain / 4);
	ck_assert_uint_eq(words[0], 44);
	return 0;
}

TEST(memory, host_memory_is_shared_by_descriptor)
{
	CUmemGenericAllocationHandle handle;
	volatile uint32_t *words;
	CUdeviceptr address;
	size_t grain;
	pid_t child;
	int fd = -1;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(adds_to_host_memory, 0);
	driver_open();
	grain = host_granularity(&node);
	ck_cuda(cuMemCreate(&handle, 2 * grain, &node, 0));
	address = reserve(2 * grain);
	words = map_for_both(address, 2 * grain, handle, node.location);
	fill_words(address, 41, 2 * grain / 4);
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(pair[0], &fd, true);
	exchange(false);
	ck_assert_uint_eq(words[0], 42);
	ck_assert_uint_eq(word_at(address + 2 * grain - 4), 42);
	fill_words(address, 43, 2 * grain / 4);
	ck_cuda(cuMemUnmap(address, 2 * grain));
	ck_cuda(cuMemRelease(handle));
	pass_fd(pair[0], &fd, true);
	ck_assert_int_eq(exit_status(child), 0);
	/* The descriptor keeps it. */
	ck_cuda(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	words = map_for_both(address, 2 * grain, handle, node.location);
	ck_assert_uint_eq(words[1], 44);
	close(fd);
}

enum { EXIT, RELEASE, KILL, ENDINGS };

/* Exports memory, and leaves nothing behind but the descriptor. */
static int forget_exported(int how)
{
	size_t grain;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	driver_open();
	grain = granularity();
	ck_cuda(cuMemAddressReserve(&address, grain, 0, 0, 0));
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	ck_cuda(cuMemMap(address, grain, 0, handle, 0));
	ck_cuda(cuMemSetAccess(address, grain, &read_write, 1));
	fill_words(address, 71 + (uint32_t)how, grain / 4);
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pass_fd(pair[1], &fd, true);
	close(fd);
	if (how == RELEASE) {
		ck_cuda(cuMemUnmap(address, grain));
		ck_cuda(cuMemRelease(handle));
	}
	exchange(true);
	if (how == KILL)
		raise(SIGKILL);
	if (how == RELEASE) /* until the other end is closed */
		exchange_ends();
	return 0;
}

/* It may be imported twice, and forgotten once more in between. */
TEST_LOOP(memory, memory_outlives_its_exporter, 0, ENDINGS)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address, other;
	size_t grain;
	pid_t child;
	int fd;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(forget_exported, _i);
	close(pair[1]);
	driver_open();
	grain = granularity();
	pass_fd(pair[0], &fd, false);
	exchange(false);
	if (_i != RELEASE)
		ck_assert_int_eq(exit_status(child) == 0, _i == EXIT);
	/* What it gave back would be somebody else's now. */
	ck_cuda(cuMemAlloc_v2(&other, 64 * MIB));
	fill_words(other, 1, 64 * MIB / 4);
	ck_cuda(cuMemAddressReserve(&address, grain, 0, 0, 0));
	for (int round = 0; round < 2; round++) {
		ck_cuda(cuMemImportFromShareableHandle(
			&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		ck_cuda(cuMemMap(address, grain, 0, handle, 0));
		ck_cuda(cuMemSetAccess(address, grain, &read_write, 1));
		ck_assert_uint_eq(word_at(address + grain - 4), 71 + (uint32_t)_i);
		ck_cuda(cuMemUnmap(address, grain));
		ck_cuda(cuMemRelease(handle));
	}
	close(fd);
	close(pair[0]);
	if (_i == RELEASE)
		ck_assert_int_eq(exit_status(child), 0);
}

/* Has a pool that others share, and memory of it. */
static int share_pool(int type)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = (CUmemLocationType)type}};
	CUmemPoolPtrExportData data;
	CUdeviceptr first, second;
	CUmemoryPool pool;
	int fd;

	driver_open();
	ck_cuda(cuMemPoolCreate(&pool, &properties));
	ck_cuda(cuMemAllocFromPoolAsync(&first, MIB, pool, NULL));
	ck_cuda(cuMemAllocFromPoolAsync(&second, MIB, pool, NULL));
	fill_words(second, 81, MIB / 4);
	ck_cuda(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ck_cuda(cuMemPoolExportPointer(&data, second));
	pass_fd(pair[1], &fd, true);
	ck_assert_int_eq(write(pair[1], &data, sizeof(data)), sizeof(data));
	exchange_ends();
	ck_assert_uint_eq(word_at(second), 82);
	ck_cuda(cuMemFreeAsync(second, NULL));
	ck_cuda(cuMemFreeAsync(first, NULL));
	ck_cuda(cuMemPoolDestroy(pool));
	ck_cuda(cuCtxSynchronize());
	return 0;
}

/* The memory is there already. */
TEST(memory, a_pool_is_not_shared_with_oneself)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemPoolPtrExportData data;
	CUdeviceptr memory, again;
	CUmemoryPool pool, same;
	int fd;

	driver_open();
	ck_cuda(cuMemPoolCreate(&pool, &properties));
	ck_cuda(cuMemAllocFromPoolAsync(&memory, MIB, pool, NULL));
	ck_cuda(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ck_cuda(cuMemPoolExportPointer(&data, memory));
	ck_cuda(cuMemPoolImportFromShareableHandle(
		&same, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	ck_assert_int_eq(cuMemPoolImportPointer(&again, same, &data), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemPoolDestroy(same));
	fill_words(memory, 83, MIB / 4);
	ck_assert_uint_eq(word_at(memory), 83);
	ck_cuda(cuMemFree_v2(memory));
}

/* Of host memory, too: there both programs read and write themselves. */
TEST_LOOP(memory, pools_are_shared, 0, 2)
{
	CUmemLocationType type = _i ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
	CUmemPoolPtrExportData data;
	int kind;
	CUdeviceptr address, other;
	CUmemoryPool pool;
	pid_t child;
	int fd;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(share_pool, type);
	close(pair[1]);
	pass_fd(pair[0], &fd, false);
	ck_assert_int_eq(recv(pair[0], &data, sizeof(data), MSG_WAITALL), sizeof(data));
	driver_open();
	ck_cuda(cuMemPoolImportFromShareableHandle(
		&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemPoolImportPointer(&address, pool, &data));
		ck_assert_uint_eq(word_at(address + MIB - 4), round ? 82 : 81);
		ck_cuda(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
		ck_assert_int_eq(kind, _i ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		if (_i)
			ck_assert_uint_eq(*(uint32_t *)(uintptr_t)(address + MIB - 4), round ? 82 : 81);
		fill_words(address, 82, MIB / 4);
		ck_cuda(round == 1 ? cuMemFree_v2(address) : cuMemFreeAsync(address, NULL));
	}
	ck_cuda(cuCtxSynchronize());
	/* Nobody allocates from it here. */
	ck_assert_int_ne(cuMemAllocFromPoolAsync(&other, MIB, pool, NULL), CUDA_SUCCESS);
	ck_cuda(cuMemPoolDestroy(pool));
	close(pair[0]);
	ck_assert_int_eq(exit_status(child), 0);
	/* An ordinary pool is not for others. */
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_assert_int_ne(
		cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		CUDA_SUCCESS);
}

/* Faults when it is ordered to: somebody whose kernel runs at that moment may be told. */
static int crasher(int progress, int orders)
{
	(void)progress;
	ordered(orders, true);
	driver_open();
	if (launch("crash_trap", 1, 1, NULL, NULL) != CUDA_SUCCESS)
		return 1;
	return cuCtxSynchronize() == CUDA_SUCCESS ? 2 : 0;
}

TEST(memory, mappings_outlive_somebody_elses_fault)
{
	size_t grain, room = 160 * GIB;
	CUdeviceptr small, large, many[24];
	/* A forked child of a process that has used the driver could not use it. */
	struct child child = child_start(crasher);

	driver_open();
	grain = granularity();
	ck_cuda(cuMemAddressReserve(&small, 4 * grain, 0, 0, 0));
	ck_assert_int_eq(reserve_many(many, 24), 24);
	large = many[23];
	/* The others are not there any more, for the next executor either. */
	free_many(many + 3, 17);
	for (int i = 0; i < 3; i++) {
		map_there(many[i], grain);
		fill_words(many[i], 30 + i, grain / 4);
	}
	map_there(small + grain, grain);
	map_there(large, grain);
	map_there(large + 7 * grain, grain);
	fill_words(small + grain, 3, grain / 4);
	fill_words(large + 7 * grain, 4, grain / 4);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_uint_eq(word_at(small + 2 * grain - 4), 3);
	ck_assert_uint_eq(word_at(large + 8 * grain - 4), 4);
	fill_words(large, 5, grain / 4);
	ck_assert_uint_eq(word_at(large), 5);
	ck_cuda(cuMemUnmap(small + grain, grain));
	ck_cuda(cuMemUnmap(large, grain));
	ck_cuda(cuMemUnmap(large + 7 * grain, grain));
	ck_cuda(cuMemAddressFree(large, room));
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(word_at(many[i] + grain - 4), 30 + i);
		ck_cuda(cuMemUnmap(many[i], grain));
	}
	free_many(many, 3);
	free_many(many + 20, 3);
	ck_assert_int_eq(reserve_many(many, 24), 24);
	map_there(many[23], grain);
	fill_words(many[23], 6, grain / 4);
	ck_assert_uint_eq(word_at(many[23]), 6);
}

/* @times: that one of this service has been killed */
static void kill_daemon(int times)
{
	char *text = service_status(&common_service);
	json_t *status = json_loads(text ? text : "", 0, NULL);
	pid_t pid;

	ck_assert_ptr_nonnull(status);
	pid = (pid_t)json_integer_value(json_object_get(status, "pid"));
	json_decref(status);
	free(text);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert(service_log_wait(&common_service, "the daemon is back", times, 60));
}

/* The one part of the suite that is about the service: what it has recorded of such memory. */
TEST(memory, mappings_outlive_the_daemon)
{
	CUmemGenericAllocationHandle handle;
	size_t grain, room = 160 * GIB;
	CUdeviceptr large, many[40];

	if (is_native())
		return;
	driver_open();
	grain = granularity();
	ck_assert_int_eq(reserve_many(many, 20), 20);
	free_many(many + 10, 9);
	large = many[19];
	ck_cuda(cuMemCreate(&handle, grain, &shareable, 0));
	ck_cuda(cuMemMap(large, grain, 0, handle, 0));
	ck_cuda(cuMemMap(large + 4 * grain, grain, 0, handle, 0));
	map_there(large + 8 * grain, grain);
	fill_words(large, 61, grain / 4);
	kill_daemon(1);
	ck_assert_uint_eq(word_at(large + 5 * grain - 4), 61);
	/* It still knows what may be mapped, and what is. */
	ck_cuda(cuMemMap(large + 2 * grain, grain, 0, handle, 0));
	ck_cuda(cuMemSetAccess(large + 2 * grain, grain, &read_write, 1));
	fill_words(large + 2 * grain, 62, grain / 4);
	ck_assert_uint_eq(word_at(large), 62);
	for (int i = 0; i < 6; i += 2)
		ck_cuda(cuMemUnmap(large + i * grain, grain));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemUnmap(large + 8 * grain, grain));
	map_there(large, grain);
	/* What it gives now it has not given before. */
	ck_assert_int_eq(reserve_many(many + 10, 30), 30);
	for (int i = 10; i < 40; i++) {
		ck_assert(many[i] >= large + room || large >= many[i] + room);
		for (int other = 0; other < 10; other++)
			ck_assert(many[i] >= many[other] + room || many[other] >= many[i] + room);
	}
	map_there(many[39], grain);
	free_many(many, 39);
}

/* Handles, mappings and what is exported. */
TEST(memory, host_memory_outlives_daemon_and_executor)
{
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr address;
	volatile uint32_t *words;
	size_t grain;
	int fd = -1;

	if (is_native())
		return;
	driver_open();
	grain = host_granularity(&node);
	ck_cuda(cuMemCreate(&handle, grain, &node, 0));
	address = reserve(4 * grain);
	words = map_for_both(address, grain, handle, node.location);
	ck_cuda(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	fill_words(address, 61, grain / 4);
	kill_daemon(2);
	ck_assert_uint_eq(words[5], 61);
	map_for_both(address + grain, grain, handle, node.location);
	fill_words(address + grain, 62, grain / 4);
	ck_assert_uint_eq(words[6], 62);
	ck_assert(service_kill_active(&common_service));
	fill_words(address, 63, grain / 4);
	ck_assert_uint_eq(words[grain / 4 + 7], 63);
	/* Nothing of what was given back is left. */
	ck_cuda(cuMemUnmap(address, grain));
	ck_cuda(cuMemRelease(handle));
	ck_cuda(cuMemImportFromShareableHandle(
		&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	map_for_both(address, grain, imported, node.location);
	ck_assert_uint_eq(words[7], 63);
	ck_cuda(cuMemUnmap(address, 2 * grain));
	ck_cuda(cuMemRelease(imported));
	close(fd);
}

/* ---- stream-ordered allocation ---- */

static uint64_t pool_word(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	uint64_t value = UINT64_MAX;

	ck_cuda(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

/* Each round's memory is the last one's: what a stream still reads must not be written for the next
 * round. */
TEST(memory, streams_allocate_and_free_in_their_order)
{
	enum { WORDS = 1 << 18, ROUNDS = 50 };
	uint32_t *out;
	CUstream streams[3];
	CUdeviceptr memory;
	CUmemoryPool pool;
	uint64_t keep = UINT64_MAX, zero = 0;

	driver_open();
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	ck_cuda(cuMemHostAlloc((void **)&out, sizeof(uint32_t[3][ROUNDS]), 0));
	for (int i = 0; i < 3; i++)
		ck_cuda(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : 0));
	for (uint32_t round = 0; round < ROUNDS; round++)
		for (uint32_t i = 0; i < 3; i++) {
			uint32_t value = round * 3 + i;
			uint64_t count = WORDS;
			void *arguments[] = {&memory, &value, &count};

			ck_cuda(cuMemAllocAsync(&memory, WORDS * 4, streams[i]));
			ck_cuda(launch("fill", 8, 64, streams[i], arguments));
			ck_cuda(cuMemcpyDtoHAsync_v2(
				&out[value], memory + 4 * (WORDS - 1), sizeof(*out), streams[i]));
			ck_cuda(cuMemFreeAsync(memory, streams[i]));
		}
	ck_cuda(cuCtxSynchronize());
	for (uint32_t i = 0; i < 3 * ROUNDS; i++)
		ck_assert_uint_eq(out[i], i);
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_uint_ge(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), WORDS * 4);
	ck_assert_uint_ge(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), WORDS * 4);
	ck_cuda(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	ck_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
	ck_cuda(cuMemFreeHost(out));
}

/* What a busy stream freed must not go to another one before it is done with it. */
TEST(memory, freed_memory_waits_for_its_stream)
{
	enum { WORDS = 1 << 16 };
	CUdeviceptr first, second, word;
	uint32_t *flag, *out, one = 1, seven = 7, eight = 8;
	uint64_t count = WORDS;
	CUstream busy, other;

	driver_open();
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	ck_cuda(cuMemHostAlloc((void **)&out, 4096, 0));
	*flag = 0;
	ck_cuda(cuMemHostGetDevicePointer_v2(&word, flag, 0));
	/* Loaded now: loading waits for what runs. */
	kernel("fill");
	kernel("spin_until");
	ck_cuda(cuMemAllocAsync(&first, WORDS * 4, busy));
	ck_cuda(launch("spin_until", 1, 1, busy, (void *[]){&word, &one}));
	ck_cuda(launch("fill", 8, 64, busy, (void *[]){&first, &seven, &count}));
	ck_cuda(cuMemcpyDtoHAsync_v2(out, first, 4, busy));
	ck_cuda(cuMemFreeAsync(first, busy));
	ck_cuda(cuMemAllocAsync(&second, WORDS * 4, other));
	ck_assert(second + WORDS * 4 <= first || first + WORDS * 4 <= second);
	ck_cuda(launch("fill", 8, 64, other, (void *[]){&second, &eight, &count}));
	ck_cuda(cuStreamSynchronize(other));
	*(volatile uint32_t *)flag = 1;
	ck_cuda(cuStreamSynchronize(busy));
	ck_assert_uint_eq(*out, 7);
	ck_assert_uint_eq(word_at(second), 8);
	ck_cuda(cuMemFree_v2(second));
	ck_assert_int_eq(cuMemFree_v2(second), CUDA_ERROR_INVALID_VALUE);
}

/* The free stands behind what the stream was given, and nobody waits for that. */
TEST(memory, other_memory_is_freed_in_stream_order_too)
{
	enum { WORDS = 1 << 16 };
	CUdeviceptr memory, next;
	uint32_t *gate, *out, seven = 7;
	uint64_t count = WORDS;
	CUstream busy;

	driver_open();
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemHostAlloc((void **)&out, 4096, 0));
	gate = shared_word();
	/* Loaded now: loading waits for what runs. */
	kernel("fill");
	kernel("spin_until");
	ck_cuda(cuMemAlloc_v2(&memory, WORDS * 4));
	ck_cuda(launch_spin(gate, 1, busy));
	ck_cuda(launch("fill", 8, 64, busy, (void *[]){&memory, &seven, &count}));
	ck_cuda(cuMemcpyDtoHAsync_v2(out, memory, 4, busy));
	ck_cuda(cuMemFreeAsync(memory, busy));
	ck_assert_int_eq(cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
	ck_cuda(cuMemAlloc_v2(&next, WORDS * 4));
	ck_assert(next + WORDS * 4 <= memory || memory + WORDS * 4 <= next);
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(busy));
	ck_assert_uint_eq(*out, 7);
	ck_assert_int_eq(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
	/* By now it is there for others. */
	if (!is_native()) {
		ck_cuda(cuMemAlloc_v2(&memory, WORDS * 4));
		ck_assert_uint_lt(memory, next);
		ck_cuda(cuMemFree_v2(memory));
	}
	ck_cuda(cuMemFree_v2(next));
}

TEST(memory, pools_are_made_used_and_ended)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUmemoryPool standard, pool, seen;
	CUdeviceptr memory, more;
	int flag = 7;

	driver_open();
	ck_cuda(cuDeviceGetDefaultMemPool(&standard, 0));
	ck_cuda(cuDeviceGetMemPool(&seen, 0));
	ck_assert_ptr_eq(seen, standard);
	ck_cuda(cuMemPoolCreate(&pool, &properties));
	ck_assert_ptr_ne(pool, standard);
	ck_cuda(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag));
	ck_assert_int_eq(flag, 1);
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
	ck_cuda(cuMemPoolGetAccess(&access, pool, &properties.location));
	ck_assert_int_eq(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	/* As many as were asked for, whatever the block has. */
	ck_cuda(cuMemAllocFromPoolAsync(&memory, (3 << 20) + 1, pool, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), (3 << 20) + 1);
	ck_cuda(cuMemFreeAsync(memory, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 3 << 20, pool, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 << 20);
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), (3 << 20) + 1);
	ck_assert_uint_eq(pool_word(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_cuda(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
	ck_assert_ptr_eq(seen, pool);
	ck_cuda(cuDeviceSetMemPool(0, pool));
	ck_cuda(cuMemAllocAsync(&more, 1 << 20, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 << 20);
	ck_cuda(cuMemPoolDestroy(pool));
	ck_cuda(cuDeviceGetMemPool(&seen, 0));
	ck_assert_ptr_eq(seen, standard);
	/* What was allocated stays. */
	ck_cuda(cuMemsetD32_v2(memory, 6, (3 << 20) / 4));
	ck_assert_uint_eq(word_at(memory + (3 << 20) - 4), 6);
	ck_cuda(cuMemFreeAsync(memory, NULL));
	ck_cuda(cuMemFreeAsync(more, NULL));
	ck_cuda(cuCtxSynchronize());
}

static CUmemoryPool host_pool(CUmemLocationType type, size_t most)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = type}, .maxSize = most};
	CUmemoryPool pool;

	ck_cuda(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static int pool_access(CUmemoryPool pool, CUmemLocationType type)
{
	CUmemLocation location = {.type = type};
	CUmemAccess_flags access = 77;

	ck_cuda(cuMemPoolGetAccess(&access, pool, &location));
	return (int)access;
}

/* One address for the program and the device. */
TEST_LOOP(memory, pools_of_host_memory, 0, 2)
{
	CUmemLocationType type = _i ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_HOST;
	CUmemoryPool pool, seen;
	CUdeviceptr memory, device;
	uint32_t five = 5;
	uint64_t count = 1000;
	void *host;
	int kind;

	driver_open();
	pool = host_pool(type, 0);
	ck_assert_int_eq(pool_access(pool, CU_MEM_LOCATION_TYPE_DEVICE), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_assert_int_eq(pool_access(pool, CU_MEM_LOCATION_TYPE_HOST), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cuda(cuMemPoolSetAccess(pool, &read_write, 1));
	ck_assert_int_eq(pool_access(pool, CU_MEM_LOCATION_TYPE_DEVICE), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 1 << 20, pool, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1 << 20);
	ck_cuda(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
	ck_assert_int_eq(kind, CU_MEMORYTYPE_HOST);
	ck_cuda(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory));
	ck_assert_uint_eq(device, memory);
	ck_cuda(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
	ck_assert_uint_eq((CUdeviceptr)(uintptr_t)host, memory);
	ck_cuda(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
	ck_assert_ptr_eq(seen, pool);
	ck_cuda(launch("fill", 8, 64, NULL, (void *[]){&memory, &five, &count}));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(((uint32_t *)host)[999], 5);
	((uint32_t *)host)[0] = 6;
	ck_assert_uint_eq(word_at(memory), 6);
	ck_assert_uint_eq(word_at(memory + 4), 5);
	ck_cuda(cuMemFreeAsync(memory, NULL));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 1 << 20, pool, NULL));
	ck_cuda(cuMemPoolDestroy(pool));
	ck_cuda(cuMemsetD32_v2(memory, 7, 1000));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)memory, 7);
	ck_cuda(cuMemFree_v2(memory));
}

/* Each place has pools of its own. */
TEST(memory, pools_are_of_their_place)
{
	CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST},
		      device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemPoolProps strange = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemAccessDesc access = {.location = host, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemoryPool pool, standard, seen;
	CUdeviceptr memory;

	driver_open();
	pool = host_pool(CU_MEM_LOCATION_TYPE_HOST, 1 << 20);
	ck_cuda(cuMemGetDefaultMemPool(&standard, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 4096, standard, NULL));
	*(uint32_t *)(uintptr_t)memory = 3;
	ck_cuda(cuMemFreeAsync(memory, NULL));
	ck_assert_int_eq(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
	ck_cuda(cuMemGetMemPool(&seen, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
	ck_assert_ptr_eq(seen, pool);
	ck_assert_int_eq(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemGetDefaultMemPool(&seen, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
	ck_assert_ptr_ne(seen, standard);
	ck_assert_int_eq(pool_access(seen, CU_MEM_LOCATION_TYPE_HOST), CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ck_assert_int_eq(cuMemPoolSetAccess(seen, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
	ck_cuda(cuMemPoolSetAccess(pool, &access, 1));
	strange.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	ck_assert_int_eq(cuMemPoolCreate(&seen, &strange), CUDA_ERROR_INVALID_VALUE);
	strange.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 4711};
	ck_assert_int_eq(cuMemPoolCreate(&seen, &strange), CUDA_ERROR_INVALID_VALUE);
	strange.location = host;
	strange.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ck_assert_int_eq(cuMemPoolCreate(&seen, &strange), CUDA_ERROR_INVALID_VALUE);
}

static uint32_t pointer_word(CUdeviceptr memory, CUpointer_attribute attribute)
{
	uint32_t value = 0;

	ck_cuda(cuPointerGetAttribute(&value, attribute, memory));
	return attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED ? value & 0xff : value;
}

/* Program and kernels see each other's writes, in the order of the stream; what is said of memory
 * ends with it. */
TEST(memory, pools_of_managed_memory)
{
	enum { WORDS = 1 << 18 };
	const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemLocation unsaid = {.type = CU_MEM_LOCATION_TYPE_NONE},
		      missing = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 77};
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = here};
	uint64_t count = WORDS;
	uint32_t value = 7;
	CUmemoryPool pool, standard, seen;
	CUdeviceptr memory, again;
	uint32_t *words;
	int32_t read_mostly;
	CUstream stream;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemPoolCreate(&pool, &properties));
	ck_cuda(cuMemAllocFromPoolAsync(&memory, WORDS * 4, pool, stream));
	ck_cuda(launch("fill", 16, 64, stream, (void *[]){&memory, &value, &count}));
	ck_cuda(cuStreamSynchronize(stream));
	words = (uint32_t *)(uintptr_t)memory;
	ck_assert_uint_eq(words[WORDS - 1], 7);
	words[1000] = 9;
	ck_assert_uint_eq(word_at(memory + 4000), 9);
	ck_assert_uint_eq(pointer_word(memory + 4, CU_POINTER_ATTRIBUTE_IS_MANAGED), 1);
	ck_assert_uint_eq(pointer_word(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	ck_cuda(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
	ck_assert_ptr_eq(seen, pool);
	ck_cuda(cuMemPrefetchAsync_v2(memory, WORDS * 4, here, 0, stream));
	ck_cuda(cuMemAdvise_v2(memory, WORDS * 4, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
	/* The stream gets the same memory again, about which nothing has been said. */
	ck_cuda(cuMemFreeAsync(memory, stream));
	ck_cuda(cuMemAllocFromPoolAsync(&again, WORDS * 4, pool, stream));
	ck_assert_uint_eq(again, memory);
	ck_cuda(cuMemRangeGetAttribute(
		&read_mostly, sizeof(read_mostly), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, again, WORDS * 4));
	ck_assert_int_eq(read_mostly, 0);
	ck_cuda(cuMemFree_v2(again));
	ck_assert_int_eq(cuMemFreeAsync(again, stream), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemGetDefaultMemPool(&standard, &unsaid, CU_MEM_ALLOCATION_TYPE_MANAGED));
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 4096, standard, stream));
	ck_assert_uint_eq(pointer_word(memory, CU_POINTER_ATTRIBUTE_IS_MANAGED), 1);
	ck_cuda(cuMemFreeAsync(memory, stream));
	ck_cuda(cuMemSetMemPool(&unsaid, CU_MEM_ALLOCATION_TYPE_MANAGED, pool));
	ck_cuda(cuMemGetMemPool(&seen, &unsaid, CU_MEM_ALLOCATION_TYPE_MANAGED));
	ck_assert_ptr_eq(seen, pool);
	ck_assert_int_eq(cuMemGetDefaultMemPool(&seen, &unsaid, CU_MEM_ALLOCATION_TYPE_PINNED),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemGetDefaultMemPool(&seen, &missing, CU_MEM_ALLOCATION_TYPE_MANAGED),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemPoolDestroy(pool));
	properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ck_assert_int_eq(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
}

/* What a program wants kept is there afterwards, if it was before: blocks go back whole. */
TEST(memory, a_trim_leaves_what_is_to_be_kept)
{
	enum { BLOCKS = 4 };
	CUdeviceptr memory[BLOCKS];
	uint64_t keep = UINT64_MAX;
	CUmemoryPool pool;

	driver_open();
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	for (int i = 0; i < BLOCKS; i++)
		ck_cuda(cuMemAllocAsync(&memory[i], 32 * MIB, NULL));
	for (int i = 0; i < BLOCKS; i++)
		ck_cuda(cuMemFreeAsync(memory[i], NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_ge(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), BLOCKS * 32 * MIB);
	ck_cuda(cuMemPoolTrimTo(pool, 48 * MIB));
	ck_assert_uint_ge(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 48 * MIB);
	ck_assert_uint_lt(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), BLOCKS * 32 * MIB);
	ck_cuda(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

/* A pool of at most 64 MiB that gives nothing back by itself. */
static CUmemoryPool small_pool(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
		.maxSize = 64 * MIB};
	uint64_t keep = UINT64_MAX;
	CUmemoryPool pool;

	ck_cuda(cuMemPoolCreate(&pool, &properties));
	ck_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	return pool;
}

/* What it keeps counts: that goes back for what has another size, if need be when the work that
 * uses it ends. */
TEST(memory, a_pool_is_never_larger_than_it_may_be)
{
	uint64_t ns = 20000000;
	CUstream busy, other;
	CUmemoryPool pool;
	CUdeviceptr memory;

	driver_open();
	kernel("spin_ns");
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	pool = small_pool();
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 36 * MIB, pool, busy));
	ck_assert_int_eq(cuMemAllocFromPoolAsync(&memory, 36 * MIB, pool, busy), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cuda(cuMemFreeAsync(memory, busy));
	ck_cuda(cuStreamSynchronize(busy));
	ck_assert_uint_ge(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 36 * MIB);
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 48 * MIB, pool, other));
	ck_cuda(launch("spin_ns", 1, 1, other, (void *[]){&ns}));
	ck_cuda(cuMemFreeAsync(memory, other));
	ck_cuda(cuMemAllocFromPoolAsync(&memory, 36 * MIB, pool, busy));
	ck_cuda(cuMemsetD8Async(memory, 1, 36 * MIB, busy));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_le(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
	ck_cuda(cuMemFreeAsync(memory, busy));
	ck_cuda(cuMemPoolDestroy(pool));
}

/* What a stream is not done with goes to another one, whose work waits for that: the program does
 * not. */
TEST(memory, a_pool_that_is_full_lends_what_is_freed)
{
	enum { WORDS = 9 << 20 };
	uint32_t *flag, *out, seven = 7, eight = 8;
	CUdeviceptr first, second;
	uint64_t count = WORDS;
	CUstream busy, other;
	CUmemoryPool pool;

	driver_open();
	kernel("fill");
	ck_cuda(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	flag = shared_word();
	out = shared_word();
	pool = small_pool();
	ck_cuda(cuMemAllocFromPoolAsync(&first, WORDS * 4, pool, busy));
	ck_cuda(launch_spin(flag, 1, busy));
	ck_cuda(launch("fill", 8, 64, busy, (void *[]){&first, &seven, &count}));
	ck_cuda(cuMemcpyDtoHAsync_v2(out, first, 4, busy));
	ck_cuda(cuMemFreeAsync(first, busy));
	ck_cuda(cuMemAllocFromPoolAsync(&second, WORDS * 4, pool, other));
	ck_assert_uint_le(pool_word(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
	ck_cuda(launch("fill", 8, 64, other, (void *[]){&second, &eight, &count}));
	ck_assert_int_eq(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(*out, 7);
	ck_assert_uint_eq(word_at(second), 8);
	ck_cuda(cuMemFreeAsync(second, other));
	ck_cuda(cuMemPoolDestroy(pool));
}

static CUcontext shared_context;
static _Atomic bool enough;

/* Knows of no pool: whichever is the current one. */
static void *allocate_from_current(void *unused)
{
	CUdeviceptr memory;

	ck_cuda(cuCtxSetCurrent(shared_context));
	while (!enough) {
		ck_cuda(cuMemAllocAsync(&memory, 4096, CU_STREAM_PER_THREAD));
		ck_cuda(cuMemFreeAsync(memory, CU_STREAM_PER_THREAD));
	}
	return unused;
}

/* Allocations of other threads that have begun in a pool which ends then. */
TEST(memory, the_current_pool_ends_beside_allocations)
{
	enum { THREADS = 3, ROUNDS = 3000 };
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	pthread_t threads[THREADS];
	CUmemoryPool pool, standard;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&shared_context));
	ck_cuda(cuDeviceGetDefaultMemPool(&standard, 0));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, allocate_from_current, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		ck_cuda(cuMemPoolCreate(&pool, &properties));
		ck_cuda(cuDeviceSetMemPool(0, pool));
		sched_yield();
		ck_cuda(cuMemPoolDestroy(pool));
	}
	enough = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(pool_word(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
}

/* ---- memory of the program's own ---- */

static _Atomic bool submitted;

/* Not before everything behind it was submitted, which must not wait for it. */
static void fill_on_host(void *user)
{
	uint32_t *words = user;

	while (!submitted)
		sched_yield();
	for (uint32_t i = 0; i < 1024; i++)
		words[i] = 100 + i;
}

/* Whoever registers memory may expect that copies read and write it when it is their turn. */
TEST(memory, registered_memory_is_copied_in_stream_order)
{
	uint32_t *memory = malloc(3 << 20), *own = memory + 3, back[4];
	CUdeviceptr device;
	unsigned int flags;
	CUstream stream;

	driver_open();
	memset(memory, 0, 3 << 20);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemAlloc_v2(&device, 2 << 20));
	ck_cuda(cuMemHostRegister_v2(own, 2 << 20, 0));
	ck_assert_int_eq(cuMemHostRegister_v2(own + 5, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_assert_int_eq(cuMemHostUnregister(own + 5), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemHostGetFlags(&flags, own));
	/* Filled by a host function, copied there, changed there, copied back, twice. */
	for (int round = 0; round < 2; round++) {
		ck_cuda(cuLaunchHostFunc(stream, fill_on_host, own));
		ck_cuda(cuMemcpyHtoDAsync_v2(device, own, 2 << 20, stream));
		ck_cuda(cuMemsetD32Async(device + 8, 5 + round, 1, stream));
		ck_cuda(cuMemcpyDtoHAsync_v2(own + 1024, device, 4096, stream));
		ck_cuda(cuMemcpyHtoDAsync_v2(device, own + 1024, 4096, stream));
	}
	submitted = true;
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(own[1024], 100);
	ck_assert_uint_eq(own[1024 + 2], 6);
	ck_cuda(cuMemcpyDtoH_v2(back, device, sizeof(back)));
	ck_assert_uint_eq(back[1], 101);
	ck_assert_uint_eq(back[2], 6);
	/* And at once. */
	own[0] = 77;
	ck_cuda(cuMemcpyHtoD_v2(device, own, 4));
	own[0] = 78;
	ck_cuda(cuMemcpyDtoH_v2(own + 9, device, 4));
	ck_assert_uint_eq(own[9], 77);
	ck_cuda(cuMemHostUnregister(own));
	ck_assert_int_eq(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	free(memory);
}

/* A copy from the device would have nowhere to go. */
TEST_LOOP(memory, memory_that_cannot_be_written_is_not_registered, 0, 2)
{
	const size_t bytes = 1 << 16;
	const unsigned int flags = _i ? CU_MEMHOSTREGISTER_DEVICEMAP : 0;
	char *own = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(own, MAP_FAILED);
	driver_open();
	ck_assert_int_eq(cuMemHostRegister_v2(own, bytes, flags), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(mprotect(own, bytes / 2, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(cuMemHostRegister_v2(own, bytes, flags), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(mprotect(own, bytes, PROT_READ | PROT_WRITE), 0);
	ck_cuda(cuMemHostRegister_v2(own, bytes, flags));
	ck_cuda(cuMemHostUnregister(own));
	munmap(own, bytes);
}

/* Unless it says that the device only reads. */
TEST(memory, memory_is_registered_for_reading)
{
	const size_t bytes = 1 << 16;
	uint32_t *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr device;
	CUresult r;
	int is;

	ck_assert_ptr_ne(own, MAP_FAILED);
	driver_open();
	own[5] = 7;
	ck_assert_int_eq(mprotect(own, bytes, PROT_READ), 0);
	ck_cuda(cuDeviceGetAttribute(&is, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
	r = cuMemHostRegister_v2(own, bytes, CU_MEMHOSTREGISTER_READ_ONLY);
	if (is_native() && !is)
		return;
	ck_cuda(r);
	ck_cuda(cuMemAlloc_v2(&device, bytes));
	ck_cuda(cuMemcpyHtoDAsync_v2(device, own, bytes, NULL));
	ck_assert_uint_eq(word_at(device + 20), 7);
	if (!is_native()) /* where the driver itself writes */
		ck_assert_int_eq(cuMemcpyDtoH_v2(own, device, bytes), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemHostUnregister(own));
	munmap(own, bytes);
}

static _Atomic bool copied;

static void await_copy(void *unused)
{
	(void)unused;
	while (!copied)
		sched_yield();
}

/* A function of the program that takes its time holds up its own stream. */
TEST(memory, a_host_function_holds_no_copy_up)
{
	uint32_t *own = malloc(1 << 20), back;
	CUstream held, other;
	CUdeviceptr device;

	driver_open();
	ck_cuda(cuMemHostRegister_v2(own, 1 << 20, 0));
	own[7] = 41;
	ck_cuda(cuMemAlloc_v2(&device, 1 << 20));
	ck_cuda(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuLaunchHostFunc(held, await_copy, NULL));
	ck_cuda(cuMemcpyHtoDAsync_v2(device, own, 1 << 20, other));
	ck_cuda(cuMemcpyDtoHAsync_v2(own + 8, device + 28, 4, other));
	ck_cuda(cuStreamSynchronize(other));
	ck_assert_uint_eq(own[8], 41);
	ck_assert_int_eq(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
	copied = true;
	ck_cuda(cuStreamSynchronize(held));
	ck_cuda(cuMemcpyDtoH_v2(&back, device + 28, 4));
	ck_assert_uint_eq(back, 41);
	ck_cuda(cuMemHostUnregister(own));
	free(own);
}

TEST(memory, kernels_reach_registered_pages)
{
	size_t bytes = 8 << 20;
	uint32_t *own = aligned_alloc(1 << 16, bytes);
	CUdeviceptr seen, device;
	uint32_t by = 3;

	driver_open();
	for (size_t i = 0; i < bytes / 4; i++)
		own[i] = (uint32_t)i;
	ck_cuda(cuMemHostRegister_v2(own, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_assert_uint_eq(own[bytes / 4 - 1], bytes / 4 - 1);
	ck_cuda(cuMemHostGetDevicePointer_v2(&seen, own + 5, 0));
	ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&seen, &by}));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(own[5], 8);
	own[5] = 10;
	ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&seen, &by}));
	ck_cuda(cuMemAlloc_v2(&device, bytes));
	ck_cuda(cuMemcpyHtoDAsync_v2(device, own, bytes, NULL));
	ck_cuda(cuMemcpyDtoDAsync_v2(seen, device, 4, NULL));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(device + 20), 13);
	ck_assert_uint_eq(own[5], 0);
	ck_cuda(cuMemHostUnregister(own));
	ck_assert_uint_eq(own[6], 6);
	own[6] = 7;
	free(own);
}

/* What a child writes is seen here where the mapping is shared. */
static void count_in_child(uint32_t *word)
{
	if (fork() == 0) {
		word[0]++;
		_exit(0);
	}
	wait(NULL);
}

/* A program may free what it has registered, or move it, and say so afterwards. What it has there
 * by then stays as it is. */
TEST(memory, registered_pages_may_go_before_they_are_unregistered)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS, rights = PROT_READ | PROT_WRITE;
	uint32_t *own = mmap(NULL, 4 * MIB, rights, flags, -1, 0), *moved, *other;
	uint32_t words = MIB / 4;

	driver_open();
	for (uint32_t i = 0; i < 4 * words; i++)
		own[i] = i;
	ck_cuda(cuMemHostRegister_v2(own, 4 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	/* One part is gone, one moves, and one is what another process may see as well. */
	ck_assert_int_eq(munmap(own, MIB), 0);
	moved = mremap(own + words, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
		mmap(NULL, MIB, PROT_NONE, flags, -1, 0));
	ck_assert_ptr_ne(moved, MAP_FAILED);
	other = mmap(own + 2 * words, MIB, rights, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ck_assert_ptr_eq(other, own + 2 * words);
	other[0] = 7;
	ck_cuda(cuMemHostUnregister(own));
	count_in_child(other);
	ck_assert_uint_eq(other[0], 8);
	/* The pages that were behind them are somebody else's. */
	ck_cuda(cuMemAllocHost_v2((void **)&other, 4 * MIB));
	memset(other, 0xff, 4 * MIB);
	for (uint32_t i = 0; i < words; i++) {
		ck_assert_uint_eq(moved[i], words + i);
		ck_assert_uint_eq(own[3 * words + i], 3 * words + i);
	}
	ck_cuda(cuMemFreeHost(other));
	ck_assert_int_eq(munmap(moved, MIB) + munmap(own + 2 * words, 2 * MIB), 0);
}

/* The same where the context ends first. */
TEST(memory, registered_pages_may_go_before_their_context)
{
	const int rights = PROT_READ | PROT_WRITE;
	uint32_t *own = mmap(NULL, MIB, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUcontext context;

	driver_open();
	ck_cuda(cuCtxCreate_v2(&context, 0, 0));
	ck_cuda(cuMemHostRegister_v2(own, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_assert_ptr_eq(mmap(own, MIB, rights, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), own);
	ck_cuda(cuCtxDestroy_v2(context));
	count_in_child(own);
	ck_assert_uint_eq(own[0], 1);
	munmap(own, MIB);
}

/* ---- forked children ---- */

/* Whether this process may have all page faults of its memory. Otherwise parts of pages have no
 * device pointer. */
static bool handles_page_faults(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	return fd >= 0 && close(fd) == 0;
}

enum { PLAIN, MAPPED, ON_STACK, ALLOCATED, MEMORY_KINDS };

static uint32_t *take_memory(int kind, size_t bytes, uint32_t *stack)
{
	uint32_t *words;

	if (kind == ON_STACK) {
		words = stack;
		ck_cuda(cuMemHostRegister_v2(words, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
	} else if (kind == ALLOCATED) {
		ck_cuda(cuMemHostAlloc((void **)&words, bytes, 0));
	} else {
		words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(words, MAP_FAILED);
		ck_cuda(cuMemHostRegister_v2(
			words, bytes, kind == MAPPED ? CU_MEMHOSTREGISTER_DEVICEMAP : 0));
	}
	return words;
}

static bool is_filled(const uint32_t *words, uint32_t count, uint32_t first)
{
	for (uint32_t i = 0; i < count; i++)
		if (words[i] != first + i)
			return false;
	return true;
}

/* Loaders of batches are such children: they read what their parent has pinned, and never use the
 * device. What they write to registered memory is their own. */
TEST_LOOP(memory, a_forked_child_has_the_programs_memory, 0, MEMORY_KINDS)
{
	const uint32_t count = MIB / 4;
	uint32_t stack[MIB / 4], *words, one = 1;
	CUdeviceptr seen;
	pid_t child;

	if (_i == ON_STACK && !is_native() && !handles_page_faults())
		return;
	driver_open();
	words = take_memory(_i, MIB, stack);
	for (uint32_t i = 0; i < count; i++)
		words[i] = i;
	for (uint32_t round = 0; round < 3; round++) {
		child = fork();
		if (child == 0) {
			bool right = is_filled(words, count, round);

			if (_i != ALLOCATED)
				memset(words, 0xff, MIB);
			/* Also by the child's own. */
			if (fork() == 0)
				_exit(words[count - 1] == (_i == ALLOCATED ? round + count - 1 : UINT32_MAX)
						? 0
						: 1);
			_exit(right && wait(&(int){0}) > 0 ? 0 : 1);
		}
		/* What the parent does next is none of the child's business. */
		if (_i != ALLOCATED)
			for (uint32_t i = 0; i < count; i++)
				words[i]++;
		ck_assert_int_eq(exit_status(child), 0);
		if (_i == ALLOCATED)
			for (uint32_t i = 0; i < count; i++)
				words[i]++;
		ck_assert(is_filled(words, count, round + 1));
	}
	if (_i == PLAIN)
		return;
	ck_cuda(cuMemHostGetDevicePointer_v2(&seen, words, 0));
	ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&seen, &one}));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(words[0], 4);
	child = fork();
	if (child == 0)
		_exit(words[0] == 4 ? 0 : 1);
	ck_assert_int_eq(exit_status(child), 0);
}

/* ---- memory of every kind ---- */

/* Words that lie in the middle of a page, with others beside them. */
#define KIND_WORDS 3000u

struct beside {
	_Atomic bool over, running;
	volatile uint32_t *words; /* eight of them */
	uint32_t lost;
};

/* Writes and looks whether what was written before is still there. */
static void *write_beside(void *argument)
{
	struct beside *beside = argument;
	uint32_t value = 0;

	for (int i = 0; i < 8; i++)
		beside->words[i] = 0;
	while (!beside->over) {
		for (int i = 0; i < 8; i++) {
			beside->lost += beside->words[i] != value;
			beside->words[i] = value + 1;
		}
		value++;
		beside->running = true;
	}
	return NULL;
}

/* Registers words, lets the device count them up through its pointer, which there is with and
 * without DEVICEMAP, and copies them. */
static void count_registered(uint32_t *words, uint32_t flags)
{
	uint32_t one = 1, back;
	CUdeviceptr seen, copy;
	unsigned int type;

	words[7] = 0;
	ck_cuda(cuMemAlloc_v2(&copy, KIND_WORDS * 4));
	for (uint32_t round = 1; round <= 20; round++) {
		ck_cuda(cuMemHostRegister_v2(words, KIND_WORDS * 4, flags));
		words[7] += 10;
		ck_cuda(cuMemHostGetDevicePointer_v2(&seen, words + 7, 0));
		ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&seen, &one}));
		ck_cuda(cuMemcpyHtoDAsync_v2(copy, words, KIND_WORDS * 4, NULL));
		ck_cuda(cuMemcpyDtoHAsync_v2(words + KIND_WORDS - 1, copy + 28, 4, NULL));
		ck_cuda(cuCtxSynchronize());
		ck_assert_uint_eq(words[7], 11 * round);
		ck_assert_uint_eq(words[KIND_WORDS - 1], 11 * round);
		ck_cuda(cuPointerGetAttribute(
			&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)words));
		ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
		ck_cuda(cuMemHostUnregister(words));
		ck_assert_uint_eq(words[7], 11 * round);
	}
	ck_cuda(cuMemcpyDtoH_v2(&back, copy + 28, 4));
	ck_assert_uint_eq(back, 220);
	ck_cuda(cuMemFree_v2(copy));
}

/* The first page may be one that also has variables with initial values, which are a file's. */
#define STATIC_FIRST 1025u
static uint32_t static_words[STATIC_FIRST + KIND_WORDS + 2048];

/* Memory of the heap, of the stack and of the program itself, in parts of pages; threads write on
 * the same pages meanwhile, in front of it and inside. */
static void register_beside_writers(uint32_t *area, uint32_t flags)
{
	struct beside before = {.words = area}, inside = {.words = area + 64 + 1000};
	pthread_t threads[2];

	ck_assert_int_eq(pthread_create(&threads[0], NULL, write_beside, &before), 0);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, write_beside, &inside), 0);
	while (!before.running || !inside.running)
		sched_yield();
	count_registered(area + 64, flags);
	before.over = inside.over = true;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	ck_assert_uint_eq(before.lost + inside.lost, 0);
}

TEST(memory, memory_of_every_kind_is_registered)
{
	uint32_t *heap = malloc((KIND_WORDS + 2048) * 4), stack[KIND_WORDS + 2048];
	const uint32_t flags[] = {0, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE};

	if (!is_native() && !handles_page_faults())
		return;
	driver_open();
	for (int i = 0; i < 2; i++) {
		register_beside_writers(heap + 1, flags[i]);
		register_beside_writers(static_words + STATIC_FIRST, flags[i]);
		register_beside_writers(stack + 1, flags[i]);
	}
	free(heap);
}

/* Two buffers share a page; each is registered and unregistered while the other is. */
TEST(memory, neighbours_are_registered_and_unregistered)
{
	uint32_t *words = aligned_alloc(4096, 1 << 16), *second = words + 5000;
	CUdeviceptr device;

	driver_open();
	for (uint32_t i = 0; i < 1 << 14; i++)
		words[i] = i;
	ck_cuda(cuMemAlloc_v2(&device, 1 << 16));
	for (int round = 0; round < 10; round++) {
		ck_cuda(cuMemHostRegister_v2(words, 20000, CU_MEMHOSTREGISTER_DEVICEMAP));
		ck_cuda(cuMemHostRegister_v2(second, 20000, CU_MEMHOSTREGISTER_DEVICEMAP));
		ck_cuda(cuMemcpyHtoDAsync_v2(device, words, 20000, NULL));
		ck_cuda(cuMemHostUnregister(words));
		ck_cuda(cuMemcpyHtoDAsync_v2(device + 20000, second, 20000, NULL));
		ck_cuda(cuMemcpyDtoHAsync_v2(second, device + 20000, 20000, NULL));
		ck_cuda(cuMemHostUnregister(second));
		ck_assert_uint_eq(word_at(device + 19996), 4999);
		ck_assert_uint_eq(word_at(device + 20000), 5000);
		ck_assert(is_filled(words, 1 << 14, 0));
	}
	free(words);
}

/* Shared memory of two processes, and a file: what is copied there is what both have. */
TEST_LOOP(memory, shared_memory_is_registered, 0, 2)
{
	const unsigned int flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
	FILE *file = tmpfile();
	int fd = _i ? fileno(file) : memfd_create("shared", MFD_CLOEXEC);
	uint32_t *words;
	CUdeviceptr device;
	pid_t child;

	ck_assert_int_eq(ftruncate(fd, MIB), 0);
	words = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(words, MAP_FAILED);
	driver_open();
	ck_cuda(cuMemAlloc_v2(&device, MIB));
	ck_cuda(cuMemHostRegister_v2(words, MIB, flags));
	child = fork();
	if (child == 0) {
		for (uint32_t i = 0; i < MIB / 4; i++)
			words[i] = i + 3;
		_exit(0);
	}
	ck_assert_int_eq(exit_status(child), 0);
	ck_cuda(cuMemcpyHtoDAsync_v2(device, words, MIB, NULL));
	ck_cuda(cuMemsetD32Async(device, 9, 1, NULL));
	ck_cuda(cuMemcpyDtoHAsync_v2(words, device, MIB, NULL));
	ck_cuda(cuCtxSynchronize());
	child = fork();
	if (child == 0)
		_exit(words[0] == 9 && is_filled(words + 1, MIB / 4 - 1, 4) ? 0 : 1);
	ck_assert_int_eq(exit_status(child), 0);
	ck_cuda(cuMemHostUnregister(words));
	munmap(words, MIB);
	fclose(file);
}

#define REGISTRARS 2
static pthread_barrier_t together;
static uint32_t *wanted;

static void *register_wanted(void *ret_result)
{
	CUresult *result = ret_result;

	ck_cuda(cuCtxSetCurrent(shared_context));
	pthread_barrier_wait(&together);
	*result = cuMemHostRegister_v2(wanted, MIB, CU_MEMHOSTREGISTER_DEVICEMAP);
	return NULL;
}

/* One of the threads has registered it, the other one is told so, and the pages are those that
 * kernels see. */
TEST(memory, two_threads_register_the_same_pages)
{
	pthread_t threads[REGISTRARS];
	CUresult results[REGISTRARS];
	uint32_t by = 1;
	CUdeviceptr seen;

	driver_open();
	kernel("count_up");
	ck_cuda(cuCtxGetCurrent(&shared_context));
	wanted = aligned_alloc(1 << 16, MIB);
	pthread_barrier_init(&together, NULL, REGISTRARS);
	for (int round = 0; round < 100; round++) {
		memset(wanted, 0, MIB);
		for (int i = 0; i < REGISTRARS; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, register_wanted, &results[i]), 0);
		for (int i = 0; i < REGISTRARS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(results[0] + results[1], CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
		ck_cuda(cuMemHostGetDevicePointer_v2(&seen, wanted, 0));
		ck_cuda(launch("count_up", 1, 1, NULL, (void *[]){&seen, &by}));
		ck_cuda(cuCtxSynchronize());
		ck_assert_uint_eq(wanted[0], 1);
		ck_cuda(cuMemHostUnregister(wanted));
	}
	pthread_barrier_destroy(&together);
	free(wanted);
}

/* The device's words may be named by the program's own address, too. */
TEST(memory, streams_write_words_of_registered_pages)
{
	uint32_t *own = aligned_alloc(4096, 4096);
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)own;
	CUstream stream;

	driver_open();
	memset(own, 0, 4096);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemHostRegister_v2(own, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_cuda(cuStreamWriteValue32_v2(stream, address + 8, 7, 0));
	ck_cuda(cuStreamWaitValue32_v2(stream, address + 8, 7, CU_STREAM_WAIT_VALUE_EQ));
	ck_cuda(cuStreamWriteValue64_v2(stream, address + 16, UINT64_C(5) << 32, 0));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(own[2], 7);
	ck_assert_uint_eq(own[5], 5);
	ck_cuda(cuMemHostUnregister(own));
	free(own);
}

/* An allocation takes up more than was asked for; what it has too much is not the program's. */
TEST(memory, allocations_end_where_it_was_said_to)
{
	CUpointer_attribute type = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	CUdeviceptr memory, base;
	unsigned int told = 7;
	void *data = &told;
	size_t bytes;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 100));
	ck_cuda(cuMemGetAddressRange_v2(&base, &bytes, memory + 99));
	ck_assert_uint_eq(base, memory);
	ck_assert_uint_eq(bytes, 100);
	ck_cuda(cuPointerGetAttribute(&told, type, memory + 99));
	ck_assert_uint_eq(told, CU_MEMORYTYPE_DEVICE);
	ck_assert_int_eq(cuMemGetAddressRange_v2(&base, &bytes, memory + 200), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuPointerGetAttribute(&told, type, memory + 200), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuPointerGetAttributes(1, &type, &data, memory + 200));
	ck_assert_uint_eq(told, 0);
	ck_cuda(cuMemFree_v2(memory));
	ck_assert_int_eq(cuPointerGetAttribute(&told, type, memory), CUDA_ERROR_INVALID_VALUE);
}

/* ---- managed memory ---- */

TEST(memory, managed_memory_is_everybodys)
{
	int32_t said[2] = {7, 7}, place = 7;
	unsigned int managed = 0;
	uint64_t count = 1 << 18;
	uint32_t value = 31, *words;
	CUdeviceptr memory, device;

	driver_open();
	ck_cuda(cuMemAllocManaged(&memory, count * 4, CU_MEM_ATTACH_GLOBAL));
	words = (uint32_t *)(uintptr_t)memory;
	for (uint64_t i = 0; i < count; i++)
		words[i] = (uint32_t)i;
	ck_cuda(cuMemAlloc_v2(&device, count * 4));
	ck_cuda(cuMemcpyDtoD_v2(device, memory, count * 4));
	ck_assert_uint_eq(word_at(device + 4000), 1000);
	ck_cuda(launch("fill", 16, 64, NULL, (void *[]){&memory, &value, &count}));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(words[0], 31);
	ck_assert_uint_eq(words[count - 1], 31);
	ck_cuda(cuMemsetD32_v2(memory, 8, count));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(words[77], 8);
	ck_cuda(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory + 8));
	ck_assert_uint_eq(managed, 1);
	managed = 0;
	ck_cuda(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory + 8));
	ck_assert_uint_eq(managed & 1, 1);
	ck_cuda(cuMemAdvise_v2(memory, count * 4, CU_MEM_ADVISE_SET_READ_MOSTLY,
		(CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}));
	ck_cuda(cuMemRangeGetAttribute(
		&place, sizeof(place), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, count * 4));
	ck_assert_int_eq(place, 1);
	ck_cuda(cuMemAdvise_v2(memory, count * 4, CU_MEM_ADVISE_SET_ACCESSED_BY,
		(CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}));
	ck_cuda(cuMemRangeGetAttribute(
		said, sizeof(said), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, count * 4));
	ck_assert_int_eq(said[0], 0);
	ck_assert_int_eq(said[1], CU_DEVICE_INVALID);
	ck_assert_int_eq(cuMemPrefetchAsync_v2(
				 device, 4096, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}, 0, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemFree_v2(memory));
	ck_assert_int_eq(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

/* It is pinned host memory, in which atomic operations of one side mean nothing to the other. */
static void add_to_tally(CUlibrary library, uint32_t by)
{
	CUfunction function;
	CUkernel kernel;

	ck_cuda(cuLibraryGetKernel(&kernel, library, "tally_up"));
	ck_cuda(cuKernelGetFunction(&function, kernel));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&by}, NULL));
	ck_cuda(cuCtxSynchronize());
}

/* Program and kernels use them by one address, whichever executor serves. */
TEST(memory, managed_variables_are_everybodys)
{
	const char *path = getenv("FRMPS_TEST_MANAGED_KERNELS");
	CUdeviceptr tally, board, other;
	unsigned int managed = 0;
	uint32_t *words;
	CUlibrary library;
	size_t bytes = 0;
	void *image;

	if (!path)
		return;
	driver_open();
	image = read_file(path);
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	free(image);
	ck_cuda(cuLibraryGetManaged(&tally, &bytes, library, "tally"));
	ck_assert_uint_eq(bytes, 4);
	ck_cuda(cuLibraryGetManaged(&board, &bytes, library, "board"));
	ck_assert_uint_eq(bytes, 400);
	ck_assert_int_eq(cuLibraryGetManaged(&other, &bytes, library, "nothing"), CUDA_ERROR_NOT_FOUND);
	ck_cuda(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, tally));
	ck_assert_uint_eq(managed, 1);
	words = (uint32_t *)(uintptr_t)tally;
	ck_assert_uint_eq(*words, 1000);
	ck_assert_uint_eq(((uint32_t *)(uintptr_t)board)[1], 2);
	add_to_tally(library, 5);
	ck_assert_uint_eq(*words, 1005);
	*words = 7;
	if (!is_native())
		ck_assert(service_kill_active(&common_service));
	add_to_tally(library, 5);
	ck_assert_uint_eq(*words, 12);
	ck_assert_uint_eq(((uint32_t *)(uintptr_t)board)[99], 12);
	ck_cuda(cuLibraryUnload(library));
	ck_assert_int_eq(cuMemFree_v2(tally), CUDA_ERROR_INVALID_VALUE);
}

TEST(memory, managed_memory_promises_no_atomics)
{
	static const struct {
		int attribute, value;
	} told[] = {
		{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
		{CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
		{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
		{CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
	};
	int value;

	driver_open();
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
		ck_cuda(cuDeviceGetAttribute(&value, (CUdevice_attribute)told[i].attribute, 0));
		ck_assert_msg(value == told[i].value, "attribute %d is %d", told[i].attribute, value);
	}
	for (int i = 0; i <= CU_ATOMIC_OPERATION_FLOAT_MAX; i++) {
		CUatomicOperation operation = (CUatomicOperation)i;
		unsigned int capabilities = 7;

		ck_cuda(cuDeviceGetHostAtomicCapabilities(&capabilities, &operation, 1, 0));
		ck_assert_uint_eq(capabilities, 0);
		ck_assert_int_eq(cuDeviceGetP2PAtomicCapabilities(&capabilities, &operation, 1, 0, 0),
			CUDA_ERROR_INVALID_DEVICE);
	}
}

/* Copies of managed memory are the device's, also between two such, with pinned or registered
 * memory, and from a little ordinary memory: nobody waits for them, whoever the stream waits
 * for. */
TEST(memory, asynchronous_copies_of_managed_memory_return_at_once)
{
	static uint32_t ordinary[MIB / 4];
	uint32_t *word, *pinned, *words[2], own[4] = {7};
	CUdeviceptr memory[2];
	CUstream stream;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	word = shared_word();
	pinned = shared_word();
	for (uint32_t i = 0; i < 2; i++) {
		ck_cuda(cuMemAllocManaged(&memory[i], 4096, CU_MEM_ATTACH_GLOBAL));
		words[i] = (uint32_t *)(uintptr_t)memory[i];
		memset(words[i], 0, 4096);
	}
	words[0][1023] = 5;
	ck_cuda(cuMemHostRegister_v2(own, sizeof(own), 0));
	ck_cuda(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemcpyAsync(memory[1], memory[0], 4096, stream));
	ck_cuda(cuMemcpyAsync((CUdeviceptr)(uintptr_t)&pinned[8], memory[1] + 4092, 4, stream));
	ck_cuda(cuMemsetD32Async(memory[0], 6, 1024, stream));
	ck_cuda(cuMemcpyDtoDAsync_v2(memory[1] + 4, memory[0], 4, stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(memory[1] + 8, own, 4, stream));
	ck_cuda(cuMemcpyDtoHAsync_v2(&own[3], memory[0], 4, stream));
	own[0] = 8;
	ordinary[7] = 9;
	ck_cuda(cuMemcpyHtoDAsync_v2(memory[1] + 12, &ordinary[7], 4, stream));
	ordinary[7] = 10;
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(pinned[8], 0);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(words[1][1023], 5);
	ck_assert_uint_eq(pinned[8], 5);
	ck_assert_uint_eq(words[1][1], 6);
	ck_assert_uint_eq(words[1][2], 8);
	ck_assert_uint_eq(words[1][3], 9);
	ck_assert_uint_eq(own[3], 6);
	ck_cuda(cuMemHostUnregister(own));
	for (int i = 0; i < 2; i++)
		ck_cuda(cuMemFree_v2(memory[i]));
}

/* What lies behind the last byte in the same page belongs to nobody. In the driver's library that
 * depends on what it has given from the page. */
TEST(memory, managed_memory_ends_where_it_was_said_to)
{
	CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUdeviceptr memory, behind;
	size_t bytes = 64, first = 0;
	CUstream stream;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuMemAllocManaged(&memory, 100, CU_MEM_ATTACH_GLOBAL));
	behind = memory + 1024;
	ck_cuda(cuStreamAttachMemAsync(stream, memory, 100, CU_MEM_ATTACH_GLOBAL));
	ck_assert_int_eq(
		cuStreamAttachMemAsync(stream, behind, 64, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemDiscardBatchAsync(&behind, &bytes, 1, 0, stream), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemPrefetchBatchAsync(&behind, &bytes, 1, &device, &first, 1, 0, stream),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemFree_v2(memory));
}

/* ---- handles for other programs ---- */

/* Each is an allocation of its own, although they came in one piece of memory. */
static void look_at_opened(CUdeviceptr first, CUdeviceptr second)
{
	CUdeviceptr base;
	size_t bytes;

	ck_cuda(cuMemGetAddressRange_v2(&base, &bytes, second + 8191));
	ck_assert_uint_eq(base, second);
	ck_assert_uint_eq(bytes, 8192);
	ck_cuda(cuMemGetAddressRange_v2(&base, &bytes, first));
	ck_assert_uint_eq(base, first);
	ck_assert_uint_eq(bytes, 4096);
	ck_cuda(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, second + 100));
	ck_assert_uint_eq(base, second);
	ck_cuda(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, second + 100));
	ck_assert_uint_eq(bytes, 8192);
}

/* @has_others: it has so many addresses reserved that a service may have to look further */
static int opener(int has_others)
{
	CUdeviceptr first, second, again;
	CUipcMemHandle handles[2];

	ck_assert_int_eq(read(pair[1], handles, sizeof(handles)), sizeof(handles));
	driver_open();
	for (int i = 0; i < 4 * has_others; i++)
		ck_cuda(cuMemAddressReserve(&again, i < 3 ? 2 * GIB : 256 * GIB, 0, 0, 0));
	ck_cuda(cuIpcOpenMemHandle_v2(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuIpcOpenMemHandle_v2(&second, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuIpcOpenMemHandle_v2(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (again != first || word_at(first) != 51 || word_at(second) != 52)
		return 1;
	if (!is_native())
		look_at_opened(first, second);
	ck_cuda(cuIpcCloseMemHandle(again));
	fill_words(first, 53, 1024);
	fill_words(second + 4096, 54, 1024);
	ck_cuda(cuIpcCloseMemHandle(first));
	ck_cuda(cuIpcCloseMemHandle(second));
	if (cuIpcCloseMemHandle(second) == CUDA_SUCCESS)
		return 2;
	return 0;
}

TEST_LOOP(memory, memory_is_opened_by_handle, 0, 2)
{
	CUdeviceptr first, second;
	CUipcMemHandle handles[2];
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(opener, _i);
	driver_open();
	ck_cuda(cuMemAlloc_v2(&first, 4096));
	ck_cuda(cuMemAlloc_v2(&second, 8192));
	fill_words(first, 51, 1024);
	fill_words(second, 52, 2048);
	ck_cuda(cuIpcGetMemHandle(&handles[0], first));
	ck_cuda(cuIpcGetMemHandle(&handles[1], second));
	ck_assert_int_eq(write(pair[0], handles, sizeof(handles)), sizeof(handles));
	ck_assert_int_eq(exit_status(child), 0);
	ck_assert_uint_eq(word_at(first + 4092), 53);
	ck_assert_uint_eq(word_at(second), 52);
	ck_assert_uint_eq(word_at(second + 8188), 54);
	ck_assert_int_ne(cuIpcGetMemHandle(&handles[0], 4096), CUDA_SUCCESS);
}

/* Opens and closes each handle that it is sent, and says whether it could. */
static int opens_many(int unused)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;
	CUresult r;

	(void)unused;
	close(pair[0]);
	driver_open();
	while (read(pair[1], &handle, sizeof(handle)) == sizeof(handle)) {
		r = cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		if (r == CUDA_SUCCESS)
			ck_cuda(cuIpcCloseMemHandle(memory));
		ck_assert_int_eq(write(pair[1], &r, sizeof(r)), sizeof(r));
	}
	return 0;
}

static CUresult open_elsewhere(const CUipcMemHandle *handle)
{
	CUresult r;

	ck_assert_int_eq(write(pair[0], handle, sizeof(*handle)), sizeof(*handle));
	ck_assert_int_eq(read(pair[0], &r, sizeof(r)), sizeof(r));
	return r;
}

/* Memory of its own, and one that would be shared with other small allocations. There are none: a
 * module's variables may be some. */
TEST_LOOP(memory, a_handle_ends_with_its_memory, 0, 2)
{
	const size_t bytes = _i ? 4 << 20 : 4096;
	CUipcMemHandle handle, next;
	CUdeviceptr memory;
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(opens_many, 0);
	close(pair[1]);
	driver_attach();
	ck_cuda(cuMemAlloc_v2(&memory, bytes));
	ck_cuda(cuIpcGetMemHandle(&handle, memory));
	ck_cuda(open_elsewhere(&handle));
	ck_cuda(cuMemFree_v2(memory));
	ck_assert_int_eq(open_elsewhere(&handle), CUDA_ERROR_INVALID_VALUE);
	/* The address may be the same, but the memory is not. */
	ck_cuda(cuMemAlloc_v2(&memory, bytes));
	if (!is_native())
		ck_assert_int_eq(open_elsewhere(&handle), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuIpcGetMemHandle(&next, memory));
	ck_cuda(open_elsewhere(&next));
	ck_cuda(cuMemFree_v2(memory));
	ck_assert_int_eq(open_elsewhere(&next), CUDA_ERROR_INVALID_VALUE);
	close(pair[0]);
	ck_assert_int_eq(exit_status(child), 0);
}

static void await_opening(void *opened)
{
	while (!*(_Atomic bool *)opened)
		sched_yield();
}

static void *close_opened(void *memory)
{
	driver_attach();
	ck_cuda(cuIpcCloseMemHandle(*(CUdeviceptr *)memory));
	return NULL;
}

/* Memory is closed behind work that waits for another thread to open some. */
static int opens_beside_a_close(int unused)
{
	_Atomic bool opened = false;
	CUdeviceptr first, second, again;
	CUipcMemHandle handles[2];
	pthread_t closer;
	CUstream stream;

	(void)unused;
	ck_assert_int_eq(read(pair[1], handles, sizeof(handles)), sizeof(handles));
	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuIpcOpenMemHandle_v2(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuLaunchHostFunc(stream, await_opening, (void *)&opened));
	ck_assert_int_eq(pthread_create(&closer, NULL, close_opened, &first), 0);
	/* It has begun. */
	while (cuMemGetAddressRange_v2(NULL, NULL, first) == CUDA_SUCCESS)
		sched_yield();
	ck_cuda(cuIpcOpenMemHandle_v2(&second, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_eq(word_at(second), 52);
	/* What is being closed is opened elsewhere. */
	ck_cuda(cuIpcOpenMemHandle_v2(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_ne(again, first);
	ck_assert_uint_eq(word_at(again), 51);
	opened = true;
	pthread_join(closer, NULL);
	ck_assert_uint_eq(word_at(again), 51);
	ck_cuda(cuIpcCloseMemHandle(again));
	ck_cuda(cuIpcOpenMemHandle_v2(&first, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_eq(word_at(first), 51);
	return 0;
}

TEST(memory, closing_holds_nobody_up)
{
	CUipcMemHandle handles[2];
	CUdeviceptr memory;
	pid_t child;

	if (is_native())
		return;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(opens_beside_a_close, 0);
	driver_open();
	for (uint32_t i = 0; i < 2; i++) {
		ck_cuda(cuMemAlloc_v2(&memory, 4 * MIB));
		fill_words(memory, 51 + i, 1024);
		ck_cuda(cuIpcGetMemHandle(&handles[i], memory));
	}
	ck_assert_int_eq(write(pair[0], handles, sizeof(handles)), sizeof(handles));
	ck_assert_int_eq(exit_status(child), 0);
}

/* A reset ends what the context has opened, as it frees what it has allocated. */
static int opens_and_resets(int unused)
{
	CUipcMemHandle handle;
	CUdeviceptr memory, base;
	CUdevice device;

	(void)unused;
	driver_open();
	if (read(pair[1], &handle, sizeof(handle)) != sizeof(handle))
		return 1;
	ck_cuda(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_cuda(cuCtxGetDevice(&device));
	ck_cuda(cuDevicePrimaryCtxReset_v2(device));
	ck_cuda(cuDevicePrimaryCtxRetain(&shared_context, device));
	ck_cuda(cuCtxSetCurrent(shared_context));
	return cuMemGetAddressRange_v2(&base, NULL, memory) == CUDA_SUCCESS ? 2 : 0;
}

TEST(memory, opened_memory_goes_with_its_context)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = spawn(opens_and_resets, 0);
	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 4096));
	ck_cuda(cuIpcGetMemHandle(&handle, memory));
	ck_assert_int_eq(write(pair[0], &handle, sizeof(handle)), sizeof(handle));
	ck_assert_int_eq(exit_status(child), 0);
}

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *tests = tcase_create("memory");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "memory");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
