// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Entry points: pinned host memory.

#include "client/entry/entry.h"

#include "client/state/context.h"
#include "client/state/host.h"
#include "client/state/log.h"
#include "client/state/ranges.h"

#define ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                                       \
	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |          \
		CU_MEMHOSTREGISTER_READ_ONLY)

static int lookup_host(const void *pointer, struct range *ret_range)
{
	int r = ranges_lookup((uint64_t)(uintptr_t)pointer, ret_range);

	return r == 0 && ret_range->kind != RANGE_HOST ? RANGES_E_NONE : r;
}

CUDA_EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pointer || (flags & ~(unsigned int)ALLOC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	return host_alloc(context_current(), bytes, flags, pointer);
}

CUDA_EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	return cuMemHostAlloc(pointer, bytes, 0);
}

CUDA_EXPORT CUresult cuMemFreeHost(void *pointer)
{
	CUresult r = process_enter_context();

	return r == CUDA_SUCCESS ? host_free(pointer) : r;
}

CUDA_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
	CUresult r = process_enter_context();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || flags != 0 || lookup_host(pointer, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*address = (CUdeviceptr)(uintptr_t)pointer;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
	CUresult r = process_enter_context();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || lookup_host(pointer, &range) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* All of it is mapped for the device, as on every device with one address space. */
	*flags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
	CUresult r = process_enter_context();
	struct range range;

	if (r != CUDA_SUCCESS)
		return r;
	if (!pointer || bytes == 0 || (flags & ~(unsigned int)REGISTER_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if (lookup_host(pointer, &range) == 0)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	client_log(CLIENT_LOG_INFO, "memory that the program allocated itself cannot be registered");
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUDA_EXPORT CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
	return cuMemHostRegister_v2(pointer, bytes, flags);
}

/* Nothing is ever registered. */
CUDA_EXPORT CUresult cuMemHostUnregister(void *pointer)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return pointer ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
}
