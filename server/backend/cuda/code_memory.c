// See code_memory.h. Addresses are taken from the beginning of a range to its end. Memory is mapped
// in granules of 2 MiB, each while something lies there or the next thing may.
//
// Ranges lie below all windows (session/window.h), where a process has nothing by itself. Windows
// begin at multiples of 256 GiB below 2^47, so there are at most 512.
//
// Copies have a stream of their own, of the highest priority, so that few kernels share its
// hardware queue. A copy without a stream would return before the bytes arrive (cuMemcpyHtoD from
// pageable memory), and a kernel on another stream would run the old bytes.

#include "server/backend/cuda/code_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/driver.h"
#include "server/grow.h"

#define GRANULE BACKEND_CHUNK_GRANULE

#define RANGES_AT    UINT64_C(0x0a0000000000)
#define RANGE_COUNT  512u
#define RANGE_BYTES  (UINT64_C(8) << 30)
#define WINDOW_SHIFT 38u
/* For code without a session's range. */
#define COMMON_AT    UINT64_C(0x040000000000)
#define COMMON_BYTES (UINT64_C(4) << 40)

#define ALIGNMENT 256u
/* After each place, so that the caches never combine code with its predecessor. */
#define APART_BYTES 4096u

#define NO_GRANULE UINT64_MAX

/* Of a session's range; places after these are given out once. 32 bytes each. */
#define GIVEN_MOST 65536u

enum given_state {
	GIVEN_NEW, /* in use; nobody has entered code there */
	GIVEN_CODE,
	GIVEN_LEFT_NEW, /* as above, and given back */
	GIVEN_LEFT_CODE,
};

/* A place in a session's range that was given out. */
struct given {
	uint64_t start, end; /* offsets */
	uint64_t code_hash;  /* GIVEN_CODE, GIVEN_LEFT_CODE */
	enum given_state state;
};

struct range {
	uint64_t at, bytes, used; /* used: offset of the first address that was not given out */
	uint64_t open;	  /* the granule where the next place begins; NO_GRANULE: none is mapped for that */
	uint16_t *places; /* by granule: number of places, plus 1 if open. 0: not mapped */
	struct given *given; /* by address; none of the common range */
	uint32_t given_count, given_room;
};

static struct {
	CUdevice device;
	CUstream copies;
	struct range common, sessions[RANGE_COUNT]; /* places NULL: not reserved */
} memory;

/* ---- granules ---- */

static CUresult map(uint64_t at)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory.device}};
	CUmemGenericAllocationHandle handle;
	CUresult code = driver.memory_create(&handle, GRANULE, &properties, 0);

	return code ? code : driver_map(at, GRANULE, handle, memory.device);
}

static void leave(struct range *range, uint64_t granule)
{
	if (!--range->places[granule])
		driver.memory_unmap(range->at + granule * GRANULE, GRANULE);
}

static CUresult enter(struct range *range, uint64_t granule)
{
	CUresult code = range->places[granule] ? CUDA_SUCCESS : map(range->at + granule * GRANULE);

	range->places[granule] += !code;
	return code;
}

/* All granules of some offsets, or none. */
static CUresult enter_all(struct range *range, uint64_t start, uint64_t end)
{
	uint64_t first = start / GRANULE, granule = first;
	CUresult code = CUDA_SUCCESS;

	while (!code && granule * GRANULE < end)
		code = enter(range, granule++);
	if (code)
		for (granule--; granule > first; granule--)
			leave(range, granule - 1);
	return code;
}

/* Code that is loaded and unloaded again and again needs no mapping each time. */
static void keep_open(struct range *range, uint64_t granule)
{
	if (range->open == granule)
		return;
	range->places[granule]++;
	if (range->open != NO_GRANULE)
		leave(range, range->open);
	range->open = granule;
}

/* ---- places ---- */

/* Return: false if there is none */
static bool open_range(struct range *range, uint64_t at, uint64_t bytes)
{
	if (range->places)
		return true;
	*range = (struct range){.at = at, .bytes = bytes, .open = NO_GRANULE};
	range->places = calloc(bytes / GRANULE, sizeof(range->places[0]));
	if (range->places && driver_reserve(at, bytes)) {
		free(range->places);
		range->places = NULL;
	}
	return range->places;
}

/* Return: where a place ends; 0: there is no room for it */
static uint64_t end_of(const struct range *range, uint64_t start, uint64_t bytes)
{
	if (start >= range->bytes || bytes > range->bytes - start ||
		range->bytes - start - bytes < APART_BYTES + ALIGNMENT)
		return 0;
	return (start + bytes + APART_BYTES + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* After everything that was given out. */
static CUresult take(struct range *range, uint64_t start, uint64_t bytes, struct code_memory *ret)
{
	uint64_t end = end_of(range, start, bytes);
	CUresult code = end && start >= range->used ? enter_all(range, start, end) : CUDA_ERROR_NOT_SUPPORTED;

	if (code)
		return code;
	keep_open(range, (end - 1) / GRANULE);
	range->used = end;
	*ret = (struct code_memory){range->at + start, end - start};
	return CUDA_SUCCESS;
}

static int compare_starts(const void *one, const void *other)
{
	const struct given *a = one, *b = other;

	return (a->start > b->start) - (a->start < b->start);
}

/* Return: NULL: no place that is known begins there */
static struct given *find_given(const struct range *range, uint64_t start)
{
	const struct given wanted = {.start = start};

	return range->given_count
		       ? bsearch(&wanted, range->given, range->given_count, sizeof(wanted), compare_starts)
		       : NULL;
}

/* If there is no memory, nobody gets the place again. */
static void note_given(struct range *range, const struct code_memory *place)
{
	uint64_t start = place->at - range->at;

	if (range->given_count == GIVEN_MOST ||
		!grow(&range->given, range->given_count, &range->given_room, sizeof(*range->given)))
		return;
	range->given[range->given_count++] =
		(struct given){.start = start, .end = start + place->bytes, .state = GIVEN_NEW};
}

/* A place that was given back. */
static CUresult take_again(struct range *range, uint64_t start, uint64_t bytes, struct code_memory *ret)
{
	struct given *given = find_given(range, start);
	CUresult code;

	if (!given || given->state < GIVEN_LEFT_NEW || given->end != end_of(range, start, bytes))
		return CUDA_ERROR_NOT_SUPPORTED;
	code = enter_all(range, start, given->end);
	if (code)
		return code;
	given->state = given->state == GIVEN_LEFT_CODE ? GIVEN_CODE : GIVEN_NEW;
	*ret = (struct code_memory){range->at + start, given->end - start};
	return CUDA_SUCCESS;
}

CUresult code_memory_take(uint64_t bytes, struct code_memory *ret)
{
	struct range *range = &memory.common;

	return open_range(range, COMMON_AT, COMMON_BYTES) ? take(range, range->used, bytes, ret)
							  : CUDA_ERROR_NOT_SUPPORTED;
}

uint64_t code_memory_range(uint64_t window)
{
	return RANGES_AT + (window >> WINDOW_SHIFT) % RANGE_COUNT * RANGE_BYTES;
}

CUresult code_memory_take_at(uint64_t window, uint64_t at, uint64_t bytes, struct code_memory *ret)
{
	struct range *range = &memory.sessions[(window >> WINDOW_SHIFT) % RANGE_COUNT];
	CUresult code;

	if (!open_range(range, code_memory_range(window), RANGE_BYTES) || (at && at < range->at) ||
		at % ALIGNMENT)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (at && at - range->at < range->used)
		return take_again(range, at - range->at, bytes, ret);
	code = take(range, at ? at - range->at : range->used, bytes, ret);
	if (!code)
		note_given(range, ret);
	return code;
}

static struct range *range_of(uint64_t at)
{
	return at < RANGES_AT ? &memory.common : &memory.sessions[(at - RANGES_AT) / RANGE_BYTES];
}

CUresult code_memory_settle(const struct code_memory *place, uint64_t code_hash)
{
	const struct range *range = range_of(place->at);
	struct given *given = place->bytes ? find_given(range, place->at - range->at) : NULL;

	if (!given)
		return CUDA_SUCCESS;
	if (given->state == GIVEN_CODE && given->code_hash != code_hash)
		return CUDA_ERROR_NOT_SUPPORTED;
	given->state = GIVEN_CODE;
	given->code_hash = code_hash;
	return CUDA_SUCCESS;
}

void code_memory_give(const struct code_memory *place)
{
	struct range *range = range_of(place->at);
	struct given *given;
	uint64_t start, end;

	if (!place->bytes)
		return;
	start = place->at - range->at;
	end = start + place->bytes;
	given = find_given(range, start);
	if (given)
		given->state = given->state == GIVEN_CODE ? GIVEN_LEFT_CODE : GIVEN_LEFT_NEW;
	for (uint64_t granule = start / GRANULE; granule * GRANULE < end; granule++)
		leave(range, granule);
}

CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count)
{
	CUresult code = driver.copy_to_device(at, bytes, count, memory.copies);

	return code ? code : driver.stream_synchronize(memory.copies);
}

CUresult code_memory_open(CUdevice device)
{
	int least, greatest;
	CUresult code = driver.context_priorities(&least, &greatest);

	memory.device = device;
	return code ? code : driver.stream_create(&memory.copies, CU_STREAM_NON_BLOCKING, greatest);
}

void code_memory_close(void)
{
	free(memory.common.places);
	for (uint32_t i = 0; i < RANGE_COUNT; i++) {
		free(memory.sessions[i].places);
		free(memory.sessions[i].given);
	}
	memset(&memory, 0, sizeof(memory));
}
