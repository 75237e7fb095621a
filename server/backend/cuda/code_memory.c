// See code_memory.h. Free pieces are an array that is sorted by address; neighbours of one kind are
// one piece, unless they are the driver's in two: it refuses a copy that reaches over the end of what
// it has given. Copies have a stream of their own, of the highest priority, so that hardly anybody's
// kernels share its hardware queue. A copy without a stream would return before the bytes are there
// (cuMemcpyHtoD from pageable memory), and a kernel on another stream would run what was there.

#include "server/backend/cuda/code_memory.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/driver.h"
#include "server/log.h"

#define ALIGNMENT 256u
/* Behind each piece, so that no code is kept with what lies in front of it. */
#define APART_BYTES 4096u
/* The driver gives memory in pieces of 2 MiB. */
#define EXTENT_BYTES (UINT64_C(8) << 20)
/* So much is left alone after it was code, before any is used again. */
#define REST_BYTES (UINT64_C(64) << 20)
#define MOST_BYTES (UINT64_C(1) << 30)

/* 32 GiB at least. */
#define EXTENTS_MOST 4096u

static struct {
	struct code_memory *free;
	uint32_t count, room;
	uint64_t extents[EXTENTS_MOST]; /* where each piece of the driver's begins */
	uint32_t extent_count;
	uint64_t resting; /* bytes of the free pieces that were code */
	CUstream copies;
} pool;

static bool has_room(void)
{
	uint32_t room = pool.room * 2 + 16;
	struct code_memory *grown;

	if (pool.count < pool.room)
		return true;
	grown = realloc(pool.free, room * sizeof(*grown));
	if (!grown)
		return false;
	pool.free = grown;
	pool.room = room;
	return true;
}

static void remove_at(uint32_t index)
{
	pool.count--;
	memmove(&pool.free[index], &pool.free[index + 1], (pool.count - index) * sizeof(pool.free[0]));
}

static bool begins_extent(uint64_t at)
{
	uint32_t i = 0;

	while (i < pool.extent_count && pool.extents[i] != at)
		i++;
	return i < pool.extent_count;
}

static bool joins(const struct code_memory *one, const struct code_memory *next)
{
	return one->at + one->bytes == next->at && one->was_code == next->was_code &&
	       !begins_extent(next->at);
}

/* Without memory to remember it, it is lost. */
static void put_back(const struct code_memory *piece)
{
	uint32_t at = 0;

	if (!has_room()) {
		log_warning("no memory to remember where code may lie");
		return;
	}
	while (at < pool.count && pool.free[at].at < piece->at)
		at++;
	memmove(&pool.free[at + 1], &pool.free[at], (pool.count - at) * sizeof(pool.free[0]));
	pool.free[at] = *piece;
	pool.count++;
	pool.resting += piece->was_code ? piece->bytes : 0;
	if (at + 1 < pool.count && joins(&pool.free[at], &pool.free[at + 1])) {
		pool.free[at].bytes += pool.free[at + 1].bytes;
		remove_at(at + 1);
	}
	if (at && joins(&pool.free[at - 1], &pool.free[at])) {
		pool.free[at - 1].bytes += pool.free[at].bytes;
		remove_at(at);
	}
}

static bool take_free(uint64_t bytes, bool was_code, struct code_memory *ret)
{
	uint32_t i = 0;

	while (i < pool.count && (pool.free[i].was_code != was_code || pool.free[i].bytes < bytes))
		i++;
	if (i == pool.count)
		return false;
	*ret = (struct code_memory){pool.free[i].at, bytes, was_code};
	pool.free[i].at += bytes;
	pool.free[i].bytes -= bytes;
	pool.resting -= was_code ? bytes : 0;
	if (!pool.free[i].bytes)
		remove_at(i);
	return true;
}

static CUresult grow(uint64_t bytes)
{
	struct code_memory extent = {.bytes = bytes > EXTENT_BYTES ? bytes : EXTENT_BYTES};
	CUdeviceptr at;
	CUresult code = pool.extent_count < EXTENTS_MOST ? driver.memory_allocate(&at, extent.bytes)
							 : CUDA_ERROR_OUT_OF_MEMORY;

	if (code)
		return code;
	extent.at = pool.extents[pool.extent_count++] = at;
	put_back(&extent);
	return CUDA_SUCCESS;
}

CUresult code_memory_take(uint64_t bytes, bool fresh, struct code_memory *ret)
{
	uint64_t whole = (bytes + APART_BYTES + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
	CUresult code;

	if (!bytes || bytes > MOST_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (take_free(whole, false, ret))
		return CUDA_SUCCESS;
	if (!fresh && pool.resting >= REST_BYTES && take_free(whole, true, ret))
		return CUDA_SUCCESS;
	code = grow(whole);
	if (!code && take_free(whole, false, ret))
		return CUDA_SUCCESS;
	/* Better there than nowhere. */
	if (!fresh && take_free(whole, true, ret))
		return CUDA_SUCCESS;
	return code ? code : CUDA_ERROR_OUT_OF_MEMORY;
}

void code_memory_give(const struct code_memory *memory)
{
	struct code_memory piece = *memory;

	piece.was_code = true;
	if (piece.bytes)
		put_back(&piece);
}

CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count)
{
	CUresult code = driver.copy_to_device(at, bytes, count, pool.copies);

	return code ? code : driver.stream_synchronize(pool.copies);
}

CUresult code_memory_open(void)
{
	int least, greatest;
	CUresult code = driver.context_priorities(&least, &greatest);

	return code ? code : driver.stream_create(&pool.copies, CU_STREAM_NON_BLOCKING, greatest);
}

void code_memory_close(void)
{
	free(pool.free);
	memset(&pool, 0, sizeof(pool));
}
