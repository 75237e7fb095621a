// Entry points: pinned host memory.

#include "client/entry/entry.h"

#include "client/state/context.h"
#include "client/state/host.h"
#include "client/state/log.h"
#include "client/state/peer.h"
#include "client/state/ranges.h"
#include "client/state/registered.h"

#define ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                                       \
	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |          \
		CU_MEMHOSTREGISTER_READ_ONLY)

static int lookup_host(const void *pointer, struct range *ret_range)
{
	int r = ranges_lookup((uint64_t)(uintptr_t)pointer, ret_range);

	return r == 0 && ret_range->kind != RANGE_HOST && ret_range->kind != RANGE_REGISTERED ? RANGES_E_NONE
											      : r;
}

CUDA_EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pointer || (flags & ~(unsigned int)ALLOC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	/* Unlike with device memory 0 bytes are no error; cuMemFreeHost() accepts NULL. */
	if (bytes == 0) {
		*pointer = NULL;
		return CUDA_SUCCESS;
	}
	return host_alloc(context_current(), bytes, flags, pointer);
}

CUDA_EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	return cuMemHostAlloc(pointer, bytes, 0);
}

CUDA_EXPORT CUresult cuMemFreeHost(void *pointer)
{
	TRACE_CALL();
	CUresult r = enter_release();

	return r == CUDA_SUCCESS ? host_free(pointer) : r;
}

static CUresult point_into_registered(
	const void *pointer, const struct range *range, CUdeviceptr *ret_address)
{
	uint64_t device;
	CUresult r = registered_share(range, &device);

	if (r == CUDA_ERROR_NOT_SUPPORTED)
		client_log(CLIENT_LOG_ERROR,
			"registered memory has no device pointer: it is neither private anonymous memory nor "
			"of a file in memory that this process can open; or it cannot be written; or it has "
			"parts of private pages, and this process has no userfaultfd for all faults");
	if (r == CUDA_SUCCESS)
		*ret_address = device + ((uint64_t)(uintptr_t)pointer - range->address);
	return r;
}

CUDA_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
	CUresult r = process_enter_context();
	struct range range;
	CUdeviceptr found;

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || flags != 0 || ranges_lookup((uint64_t)(uintptr_t)pointer, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (range.kind != RANGE_REGISTERED && range.kind != RANGE_HOST && !range_is_managed(&range))
		return CUDA_ERROR_INVALID_VALUE;
	found = (CUdeviceptr)(uintptr_t)pointer;
	if (range.kind == RANGE_REGISTERED)
		r = point_into_registered(pointer, &range, &found);
	if (r == CUDA_SUCCESS && !peer_has(range.session, found, 1)) {
		client_log(
			CLIENT_LOG_ERROR, "kernels do not reach pinned memory of a device that has failed");
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (r == CUDA_SUCCESS)
		*address = found;
	return r;
}

CUDA_EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
	CUresult r = process_enter_context();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || lookup_host(pointer, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* All of it is mapped for the device, as on every device with unified addressing. The
	 * driver (580) shows small allocations with the flags of the first one beside them. */
	*flags = CU_MEMHOSTALLOC_DEVICEMAP;
	*flags |= range.flags & (range.kind == RANGE_REGISTERED ? CU_MEMHOSTREGISTER_PORTABLE : ALLOC_FLAGS);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();
	if (r != CUDA_SUCCESS)
		return r;
	if (!pointer || bytes == 0 || (flags & ~(unsigned int)REGISTER_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	return registered_add(context_current(), (uint64_t)(uintptr_t)pointer, bytes, flags);
}

CUDA_EXPORT CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
	return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUDA_EXPORT CUresult cuMemHostUnregister(void *pointer)
{
	TRACE_CALL();
	CUresult r = enter_release();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	/* Allocated pinned memory is no registration. */
	if (!pointer || (lookup_host(pointer, &range) == 0 && range.kind == RANGE_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	return registered_remove((uint64_t)(uintptr_t)pointer);
}
