// Entry points: virtual memory management. A shareable handle is a descriptor that other programs
// of the same user can import.
//
// Addresses for host memory lie elsewhere than those for device memory, and a program says only
// later what it maps there. So the thread remembers what it has made, imported or asked about last.

#include "client/entry/entry.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/state/device.h"
#include "client/state/session.h"
#include "client/state/space.h"
#include "client/state/start.h"
#include "client/state/thread.h"
#include "client/state/virtual.h"

/* Kinds of handles of Windows, which the driver has nowhere else. */
#define WINDOWS_HANDLES (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)

static bool is_zero(const unsigned char *bytes, size_t count)
{
	while (count && !bytes[count - 1])
		--count;
	return count == 0;
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	const CUmemLocation *location = &properties->location;

	if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
		location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
		(location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && !device_is_node(location->id)) ||
		(location->type == CU_MEM_LOCATION_TYPE_HOST && properties->requestedHandleTypes) ||
		(properties->requestedHandleTypes & WINDOWS_HANDLES) || properties->win32HandleMetaData ||
		properties->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC ||
		!is_zero(properties->allocFlags.reserved, sizeof(properties->allocFlags.reserved)))
		return CUDA_ERROR_INVALID_VALUE;
	return device_check_location(location);
}

static void remember(const CUmemLocation *location)
{
	thread_self()->reserves_host = location && virtual_is_host(location);
}

/* True for what a device without a fabric and without remote access to its memory cannot fulfil. */
static bool wants_too_much(const CUmemAllocationProp *properties)
{
	return properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC ||
	       properties->allocFlags.gpuDirectRDMACapable;
}

/* Of the others, which are hints or unknown, the memory has what the driver's has, but it is not
 * compressible. */
static CUmemAllocationProp properties_made(const CUmemAllocationProp *wished)
{
	const CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};

	return (CUmemAllocationProp){.type = wished->type,
		.requestedHandleTypes =
			wished->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = wished->location.type == CU_MEM_LOCATION_TYPE_HOST ? node : wished->location};
}

CUDA_EXPORT CUresult cuMemAddressReserve(
	CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	TRACE_CALL();
	CUresult r = process_enter();
	uint64_t reserved;

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || bytes == 0 || bytes % VIRTUAL_GRANULE != 0 || (alignment & (alignment - 1)) != 0 ||
		hint % VIRTUAL_GRANULE != 0 || (alignment && hint % alignment != 0) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (thread_self()->reserves_host)
		r = space_reserve_host(bytes, alignment, &reserved);
	/* Where there is no such room, what is so large is for something else. */
	if (!thread_self()->reserves_host || r != CUDA_SUCCESS)
		r = space_reserve(bytes, alignment, hint, &reserved);
	remember(NULL);
	if (r == CUDA_SUCCESS)
		*address = reserved;
	return r;
}

CUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	TRACE_CALL();
	struct session *session;
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	session = space_owner(address, bytes);
	if (!session || virtual_is_mapped(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	session_use(session);
	return space_free(address, bytes);
}

CUDA_EXPORT CUresult cuMemGetAllocationGranularity(
	size_t *granularity, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)
{
	CUresult r = start_enter_at(properties ? &properties->location : NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (!granularity || !properties ||
		(option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = VIRTUAL_GRANULE;
	remember(&properties->location);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	TRACE_CALL();
	CUmemAllocationProp made;
	CUresult r = start_enter_at(properties ? &properties->location : NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || !properties || bytes == 0 || bytes % VIRTUAL_GRANULE != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_properties(properties);
	if (r != CUDA_SUCCESS)
		return r;
	if (wants_too_much(properties))
		return CUDA_ERROR_NOT_SUPPORTED;
	made = properties_made(properties);
	r = virtual_create(bytes, &made, handle);
	if (r == CUDA_SUCCESS)
		remember(&made.location);
	return r;
}

CUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	TRACE_CALL();
	CUresult r = process_enter();

	return r == CUDA_SUCCESS ? virtual_release(handle) : r;
}

CUDA_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	TRACE_CALL();
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (bytes == 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = virtual_map(address, bytes, handle);
	if (r == CUDA_SUCCESS && space_is_host(address))
		remember(NULL);
	return r;
}

CUDA_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	TRACE_CALL();
	CUresult r = process_enter();

	return r == CUDA_SUCCESS ? virtual_unmap(address, bytes) : r;
}

static unsigned accessor(const CUmemLocation *location)
{
	return virtual_is_host(location) ? VIRTUAL_PROCESSOR : (unsigned)location->id;
}

/* The program may not have worked on the device yet. */
static CUresult open_location(const CUmemLocation *location)
{
	SESSION_SCOPE(session_self());

	return virtual_is_host(location) ? CUDA_SUCCESS : start_session(location->id);
}

CUDA_EXPORT CUresult cuMemSetAccess(
	CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	TRACE_CALL();
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i) {
		CUmemAccess_flags flags = access[i].flags;

		if (device_check_location(&access[i].location) != CUDA_SUCCESS ||
			access[i].location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
			r = CUDA_ERROR_INVALID_VALUE;
		if (r == CUDA_SUCCESS && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
			flags != CU_MEM_ACCESS_FLAGS_PROT_READ && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			r = CUDA_ERROR_INVALID_VALUE;
		if (r == CUDA_SUCCESS)
			r = open_location(&access[i].location);
		if (r == CUDA_SUCCESS)
			r = virtual_set_access(address, bytes, accessor(&access[i].location), flags);
	}
	return r;
}

CUDA_EXPORT CUresult cuMemGetAccess(
	unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	CUresult r = process_enter();
	CUmemAccess_flags access;

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check_location(location) != CUDA_SUCCESS ||
		location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_INVALID_DEVICE;
	r = virtual_get_access(address, accessor(location), &access);
	if (r == CUDA_SUCCESS)
		*flags = access;
	return r;
}

CUDA_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	return handle ? virtual_retain((uint64_t)(uintptr_t)address, handle) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
	CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	return properties ? virtual_properties(handle, properties) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
	CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = process_enter();
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	/* No memory has another kind of handle. */
	if (!shareable || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	r = virtual_export(handle, &fd);
	if (r == CUDA_SUCCESS)
		memcpy(shareable, &fd, sizeof(fd));
	return r;
}

CUDA_EXPORT CUresult cuMemImportFromShareableHandle(
	CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
	CUresult r = process_enter();
	CUmemAllocationProp properties;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || type == CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	/* The descriptor itself, not a pointer to it. */
	r = virtual_import((int)(intptr_t)shareable, handle);
	if (r == CUDA_SUCCESS && virtual_properties(*handle, &properties) == CUDA_SUCCESS)
		remember(&properties.location);
	return r;
}
