// See registered.h. In a range of RANGE_REGISTERED `block` is the device address, or NULL without
// one; `plain` means that the range cannot have one.

#include "client/state/registered.h"

#include <pthread.h>

#include "client/state/backing.h"
#include "client/state/host.h"
#include "client/state/pages.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/submit/wait.h"

/* Held from the check of existing ranges until the new range is in the map: of two threads that
 * register the same pages, the second must not exchange the first thread's pages. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* Pages of a range. */
struct whole {
	uint64_t begin, bytes;
	bool parts; /* the pages also hold other data */
};

static struct whole whole_of(const struct range *range)
{
	uint64_t begin = range->address / PAGES_BYTES * PAGES_BYTES, end = range->address + range->bytes;
	uint64_t bytes = (end - begin + PAGES_BYTES - 1) / PAGES_BYTES * PAGES_BYTES;

	return (struct whole){begin, bytes, begin != range->address || bytes != range->bytes};
}

/* Exchanges pages that are the process's own. */
static CUresult share_own(const struct whole *whole, uint64_t *ret_behind)
{
	struct range behind = {.bytes = whole->bytes, .kind = RANGE_BEHIND};
	CUresult r = host_alloc_range(&behind);

	if (r != CUDA_SUCCESS)
		return r;
	r = pages_share(whole->begin, behind.address, whole->bytes, whole->parts);
	if (r == CUDA_SUCCESS)
		*ret_behind = behind.address;
	else
		host_free_range(behind.address, RANGE_BEHIND);
	return r;
}

/* Pages that others have, too, stay as they are: the service pins their file. */
static CUresult share_file(const struct whole *whole, uint64_t *ret_behind)
{
	struct backing backing;
	CUresult r = backing_find(whole->begin, whole->bytes, &backing);

	if (r != CUDA_SUCCESS)
		return r;
	r = host_alloc_file(&backing, whole->bytes, ret_behind);
	backing_end(&backing);
	/* Another thread may have closed the descriptor meanwhile, and its number be another's. */
	if (r == CUDA_SUCCESS && !backing_is_same(whole->begin, *ret_behind)) {
		host_free_file(*ret_behind);
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	return r;
}

/* Under the lock. CUDA_ERROR_NOT_SUPPORTED: the pages cannot be shared. */
static CUresult share_pages(const struct range *range, uint64_t *ret_address)
{
	struct whole whole = whole_of(range);
	struct pages_nature nature;
	uint64_t behind;
	CUresult r;

	pages_look(whole.begin, whole.bytes, &nature);
	r = nature.anonymous ? share_own(&whole, &behind)
	    : nature.shared  ? share_file(&whole, &behind)
			     : CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS)
		*ret_address = behind + (range->address - whole.begin);
	return r;
}

/* Under the lock. */
static CUresult share(const struct range *range, uint64_t *ret_address)
{
	CUresult r = range->plain ? CUDA_ERROR_NOT_SUPPORTED : share_pages(range, ret_address);

	if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_SUPPORTED)
		ranges_set_shared(range->address, r == CUDA_SUCCESS ? *ret_address : 0);
	return r;
}

CUresult registered_share(const struct range *range, uint64_t *ret_address)
{
	SESSION_SCOPE(range->session);
	CUresult r = CUDA_SUCCESS;
	struct range now;

	pthread_mutex_lock(&adding);
	if (ranges_lookup(range->address, &now) != 0 || now.id != range->id)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (now.block)
		*ret_address = registered_device_address(&now);
	else
		r = share(&now, ret_address);
	pthread_mutex_unlock(&adding);
	return r;
}

static CUresult check(const struct range *range)
{
	struct pages_nature nature;

	pages_look(range->address, range->bytes, &nature);
	return nature.readable && (nature.writable || range->flags & CU_MEMHOSTREGISTER_READ_ONLY)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

/* Memory that the driver has made, not the program. */
static bool is_known_memory(uint64_t address)
{
	struct range range;

	return ranges_lookup(address, &range) == 0 && range.kind != RANGE_REGISTERED;
}

/* Under the lock. */
static CUresult add(struct range *range)
{
	uint64_t device;
	CUresult r;
	int e;

	if (ranges_touch(range->address, range->bytes))
		return is_known_memory(range->address) ? CUDA_ERROR_INVALID_VALUE
						       : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	r = check(range);
	if (r != CUDA_SUCCESS)
		return r;
	e = ranges_insert(range);
	if (e != 0)
		return e == RANGES_E_EXISTS ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
					    : CUDA_ERROR_OUT_OF_MEMORY;
	if (!(range->flags & CU_MEMHOSTREGISTER_DEVICEMAP))
		return CUDA_SUCCESS;
	r = share(range, &device);
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_SUPPORTED)
		return CUDA_SUCCESS;
	ranges_take(range->address, RANGE_REGISTERED, range);
	return r;
}

CUresult registered_add(CUcontext context, uint64_t address, uint64_t bytes, unsigned int flags)
{
	struct range range = {.address = address,
		.bytes = bytes,
		.room = bytes,
		.kind = RANGE_REGISTERED,
		.flags = flags,
		.owner = context};
	CUresult r;

	if (address + bytes < address)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&adding);
	r = add(&range);
	pthread_mutex_unlock(&adding);
	return r;
}

/* After a failure the pages stay pinned: the program still uses these pages. */
static CUresult undo(const struct range *range)
{
	uint64_t behind = registered_device_address(range) - range->address % PAGES_BYTES;
	CUresult r;

	if (!range->block || host_free_file(behind))
		return CUDA_SUCCESS;
	r = pages_make_private(behind);
	if (r == CUDA_SUCCESS)
		host_free_range(behind, RANGE_BEHIND);
	return r;
}

CUresult registered_remove(uint64_t address)
{
	struct range range;
	CUresult r, undone;

	/* Not by an address inside. */
	if (ranges_take(address, RANGE_REGISTERED, &range) != 0)
		return ranges_lookup(address, &range) == 0 ? CUDA_ERROR_INVALID_VALUE
							   : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	SESSION_SCOPE(range.session);
	r = wait_everywhere();
	/* After a fault the work may never end; its writes go to the shared pages. */
	undone = process_error() == CUDA_SUCCESS ? undo(&range) : CUDA_SUCCESS;
	return r == CUDA_SUCCESS ? undone : r;
}

void registered_release_context(CUcontext context)
{
	struct range range;

	while (ranges_take_owner(context, RANGE_REGISTERED, &range) == 0)
		undo(&range);
}

uint64_t registered_device_address(const struct range *range)
{
	return (uint64_t)(uintptr_t)range->block;
}
