// See pool.h. Runs on the program's threads.

#include "client/state/pool.h"

#include "client/state/session.h"

void pool_init(struct pool *pool, uint64_t base, uint64_t bytes, uint64_t unit, uint64_t keep)
{
	pool->session = session_self();
	pthread_mutex_init(&pool->lock, NULL);
	heap_init(&pool->heap, base, bytes, unit);
	pool->keep = keep;
}

static CUresult map(const struct pool *pool, const struct heap_chunk *chunk)
{
	CUresult r = pool->map(chunk->address, chunk->bytes);

	if (r != CUDA_SUCCESS)
		return r;
	r = peer_add(&pool->window, chunk->address, chunk->bytes, pool->audience);
	/* Memory that another session may still have stays. */
	if (r != CUDA_SUCCESS && peer_remove(chunk->address) == CUDA_SUCCESS)
		pool->unmap(chunk->address, chunk->bytes);
	return r;
}

/* CUDA_ERROR_OUT_OF_MEMORY: nothing has changed. */
static CUresult unmap(const struct pool *pool, const struct heap_chunk *chunk)
{
	CUresult r;

	if (peer_remove(chunk->address) != CUDA_SUCCESS)
		return CUDA_ERROR_UNKNOWN;
	r = pool->unmap(chunk->address, chunk->bytes);
	if (r == CUDA_ERROR_OUT_OF_MEMORY &&
		peer_add(&pool->window, chunk->address, chunk->bytes, pool->audience) != CUDA_SUCCESS)
		r = CUDA_ERROR_UNKNOWN;
	return r;
}

/* Makes a chunk for a request and allocates from it. */
static CUresult grow(struct pool *pool, uint64_t bytes, bool modest, struct heap_block **ret_block)
{
	SESSION_SCOPE(pool->session);
	struct heap_chunk *chunk;
	CUresult r;
	int e;

	pthread_mutex_lock(&pool->lock);
	e = heap_reserve(&pool->heap, bytes, modest, &chunk);
	pthread_mutex_unlock(&pool->lock);
	if (e != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = map(pool, chunk);
	pthread_mutex_lock(&pool->lock);
	if (r == CUDA_SUCCESS)
		*ret_block = heap_adopt(&pool->heap, chunk);
	else
		heap_forget(&pool->heap, chunk);
	pthread_mutex_unlock(&pool->lock);
	return r;
}

struct heap_chunk *pool_reserve(struct pool *pool, uint64_t bytes)
{
	struct heap_chunk *chunk;
	int e;

	pthread_mutex_lock(&pool->lock);
	e = heap_reserve(&pool->heap, bytes, true, &chunk);
	pthread_mutex_unlock(&pool->lock);
	return e == 0 ? chunk : NULL;
}

void pool_unreserve(struct pool *pool, struct heap_chunk *chunk)
{
	pthread_mutex_lock(&pool->lock);
	heap_forget(&pool->heap, chunk);
	pthread_mutex_unlock(&pool->lock);
}

static int try_alloc(struct pool *pool, uint64_t bytes, struct heap_block **ret_block)
{
	int e;

	pthread_mutex_lock(&pool->lock);
	e = heap_alloc(&pool->heap, bytes, ret_block);
	pthread_mutex_unlock(&pool->lock);
	return e;
}

CUresult pool_alloc(struct pool *pool, uint64_t bytes, struct heap_block **ret_block)
{
	CUresult r;
	int e = try_alloc(pool, bytes, ret_block);

	if (e != HEAP_E_FULL)
		return e == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	r = grow(pool, bytes, false, ret_block);
	if (r != CUDA_ERROR_OUT_OF_MEMORY)
		return r;
	pool_trim(pool, 0);
	return grow(pool, bytes, true, ret_block);
}

/* Unmaps a withdrawn chunk. CUDA_ERROR_OUT_OF_MEMORY: the chunk is spare again. */
static CUresult give_back(struct pool *pool, struct heap_chunk *chunk)
{
	SESSION_SCOPE(pool->session);
	CUresult r = unmap(pool, chunk);

	pthread_mutex_lock(&pool->lock);
	/* A chunk that the service could not unmap stays reserved for ever: its addresses must not
	 * be reused. Without memory for the request nothing has changed. */
	if (r == CUDA_SUCCESS)
		heap_forget(&pool->heap, chunk);
	else if (r == CUDA_ERROR_OUT_OF_MEMORY)
		heap_put_back(&pool->heap, chunk);
	pthread_mutex_unlock(&pool->lock);
	return r;
}

void pool_trim(struct pool *pool, uint64_t keep)
{
	struct heap_chunk *chunk;

	do {
		pthread_mutex_lock(&pool->lock);
		chunk = heap_excess(&pool->heap, keep);
		pthread_mutex_unlock(&pool->lock);
	} while (chunk && give_back(pool, chunk) != CUDA_ERROR_OUT_OF_MEMORY);
}

void pool_free(struct pool *pool, struct heap_block *block)
{
	struct heap_chunk *chunk = block->chunk;
	bool is_over;

	pthread_mutex_lock(&pool->lock);
	heap_free(&pool->heap, block);
	is_over = chunk->exported && heap_withdraw(&pool->heap, chunk);
	pthread_mutex_unlock(&pool->lock);
	if (is_over)
		give_back(pool, chunk);
	pool_trim(pool, pool->keep);
}

int pool_export(struct pool *pool, uint64_t address, enum range_kind kind, struct range *ret_range)
{
	int e;

	/* Under the lock, because another thread may free the allocation, which first removes it
	 * from the map. */
	pthread_mutex_lock(&pool->lock);
	e = ranges_lookup(address, ret_range);
	if (e == 0 && ret_range->kind != kind)
		e = RANGES_E_NONE;
	if (e == 0)
		((struct heap_block *)ret_range->block)->chunk->exported = true;
	pthread_mutex_unlock(&pool->lock);
	return e;
}

uint64_t pool_spare(struct pool *pool)
{
	uint64_t bytes;

	pthread_mutex_lock(&pool->lock);
	bytes = pool->heap.spare_bytes;
	pthread_mutex_unlock(&pool->lock);
	return bytes;
}

CUresult pool_alloc_range(struct pool *pool, struct range *range)
{
	struct heap_block *block;
	CUresult r = pool_alloc(pool, range->bytes, &block);

	if (r != CUDA_SUCCESS)
		return r;
	range->address = block->address;
	range->room = block->bytes;
	range->block = block;
	if (ranges_insert(range) != 0) {
		pool_free(pool, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}
