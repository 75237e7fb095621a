// Virtual memory management: physical memory with a handle but without an address, and its mappings
// into reserved addresses (space.h). Any thread.
//
// Memory is the device's, or pinned host memory, which is mapped only at addresses for it
// (space.h).
//
// A handle counts: making, importing and retaining add one, releasing takes one away. The service
// is told to let go when the count is zero and nothing maps the memory any more. A mapping is
// always the whole of a handle's memory. The device of its addresses can touch it from the moment
// it is made: what the program said about that is only kept, and answered. Other devices have the
// memory while the program gives them access (peer.h).

#ifndef FRMPS_CLIENT_STATE_VIRTUAL_H
#define FRMPS_CLIENT_STATE_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/place.h"

#define VIRTUAL_GRANULE UINT64_C(0x200000)

static inline bool virtual_is_host(const CUmemLocation *location)
{
	return location->type != CU_MEM_LOCATION_TYPE_DEVICE;
}

/** Makes memory. @properties: checked by the caller. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult virtual_create(
	uint64_t bytes, const CUmemAllocationProp *properties, CUmemGenericAllocationHandle *ret_handle);
/** Subtracts a reference. CUDA_ERROR_INVALID_VALUE for an invalid handle. */
CUresult virtual_release(CUmemGenericAllocationHandle handle);
/**
 * Adds a reference to the memory that is mapped at an address. CUDA_ERROR_INVALID_VALUE if nothing
 * is.
 */
CUresult virtual_retain(uint64_t address, CUmemGenericAllocationHandle *ret_handle);
CUresult virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_properties);

/** Maps, for the device of the addresses, which need not be that of the memory.
 * CUDA_ERROR_NOT_SUPPORTED: a part of the memory, or addresses for the other kind of it.
 * CUDA_ERROR_INVALID_VALUE: no handle, a larger size, addresses that are not reserved or in use. */
CUresult virtual_map(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
/**
 * Removes all mappings of a range, which must be whole, after all work submitted so far is done.
 */
CUresult virtual_unmap(uint64_t address, uint64_t bytes);
/** True if anything is mapped in a range. */
bool virtual_is_mapped(uint64_t address, uint64_t bytes);

/* The processor, in place of a device's ordinal. */
#define VIRTUAL_PROCESSOR PLACE_DEVICES
/**
 * What a device, or the processor, may do with a range of whole mappings. Another device than that
 * of the addresses has the memory from here on, or no more. The session of the device is open.
 * CUDA_ERROR_NOT_SUPPORTED: the processor with device memory; CUDA_ERROR_INVALID_DEVICE: no peer
 */
CUresult virtual_set_access(uint64_t address, uint64_t bytes, unsigned device, CUmemAccess_flags flags);
CUresult virtual_get_access(uint64_t address, unsigned device, CUmemAccess_flags *ret_flags);

/**
 * A descriptor with which another program of the same user can import the memory; the caller closes
 * it.
 */
CUresult virtual_export(CUmemGenericAllocationHandle handle, int *ret_fd);
/**
 * @fd: of virtual_export(); not taken. CUDA_ERROR_INVALID_VALUE: another descriptor, or the memory
 * is freed.
 */
CUresult virtual_import(int fd, CUmemGenericAllocationHandle *ret_handle);

/* The same without a descriptor, for inter-process handles. */

/* A token for some memory. */
struct virtual_token {
	uint64_t words[2];
};

/** For the memory at an address. @ret_begin, @ret_bytes: of its mapping */
CUresult virtual_token_of(
	uint64_t address, struct virtual_token *ret_token, uint64_t *ret_begin, uint64_t *ret_bytes);
CUresult virtual_import_token(
	const struct virtual_token *token, CUmemGenericAllocationHandle *ret_handle, uint64_t *ret_bytes);

#endif
