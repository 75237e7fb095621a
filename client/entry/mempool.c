// Entry points: stream-ordered allocation and memory pools.

#include "client/graph/memory.h"
#include "client/state/mempool.h"
#include "client/state/poolshare.h"

#include "client/entry/entry.h"
#include "client/entry/mempool.h"
#include "client/state/device.h"
#include "client/state/session.h"
#include "client/state/start.h"
#include "client/state/stream.h"

static CUresult find_place(const CUmemLocation *location, enum mempool_place *ret_place)
{
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_place = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? MEMPOOL_DEVICE : MEMPOOL_HOST;
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_check(location->id);
	case CU_MEM_LOCATION_TYPE_HOST:
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return device_is_node(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_INVALID:
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* Managed memory need not prefer a place. */
static CUresult check_kind(
	const CUmemLocation *location, CUmemAllocationType type, enum mempool_place *ret_place)
{
	CUresult r = CUDA_SUCCESS;

	if (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_MEM_ALLOCATION_TYPE_PINNED || !location ||
		location->type != CU_MEM_LOCATION_TYPE_INVALID)
		r = find_place(location, ret_place);
	if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
		*ret_place = MEMPOOL_MANAGED;
	return r;
}

/* @location: an argument of the program's, as `type` */
static CUresult enter_at(
	const CUmemLocation *location, CUmemAllocationType type, enum mempool_place *ret_place)
{
	CUresult r = start_enter_at(location);

	if (r == CUDA_SUCCESS)
		r = check_kind(location, type, ret_place);
	return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r;
}

static CUresult hand_out(struct mempool *pool, CUmemoryPool *ret_handle)
{
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_handle = mempool_handle(pool);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	CUresult r = start_enter(device);

	if (r == CUDA_SUCCESS)
		r = device_check(device);
	return r == CUDA_SUCCESS ? hand_out(mempool_default(MEMPOOL_DEVICE), pool) : r;
}

CUDA_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	CUresult r = start_enter(device);

	if (r == CUDA_SUCCESS)
		r = device_check(device);
	return r == CUDA_SUCCESS ? hand_out(mempool_current(MEMPOOL_DEVICE), pool) : r;
}

CUDA_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult r = also_unsafe(start_enter(device));

	if (r != CUDA_SUCCESS)
		return r;
	if (poolshare_is_imported(pool))
		return CUDA_ERROR_INVALID_VALUE;
	r = device_check(device);
	return r == CUDA_SUCCESS ? mempool_set_current(MEMPOOL_DEVICE, pool) : r;
}

CUDA_EXPORT CUresult cuMemGetDefaultMemPool(
	CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	enum mempool_place place;
	CUresult r = enter_at(location, type, &place);

	return r == CUDA_SUCCESS ? hand_out(mempool_default(place), pool) : r;
}

CUDA_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	enum mempool_place place;
	CUresult r = enter_at(location, type, &place);

	return r == CUDA_SUCCESS ? hand_out(mempool_current(place), pool) : r;
}

CUDA_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	enum mempool_place place;
	CUresult r = enter_at(location, type, &place);

	if (r == CUDA_SUCCESS && poolshare_is_imported(pool))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? mempool_set_current(place, pool) : r;
}

CUresult mempool_check_properties(const CUmemPoolProps *properties, enum mempool_place *ret_place)
{
	const CUmemLocation *location = &properties->location;
	bool is_managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
	CUresult r = check_kind(location, properties->allocType, ret_place);

	if (properties->handleTypes && (is_managed || location->type == CU_MEM_LOCATION_TYPE_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && r != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (properties->usage != 0 || (properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
	CUresult r = also_unsafe(start_enter_at(properties ? &properties->location : NULL));
	enum mempool_place place;
	struct mempool *made;

	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r;
	if (!pool || !properties)
		return CUDA_ERROR_INVALID_VALUE;
	r = mempool_check_properties(properties, &place);
	if (r == CUDA_SUCCESS)
		r = mempool_create(&properties->location, place, properties->maxSize, &made);
	if (r == CUDA_SUCCESS && properties->handleTypes) {
		r = poolshare_add(mempool_handle(made));
		if (r != CUDA_SUCCESS)
			mempool_destroy(mempool_handle(made));
	}
	return r == CUDA_SUCCESS ? hand_out(made, pool) : r;
}

static CUresult enter(CUmemoryPool handle)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	return mempool_is(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	poolshare_forget(pool);
	return mempool_destroy(pool);
}

CUDA_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	TRACE_CALL();
	CUresult r = also_unsafe(process_enter());

	return r == CUDA_SUCCESS ? mempool_trim(pool, keep) : r;
}

static CUresult enter_attribute(CUmemoryPool pool)
{
	return also_unsafe(enter(pool));
}

CUDA_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult r = enter_attribute(pool);

	if (r != CUDA_SUCCESS)
		return r;
	return value ? mempool_get(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult r = enter_attribute(pool);

	if (r != CUDA_SUCCESS)
		return r;
	return value ? mempool_set(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUmemoryPool pool, const CUmemAccessDesc *access)
{
	enum mempool_place place;
	CUresult r = find_place(&access->location, &place);
	SESSION_SCOPE(session_self());

	if (r == CUDA_SUCCESS && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
		access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
		r = CUDA_ERROR_INVALID_VALUE;
	/* The program itself always has host memory, and never that of a device. */
	if (r == CUDA_SUCCESS && place == MEMPOOL_HOST)
		return mempool_is_host(pool) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	/* The program may not have worked on the device yet. */
	if (r == CUDA_SUCCESS)
		r = start_session(access->location.id);
	return r == CUDA_SUCCESS ? mempool_set_access(pool, &sessions[access->location.id],
					   access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
				 : r;
}

CUDA_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	CUresult r = also_unsafe(enter(pool));

	if (r == CUDA_SUCCESS && !access && count > 0)
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = set_access(pool, &access[i]);
	return r;
}

CUDA_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	enum mempool_place place;
	CUresult r = enter(pool);
	bool has;

	if (r == CUDA_SUCCESS)
		r = flags ? find_place(location, &place) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	has = place == MEMPOOL_HOST ? mempool_is_host(pool) : mempool_has_access(pool, location->id);
	*flags = has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* @pool: NULL: the current pool */
static CUresult alloc_from(
	CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = stream_resolve(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	/* A request for 0 bytes succeeds, unlike with cuMemAlloc(); cuMemFreeAsync() accepts its
	 * address. */
	if (bytes == 0) {
		*address = 0;
		return CUDA_SUCCESS;
	}
	/* Nodes allocate device memory, which is not shared. */
	if (capture_is_on(stream))
		return mempool_is_host(pool) || poolshare_is_shareable(pool)
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : capture_alloc(stream, bytes, address);
	r = capture_unsafe();
	return r == CUDA_SUCCESS ? mempool_alloc(pool, bytes, stream, address) : r;
}

static CUresult alloc(CUdeviceptr *address, size_t bytes, CUstream stream, bool per_thread)
{
	CUresult r = enter_of_stream(stream);

	return r == CUDA_SUCCESS ? alloc_from(address, bytes, NULL, stream, per_thread) : r;
}

static CUresult alloc_from_pool(
	CUdeviceptr *address, size_t bytes, CUmemoryPool handle, CUstream stream, bool per_thread)
{
	CUresult r = enter_of_stream(stream);

	if (r != CUDA_SUCCESS)
		return r;
	return mempool_is(handle) && !poolshare_is_imported(handle)
		       ? alloc_from(address, bytes, handle, stream, per_thread)
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_of_graph(CUdeviceptr address, struct client_stream *stream)
{
	uint64_t seq;
	CUresult r = mempool_point(stream, &seq);

	return r == CUDA_SUCCESS ? graph_memory_release(address, stream, seq) : r;
}

static CUresult free_async(CUdeviceptr address, CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS || address == 0)
		return r;
	if (capture_is_on(stream))
		return capture_free(stream, address);
	r = capture_unsafe();
	if (r != CUDA_SUCCESS)
		return r;
	if (poolshare_is(address))
		return poolshare_free(address, stream);
	return graph_memory_is(address) ? free_of_graph(address, stream) : mempool_free(address, stream);
}

ENTRY_PAIR(cuMemAllocAsync, _ptsz, alloc, (CUdeviceptr * address, size_t bytes, CUstream stream), address,
	bytes, stream)
ENTRY_PAIR(cuMemAllocFromPoolAsync, _ptsz, alloc_from_pool,
	(CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream), address, bytes, pool,
	stream)
ENTRY_PAIR(cuMemFreeAsync, _ptsz, free_async, (CUdeviceptr address, CUstream stream), address, stream)
