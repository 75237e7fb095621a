// Entry points: device memory.

#include "client/entry/entry.h"

#include "client/graph/memory.h"
#include "client/state/context.h"
#include "client/state/ipc.h"
#include "client/state/memory.h"
#include "client/state/poolshare.h"
#include "client/state/ranges.h"
#include "client/state/session.h"

CUDA_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();

	if (r != CUDA_SUCCESS)
		return r;
	return address ? memory_alloc(context_current(), bytes, address) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemAllocPitch_v2(
	CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();
	uint64_t row, bytes;

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || !pitch || width == 0 || height == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
		return CUDA_ERROR_INVALID_VALUE;
	row = (width + MEMORY_UNIT - 1) / MEMORY_UNIT * MEMORY_UNIT;
	if (row < width || __builtin_mul_overflow(row, (uint64_t)height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = memory_alloc(context_current(), bytes, address);
	if (r == CUDA_SUCCESS)
		*pitch = row;
	return r;
}

static CUresult release_of_graph(CUdeviceptr address)
{
	return graph_memory_release(address, NULL, 0);
}

CUDA_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
	TRACE_CALL();
	CUresult r = enter_release();

	if (r != CUDA_SUCCESS)
		return r;
	session_use_of(address);
	if (poolshare_is(address))
		return poolshare_free(address, NULL);
	return graph_memory_is(address) ? memory_free_behind_all(address, release_of_graph)
					: memory_free(address);
}

CUDA_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	TRACE_CALL();
	CUresult r = process_enter_context();
	size_t available, total;

	if (r == CUDA_SUCCESS)
		r = memory_info(&available, &total);
	if (r != CUDA_SUCCESS)
		return r;
	if (free_bytes)
		*free_bytes = available;
	if (total_bytes)
		*total_bytes = total;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	CUresult r = process_enter_context();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	if (ranges_lookup(address, &range) != 0 || address - range.address >= range.bytes)
		return CUDA_ERROR_NOT_FOUND;
	ipc_narrow(address, &range);
	if (base)
		*base = range.address;
	if (bytes)
		*bytes = range.bytes;
	return CUDA_SUCCESS;
}
