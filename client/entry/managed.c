// Entry points: managed memory. Advice and prefetches are checked and remembered; state/managed.h
// says why they have no other effect.

#include "client/state/managed.h"

#include "client/entry/entry.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/stream.h"

#define ATTACH_FLAGS (CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST | CU_MEM_ATTACH_SINGLE)

CUDA_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	return managed_alloc(context_current(), bytes, flags, address);
}

/* The older calls name a device, or the processor by a number that no device has. */
static CUmemLocation place_of(CUdevice device)
{
	return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
				       : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* True if the advice names a place. */
static bool names_place(CUmem_advise advice)
{
	return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
	       advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUDA_EXPORT CUresult cuMemAdvise_v2(
	CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	CUresult r = enter_unsafe();

	if (r != CUDA_SUCCESS)
		return r;
	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	if (names_place(advice))
		r = device_check_location(&location);
	return r == CUDA_SUCCESS ? managed_advise(address, bytes, advice, &location) : r;
}

CUDA_EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
	return cuMemAdvise_v2(address, bytes, advice, place_of(device));
}

/* Graphs have no nodes for operations on managed memory in stream order. */
static CUresult check_stream(CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	return r == CUDA_SUCCESS && capture_is_on(stream) ? capture_refuse(stream) : r;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
	CUstream handle, bool per_thread)
{
	CUresult r = check_stream(handle, per_thread);

	if (r == CUDA_SUCCESS)
		r = flags == 0 ? device_check_location(&location) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? managed_prefetch(address, bytes, &location) : r;
}

static CUresult prefetch_to_device(
	CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream, bool per_thread)
{
	return prefetch(address, bytes, place_of(device), 0, stream, per_thread);
}

ENTRY_PAIR(cuMemPrefetchAsync, _ptsz, prefetch_to_device,
	(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), address, bytes, device, stream)
ENTRY_PAIR(cuMemPrefetchAsync_v2, _ptsz, prefetch,
	(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream),
	address, bytes, location, flags, stream)

/* Checks the ranges of a call: all of managed memory, on a stream that the program made. */
static CUresult check_ranges(const CUdeviceptr *addresses, const size_t *bytes, size_t count,
	unsigned long long flags, CUstream handle, bool per_thread)
{
	CUresult r = enter_of_stream(handle);

	if (r != CUDA_SUCCESS)
		return r;
	if (!addresses || !bytes || count == 0 || flags || handle == CU_STREAM_LEGACY ||
		(!handle && !per_thread))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; ++i)
		if (bytes[i] == 0 || !managed_holds(addresses[i], bytes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	return check_stream(handle, per_thread);
}

/* Places apply to the ranges from their index to the next place's index. */
static CUresult check_places(const CUmemLocation *places, const size_t *first, size_t number, size_t count)
{
	CUresult r = CUDA_SUCCESS;

	if (!places || !first || number == 0 || number > count || first[0] != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < number && r == CUDA_SUCCESS; ++i) {
		r = device_check_location(&places[i]);
		if (first[i] >= count || (i > 0 && first[i] <= first[i - 1]))
			r = CUDA_ERROR_INVALID_VALUE;
	}
	return r;
}

static CUresult prefetch_batch(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *places,
	size_t *first, size_t number, unsigned long long flags, CUstream stream, bool per_thread)
{
	CUresult r = check_ranges(addresses, bytes, count, flags, stream, per_thread);
	size_t place = 0;

	if (r == CUDA_SUCCESS)
		r = check_places(places, first, number, count);
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; ++i) {
		if (place + 1 < number && first[place + 1] == i)
			++place;
		r = managed_prefetch(addresses[i], bytes[i], &places[place]);
	}
	return r;
}

/* Discarded memory may have any contents; this library leaves it unchanged. */
static CUresult discard_batch(CUdeviceptr *addresses, size_t *bytes, size_t count, unsigned long long flags,
	CUstream stream, bool per_thread)
{
	return check_ranges(addresses, bytes, count, flags, stream, per_thread);
}

ENTRY_PAIR(cuMemPrefetchBatchAsync, _ptsz, prefetch_batch,
	(CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *places, size_t *first,
		size_t number, unsigned long long flags, CUstream stream),
	addresses, bytes, count, places, first, number, flags, stream)
ENTRY_PAIR(cuMemDiscardAndPrefetchBatchAsync, _ptsz, prefetch_batch,
	(CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *places, size_t *first,
		size_t number, unsigned long long flags, CUstream stream),
	addresses, bytes, count, places, first, number, flags, stream)
ENTRY_PAIR(cuMemDiscardBatchAsync, _ptsz, discard_batch,
	(CUdeviceptr * addresses, size_t *bytes, size_t count, unsigned long long flags, CUstream stream),
	addresses, bytes, count, flags, stream)

CUDA_EXPORT CUresult cuMemRangeGetAttribute(
	void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return data ? managed_query(data, size, attribute, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
	size_t count, CUdeviceptr address, size_t bytes)
{
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS && (!data || !sizes || !attributes || count == 0))
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, bytes);
	return r;
}

/* Access to managed memory never depends on streams here: all threads always have access. */
static CUresult attach(
	CUstream handle, CUdeviceptr address, size_t bytes, unsigned int flags, bool per_thread)
{
	CUresult r = also_unsafe(check_stream(handle, per_thread));

	if (r != CUDA_SUCCESS)
		return r;
	if ((flags & ~(unsigned int)ATTACH_FLAGS) || !managed_holds(address, bytes ? bytes : 1))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamAttachMemAsync, _ptsz, attach,
	(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags), stream, address, bytes,
	flags)
