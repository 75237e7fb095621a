// See code_memory.h. Each search for a place begins behind the last place, so an address that was
// given back comes again as late as possible. Memory is mapped in granules of 2 MiB, each while
// something lies there or the next thing may.
//
// Ranges lie below all windows (session/window.h), where a process has nothing by itself. Windows
// begin at multiples of 256 GiB below 2^47, so there are at most 512.
//
// Copies have a stream of their own, of the highest priority, so that few kernels share its
// hardware queue. A copy without a stream would return before the bytes arrive (cuMemcpyHtoD from
// pageable memory), and a kernel on another stream would run the old bytes.

#include "server/backend/cuda/code_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/driver.h"
#include "server/grow.h"
#include "server/search.h"

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

/* So much code may go before the caches should forget it. */
#define WORN_BYTES (UINT64_C(64) << 20)
/* In a session's range: where more rest, neighbours rest as one. 40 bytes each. */
#define GIVEN_MOST 65536u

enum given_state {
	GIVEN_NEW,   /* in use; nobody has entered code there */
	GIVEN_CODE,  /* in use */
	GIVEN_RESTS, /* given back; caches may have its code */
};

/* A place that was given out. */
struct given {
	uint64_t start, end; /* offsets in the range */
	uint64_t code_hash;  /* of GIVEN_CODE and GIVEN_RESTS; 0: of several, or nobody asks for it */
	uint64_t turn;	     /* GIVEN_RESTS: turns of the caches that had begun */
	enum given_state state;
};

struct range {
	uint64_t at, bytes, next; /* next: offset behind the last place that was given out */
	uint64_t open;	  /* the granule where the next place begins; NO_GRANULE: none is mapped for that */
	uint16_t *places; /* by granule: number of places, plus 1 if open. 0: not mapped */
	struct given *given; /* by address: all that are in use or rest */
	uint32_t given_count, given_room;
};

static struct {
	CUdevice device;
	CUstream copies;
	struct range common, sessions[RANGE_COUNT]; /* places NULL: not reserved */
	uint64_t worn;	/* bytes with code that were given back since the last turn of the caches began */
	uint64_t turns; /* that have begun */
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

/* Return: index of the first place that ends behind an offset; given_count: none */
static uint32_t find_behind(const struct range *range, uint64_t offset)
{
	return search_above(
		range->given, range->given_count, sizeof(struct given), offsetof(struct given, end), offset);
}

/* Return: NULL: no place begins there */
static struct given *find_given(const struct range *range, uint64_t start)
{
	uint32_t index = find_behind(range, start);

	return index < range->given_count && range->given[index].start == start ? &range->given[index] : NULL;
}

static void forget(struct range *range, uint32_t index)
{
	range->given_count--;
	memmove(&range->given[index], &range->given[index + 1],
		(range->given_count - index) * sizeof(range->given[0]));
}

/* There would be a place, but for code that rests. */
static CUresult refuse(void)
{
	if (memory.worn < WORN_BYTES)
		memory.worn = WORN_BYTES;
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Where nothing lies or rests. */
static CUresult take(struct range *range, uint64_t start, uint64_t bytes, struct code_memory *ret)
{
	uint64_t end = end_of(range, start, bytes);
	uint32_t index = find_behind(range, start);
	CUresult code;

	if (!grow(&range->given, range->given_count, &range->given_room, sizeof(*range->given)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = enter_all(range, start, end);
	if (code)
		return code;
	keep_open(range, (end - 1) / GRANULE);
	memmove(&range->given[index + 1], &range->given[index],
		(range->given_count - index) * sizeof(range->given[0]));
	range->given[index] = (struct given){.start = start, .end = end, .state = GIVEN_NEW};
	range->given_count++;
	range->next = end;
	*ret = (struct code_memory){range->at + start, end - start};
	return CUDA_SUCCESS;
}

/* Return: the first offset with room for a place; that has no end if there is none */
static uint64_t find_room(const struct range *range, uint64_t from, uint64_t bytes)
{
	for (uint32_t i = find_behind(range, from);
		i < range->given_count && end_of(range, from, bytes) > range->given[i].start; i++)
		from = range->given[i].end;
	return from;
}

static CUresult take_any(struct range *range, uint64_t bytes, struct code_memory *ret)
{
	uint64_t start = find_room(range, range->next, bytes);

	if (!end_of(range, start, bytes))
		start = find_room(range, 0, bytes);
	return end_of(range, start, bytes) ? take(range, start, bytes, ret) : refuse();
}

/* Where nothing lies. If the same bytes rest, code_memory_settle() compares the code. */
static CUresult take_exactly(struct range *range, uint64_t start, uint64_t bytes, struct code_memory *ret)
{
	uint64_t end = end_of(range, start, bytes);
	uint32_t index = find_behind(range, start);
	struct given *given = index < range->given_count ? &range->given[index] : NULL;
	CUresult code;

	if (!end)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!given || given->start >= end)
		return take(range, start, bytes, ret);
	if (given->state != GIVEN_RESTS || given->start != start || given->end != end)
		return refuse();
	code = enter_all(range, start, end);
	if (code)
		return code;
	given->state = GIVEN_CODE;
	*ret = (struct code_memory){range->at + start, end - start};
	return CUDA_SUCCESS;
}

CUresult code_memory_take(uint64_t bytes, struct code_memory *ret)
{
	struct range *range = &memory.common;

	return open_range(range, COMMON_AT, COMMON_BYTES) ? take_any(range, bytes, ret)
							  : CUDA_ERROR_NOT_SUPPORTED;
}

uint64_t code_memory_range(uint64_t window)
{
	return RANGES_AT + (window >> WINDOW_SHIFT) % RANGE_COUNT * RANGE_BYTES;
}

CUresult code_memory_take_at(uint64_t window, uint64_t at, uint64_t bytes, struct code_memory *ret)
{
	struct range *range = &memory.sessions[(window >> WINDOW_SHIFT) % RANGE_COUNT];

	if (!open_range(range, code_memory_range(window), RANGE_BYTES) || (at && at < range->at) ||
		at % ALIGNMENT)
		return CUDA_ERROR_NOT_SUPPORTED;
	return at ? take_exactly(range, at - range->at, bytes, ret) : take_any(range, bytes, ret);
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
		return refuse();
	given->state = GIVEN_CODE;
	given->code_hash = code_hash;
	return CUDA_SUCCESS;
}

/* Makes one of two neighbours that rest for equally long. */
static void join(struct range *range, uint32_t index)
{
	struct given *one = &range->given[index], *next = one + 1;

	if (index + 1 >= range->given_count || one->state != GIVEN_RESTS || next->state != GIVEN_RESTS ||
		one->end != next->start || one->turn != next->turn)
		return;
	one->end = next->end;
	one->code_hash = 0;
	forget(range, index + 1);
}

static void rest(struct range *range, struct given *given)
{
	uint32_t index = (uint32_t)(given - range->given);

	given->state = GIVEN_RESTS;
	given->turn = memory.turns;
	memory.worn += given->end - given->start;
	if (range != &memory.common && range->given_count < GIVEN_MOST)
		return;
	join(range, index);
	if (index)
		join(range, index - 1);
}

void code_memory_give(const struct code_memory *place)
{
	struct range *range = range_of(place->at);
	struct given *given = place->bytes ? find_given(range, place->at - range->at) : NULL;

	if (!given)
		return;
	for (uint64_t granule = given->start / GRANULE; granule * GRANULE < given->end; granule++)
		leave(range, granule);
	if (given->state == GIVEN_CODE)
		rest(range, given);
	else
		forget(range, (uint32_t)(given - range->given));
}

/* ---- turns of the caches ---- */

bool code_memory_is_worn(void)
{
	return memory.worn >= WORN_BYTES;
}

void code_memory_turn(void)
{
	memory.worn = 0;
	memory.turns++;
}

static void renew(struct range *range)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < range->given_count; i++)
		if (range->given[i].state != GIVEN_RESTS || range->given[i].turn == memory.turns)
			range->given[kept++] = range->given[i];
	range->given_count = kept;
}

void code_memory_renew(void)
{
	renew(&memory.common);
	for (uint32_t i = 0; i < RANGE_COUNT; i++)
		renew(&memory.sessions[i]);
}

/* ---- the context ---- */

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
	free(memory.common.given);
	for (uint32_t i = 0; i < RANGE_COUNT; i++) {
		free(memory.sessions[i].places);
		free(memory.sessions[i].given);
	}
	memset(&memory, 0, sizeof(memory));
}
