// See mempool.h. A single lock for all pools; no thread asks for memory, or returns any, under it.
//
// The point of a free is a command in the stream without an effect: so all commands that precede
// the free by the driver's rules, the default stream's included, are in front of it.

#include "client/state/mempool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "client/state/device.h"
#include "client/state/host.h"
#include "client/state/managed.h"
#include "client/state/memory.h"
#include "client/state/peer.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "shm/order.h"

/* A cached block may exceed a request by 1/WASTE of the block. */
#define WASTE 8

/* Freed memory that still belongs to the pool. */
struct cached {
	TAILQ_ENTRY(cached) link;
	struct client_stream *stream; /* NULL: no work uses the block any more */
	uint64_t seq;		      /* the point of the free */
	uint64_t bytes;
	uint64_t asked; /* of the latest allocation */
	void *block;
	enum mempool_place place;
};

TAILQ_HEAD(cached_list, cached);

static const enum range_kind kinds[MEMPOOL_PLACES] = {[MEMPOOL_DEVICE] = RANGE_POOL,
	[MEMPOOL_HOST] = RANGE_POOL_HOST,
	[MEMPOOL_MANAGED] = RANGE_POOL_MANAGED};

struct mempool {
	LIST_ENTRY(mempool) link;
	struct session *session;
	CUmemLocation location;
	enum mempool_place place; /* by the location */
	bool destroyed;		  /* freed with its last allocation */
	uint64_t peers;		  /* by ordinal: devices that the program has given access */
	int reuse_flags[3];
	uint64_t threshold, most;
	uint64_t used, cached_bytes, reserved_high; /* of blocks */
	uint64_t asked, asked_high;		    /* as programs count: without what blocks have more */
	uint64_t coming;			    /* bytes of allocations in progress */
	uint32_t allocations;
	uint32_t visitors;	   /* calls in progress */
	struct cached_list cached; /* oldest first */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, mempool) pools = LIST_HEAD_INITIALIZER(pools); /* guarded by lock */
static word64 cached_total; /* bytes, in all pools; read without the lock as a hint */

static struct mempools *own(void)
{
	return &session_self()->mempools;
}

/* ---- pools ---- */

static struct mempool *new_pool(const CUmemLocation *location, enum mempool_place place, uint64_t most)
{
	struct mempool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	for (int i = 0; i < 3; ++i)
		pool->reuse_flags[i] = 1;
	pool->session = session_self();
	pool->location = *location;
	pool->place = place;
	pool->most = most;
	TAILQ_INIT(&pool->cached);
	LIST_INSERT_HEAD(&pools, pool, link);
	return pool;
}

CUresult mempool_create(
	const CUmemLocation *location, enum mempool_place place, uint64_t most, struct mempool **ret_pool)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = new_pool(location, place, most);
	pthread_mutex_unlock(&lock);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

/* Of the thread's session. Under the lock. */
static struct mempool *new_standard(enum mempool_place place)
{
	const CUmemLocation locations[MEMPOOL_PLACES] = {
		[MEMPOOL_DEVICE] = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_own()},
		[MEMPOOL_HOST] = {.type = CU_MEM_LOCATION_TYPE_HOST},
		[MEMPOOL_MANAGED] = {.type = CU_MEM_LOCATION_TYPE_INVALID}};

	return new_pool(&locations[place], place, 0);
}

/* Under the lock. */
static struct mempool *find_default(enum mempool_place place)
{
	struct mempool **standard = &own()->standard[place];

	if (!*standard)
		*standard = new_standard(place);
	return *standard;
}

struct mempool *mempool_default(enum mempool_place place)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find_default(place);
	pthread_mutex_unlock(&lock);
	return pool;
}

/* Under the lock. */
static struct mempool *find_current(enum mempool_place place)
{
	return own()->current[place] ? own()->current[place] : find_default(place);
}

struct mempool *mempool_current(enum mempool_place place)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find_current(place);
	pthread_mutex_unlock(&lock);
	return pool;
}

/* Under the lock. */
static struct mempool *find(CUmemoryPool handle)
{
	struct mempool *pool;

	LIST_FOREACH (pool, &pools, link)
		if (mempool_handle(pool) == handle && !pool->destroyed)
			break;
	return pool;
}

bool mempool_is(CUmemoryPool handle)
{
	const struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	pthread_mutex_unlock(&lock);
	return pool;
}

bool mempool_is_host(CUmemoryPool handle)
{
	const struct mempool *pool;
	bool is;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	is = pool && pool->place != MEMPOOL_DEVICE;
	pthread_mutex_unlock(&lock);
	return is;
}

bool mempool_location(CUmemoryPool handle, CUmemLocation *ret_location)
{
	const struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool)
		*ret_location = pool->location;
	pthread_mutex_unlock(&lock);
	return pool;
}

CUresult mempool_set_current(enum mempool_place place, CUmemoryPool handle)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && (pool->session != session_self() || pool->place != place))
		pool = NULL;
	if (pool)
		own()->current[place] = pool;
	pthread_mutex_unlock(&lock);
	return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUmemoryPool mempool_handle(const struct mempool *pool)
{
	return (CUmemoryPool)(uintptr_t)pool;
}

/* ---- freeing ---- */

static bool is_done(const struct cached *cached)
{
	return !cached->stream || wait_is_done(cached->stream, cached->seq);
}

static void take_out(struct mempool *pool, struct cached *cached)
{
	TAILQ_REMOVE(&pool->cached, cached, link);
	pool->cached_bytes -= cached->bytes;
	word_set(&cached_total, word_relaxed(&cached_total) - cached->bytes);
}

/* Takes out blocks that are done until the pool has at most `most` bytes; leaves the pool at least
 * `least`. Under the lock. */
static void collect(struct mempool *pool, uint64_t most, uint64_t least, struct cached_list *ret_list)
{
	struct cached *cached = TAILQ_FIRST(&pool->cached), *next;

	for (; cached && pool->used + pool->cached_bytes > most; cached = next) {
		next = TAILQ_NEXT(cached, link);
		if (pool->used + pool->cached_bytes - cached->bytes < least || !is_done(cached))
			continue;
		take_out(pool, cached);
		TAILQ_INSERT_TAIL(ret_list, cached, link);
	}
}

/* Without the lock. Return: true if there was any block. */
static bool give_back(struct cached_list *list)
{
	struct cached *cached;
	bool any = !TAILQ_EMPTY(list);

	while ((cached = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, cached, link);
		if (cached->place == MEMPOOL_DEVICE)
			memory_free_block(cached->block);
		else
			host_free_block(cached->block);
		free(cached);
	}
	return any;
}

/* Frees a destroyed pool without memory. Under the lock. */
static void retire(struct mempool *pool)
{
	if (!pool->destroyed || pool->visitors || pool->allocations || !TAILQ_EMPTY(&pool->cached))
		return;
	LIST_REMOVE(pool, link);
	free(pool);
}

/* Of the thread's session. */
static void settle_all(bool everything, struct cached_list *ret_list)
{
	struct mempool *pool, *next;

	pthread_mutex_lock(&lock);
	for (pool = LIST_FIRST(&pools); pool; pool = next) {
		next = LIST_NEXT(pool, link);
		if (pool->session != session_self())
			continue;
		collect(pool, everything || pool->destroyed ? 0 : pool->threshold, 0, ret_list);
		retire(pool);
	}
	pthread_mutex_unlock(&lock);
}

void mempool_settle(void)
{
	struct cached_list list = TAILQ_HEAD_INITIALIZER(list);

	if (!word_relaxed(&cached_total))
		return;
	settle_all(false, &list);
	give_back(&list);
}

bool mempool_release(void)
{
	struct cached_list list = TAILQ_HEAD_INITIALIZER(list);

	settle_all(true, &list);
	return give_back(&list);
}

bool mempool_squeeze(void)
{
	if (!word_relaxed(&cached_total) || wait_all_quietly() != CUDA_SUCCESS)
		return false;
	return mempool_release();
}

CUresult mempool_trim(CUmemoryPool handle, uint64_t keep)
{
	struct cached_list list = TAILQ_HEAD_INITIALIZER(list);
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool)
		collect(pool, keep, keep, &list);
	pthread_mutex_unlock(&lock);
	give_back(&list);
	return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult mempool_destroy(CUmemoryPool handle)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && pool == pool->session->mempools.standard[pool->place])
		pool = NULL;
	if (pool) {
		struct mempool **current = &pool->session->mempools.current[pool->place];

		pool->destroyed = true;
		*current = *current == pool ? NULL : *current;
		retire(pool);
	}
	pthread_mutex_unlock(&lock);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	mempool_settle();
	return CUDA_SUCCESS;
}

/* ---- allocations ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* An allocation begins. Under the lock. */
static void count(struct mempool *pool, uint64_t bytes, uint64_t asked)
{
	pool->allocations++;
	pool->used += bytes;
	pool->asked += asked;
	pool->asked_high = larger(pool->asked_high, pool->asked);
	pool->reserved_high = larger(pool->reserved_high, pool->used + pool->cached_bytes);
}

/* True if the stream may use a cached block. Under the lock. */
typedef bool may_fn(
	const struct mempool *pool, const struct cached *cached, const struct client_stream *stream);

static bool may_use(
	const struct mempool *pool, const struct cached *cached, const struct client_stream *stream)
{
	if (!cached->stream || cached->stream == stream)
		return true;
	return pool->reuse_flags[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC - 1] && is_done(cached);
}

/* As may_use(), if the stream waits for the point of the free. */
static bool may_borrow(
	const struct mempool *pool, const struct cached *cached, const struct client_stream *stream)
{
	return may_use(pool, cached, stream) ||
	       (cached->stream->session == stream->session &&
		       pool->reuse_flags[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES - 1]);
}

static struct cached *reuse(
	struct mempool *pool, uint64_t bytes, const struct client_stream *stream, may_fn *may)
{
	struct cached *cached;

	pthread_mutex_lock(&lock);
	TAILQ_FOREACH (cached, &pool->cached, link)
		if (cached->bytes >= bytes && cached->bytes - bytes <= cached->bytes / WASTE + MEMORY_UNIT &&
			may(pool, cached, stream))
			break;
	if (cached) {
		take_out(pool, cached);
		cached->asked = bytes;
		count(pool, cached->bytes, bytes);
	}
	pthread_mutex_unlock(&lock);
	return cached;
}

/* Puts the memory of a freed allocation into the pool's cache. */
static void shelve(struct mempool *pool, struct cached *cached)
{
	pthread_mutex_lock(&lock);
	pool->allocations--;
	pool->used -= cached->bytes;
	pool->asked -= cached->asked;
	pool->cached_bytes += cached->bytes;
	word_set(&cached_total, word_relaxed(&cached_total) + cached->bytes);
	TAILQ_INSERT_TAIL(&pool->cached, cached, link);
	pthread_mutex_unlock(&lock);
}

/* Submits a command that waits for a command of some stream. */
static CUresult wait_behind(
	struct client_stream *stream, const struct client_stream *other, uint64_t seq, uint64_t *ret_seq)
{
	struct submit submit;
	CUresult r = submit_begin(stream, FRMPS_OP_DEPEND, sizeof(struct frmps_depend), &submit);

	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_depend *)submit.body =
		(struct frmps_depend){.seq = other == stream ? submit.seq - 1 : seq,
			.stream = other->slot,
			.event = FRMPS_NO_EVENT};
	*ret_seq = submit.seq;
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

CUresult mempool_point(struct client_stream *stream, uint64_t *ret_seq)
{
	return wait_behind(stream, stream, 0, ret_seq);
}

/* *ret_cached: NULL if there is none. */
static CUresult borrow(
	struct mempool *pool, uint64_t bytes, struct client_stream *stream, struct cached **ret_cached)
{
	struct cached *cached = reuse(pool, bytes, stream, may_borrow);
	CUresult r = CUDA_SUCCESS;
	uint64_t seq;

	if (cached && cached->stream && cached->stream != stream)
		r = wait_behind(stream, cached->stream, cached->seq, &seq);
	if (r != CUDA_SUCCESS)
		shelve(pool, cached);
	else
		*ret_cached = cached;
	return r;
}

/* Counts new memory from here on, so that other threads see it. Frees cached memory to make room.
 * Return: false if the pool would exceed its limit. */
static bool begin_new(struct mempool *pool, uint64_t bytes)
{
	struct cached_list list = TAILQ_HEAD_INITIALIZER(list);
	uint64_t most = pool->most ? pool->most : UINT64_MAX, more;
	bool fits;

	pthread_mutex_lock(&lock);
	more = pool->coming + bytes;
	fits = more <= most;
	if (fits)
		collect(pool, most - more, 0, &list);
	fits = fits && pool->used + pool->cached_bytes <= most - more;
	pool->coming += fits ? bytes : 0;
	pthread_mutex_unlock(&lock);
	give_back(&list);
	return fits;
}

/* Under no lock. */
static CUresult make(struct mempool *pool, struct range *range)
{
	CUresult r = pool->place == MEMPOOL_DEVICE ? memory_alloc_range(range) : host_alloc_range(range);

	pthread_mutex_lock(&lock);
	pool->coming -= range->bytes;
	if (r == CUDA_SUCCESS)
		count(pool, range->room, range->bytes);
	pthread_mutex_unlock(&lock);
	return r;
}

static bool is_too_much(const struct mempool *pool, uint64_t bytes)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = pool->most && (pool->used > pool->most || bytes > pool->most - pool->used);
	pthread_mutex_unlock(&lock);
	return is;
}

/* A cached block, or the begin of a new one. A full pool lends a block that another stream still
 * uses, or else the program waits for room. */
static CUresult find_room(
	struct mempool *pool, uint64_t bytes, struct client_stream *stream, struct cached **ret_cached)
{
	CUresult r;

	if (is_too_much(pool, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_cached = reuse(pool, bytes, stream, may_use);
	if (*ret_cached || begin_new(pool, bytes))
		return CUDA_SUCCESS;
	r = borrow(pool, bytes, stream, ret_cached);
	if (r != CUDA_SUCCESS || *ret_cached)
		return r;
	r = wait_all_quietly();
	if (r != CUDA_SUCCESS)
		return r;
	return begin_new(pool, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult find_memory(struct mempool *pool, struct client_stream *stream, struct range *range)
{
	struct cached *cached;
	CUresult r = find_room(pool, range->bytes, stream, &cached);

	if (r != CUDA_SUCCESS)
		return r;
	if (!cached)
		return make(pool, range);
	range->block = cached->block;
	range->room = cached->bytes;
	range->address = memory_block_address(cached->block);
	free(cached);
	/* The range was in the map a moment ago, so there is room for it. */
	return ranges_insert(range) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc(
	struct mempool *pool, uint64_t bytes, struct client_stream *stream, CUdeviceptr *ret_address)
{
	struct range range = {.bytes = bytes, .kind = kinds[pool->place], .owner = pool};
	CUresult r = find_memory(pool, stream, &range);

	if (r != CUDA_SUCCESS)
		return r;
	if (pool->place == MEMPOOL_MANAGED && !managed_note(&range)) {
		mempool_free(range.address, stream);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_address = range.address;
	return CUDA_SUCCESS;
}

/* The pool stays until leave(), even if another thread destroys it. */
static struct mempool *visit(CUmemoryPool handle)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	pool = handle ? find(handle) : find_current(MEMPOOL_DEVICE);
	if (pool)
		pool->visitors++;
	pthread_mutex_unlock(&lock);
	return pool;
}

static void leave(struct mempool *pool)
{
	pthread_mutex_lock(&lock);
	pool->visitors--;
	retire(pool);
	pthread_mutex_unlock(&lock);
}

CUresult mempool_alloc(
	CUmemoryPool handle, uint64_t bytes, struct client_stream *stream, CUdeviceptr *ret_address)
{
	struct mempool *pool = visit(handle);
	CUresult r;

	if (!pool)
		return handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	/* Another device has no access to the pool. */
	r = pool->session == stream->session ? alloc(pool, bytes, stream, ret_address)
					     : CUDA_ERROR_INVALID_VALUE;
	leave(pool);
	return r;
}

/* The pool that counts some memory. NULL without memory. */
static struct mempool *pool_of(const struct range *range)
{
	struct mempool *pool;

	if (range_is_of_pool(range))
		return range->owner;
	pthread_mutex_lock(&lock);
	if (!own()->others)
		own()->others = new_standard(MEMPOOL_DEVICE);
	pool = own()->others;
	if (pool)
		count(pool, range->room, range->bytes);
	pthread_mutex_unlock(&lock);
	return pool;
}

static CUresult keep(const struct range *range, struct client_stream *stream, uint64_t seq)
{
	struct cached *cached = malloc(sizeof(*cached));
	struct mempool *pool = cached ? pool_of(range) : NULL;

	/* Without a record the memory is lost to the program, which is short of memory anyway. */
	if (!pool) {
		free(cached);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*cached = (struct cached){.stream = stream,
		.seq = seq,
		.bytes = range->room,
		.asked = range->bytes,
		.block = range->block,
		.place = pool->place};
	shelve(pool, cached);
	return CUDA_SUCCESS;
}

/* Takes memory of a pool out of the map. 0 or RANGES_E_NONE. */
static int take(CUdeviceptr address, struct range *ret_range)
{
	for (int place = 0; place < MEMPOOL_PLACES; place++)
		if (ranges_take(address, kinds[place], ret_range) == 0) {
			if (place == MEMPOOL_MANAGED)
				managed_forget(address);
			return 0;
		}
	return RANGES_E_NONE;
}

/* Memory of another session than the stream's: no command there can be its point. */
static CUresult free_elsewhere(CUdeviceptr address, struct session *session, struct client_stream *stream)
{
	CUresult r = wait_stream(stream);
	SESSION_SCOPE(session);

	return r == CUDA_SUCCESS ? memory_free(address) : r;
}

CUresult mempool_free(CUdeviceptr address, struct client_stream *stream)
{
	struct range range;
	uint64_t seq;
	CUresult r;

	if (ranges_lookup(address, &range) == 0 && range.session != stream->session)
		return free_elsewhere(address, range.session, stream);
	/* Removes the range from the map first: of two threads that free the same address, one gets
	 * the error. */
	if (take(address, &range) != 0 && ranges_take(address, RANGE_DEVICE, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = mempool_point(stream, &seq);
	if (r != CUDA_SUCCESS) {
		ranges_insert(&range);
		return r;
	}
	return keep(&range, stream, seq);
}

void mempool_free_behind(CUdeviceptr address, struct client_stream *stream, uint64_t seq)
{
	struct range range;

	if (ranges_take(address, RANGE_DEVICE, &range) == 0)
		keep(&range, stream, seq);
}

CUresult mempool_free_done(CUdeviceptr address)
{
	struct range range;
	CUresult r;

	if (take(address, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = keep(&range, NULL, 0);
	mempool_settle();
	return r;
}

/* Removes any allocation of any pool from the map. */
static bool take_any(struct range *ret_range)
{
	struct mempool *pool;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (pool, &pools, link)
		if (pool->session == session_self() && pool->allocations &&
			ranges_take_owner(pool, kinds[pool->place], ret_range) == 0)
			break;
	pthread_mutex_unlock(&lock);
	if (pool && ret_range->kind == RANGE_POOL_MANAGED)
		managed_forget(ret_range->address);
	return pool;
}

void mempool_reset(void)
{
	struct range range;

	while (take_any(&range))
		keep(&range, NULL, 0);
	mempool_release();
}

/* ---- attributes ---- */

/* Under the lock. @ret_flag: unchanged for an attribute that is no flag */
static CUresult get(
	const struct mempool *pool, CUmemPool_attribute attribute, int *ret_flag, uint64_t *ret_word)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*ret_flag = pool->reuse_flags[attribute - 1];
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*ret_word = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*ret_word = pool->used + pool->cached_bytes;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*ret_word = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*ret_word = pool->asked;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*ret_word = pool->asked_high;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* NULL: there is no such pool. */
static struct session *session_of(CUmemoryPool handle, enum mempool_place *ret_place)
{
	const struct mempool *pool;
	struct session *session;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	session = pool ? pool->session : NULL;
	*ret_place = pool ? pool->place : MEMPOOL_DEVICE;
	pthread_mutex_unlock(&lock);
	return session;
}

/* Of device memory. */
static CUresult reach(struct session *from, struct session *to, bool has)
{
	if (from == to)
		return has ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	if (!peer_can(session_ordinal(to), session_ordinal(from)))
		return CUDA_ERROR_INVALID_DEVICE;
	return has ? peer_open(from, to) : CUDA_SUCCESS;
}

CUresult mempool_set_access(CUmemoryPool handle, struct session *to, bool has)
{
	const uint64_t bit = UINT64_C(1) << session_ordinal(to);
	enum mempool_place place;
	struct session *from = session_of(handle, &place);
	struct mempool *pool;
	CUresult r = CUDA_SUCCESS;

	if (!from)
		return CUDA_ERROR_INVALID_VALUE;
	if (place == MEMPOOL_DEVICE)
		r = reach(from, to, has);
	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && r == CUDA_SUCCESS)
		pool->peers = has ? pool->peers | bit : pool->peers & ~bit;
	pthread_mutex_unlock(&lock);
	return r;
}

bool mempool_has_access(CUmemoryPool handle, int device)
{
	const struct mempool *pool;
	bool has;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	has = pool && ((pool->place == MEMPOOL_DEVICE && session_ordinal(pool->session) == device) ||
			      (pool->peers >> device & 1));
	pthread_mutex_unlock(&lock);
	return has;
}

CUresult mempool_get(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	const struct mempool *pool;
	uint64_t word = 0;
	int flag = -1;
	CUresult r;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	r = pool ? get(pool, attribute, &flag, &word) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		return r;
	if (flag >= 0)
		memcpy(value, &flag, sizeof(flag));
	else
		memcpy(value, &word, sizeof(word));
	return CUDA_SUCCESS;
}

static CUresult set_flag(struct mempool *pool, CUmemPool_attribute attribute, int value)
{
	if (value != 0 && value != 1)
		return CUDA_ERROR_INVALID_VALUE;
	pool->reuse_flags[attribute - 1] = value;
	return CUDA_SUCCESS;
}

/* Writing 0 resets a high mark to the current value. */
static CUresult reset(uint64_t *mark, uint64_t present, uint64_t value)
{
	if (value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*mark = present;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult set(struct mempool *pool, CUmemPool_attribute attribute, int flag, uint64_t word)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return set_flag(pool, attribute, flag);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = word;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return reset(&pool->reserved_high, pool->used + pool->cached_bytes, word);
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return reset(&pool->asked_high, pool->asked, word);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult mempool_set(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
	struct mempool *pool;
	uint64_t word = 0;
	int flag;
	CUresult r;

	memcpy(&flag, value, sizeof(flag));
	if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(&word, value, sizeof(word));
	pthread_mutex_lock(&lock);
	pool = find(handle);
	r = pool ? set(pool, attribute, flag, word) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return r;
}
