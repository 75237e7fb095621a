// The service's pinned memory at addresses in the host part of the session's window; the device
// uses the same addresses. Callers manage the addresses. Any thread.

#ifndef FRMPS_CLIENT_LINK_MAP_H
#define FRMPS_CLIENT_LINK_MAP_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct wire_message;

/**
 * Backs addresses with pinned, zeroed memory for the program: a forked child shares the memory.
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult map_host(uint64_t address, uint64_t bytes);

/**
 * Backs addresses with the memory in the answer to a request, for this library: a forked child does
 * not have the memory. Return: also the service's errors.
 */
CUresult map_host_own(struct wire_message *request, uint64_t address, uint64_t bytes);

/**
 * Returns the memory to the service; the addresses stay reserved. CUDA_ERROR_OUT_OF_MEMORY: nothing
 * has changed.
 */
CUresult map_host_end(uint64_t address, uint64_t bytes);

#endif
