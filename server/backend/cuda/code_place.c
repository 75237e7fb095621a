// See code_place.h. Ranges lie below all windows (session/window.h), where a process has nothing by
// itself. Windows begin at multiples of 256 GiB below 2^47, so there are at most 512.

#include "server/backend/cuda/code_place.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/driver.h"

#define RANGES_AT    UINT64_C(0x0a0000000000)
#define RANGE_COUNT  512u
#define RANGE_BYTES  (UINT64_C(8) << 30)
#define WINDOW_SHIFT 38u
#define GRANULES     (RANGE_BYTES / BACKEND_CHUNK_GRANULE)
#define ALIGNMENT    256u
/* Behind each place, so that no code is kept with what lies in front of it. */
#define APART_BYTES 4096u

/* Offsets in a range. */
struct span {
	uint64_t start, end;
};

struct range {
	uint64_t used; /* below it, addresses were given out */
	struct span *taken;
	uint32_t count, room;
	uint16_t places[GRANULES]; /* that touch the granule, which is mapped if there are any */
};

static struct range *ranges[RANGE_COUNT]; /* NULL: not reserved */
static CUdevice device;

void code_place_open(CUdevice which)
{
	device = which;
}

uint64_t code_place_range(uint64_t window)
{
	return RANGES_AT + (window >> WINDOW_SHIFT) % RANGE_COUNT * RANGE_BYTES;
}

static uint32_t index_of(uint64_t at)
{
	return (uint32_t)((at - RANGES_AT) / RANGE_BYTES);
}

/* ---- mapping ---- */

static CUresult map(uint64_t at)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	const CUmemAccessDesc access = {
		.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUresult code = driver.memory_create(&handle, BACKEND_CHUNK_GRANULE, &properties, 0);

	if (code)
		return code;
	code = driver.memory_map(at, BACKEND_CHUNK_GRANULE, 0, handle, 0);
	if (!code) {
		code = driver.memory_access(at, BACKEND_CHUNK_GRANULE, &access, 1);
		if (code)
			driver.memory_unmap(at, BACKEND_CHUNK_GRANULE);
	}
	/* A mapping keeps it alive. */
	driver.memory_release(handle);
	return code;
}

static void leave(struct range *range, uint64_t base, const struct span *span)
{
	for (uint64_t i = span->start / BACKEND_CHUNK_GRANULE; i * BACKEND_CHUNK_GRANULE < span->end; i++)
		if (!--range->places[i])
			driver.memory_unmap(base + i * BACKEND_CHUNK_GRANULE, BACKEND_CHUNK_GRANULE);
}

static CUresult enter(struct range *range, uint64_t base, const struct span *span)
{
	CUresult code = CUDA_SUCCESS;
	uint64_t i = span->start / BACKEND_CHUNK_GRANULE;

	for (; !code && i * BACKEND_CHUNK_GRANULE < span->end; i++) {
		if (!range->places[i])
			code = map(base + i * BACKEND_CHUNK_GRANULE);
		range->places[i] += !code;
	}
	if (code && (i - 1) * BACKEND_CHUNK_GRANULE > span->start)
		leave(range, base, &(struct span){span->start, (i - 1) * BACKEND_CHUNK_GRANULE});
	return code;
}

/* ---- places ---- */

/* Exactly there: to the driver an address is a hint. */
static bool reserve(uint64_t base)
{
	CUdeviceptr got;

	if (driver.address_reserve(&got, RANGE_BYTES, BACKEND_CHUNK_GRANULE, base, 0))
		return false;
	if (got != base)
		driver.address_free(got, RANGE_BYTES);
	return got == base;
}

/* NULL: its addresses are not free in this process, or there is no memory. */
static struct range *range_at(uint64_t base)
{
	struct range **range = &ranges[index_of(base)];

	if (*range)
		return *range;
	*range = calloc(1, sizeof(**range));
	if (*range && !reserve(base)) {
		free(*range);
		*range = NULL;
	}
	return *range;
}

static bool has_room(struct range *range)
{
	uint32_t room = range->room * 2 + 16;
	struct span *grown;

	if (range->count < range->room)
		return true;
	grown = realloc(range->taken, room * sizeof(*grown));
	if (!grown)
		return false;
	range->taken = grown;
	range->room = room;
	return true;
}

static bool is_taken(const struct range *range, const struct span *wanted)
{
	for (uint32_t i = 0; i < range->count; i++)
		if (wanted->start < range->taken[i].end && range->taken[i].start < wanted->end)
			return true;
	return false;
}

static CUresult take(
	struct range *range, uint64_t base, const struct span *span, bool fresh, struct code_memory *ret)
{
	bool was_used = span->start < range->used;
	CUresult code;

	if (span->end > RANGE_BYTES || (was_used && (fresh || is_taken(range, span))))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!has_room(range))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = enter(range, base, span);
	if (code)
		return code;
	range->taken[range->count++] = *span;
	if (range->used < span->end)
		range->used = span->end;
	*ret = (struct code_memory){base + span->start, span->end - span->start, was_used};
	return CUDA_SUCCESS;
}

CUresult code_place_take(uint64_t window, uint64_t at, uint64_t bytes, bool fresh, struct code_memory *ret)
{
	uint64_t base = code_place_range(window);
	struct range *range;
	struct span span;

	if (!bytes || bytes > RANGE_BYTES - APART_BYTES - ALIGNMENT ||
		(at && (at < base || at - base >= RANGE_BYTES || at % ALIGNMENT)))
		return CUDA_ERROR_NOT_SUPPORTED;
	range = range_at(base);
	if (!range)
		return CUDA_ERROR_NOT_SUPPORTED;
	span.start = at ? at - base : range->used;
	span.end = (span.start + bytes + APART_BYTES + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
	return take(range, base, &span, fresh, ret);
}

void code_place_give(const struct code_memory *memory)
{
	uint64_t base;
	struct range *range;
	uint32_t i = 0;

	if (!memory->bytes)
		return;
	base = RANGES_AT + index_of(memory->at) * RANGE_BYTES;
	range = ranges[index_of(memory->at)];
	while (range->taken[i].start != memory->at - base)
		i++;
	leave(range, base, &range->taken[i]);
	range->taken[i] = range->taken[--range->count];
}

void code_place_close(void)
{
	for (uint32_t i = 0; i < RANGE_COUNT; i++) {
		if (ranges[i])
			free(ranges[i]->taken);
		free(ranges[i]);
		ranges[i] = NULL;
	}
}
