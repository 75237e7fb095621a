// See managed.h. An allocation is a list of pieces in address order, each with its advice; advice
// splits pieces at its borders.

#include "client/state/managed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/host.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/submit/wait.h"

/* Advice and prefetches for some bytes. */
struct state {
	bool read_mostly, by_device, by_host;
	CUmemLocation preferred, prefetched;
};

struct piece {
	uint64_t start, end;
	struct state state;
	struct piece *next;
};

struct allocation {
	uint64_t address;
	struct piece *pieces;
	struct allocation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* guarded by lock */

static const struct state nothing_said = {
	.preferred = {.type = CU_MEM_LOCATION_TYPE_INVALID, .id = CU_DEVICE_INVALID},
	.prefetched = {.type = CU_MEM_LOCATION_TYPE_INVALID, .id = CU_DEVICE_INVALID},
};

static void free_allocation(struct allocation *allocation)
{
	while (allocation && allocation->pieces) {
		struct piece *piece = allocation->pieces;

		allocation->pieces = piece->next;
		free(piece);
	}
	free(allocation);
}

static struct allocation *new_allocation(const struct range *range)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));
	struct piece *piece = malloc(sizeof(*piece));

	if (!allocation || !piece) {
		free(allocation);
		free(piece);
		return NULL;
	}
	*piece = (struct piece){range->address, range->address + range->bytes, nothing_said, NULL};
	allocation->address = range->address;
	allocation->pieces = piece;
	return allocation;
}

bool managed_note(const struct range *range)
{
	struct allocation *allocation = new_allocation(range);

	if (!allocation)
		return false;
	pthread_mutex_lock(&lock);
	allocation->next = allocations;
	allocations = allocation;
	pthread_mutex_unlock(&lock);
	return true;
}

CUresult managed_alloc(CUcontext context, uint64_t bytes, unsigned int flags, CUdeviceptr *ret_address)
{
	struct range range = {.bytes = bytes, .kind = RANGE_MANAGED, .flags = flags, .owner = context};
	CUresult r = host_alloc_range(&range);

	if (r != CUDA_SUCCESS)
		return r;
	if (!managed_note(&range)) {
		host_free_range(range.address, RANGE_MANAGED);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_address = range.address;
	return CUDA_SUCCESS;
}

void managed_forget(CUdeviceptr address)
{
	struct allocation *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct allocation **link = &allocations; *link && !found;) {
		if ((*link)->address == address) {
			found = *link;
			*link = found->next;
		} else {
			link = &(*link)->next;
		}
	}
	pthread_mutex_unlock(&lock);
	free_allocation(found);
}

CUresult managed_free(CUdeviceptr address)
{
	struct range range;
	CUresult r;

	/* Removes the range from the map first: of two threads that free the same address, one gets
	 * the error. */
	if (ranges_take(address, RANGE_MANAGED, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	managed_forget(address);
	SESSION_SCOPE(range.session);
	r = wait_everywhere();
	/* After a fault the work may never end; memory that it still writes is never reused. */
	if (process_error() == CUDA_SUCCESS)
		host_free_block(range.block);
	return r;
}

void managed_release_context(CUcontext context)
{
	struct range range;

	while (ranges_take_owner(context, RANGE_MANAGED, &range) == 0) {
		managed_forget(range.address);
		host_free_block(range.block);
	}
}

bool managed_holds(uint64_t address, uint64_t bytes)
{
	struct range range;

	/* The room of a range continues behind its bytes. */
	return ranges_lookup(address, &range) == 0 && range_is_managed(&range) &&
	       address - range.address <= range.bytes && bytes <= range.bytes - (address - range.address);
}

/* ---- advice ---- */

/* Under the lock. */
static struct allocation *find(uint64_t address, uint64_t bytes)
{
	for (struct allocation *one = allocations; one; one = one->next) {
		uint64_t end = one->pieces->end;

		for (const struct piece *piece = one->pieces; piece; piece = piece->next)
			end = piece->end;
		if (address >= one->address && address < end && bytes <= end - address)
			return one;
	}
	return NULL;
}

/* Makes a border between pieces. Under the lock. */
static bool split(struct allocation *allocation, uint64_t at)
{
	for (struct piece *piece = allocation->pieces; piece; piece = piece->next) {
		struct piece *rest;

		if (at <= piece->start || at >= piece->end)
			continue;
		rest = malloc(sizeof(*rest));
		if (!rest)
			return false;
		*rest = *piece;
		rest->start = at;
		piece->end = at;
		piece->next = rest;
		return true;
	}
	return true;
}

static void apply_advice(struct state *state, CUmem_advise advice, const CUmemLocation *location)
{
	bool on = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;

	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		state->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		state->preferred = *location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		state->preferred = nothing_said.preferred;
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
			state->by_device = on;
		else
			state->by_host = on;
		break;
	}
}

/* @advice: 0 for a prefetch */
static CUresult say(uint64_t address, uint64_t bytes, int advice, const CUmemLocation *location)
{
	struct allocation *allocation;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	allocation = bytes ? find(address, bytes) : NULL;
	if (allocation)
		r = split(allocation, address) && split(allocation, address + bytes)
			    ? CUDA_SUCCESS
			    : CUDA_ERROR_OUT_OF_MEMORY;
	for (struct piece *piece = allocation ? allocation->pieces : NULL; r == CUDA_SUCCESS && piece;
		piece = piece->next) {
		if (piece->start < address || piece->end > address + bytes)
			continue;
		if (advice)
			apply_advice(&piece->state, (CUmem_advise)advice, location);
		else
			piece->state.prefetched = *location;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult managed_advise(uint64_t address, uint64_t bytes, CUmem_advise advice, const CUmemLocation *location)
{
	return say(address, bytes, (int)advice, location);
}

CUresult managed_prefetch(uint64_t address, uint64_t bytes, const CUmemLocation *location)
{
	return say(address, bytes, 0, location);
}

static bool same_place(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && a->id == b->id;
}

/* The state of all bytes of a range: the default where pieces differ. Under the lock. */
static bool sum_up(uint64_t address, uint64_t bytes, struct state *ret_state)
{
	const struct allocation *allocation = find(address, bytes);
	bool first = true;

	for (const struct piece *piece = allocation ? allocation->pieces : NULL; piece; piece = piece->next) {
		const struct state *state = &piece->state;

		if (piece->end <= address || piece->start >= address + bytes)
			continue;
		if (first)
			*ret_state = *state;
		first = false;
		ret_state->read_mostly &= state->read_mostly;
		ret_state->by_device &= state->by_device;
		ret_state->by_host &= state->by_host;
		if (!same_place(&ret_state->preferred, &state->preferred))
			ret_state->preferred = nothing_said.preferred;
		if (!same_place(&ret_state->prefetched, &state->prefetched))
			ret_state->prefetched = nothing_said.prefetched;
	}
	return !first;
}

/* A place as a number: a device, the processor, or nowhere. */
static int32_t number_of(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id;
	case CU_MEM_LOCATION_TYPE_INVALID:
		return CU_DEVICE_INVALID;
	default:
		return CU_DEVICE_CPU;
	}
}

/* The list of devices and processors with advised access, padded with invalid values. */
static void list_accessors(const struct state *state, int32_t *data, size_t count)
{
	size_t used = 0;

	if (state->by_device && used < count)
		data[used++] = session_ordinal(session_self());
	if (state->by_host && used < count)
		data[used++] = CU_DEVICE_CPU;
	while (used < count)
		data[used++] = CU_DEVICE_INVALID;
}

static CUresult answer(void *data, size_t size, CUmem_range_attribute attribute, const struct state *state)
{
	int32_t value;

	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		value = state->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		value = number_of(&state->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		value = number_of(&state->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		value = (int32_t)state->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		value = state->preferred.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		value = (int32_t)state->prefetched.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		value = state->prefetched.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		if (size == 0 || size % sizeof(value) != 0)
			return CUDA_ERROR_INVALID_VALUE;
		list_accessors(state, data, size / sizeof(value));
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (size != sizeof(value))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &value, sizeof(value));
	return CUDA_SUCCESS;
}

CUresult managed_query(
	void *data, size_t size, CUmem_range_attribute attribute, uint64_t address, uint64_t bytes)
{
	struct state state = nothing_said;
	bool known;

	pthread_mutex_lock(&lock);
	known = bytes && sum_up(address, bytes, &state);
	pthread_mutex_unlock(&lock);
	return known ? answer(data, size, attribute, &state) : CUDA_ERROR_INVALID_VALUE;
}
