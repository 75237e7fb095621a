// See memory.h. A pool over the device part of the session's window; the map of ranges has the
// allocations. Freed memory is reused only after all work that was submitted before the free, on
// any stream, is done.

#include "client/state/memory.h"

#include "client/link/control.h"
#include "client/state/managed.h"
#include "client/state/mempool.h"
#include "client/state/peer.h"
#include "client/state/pool.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/space.h"
#include "client/submit/wait.h"

#define KEEP_BYTES (UINT64_C(64) << 20)

/* Sends a request about a range, whose Reply has only a code. */
static CUresult call_range(enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct wire_message request = {.type = type, .range = {.address = address, .bytes = bytes}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	control_answer_free(answer);
	return r;
}

static CUresult map(uint64_t address, uint64_t bytes)
{
	return call_range(WIRE_MAP_MEMORY, address, bytes);
}

static CUresult unmap(uint64_t address, uint64_t bytes)
{
	return call_range(WIRE_UNMAP_MEMORY, address, bytes);
}

void memory_start(void)
{
	const struct connection *c = &session_self()->connection;
	struct pool *pool = &session_self()->memory;
	/* The room in front of the first allocation is for the service's guard. */
	const uint64_t lead = HEAP_GRAIN;

	pool->map = map;
	pool->unmap = unmap;
	pool->window = (struct peer_window){.base = c->window_base, .bytes = c->device_bytes};
	pool->audience = PEER_OPENED;
	pool_init(
		pool, c->window_base + lead, c->device_bytes - lead - space_bytes(), MEMORY_UNIT, KEEP_BYTES);
}

/* The pool of a block that is used: its address is in the window of its session. */
static struct pool *pool_of(const void *block)
{
	return &session_holding(memory_block_address(block))->memory;
}

bool memory_give_back(void)
{
	struct pool *pool = &session_self()->memory;
	bool any = mempool_release();

	any = pool_spare(pool) > 0 || any;
	pool_trim(pool, 0);
	return any;
}

CUresult memory_alloc_range(struct range *range)
{
	struct pool *pool = &session_self()->memory;
	CUresult r = pool_alloc_range(pool, range);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && mempool_squeeze())
		r = pool_alloc_range(pool, range);
	return r;
}

CUresult memory_alloc_block(uint64_t bytes, void **ret_block)
{
	struct pool *pool = &session_self()->memory;
	struct heap_block *block;
	CUresult r = pool_alloc(pool, bytes, &block);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && mempool_squeeze())
		r = pool_alloc(pool, bytes, &block);
	if (r == CUDA_SUCCESS)
		*ret_block = block;
	return r;
}

void memory_free_block(void *block)
{
	pool_free(pool_of(block), block);
}

uint64_t memory_block_address(const void *block)
{
	return ((const struct heap_block *)block)->address;
}

CUresult memory_alloc(CUcontext context, uint64_t bytes, CUdeviceptr *ret_address)
{
	struct range range = {.bytes = bytes, .kind = RANGE_DEVICE, .owner = context};
	CUresult r;

	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = memory_alloc_range(&range);
	if (r != CUDA_SUCCESS)
		return r;
	*ret_address = range.address;
	return CUDA_SUCCESS;
}

CUresult memory_free_behind_all(CUdeviceptr address, CUresult (*give_back)(CUdeviceptr address))
{
	CUresult r = peer_wait(address);

	if (process_error() == CUDA_SUCCESS) {
		CUresult freed = give_back(address);

		r = r == CUDA_SUCCESS ? freed : r;
	}
	return r;
}

/* Memory of a pool may be freed like any other, after all work; managed memory must be. */
static CUresult free_other(CUdeviceptr address)
{
	struct range range;

	if (ranges_lookup(address, &range) != 0 || range.address != address)
		return CUDA_ERROR_INVALID_VALUE;
	if (range.kind == RANGE_MANAGED)
		return managed_free(address);
	if (!range_is_of_pool(&range))
		return CUDA_ERROR_INVALID_VALUE;
	return memory_free_behind_all(address, mempool_free_done);
}

CUresult memory_free(CUdeviceptr address)
{
	struct range range;
	CUresult r;

	if (address == 0)
		return CUDA_SUCCESS;
	/* Removes the range from the map first: of two threads that free the same address, one gets
	 * the error. */
	if (ranges_take(address, RANGE_DEVICE, &range) != 0)
		return free_other(address);
	r = peer_wait(address);
	/* After a fault the work may never end; memory that it still writes is never reused. */
	if (process_error() == CUDA_SUCCESS)
		pool_free(pool_of(range.block), range.block);
	return r;
}

void memory_release_context(CUcontext context)
{
	struct range range;

	while (ranges_take_owner(context, RANGE_DEVICE, &range) == 0)
		pool_free(pool_of(range.block), range.block);
}

int memory_export(CUdeviceptr address, enum range_kind kind, struct range *ret_range)
{
	return pool_export(&session_self()->memory, address, kind, ret_range);
}

CUresult memory_info(size_t *ret_free, size_t *ret_total)
{
	struct wire_message request = {.type = WIRE_QUERY_MEMORY};
	struct control_answer *answer = control_answer_new();
	CUresult r;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = control_call(&request, answer);
	if (r == CUDA_SUCCESS && answer->message.reply.values.count != 2)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS) {
		*ret_free = answer->message.reply.values.at[0] + pool_spare(&session_self()->memory);
		*ret_total = answer->message.reply.values.at[1];
	}
	control_answer_free(answer);
	return r;
}
