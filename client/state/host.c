// See host.h. A pool over the host part of the session's window.

#include "client/state/host.h"

#include <stdbool.h>

#include "client/link/map.h"
#include "client/state/pool.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/submit/wait.h"
#include "shm/layout.h"
#include "shm/text.h"

#define KEEP_BYTES (UINT64_C(64) << 20)
#define UNIT	   4096u

static struct host *own(void)
{
	return &session_self()->host;
}

/* The pool of a block that is used: its address is in the window of its session. */
static struct pool *pool_of(const struct heap_block *block)
{
	return &session_holding(block->address)->host.pool;
}

/* The host part of the window: the pool, pages of shared events, the ring for text of kernels. */
static uint64_t events_base(void)
{
	const struct connection *c = &session_self()->connection;
	uint64_t base = c->window_base + c->device_bytes, bytes = c->host_bytes;
	uint64_t text = shm_text_address(c->window_base, c->device_bytes, bytes);

	return (text ? text : base + bytes) - HOST_EVENTS_BYTES;
}

/* Addresses of a page: the addresses freed longest ago, because the service may have to keep pages
 * pinned for a while. HOST_EVENTS_PAGES: none is free. */
static uint64_t find_events_page(void)
{
	struct host *host = own();

	for (uint64_t i = 0; i < HOST_EVENTS_PAGES; ++i) {
		uint64_t at = host->next_events_page++ % HOST_EVENTS_PAGES;

		if (!host->is_events_page[at])
			return at;
	}
	return HOST_EVENTS_PAGES;
}

static CUresult map_events(uint64_t session, uint64_t source, uint64_t *ret_address)
{
	struct host *host = own();
	struct wire_message request = {.type = session ? WIRE_IMPORT_HOST : WIRE_MAP_HOST};
	uint64_t at = find_events_page(), address = events_base() + at * SHM_SHARED_PAGE_BYTES;
	CUresult r;

	if (at == HOST_EVENTS_PAGES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (session)
		request.import = (struct wire_import){address, SHM_SHARED_PAGE_BYTES, session, source};
	else
		request.range = (struct wire_range){
			.address = address, .bytes = SHM_SHARED_PAGE_BYTES, .flags = WIRE_HOST_EVENTS};
	r = map_host_own(&request, address, SHM_SHARED_PAGE_BYTES);
	if (r == CUDA_SUCCESS) {
		host->is_events_page[at] = true;
		*ret_address = address;
	}
	return r;
}

CUresult host_map_events(uint64_t session, uint64_t source, uint64_t *ret_address)
{
	struct host *host = own();
	CUresult r = map_events(session, source, ret_address);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && pool_spare(&host->pool) > 0) {
		pool_trim(&host->pool, 0);
		r = map_events(session, source, ret_address);
	}
	return r;
}

void host_unmap_events(uint64_t address)
{
	struct host *host = own();

	if (map_host_end(address, SHM_SHARED_PAGE_BYTES) == CUDA_SUCCESS)
		host->is_events_page[(address - events_base()) / SHM_SHARED_PAGE_BYTES] = false;
}

struct heap_chunk *host_reserve(uint64_t bytes, uint64_t *ret_address)
{
	struct host *host = own();
	struct heap_chunk *chunk = pool_reserve(&host->pool, bytes);

	if (chunk)
		*ret_address = chunk->address;
	return chunk;
}

void host_unreserve(struct heap_chunk *chunk)
{
	pool_unreserve(&session_holding(chunk->address)->host.pool, chunk);
}

/* Addresses at which something may still be mapped stay taken. */
static void end_file(const struct range *range)
{
	if (peer_remove(range->address) == CUDA_SUCCESS &&
		map_host_end(range->address, range->bytes) == CUDA_SUCCESS)
		host_unreserve(range->block);
}

static CUresult map_file(const struct range *range, const struct backing *file)
{
	struct pool *pool = &own()->pool;
	CUresult r = map_host_file(range->address, range->bytes, file);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && pool_spare(pool) > 0) {
		pool_trim(pool, 0);
		r = map_host_file(range->address, range->bytes, file);
	}
	if (r != CUDA_SUCCESS) {
		host_unreserve(range->block);
		return r;
	}
	r = peer_add(&pool->window, range->address, range->bytes, pool->audience);
	if (r != CUDA_SUCCESS)
		end_file(range);
	return r;
}

CUresult host_alloc_file(const struct backing *file, uint64_t bytes, uint64_t *ret_address)
{
	struct range range = {.bytes = bytes, .room = bytes, .kind = RANGE_FILE};
	CUresult r;

	range.block = host_reserve((bytes + HEAP_GRAIN - 1) / HEAP_GRAIN * HEAP_GRAIN, &range.address);
	if (!range.block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = map_file(&range, file);
	if (r == CUDA_SUCCESS && ranges_insert(&range) != 0) {
		end_file(&range);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r == CUDA_SUCCESS)
		*ret_address = range.address;
	return r;
}

bool host_free_file(uint64_t address)
{
	struct range range;

	if (ranges_take(address, RANGE_FILE, &range) != 0)
		return false;
	SESSION_SCOPE(range.session);
	end_file(&range);
	return true;
}

void host_start(void)
{
	struct host *host = own();
	const struct connection *c = &session_self()->connection;
	uint64_t base = c->window_base + c->device_bytes;
	struct pool *pool = &host->pool;

	pool->map = map_host;
	pool->unmap = map_host_end;
	pool->window = (struct peer_window){base, c->host_bytes, true};
	pool->audience = PEER_ALL;
	pool_init(pool, base, events_base() - base, UNIT, KEEP_BYTES);
	/* The service may have to keep freed memory pinned for a while; its addresses stay in use
	 * for as long. */
	pool->heap.onward = true;
}

CUresult host_alloc_range(struct range *range)
{
	struct host *host = own();

	return pool_alloc_range(&host->pool, range);
}

int host_export(uint64_t address, int kind, struct range *ret_range)
{
	return pool_export(&own()->pool, address, (enum range_kind)kind, ret_range);
}

void host_free_range(uint64_t address, int kind)
{
	struct range range;

	if (ranges_take(address, (enum range_kind)kind, &range) == 0)
		pool_free(pool_of(range.block), range.block);
}

void host_free_block(void *block)
{
	pool_free(pool_of(block), block);
}

CUresult host_alloc(CUcontext context, uint64_t bytes, unsigned int flags, void **ret_pointer)
{
	struct range range = {.bytes = bytes, .kind = RANGE_HOST, .flags = flags, .owner = context};
	CUresult r = host_alloc_range(&range);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_pointer = (void *)(uintptr_t)range.address;
	return CUDA_SUCCESS;
}

CUresult host_free(void *pointer)
{
	struct range range;
	CUresult r;

	if (!pointer)
		return CUDA_SUCCESS;
	if (ranges_take((uint64_t)(uintptr_t)pointer, RANGE_HOST, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	SESSION_SCOPE(range.session);
	r = wait_everywhere();
	if (process_error() == CUDA_SUCCESS)
		pool_free(pool_of(range.block), range.block);
	return r;
}

void host_release_context(CUcontext context)
{
	struct range range;

	while (ranges_take_owner(context, RANGE_HOST, &range) == 0)
		pool_free(pool_of(range.block), range.block);
}
